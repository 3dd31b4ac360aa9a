"""Merging of new proofs into an existing folder of proofs.

A proof is about one input of one network, in one norm, under one budget and mask. A proof replaces an older one with
the same subject if its claim is at least as strong. Files with proofs of another network or subject are refused before
any computation.

An older proof is checked before it is kept, since a file may claim more than it proves, or a claim that only an earlier
version of the checker accepted. An invalid proof is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stability.errors import ConfigurationError, StabilityError
from stability.kernel.format.claims import Claim
from stability.kernel.format.serialization import digest_of
from stability.kernel.systems.classifier import Classifier
from stability.search.local.proof_folder import (
    NETWORK_FILE,
    budget_of,
    check_sample,
    read_network,
    read_sample,
    sample_file,
    write_network,
    write_sample,
)
from stability.storage.folder import Folder

_UNREADABLE = (StabilityError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError)
OVERWRITE = "choose another folder, or replace them with --overwrite"


@dataclass(frozen=True)
class ProofQuery:
    """Inputs, norm, budget and mask of the proofs of one call.

    Attributes:
        x: ``(n, time, features)`` the inputs.
        norm: ``l2`` or ``linf``.
        budget: ``total`` or ``step``.
        mask: ``(time, features)``, True where an input may change; ``None``: everywhere.
        lengths: ``(n,)`` number of first steps of each input that a packing network reads, which are the subject of its
            proofs; ``None`` for all steps.
    """

    x: NDArray[Any]
    norm: str
    budget: str = "total"
    mask: NDArray[np.bool_] | None = None
    lengths: NDArray[np.int64] | None = None

    def asks_for(self, index: int, data: Mapping[str, Any]) -> bool:
        """Return True if a proof in a file is about this query."""
        if index >= len(self.x) or not _same(data.get("norm"), self.norm) or budget_of(data) != self.budget:
            return False
        steps = self.x.shape[1] if self.lengths is None else int(self.lengths[index])
        mask = None if self.mask is None else self.mask[:steps]
        return _same(self.x[index, :steps].astype(np.float64), data.get("x")) and _same_mask(mask, data.get("mask"))


class ProofMerger:
    """Merger of proofs into a folder owned by the caller.

    Attributes:
        made: inputs whose proof was written.
        stayed: inputs whose older proof is valid and stronger than the new one.
        void: inputs whose older proof was invalid and was replaced by the new one.
    """

    def __init__(self, folder: Folder, by: str, network: Classifier, query: ProofQuery, *, overwrite: bool) -> None:
        """Read the existing proofs and reserve the files.

        Args:
            folder: folder, locked by the caller.
            by: name of the command that writes the proofs.
            network: subject of the proofs.
            query: inputs, norm, budget and mask.
            overwrite: whether other proofs may be lost.

        Raises:
            ConfigurationError: proofs or other files would be lost, and ``overwrite`` is False.
            FileFormatError: the folder cannot be written to.
        """
        self.made: set[int] = set()
        self.stayed: set[int] = set()
        self.void: set[int] = set()
        self._folder, self._overwrite, self._network, self._digest = folder, overwrite, network, digest_of(network)
        names = [NETWORK_FILE, *map(sample_file, range(len(query.x)))]
        existing = [name for name in folder.files_made_by(by) if os.path.lexists(folder.path / name)]
        if existing and not self._about_it(existing):
            if not overwrite:
                raise ConfigurationError(f"{folder.path} holds proofs about another network: {OVERWRITE}")
            folder.remove(existing)
        lost = None if overwrite else next((k for k in range(len(query.x)) if self._lost(k, query)), None)
        if lost is not None:
            raise ConfigurationError(
                f"{folder.path} holds proofs that would be lost. The first is {sample_file(lost)}, proved about "
                f"another input, norm, budget or mask: {OVERWRITE}"
            )
        folder.reserve(names, by, overwrite=overwrite)
        write_network(folder, network)

    def write(self, index: int, claim: Claim) -> None:
        """Keep the proof about an input, unless a valid one with a stronger claim exists."""
        if not self._overwrite and os.path.lexists(self._folder.path / sample_file(index)):
            old = self._there(index)
            if old is None or not implies_claim(claim, old):
                if old is not None and self._holds(index):
                    self.stayed.add(index)
                    return
                self.void.add(index)
        write_sample(self._folder, self._digest, index, claim)
        self.made.add(index)

    def count(self) -> int:
        """Count the proofs in the folder."""
        return sum(name.startswith("sample-") and (self._folder.path / name).is_file() for name in self._folder.files)

    def _about_it(self, names: list[str]) -> bool:
        """Return True if the files of the folder are about the network, as far as they can be read."""
        if NETWORK_FILE in names:
            try:
                return read_network(self._folder.path)[1] == self._digest
            except _UNREADABLE:
                return False
        return all(self._read(name) is not None for name in names if name.startswith("sample-"))

    def _lost(self, index: int, query: ProofQuery) -> bool:
        """Return True if the file of an input proves something else than the query asks."""
        old = self._there(index)
        if old is None or old.proof is None or query.asks_for(index, old.proof.data):
            return False
        return self._holds(index)

    def _holds(self, index: int) -> bool:
        """Check the proof in the file of an input; this may take seconds."""
        return check_sample(self._folder.path / sample_file(index), self._network, self._digest).valid

    def _there(self, index: int) -> Claim | None:
        """Return the claim of an input's file with its proof, not yet judged; ``None`` if there is none."""
        name = sample_file(index)
        claim = self._read(name) if name in self._folder.files else None
        return None if claim is None or claim.proof is None or claim.value is None else claim

    def _read(self, name: str) -> Claim | None:
        """Return the claim of a file; ``None`` if it is not about this network."""
        try:
            return read_sample(self._folder.path / name, self._digest)[1]
        except _UNREADABLE:
            return None


def implies_claim(new: Claim, old: Claim) -> bool:
    """Return True if a claim implies another one about the same input.

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
    return same and free and _same_mask(a.get("mask"), b.get("mask"))


def _same(one: Any, other: Any) -> bool:
    """Return True if two entries of a proof are equal arrays, numbers or words."""
    a, b = _values(one), _values(other)
    return a is not None and b is not None and bool(np.array_equal(a, b))


def _same_mask(one: Any, other: Any) -> bool:
    """Return True if two masks are equal; one that is true everywhere counts as none."""
    one, other = (None if _is_all(mask) else mask for mask in (one, other))
    return one is other if one is None or other is None else _same(one, other)


def _is_all(mask: Any) -> bool:
    values = _values(mask)  # of a file: ones and zeros
    return values is not None and values.dtype.kind in "bf" and bool(values.size and (values == 1).all())


def _values(value: Any) -> NDArray[Any] | None:
    try:
        values = np.asarray(value)
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        return None
    return values if values.dtype.kind in "biufU" else None
