"""Folders of proofs: what was written is proved again, what was changed is refused, whatever was changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stability.kernel.format.serialization import encode, seal
from stability.search.local.proof_folder import (
    NETWORK_FILE,
    check_sample,
    read_network,
    read_sample,
    sample_file,
    verify_folder,
    write_network,
    write_sample,
)
from stability.search.local.request import checked_request
from stability.storage.folder import claim_folder

from .affine_toy import engine, largest, network, toy_rule

__all__ = ["toy_rule"]


def written(path: Path, seed: int = 0, count: int = 4) -> Path:
    """A folder with proofs in both norms."""
    subject, rng = network(seed=seed), np.random.default_rng(seed)
    x = rng.normal(size=(count, 4, 2))
    y = subject.logits(x).argmax(axis=1)
    with claim_folder(path, "radius") as folder:
        folder.reserve([NETWORK_FILE, *map(sample_file, range(count))], "radius")
        digest = write_network(folder, subject)
        for k in range(count):
            (made,) = engine(("l2", "linf")[k % 2])(checked_request(subject, x[k : k + 1], y[k : k + 1]))
            assert made is not None
            write_sample(folder, digest, k, made)
    return path


@pytest.fixture
def proofs(tmp_path: Path, toy_rule: None) -> Path:
    return written(tmp_path / "proofs")


def resealed(path: Path, change) -> None:
    """A document changed by somebody who knows how its digest is made."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(seal({key: value for key, value in document.items() if key != "digest"}))


def test_what_was_written_is_proved_again(proofs: Path) -> None:
    result = verify_folder(proofs)
    assert result.valid, result.reason
    assert [s.index for s in result.samples] == [0, 1, 2, 3]
    assert {s.norm for s in result.samples} == {"l2", "linf"}
    subject, _ = read_network(proofs)
    for s in result.samples:
        _, found = read_sample(proofs / s.file, read_network(proofs)[1])
        assert s.radius == found.value == pytest.approx(0.9 * largest(subject, found.proof.data["x"], s.label, s.norm))
        assert f"radius {s.radius!r}" in s.statement


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["claim"].update(value=99.0), "the proof"),
        (lambda d: (d["claim"].update(value=99.0), d["claim"]["proof"]["data"].update(radius=99.0)), "sentence"),
        (lambda d: d["claim"].update(name="contraction"), "expected a certified claim"),
        (lambda d: d["claim"].update(verdict="inconclusive", evidence="none"), "expected a certified claim"),
        (lambda d: d["claim"].update(proof=None, evidence="none"), "expected a certified claim"),
        (lambda d: d["claim"]["proof"].update(kind="multiplier_lmi"), "is about"),
        (lambda d: d["claim"]["proof"].update(kind="nothing"), "unknown kind"),
        (lambda d: d["claim"]["proof"]["data"].update(label=True), "label must be"),
        (lambda d: d["claim"]["proof"]["data"].update(more=1), "unknown more"),
        (lambda d: d.update(network="0" * 64), "another network"),
        (lambda d: d.update(index=1), "does not match its file name"),
        (lambda d: d.update(index=True), "does not match its file name"),
        (lambda d: d.update(version=2), "version"),
        (lambda d: d.update(format="stability-certificate"), "is not a stability-local"),
        (lambda d: d.update(note="hello"), "other keys"),
    ],
)
def test_forgeries_with_a_good_digest_are_refused(change, words: str, proofs: Path) -> None:
    resealed(proofs / sample_file(0), change)
    check = check_sample(proofs / sample_file(0), *read_network(proofs))
    assert not check.valid
    assert words in check.reason


def test_proofs_of_another_network_are_refused(proofs: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other", seed=1)
    os.replace(other / sample_file(0), proofs / sample_file(0))
    result = verify_folder(proofs)
    assert not result.valid
    assert "another network" in result.samples[0].reason
    os.replace(other / NETWORK_FILE, proofs / NETWORK_FILE)  # now they are about the network that stands there
    assert [s.valid for s in verify_folder(proofs).samples] == [True, False, False, False]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda p: (p / NETWORK_FILE).unlink(), "cannot read"),
        (lambda p: (p / NETWORK_FILE).write_text("{"), "JSON"),
        (lambda p: (p / "sample-7.json").write_text("{}"), "not a proof file"),
        (lambda p: (p / "sample-00009.json.txt").write_text("{}"), "not a proof file"),
        (lambda p: [(p / sample_file(k)).unlink() for k in range(4)], "holds no proof"),
        (lambda p: resealed(p / NETWORK_FILE, lambda d: d.update(sha256="0" * 64)), "digest does not match"),
        (
            lambda p: resealed(p / NETWORK_FILE, lambda d: d.update(network=encode(network().recurrent))),
            "must hold a classifier",
        ),
        (lambda p: resealed(p / NETWORK_FILE, lambda d: d.update(network={"type": "nothing"})), "unknown subject"),
    ],
)
def test_a_folder_that_is_not_whole_is_invalid(harm, words: str, proofs: Path) -> None:
    harm(proofs)
    result = verify_folder(proofs)
    assert not result.valid
    assert words in result.reason


def corrupted(text: bytes, rng: np.random.Generator) -> bytes:
    """One change of the kinds that disks, transfers and people make."""
    raw = bytearray(text)
    at = int(rng.integers(len(raw)))
    kind = rng.integers(5)
    if kind == 0:
        raw[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        raw[at] = int(rng.integers(256))
    elif kind == 2:
        del raw[at : at + int(rng.integers(1, 9))]
    elif kind == 3:
        raw[at:at] = raw[at : at + int(rng.integers(1, 9))]
    else:
        digits = [k for k, c in enumerate(raw) if 48 <= c <= 57]
        raw[digits[int(rng.integers(len(digits)))]] = 48 + int(rng.integers(10))
    return bytes(raw)


def none_of_these_is_accepted(path: Path, count: int, seed: int) -> None:
    rng, subject = np.random.default_rng(seed), read_network(path)
    names = [sample_file(k) for k in range(4)]
    whole = {name: (path / name).read_bytes() for name in names}
    changed = 0
    for k in range(count):
        name = names[k % len(names)]
        bad = corrupted(whole[name], rng)
        (path / name).write_bytes(bad)
        assert check_sample(path / name, *subject).valid is (bad == whole[name]), bad
        changed += bad != whole[name]
        (path / name).write_bytes(whole[name])
    assert changed > 0.9 * count


def test_corrupted_files_are_refused(proofs: Path) -> None:
    none_of_these_is_accepted(proofs, 200, seed=0)


@pytest.mark.slow
def test_ten_thousand_corrupted_files_are_refused(proofs: Path) -> None:
    none_of_these_is_accepted(proofs, 10_000, seed=1)


def test_proofs_are_checked_without_torch_and_without_a_solver(proofs: Path) -> None:
    code = (
        "import sys; from stability.search.local.proof_folder import verify_folder; verify_folder(sys.argv[1]); "
        "print(*(name for name in ('torch', 'cvxpy') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(proofs)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
