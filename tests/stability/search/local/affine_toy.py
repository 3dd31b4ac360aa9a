"""A rule and an engine for networks without activations, whose largest ball is known: for tests of files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stability.kernel.format import theorem_table as registry
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.fields import AnyArray, Index, Number, ProofData, Text, require
from stability.kernel.systems.classifier import Classifier
from stability.proposals import accepted_claim, propose
from stability.search.local.request import Request
from stability.systems import DrivenSystem, LureSystem

KIND = "toy_affine"


def network(classes: int = 3, seed: int = 0) -> Classifier:
    """``x+ = A x + F u`` under a head."""
    rng = np.random.default_rng(seed)
    system = LureSystem.linear(0.5 * rng.normal(size=(3, 3)), dt=1.0)
    cell = DrivenSystem(system, "identity", np.zeros((0, 2)), None, rng.normal(size=(3, 2)), "toy")
    return Classifier(cell, rng.normal(size=(classes, 3)), 0.1 * rng.normal(size=classes))


def largest(subject: Classifier, x: np.ndarray, label: int, norm: str) -> float:
    """The distance of one input to the nearest decision boundary."""
    A, F = subject.recurrent.system.A, subject.recurrent.F
    rows, distances = [subject.weight], []
    for _ in range(len(x) - 1):
        rows.append(rows[-1] @ A)
    kernel = np.concatenate([row @ F for row in reversed(rows)], axis=1)
    logits = subject.logits(x)
    for j in range(subject.classes):
        if j != label:
            steep = np.linalg.norm(kernel[label] - kernel[j], 2 if norm == "l2" else 1)
            distances.append((logits[label] - logits[j]) / steep)
    return min(distances)


class Toy(ProofData):
    x: AnyArray
    label: Index
    norm: Text
    radius: Number

    def sentence(self, subject: Classifier, claim: Any) -> str:
        return f"no perturbation of the input within {self.norm} radius {claim.value!r} changes the class {self.label}"

    def check(self, subject: Classifier, claim: Any) -> str:
        fits = self.x.ndim == 2 and self.x.shape[1] == subject.inputs and self.label < subject.classes
        require(fits and self.norm in ("l2", "linf"), "input, label or norm do not fit")
        require(0 < self.radius <= largest(subject, self.x, self.label, self.norm), "the radius is not proved")
        return f"the boundary is at least {self.radius!r} away"


def engine(norm: str, share: float = 0.9) -> Any:
    """An engine that gives ``share`` of the largest ball."""

    def balls(asked: Request) -> list[Claim | None]:
        out, subject = [], asked.classifier
        for row, label in zip(asked.x, asked.y):
            radius = share * largest(subject, row, int(label), norm)
            if asked.epsilon is not None:
                radius = asked.epsilon
            data = {"x": np.array(row), "label": int(label), "norm": norm, "radius": float(radius)}
            out.append(accepted_claim(subject, KIND, data) if share <= 1 else propose(subject, KIND, data))
        return out

    return balls


@pytest.fixture
def toy_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule, for the time of a test."""
    monkeypatch.setattr("stability.search.local.affine_search.applies", lambda asked: False)
    toy = registry.Rule(KIND, (Classifier,), ("local_robustness",), Verdict.CERTIFIED, Toy, "radius")
    monkeypatch.setitem(registry.RULES._rules, KIND, toy)
