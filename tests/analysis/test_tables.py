"""Tables that grow while a run writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stability.analysis.tables import CsvLog
from stability.errors import FileFormatError
from stability.storage.folder import claim_folder


def test_nothing_is_appended_to_a_table_in_a_folder_that_took_the_place_of_the_own_one(tmp_path: Path) -> None:
    home, log = tmp_path / "run", CsvLog(("step", "value"))
    with claim_folder(home, "work") as own:
        own.reserve(["spectra.csv"], "work")
        log.open(home / "spectra.csv")
        log.append([(1, 0.5)])
        os.rename(home, tmp_path / "moved")
        home.mkdir()
        (home / "spectra.csv").write_text("somebody else's\n")
        with pytest.raises(FileFormatError, match="moved, removed or replaced"):
            log.append([(2, 0.25)])
    assert (home / "spectra.csv").read_text() == "somebody else's\n"
    assert (tmp_path / "moved" / "spectra.csv").read_text() == "step,value\n1,0.5\n"
