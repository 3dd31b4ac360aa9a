"""Certificates of checkpoints with gated linear layers: claims of every layer, with digests instead of weights.

A certificate of a checkpoint holds no weights. ``verify(file, weights=folder)`` reads them again, compares the digests
and checks every claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stability.certificate import claim_document, claim_from
from stability.display import Displayed
from stability.errors import FileFormatError, UnsupportedError
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.serialization import decode, encode, is_sealed, seal
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.input_sets import InputBox
from stability.kernel.theorems.gated_linear_bounds import TOLERANCE, horizons
from stability.storage.documents import read_document
from stability.storage.parsed_values import boolean, list_reader, mapping, natural, text
from stability.storage.writing import as_path, write_text

FORMAT, VERSION = "stability-checkpoint-certificate", 1
INPUT_SETS = ("norm", "vocabulary", "box")
MARKERS = (
    "A_log",
    "rg_lru.recurrent_param",
    "rg_lru.a_param",
    "to_hidden_and_gate.weight",
    "to_hidden_and_f_i_gate.weight",
    "fgate_preact.weight",
    "gk_proj.0.weight",
    "kernel.log_A_real",
    "Lambda_re",
    "nu_log",
    "k_k",
)
"""Ends of names of tensors that only gated linear layers have."""
MOST_LAYERS = 10_000
NAME = r"[A-Za-z0-9_.\-]{1,100}"
"""Characters of the name of a checkpoint, with which nothing can be said."""


class CheckpointLayer(NamedTuple):
    """Layer of a checkpoint, whose weights are read when it is built.

    Attributes:
        index: its number in the model.
        type: name of its architecture.
        build: returns the layer for an input set of ``INPUT_SETS``, its box (``InputBox``, or two numbers for all
            inputs; ``None`` for other sets), and whether the limits of the step in ``config.json`` apply.
    """

    index: int
    type: str
    build: Callable[[str, Any, bool], GatedLinearLayer]


_READERS: list[Callable[[str | Path], Iterable[CheckpointLayer] | None]] = []


def register_checkpoint_reader(reader: Callable[[str | Path], Iterable[CheckpointLayer] | None]) -> None:
    """Register a function that returns the layers of a checkpoint, or ``None`` for a path that it does not know."""
    _READERS.insert(0, reader)


def find_checkpoint_layers(weights: Any) -> Iterable[CheckpointLayer] | None:
    """Return the gated linear layers of a model, folder or file, or ``None`` where no registered reader finds any."""
    return next((layers for reader in _READERS if (layers := reader(weights)) is not None), None)


def checkpoint_layers(weights: Any) -> Iterable[CheckpointLayer]:
    """Return the gated linear layers of a folder or file.

    Raises:
        UnsupportedError: no registered reader knows it.
    """
    layers = find_checkpoint_layers(weights)
    if layers is None:
        raise UnsupportedError(f"{weights} is not a checkpoint with gated linear layers of a known layout")
    return layers


def horizon_ends(steps: np.ndarray) -> tuple[int | None, int | None]:
    """Return median and largest of the horizons of all units in steps; ``None`` for an infinite one."""
    ordered = np.sort(steps)
    median, most = (int(n) if n < np.inf else None for n in (ordered[len(ordered) // 2], ordered[-1]))
    return median, most


@dataclass(frozen=True)
class LayerClaims:
    """Claims about one layer.

    Attributes:
        layer: its number in the model.
        type: name of its architecture.
        digest: SHA-256 of its numbers.
        input_set: one of ``INPUT_SETS``.
        claims: the main claim first.
        taps: input steps that enter one step of the state.
        box: bounds of the inputs of the input set ``box``.
        step_limits: whether the limits of the step in ``config.json`` apply.
    """

    layer: int
    type: str
    digest: str
    input_set: str
    claims: tuple[Claim, ...]
    taps: int = 1
    box: InputBox | None = None
    step_limits: bool = False

    @property
    def verdict(self) -> Verdict:
        """Verdict of the main claim."""
        return self.claims[0].verdict

    def _find(self, name: str, verdict: Verdict = Verdict.CERTIFIED) -> Claim | None:
        return next((c for c in self.claims if c.name == name and c.verdict is verdict and c.proof), None)

    def units(self, name: str) -> np.ndarray | None:
        """Return the bounds of every channel or head: ``state_bound``, ``state_gain`` or ``decay`` (``ln a``)."""
        claim = self._find(name)
        if claim is None or claim.proof is None:
            return None
        return np.asarray(claim.proof.data["log_decay" if name == "decay" else "bounds"])

    def horizons(self) -> np.ndarray | None:
        """Return the certified memory horizon of every channel or head in steps; infinite for never."""
        claim = self._find("decay")
        if claim is None or claim.proof is None:
            return None
        steps = horizons(claim.proof.data["log_decay"], claim.proof.data["tol"], self.taps)
        return np.where(steps < 0.0, np.inf, steps)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of ``stability certify --json``."""
        values = {
            name: None if (c := self._find(name)) is None else c.value
            for name in ("state_bound", "state_gain", "decay", "as_it_runs")
        }
        decay, steps = self._find("decay"), self.horizons()
        tol = TOLERANCE if decay is None or decay.proof is None else float(decay.proof.data["tol"])
        median, most = (None, None) if steps is None else horizon_ends(steps)
        kept = self._find("forgetting", Verdict.REFUTED)
        never = None if steps is None else int(np.isinf(steps).sum())
        return {
            "layer": self.layer,
            "type": self.type,
            "verdict": str(self.verdict),
            "input_set": self.input_set,
            "step_limits": self.step_limits,
            "state_bound": values["state_bound"],
            "gain": values["state_gain"],
            "decay_max": values["decay"],
            "as_it_runs": values["as_it_runs"],
            "horizon": {"tol": tol, "median": median, "max": most},
            "units": None if steps is None else len(steps),
            "never": never,
            "accumulators": [] if kept is None or kept.proof is None else [int(i) for i in kept.proof.data["units"]],
        }


