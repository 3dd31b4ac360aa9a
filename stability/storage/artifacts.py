"""Files of a run directory: one description for writers, readers and lists.

A new file of an analyzer stands here, is written by its step (``STEPS`` in ``analysis/campaign/pipeline.py``), and is
shown by a figure or a fold of the page: nothing else knows its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EVERY, SOME, NAME, DRAWN, PLAIN = "in every row", "in some rows", "a name", "drawn where it is there", "handed through"
"""Guaranteed content of a column: a number in every row; a number, or nothing; the name of a curve; a number that is
drawn if a table has the column; nothing.
"""

TEXT, FLAG, NUMBER, SECONDS, ANY = "a text", "true or false", "a number", "seconds", "anything"
"""Types of a field of a document."""


@dataclass(frozen=True)
class ValuesOf:
    """Shape of a mapping or a list whose values all have one shape; keys of a mapping are free.

    Attributes:
        kind: ``dict`` or ``list``.
        shape: shape of the values.
    """

    kind: type
    shape: Any


@dataclass(frozen=True)
class Artifact:
    """File of a run directory.

    Attributes:
        name: name of the file.
        step: step that writes it, a key of ``STEPS``; ``analysis`` for the record of the analysis itself.
        columns: columns of a table in their order, each with its guaranteed content.
        fields: fields of a document, each with its shape; any may be missing or null.
    """

    name: str
    step: str
    columns: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """Name without its suffix."""
        return self.name.rpartition(".")[0]

    def columns_of(self, *kinds: str) -> tuple[str, ...]:
        """Return the columns of these kinds.

        Example:
            >>> artifact("noise.csv").columns_of(EVERY, SOME)
            ('level', 'accuracy', 'ci_low', 'ci_high')
        """
        return tuple(name for name, kind in self.columns.items() if kind in kinds)


STEPS = {
    "training": "training",
    "certificate": "certificate",
    "cross_check": "criteria as semidefinite programs",
    "performance": "performance on the data",
    "hessian": "Hessian",
    "noise": "noise",
    "attacks": "attacks",
    "robustness": "gain-based radius",
    "local": "single inputs",
    "norms": "norm drift",
    "lyapunov": "Lyapunov exponents",
    "growth": "growth along the data",
    "recovery": "recovery from disturbances",
    "pairs": "two trajectories under one input",
    "margin": "stability margin",
}
"""Training and the steps of an analysis, in the order of the page, with display names."""

_MAP = ValuesOf(dict, ANY)
_ENVIRONMENT = {"versions": _MAP}
_STEP = {"status": TEXT, "reason": TEXT, "seconds": SECONDS, "code": TEXT, "notes": ValuesOf(list, TEXT)}
_OPINION = {
    **dict.fromkeys(("criterion", "solver", "status"), TEXT),
    **dict.fromkeys(("says", "verified", "holds", "agrees", "wrong"), FLAG),
    **dict.fromkeys(("margin", "frequency_margin", "layer"), NUMBER), "seconds": SECONDS,
}  # fmt: skip
_CLASS = {"name": ANY, "accuracy": NUMBER, "sequences": NUMBER, "taken_for": ANY}


def _all(shape: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), shape)


_SWEEP = {**_all(SOME, "accuracy ci_low ci_high"), "n": DRAWN}
_SCORES = {**_all(SOME, "score ci_low ci_high"), "n": DRAWN}
ARTIFACTS = (
    Artifact("model.safetensors", "training"),
    Artifact("run.json", "training", fields={
        **_all(ANY, "format version kind continue"),
        "model": {"layer": TEXT, "config": _MAP}, "task": {"name": TEXT, "options": _MAP, "data": _MAP},
        "training": _MAP, "environment": _ENVIRONMENT,
        "result": {
            "metric": TEXT, "epochs": NUMBER, "seconds": SECONDS,
            **_all(NUMBER, "train_metric test_metric chance train_loss test_loss"),
        },
    }),
    Artifact("metrics.csv", "training", columns={
        "epoch": EVERY, **_all(DRAWN, "train_loss train_metric test_loss test_metric"), "seconds": PLAIN,
        **_all(DRAWN, "validation_loss validation_metric"),
    }),
    Artifact("spectra.csv", "training", columns={
        "step": EVERY, "epoch": PLAIN, "matrix": NAME, "quantity": NAME, "value": EVERY,
    }),
    Artifact("eigenvalues.csv", "training", columns={
        "step": EVERY, "epoch": PLAIN, "matrix": NAME, "real": EVERY, "imag": EVERY,
    }),
    Artifact("checkpoint.pt", "training"),
    Artifact("certificate.json", "certificate"),
    Artifact("cross_check.json", "cross_check", fields={
        **_all(NUMBER, "states asked wrong"), "opinions": ValuesOf(list, _OPINION),
    }),
    Artifact("performance.json", "performance", fields={
        "metric": TEXT, **_all(NUMBER, "value chance sequences"), "loss": ANY, "by_class": ValuesOf(list, _CLASS),
    }),
    Artifact("noise.csv", "noise", columns={
        "noise": NAME, "level": EVERY, **_SWEEP, **_all(PLAIN, "draws spread seed"),
    }),
    Artifact("noise_scores.csv", "noise", columns={
        "noise": NAME, "metric": NAME, "level": EVERY, **_SCORES, **_all(PLAIN, "draws spread seed"),
    }),
    Artifact("attacks.csv", "attacks", columns={
        "attack": NAME, "norm": NAME, "epsilon": EVERY, **_SWEEP, "seed": PLAIN,
    }),
    Artifact("attack_scores.csv", "attacks", columns={
        "attack": NAME, "norm": NAME, "metric": NAME, "epsilon": EVERY, **_SCORES, "seed": PLAIN,
    }),
    Artifact("robustness.csv", "robustness", columns=_all(EVERY, "radius certified_accuracy")),
    Artifact("radius.json", "robustness", fields={
        "gain": NUMBER, "method": ANY, **_all(NUMBER, "median largest clean_accuracy samples"), "norm": ANY,
    }),
    Artifact("local.csv", "local", columns={
        **_all(EVERY, "index label correct radius"), "attack_radius": DRAWN, "seconds": PLAIN,
    }),
    Artifact("local.json", "local", fields={
        "norm": TEXT, **_all(NUMBER, "samples correct proved counted median_radius median_attack median_ratio strip"),
        "seconds": SECONDS, **_all(NUMBER, "shortest longest unread"),
    }),
    Artifact("local_inputs.csv", "local", columns=_all(EVERY, "sample t feature value change")),
    Artifact("norms.csv", "norms", columns={
        "model": PLAIN, **_all(EVERY, "layer t"), **_all(PLAIN, "mean rms"), **_all(SOME, "q10 q50 q90"),
        "grad_norm": PLAIN, **_all(DRAWN, "expected envelope"),
    }),
    Artifact("drift.json", "norms", fields={
        **_all(NUMBER, "slope drift_index"), "grad_slope": ANY, "trained_length": NUMBER,
        **_all(ANY, "extension sequences"), "sources": ValuesOf(dict, TEXT), **_all(NUMBER, "start end"),
    }),
    Artifact("lyapunov.csv", "lyapunov", columns={
        "index": EVERY, "per_step": SOME, **_all(PLAIN, "per_time standard_error"),
    }),
    Artifact("exponents.json", "lyapunov", fields={
        **_all(NUMBER, "largest kaplan_yorke steps"), **_all(ANY, "skipped trajectories"), "bound": NUMBER,
    }),
    Artifact("growth.csv", "growth", columns=_all(EVERY, "sequence t stretch") | _all(SOME, "exponent")),
    Artifact("jacobians.csv", "growth", columns={"what": NAME, **_all(EVERY, "real imag")}),
    Artifact("growth.json", "growth", fields={
        **_all(NUMBER, "stretching growing grown largest sequences steps"),
        "worst": ValuesOf(list, _all(NUMBER, "sequence mean step stretch")),
    }),
    Artifact("recovery.json", "recovery", fields=_all(NUMBER, "size tol median worst recovered runs limit")),
    Artifact("pairs.csv", "pairs", columns={"what": NAME, "t": EVERY, **_all(SOME, "q10 q50 q90")}),
    Artifact("pairs.json", "pairs", fields={**_all(NUMBER, "pairs steps start closer"), "counter": TEXT}),
    Artifact("margin.json", "margin", fields={
        **_all(NUMBER, "tol gain_certified gain_destabilising step_certified step_destabilising"),
    }),
    *(Artifact(f"margin_{kind}_{end}.json", "margin")
      for kind in ("gain", "step") for end in ("certified", "destabilising")),
    Artifact("hessian.json", "hessian", fields={
        **_all(ANY, "method parameters"), **_all(NUMBER, "n_parameters loss gradient_norm lambda_max lambda_min"),
        **_all(NUMBER, "lambda_max_residual lambda_min_residual"), "top_magnitude": ANY, "trace": NUMBER,
        "trace_standard_error": ANY, "trace_half_width": NUMBER, "trace_samples": ANY, "condition_number": NUMBER,
        **_all(ANY, "condition_definition matvecs converged seed notes samples"),
        "pyhessian": _all(
            NUMBER,
            "lambda_max lambda_max_residual lambda_max_difference trace trace_half_width trace_difference "
            "trace_samples matvecs",
        ),
    }),
    Artifact("density.csv", "hessian", columns={**_all(EVERY, "eigenvalue density"), "standard_error": PLAIN}),
    Artifact("analysis.json", "analysis", fields={
        **_all(TEXT, "title source input_of input_from"), **_all(NUMBER, "parameters sequence_length"),
        **_all(ANY, "format version seed hidden_size stated_box given digest"), "discrete": FLAG,
        **dict.fromkeys(("input_box", "input_range", "input_seen"), ValuesOf(list, ANY)),
        "steps": ValuesOf(dict, _STEP), "environment": _ENVIRONMENT, "files": ValuesOf(dict, TEXT), "budget": _MAP,
        "task": {"name": TEXT, "data": _MAP, **_all(NUMBER, "test train steps input_size")},
    }),
)  # fmt: skip
"""Files in the order of creation; ``analysis.json`` is the last and marks a complete folder."""
ANALYSIS_FILE, WEIGHTS = "analysis.json", "model.safetensors"
_BY_NAME = {a.name: a for a in ARTIFACTS}


def artifact(name: str) -> Artifact:
    """Return the description of a file.

    Example:
        >>> artifact("density.csv").step
        'hessian'
    """
    return _BY_NAME[name]


def files_of_steps(*steps: str) -> tuple[str, ...]:
    """Return the names of the files of these steps.

    Example:
        >>> files_of_steps("lyapunov", "certificate")
        ('certificate.json', 'lyapunov.csv', 'exponents.json')
    """
    return tuple(a.name for a in ARTIFACTS if a.step in steps)
