"""Proofs that are added to a folder which holds some already: nothing that was proved is lost unless that is asked for.

A proof is about one input of one network, in one norm, under one budget and mask. One that says at least as much about
the same takes the place of an older one; one that says less leaves it. Proofs of another network, or about something
else in the files that would be written, are refused before anything is computed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stability.certificate import Claim
from stability.errors import ConfigurationError, FileFormatError
from stability.local.classifier import Classifier
from stability.local.files import (
    NETWORK_FILE,
    budget_of,
    read_network,
    read_sample,
    sample_file,
    write_network,
    write_sample,
)
from stability.storage.folder import Folder
from stability.wire import digest_of

OVERWRITE = "choose another folder, or allow to replace them with --overwrite"


@dataclass(frozen=True)
class Question:
    """What the proofs of one call are about.

    Attributes:
        x: ``(n, time, features)`` the inputs.
        norm: ``l2`` or ``linf``.
        budget: ``total`` or ``step``.
        mask: ``(time, features)``, true where an input may change; ``None``: everywhere.
    """

    x: NDArray[Any]
    norm: str
    budget: str = "total"
    mask: NDArray[np.bool_] | None = None

    def asks_for(self, index: int, data: Mapping[str, Any]) -> bool:
        """Whether a proof that a file holds is about this."""
        x = np.asarray(data.get("x"), dtype=np.float64)
        if x.ndim != 2 or index >= len(self.x) or (data.get("norm"), budget_of(data)) != (self.norm, self.budget):
            return False
        mask = None if self.mask is None else self.mask[: len(x)]
        return np.array_equal(self.x[index, : len(x)].astype(np.float64), x) and _same(mask, data.get("mask"))


class Kept:
    """The proofs of a folder, and what becomes of them; the folder is owned by the caller.

    Attributes:
        made: inputs whose proof was written.
        stayed: inputs whose older proof says more than the one that was made now.
    """

    def __init__(self, folder: Folder, by: str, network: Classifier, asked: Question, *, overwrite: bool) -> None:
        """Look at what is there, and reserve the files.

        Args:
            folder: claimed by the caller.
            by: the work that writes the proofs.
            network: that they are about.
            asked: what they are about.
            overwrite: whether proofs that would be lost may be.

        Raises:
            ConfigurationError: proofs, or other files, would be lost, and that is not allowed.
            FileFormatError: the folder cannot be written to.
        """
        self.made: set[int] = set()
        self.stayed: set[int] = set()
        self._folder, self._overwrite, self._digest = folder, overwrite, digest_of(network)
        names = [NETWORK_FILE, *map(sample_file, range(len(asked.x)))]
        own = [name for name in folder.own(by) if os.path.lexists(folder.path / name)]
        if own and not self._about_it(own):
            if not overwrite:
                raise ConfigurationError(f"{folder.path} holds proofs about another network: {OVERWRITE}")
            folder.remove(own)
        others = [name for k, name in enumerate(names[1:]) if self._lost(k, asked)]
        if others and not overwrite:
            raise ConfigurationError(
                f"{folder.path} holds {others[0]}{f' and {len(others) - 1} more' if len(others) > 1 else ''}, proved "
                f"about another input, norm, budget or mask: {OVERWRITE}"
            )
        folder.reserve(names, by, overwrite=overwrite)
        write_network(folder, network)

    def write(self, index: int, claim: Claim) -> None:
        """Keep the proof about an input, where the one that is there says no more."""
        old = self._there(index)
        if old is not None and not self._overwrite and not says_as_much(claim, old):
            self.stayed.add(index)
            return
        write_sample(self._folder, self._digest, index, claim)
        self.made.add(index)

    def count(self) -> int:
        """How many proofs the folder holds."""
        return sum(name.startswith("sample-") and (self._folder.path / name).is_file() for name in self._folder.files)

    def _about_it(self, own: list[str]) -> bool:
        """Whether the files of the folder are about the network, as far as they can be read."""
        if NETWORK_FILE in own:
            try:
                return read_network(self._folder.path)[1] == self._digest
            except (FileFormatError, TypeError, ValueError, LookupError, RecursionError):
                return False
        return all(self._read(name) is not None for name in own if name.startswith("sample-"))

    def _lost(self, index: int, asked: Question) -> bool:
        old = self._there(index)
        return old is not None and old.proof is not None and not asked.asks_for(index, old.proof.data)

    def _there(self, index: int) -> Claim | None:
        name = sample_file(index)
        return self._read(name) if name in self._folder.files else None

    def _read(self, name: str) -> Claim | None:
        """The claim of a file; ``None`` for one that proves nothing about this network."""
        try:
            return read_sample(self._folder.path / name, self._digest)[1]
        except (FileFormatError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError):
            return None


def says_as_much(new: Claim, old: Claim) -> bool:
    """Whether a claim implies another one about the same input.

    Args:
        new: with its proof.
        old: with its proof; without one it says nothing.
    """
    if old.proof is None or old.value is None:
        return True
    if new.proof is None or new.value is None or new.value < old.value:
        return False
    a, b = new.proof.data, old.proof.data
    keys = ("x", "label", "norm")
    same = all(_same(a.get(key), b.get(key)) for key in keys) and budget_of(a) == budget_of(b)
    free = a.get("bounds") is None or _same(a["bounds"], b.get("bounds"))  # what holds unclipped holds clipped
    return same and free and _same(a.get("mask"), b.get("mask"))


def _same(one: Any, other: Any) -> bool:
    """Whether two entries of a proof are equal; a mask that is true everywhere is none."""
    one, other = (None if v is None or _is_all(np.asarray(v)) else np.asarray(v) for v in (one, other))
    return one is other if one is None or other is None else bool(np.array_equal(one, other))


def _is_all(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "b" and bool(values.all())