@dataclass(frozen=True, eq=False, repr=False)
class CheckpointCertificate(Displayed):
    """Claims about all gated linear layers of a checkpoint.

    Attributes:
        name: name of the folder or file.
        layers: the layers in their order.
        meta: free text about the origin; it proves nothing.
    """

    TABLE = "layers"

    name: str
    layers: tuple[LayerClaims, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Refuted where one layer is; certified where every layer has a state bound; else inconclusive."""
        verdicts = {layer.verdict for layer in self.layers}
        if Verdict.REFUTED in verdicts:
            return Verdict.REFUTED
        return Verdict.CERTIFIED if verdicts == {Verdict.CERTIFIED} else Verdict.INCONCLUSIVE

    def facts(self) -> list[tuple[str, str]]:
        """Return the verdict with the number of layers, for a prompt or a notebook."""
        return [("", str(self.verdict)), ("checkpoint", self.name), ("layers", str(len(self.layers)))]

    def summary(self) -> dict[str, Any]:
        """Return the JSON object of ``stability certify FOLDER --json``."""
        layers = [layer.summary() for layer in self.layers]
        return {"verdict": str(self.verdict), "kind": "gated_linear", "layers": layers, "meta": dict(self.meta)}

    def save(self, path: str | Path) -> Path:
        """Write the certificate as JSON; see ``Certificate.save``."""
        layers = [
            {
                **{key: encode(getattr(x, key)) for key in _LAYER if key != "claims"},
                "claims": [claim_document(c) for c in x.claims],
            }
            for x in self.layers
        ]
        document = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "layers": layers,
            "meta": encode(dict(self.meta)),
        }
        return write_text(as_path(path), seal(document))

    @classmethod
    def load(cls, path: str | Path) -> CheckpointCertificate:
        """Read a certificate of a checkpoint without judging it.

        Raises:
            FileFormatError: when it is missing, unreadable, damaged, tampered with or of another version.
        """
        document, written = read_document(as_path(path))
        if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
            raise FileFormatError(f"{path} is not a certificate of a checkpoint in format version {VERSION}")
        if not is_sealed(written, document):
            raise FileFormatError(f"{path} was changed after it was written: its digest does not match")
        try:
            layers = list_reader("layers", _layer_from, MOST_LAYERS)(document["layers"])
            if not layers or set(document) != {"format", "version", "name", "layers", "meta", "digest"}:
                raise FileFormatError("keys are missing or unknown, or there is no layer")
            if re.fullmatch(NAME, text(document["name"])) is None:
                raise FileFormatError("the name of a checkpoint has letters, digits, _, - and . only")
            return cls(text(document["name"]), layers, mapping(document["meta"], "meta"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(f"{path} is damaged: {str(error)[:200]}") from error


def is_checkpoint_certificate(value: Any) -> bool:
    """Return True for the certificate of a checkpoint, or a readable file that says it is one."""
    if not isinstance(value, (str, PathLike)):
        return isinstance(value, CheckpointCertificate)
    try:
        document, _ = read_document(as_path(value))
    except (FileFormatError, ValueError):
        return False
    return isinstance(document, dict) and document.get("format") == FORMAT


_LAYER = {
    "layer": natural,
    "type": text,
    "digest": text,
    "input_set": text,
    "taps": natural,
    "box": decode,
    "step_limits": boolean,
    "claims": list_reader("claims", claim_from),
}
"""Keys of a layer in a file, and the reader of each."""


def _layer_from(value: Any) -> LayerClaims:
    document = mapping(value, "a layer")
    if set(document) != set(_LAYER) or document["input_set"] not in INPUT_SETS or not document["claims"]:
        raise FileFormatError(f"a layer must have the keys {', '.join(_LAYER)}, a known input set and a claim")
    layer = LayerClaims(**{key: reader(document[key]) for key, reader in _LAYER.items()})
    if type(layer.box) is not (InputBox if layer.input_set == "box" else type(None)):
        raise FileFormatError("the input set 'box' needs low and high bounds, and no other set has them")
    return layer
