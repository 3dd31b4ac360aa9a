"""Forged files of every kind of proof: a claim that a known input refutes is refused, whatever stands around it.

Every specimen has inputs of another class, not much farther away than what its proof claims. A forger changes the claim
(radius, label, norm, input, mask, bounds, budget) and the proof (numbers nudged by an ulp or by 300 orders of
magnitude, signs, permutations, shapes, dtypes, keys), words the sentence anew and seals the file as the program does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_specimens import classifiers, plain, slopes

from stability.errors import StabilityError
from stability.kernel.format.claims import Claim
from stability.kernel.format.serialization import digest_of
from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.systems.classifier import Classifier
from stability.proposals import accepted_claim, propose
from stability.search.local.largest_radius import largest_balls
from stability.search.local.proof_folder import NETWORK_FILE, check_sample, sample_file, write_network, write_sample
from stability.storage.folder import claim_folder as claim_folder

Array = np.ndarray
NAMES = (
    "a tube", "closed from its end", "a budget for each step", "lstm", "planes of an lstm", "planes of a gru, masked",
    "planes, clipped", "zonotopes of an lstm, masked", "zonotopes, clipped", "linear, clipped steps", "linear in a box",
)  # fmt: skip


@dataclass(frozen=True)
class Specimen:
    """A network, a claim with its proof, and inputs ``(k, T, p)`` of another class."""

    subject: Classifier
    claim: Claim
    others: Array

    @property
    def data(self) -> Mapping[str, Any]:
        assert self.claim.proof is not None
        return self.claim.proof.data


def near(subject: Classifier, x: Array, label: int, step: bool, rng: np.random.Generator) -> Array:
    """Inputs of another class around one, as near as gradients, corners and bisections get."""
    d = np.zeros((24, *x.shape))
    for turn in range(40):
        margin, gradient = slopes(subject, x + d, label)
        margin[:, label] = np.inf
        rival = np.argsort(margin, axis=1)[np.arange(24), np.arange(24) % (subject.classes - 1)]
        g = gradient[np.arange(24), rival]
        way = [g, np.sign(g), g / np.maximum(np.linalg.norm(g, axis=2, keepdims=True), 1e-12)]
        kind = np.arange(24)[:, None, None] % 3
        chosen = np.where(kind == 0, way[0], np.where(kind == 1, way[1], way[2]))
        size = np.maximum(np.abs(chosen * g).sum(axis=(1, 2)), 1e-12)
        moved = -chosen * ((margin[np.arange(24), rival] - (g * d).sum(axis=(1, 2))) / size)[:, None, None]
        d = moved * (1.0 + 1e-3) + 0.02 * rng.normal(size=d.shape) * (turn < 20)
    found = [np.zeros((0, *x.shape))]
    for far in (1.0, 1.05, 1.3):
        wrong = subject.logits(x + far * d).argmax(axis=1) != label
        found.append(x + far * d[wrong])
    return np.concatenate(found)


def within(data: Mapping[str, Any], z: Array, label: int) -> bool:
    """Return True if the claim covers an input of the class ``label``, with room for this test's own rounding."""
    x, radius = data["x"], data["radius"] * (1.0 - 1e-9)
    if data["label"] == label or x.shape != z.shape:
        return False
    if "mask" in data and (z != x)[data["mask"] == 0].any():
        return False
    if "bounds" in data and not (data["bounds"][0] <= z.min() and z.max() <= data["bounds"][1]):
        return False
    if data["norm"] == "linf":
        return bool(np.abs(z - x).max() <= radius)
    each = "tau" in data or data.get("budget") == "step"
    return bool(np.sqrt(((z - x) ** 2).sum(axis=1 if each else None)).max() <= radius)


def made(subject: Classifier, x: Array, key: str, **options: Any) -> Specimen | None:
    """A proof that has a key, of most of the way to the inputs of another class that were found."""
    label = int(subject.logits(x).argmax())
    others = near(subject, x, label, options.get("budget") == "step", np.random.default_rng(7))
    if not len(others):
        return None
    away = np.abs(others - x) if options.get("norm") == "linf" else np.sqrt(((others - x) ** 2).sum(axis=2))
    if options.get("norm") != "linf" and options.get("budget") != "step":
        away = np.sqrt((away**2).sum(axis=1))
    nearest = float(away.reshape(len(others), -1).max(axis=1).min())
    for part in (0.7, 0.4, 0.1) if options.get("norm") == "linf" else (0.98, 0.9, 0.7, 0.4, 0.2, 0.1):
        if key == "kept":  # of longer sequences, too
            ball = {"x": x, "label": label, "norm": "linf", "radius": part * nearest, "window": 2, "kept": 2}
            ball |= {"mask": options["mask"] * 1.0} if "mask" in options else {}
            ball |= {"bounds": options["bounds"]} if "bounds" in options else {}
            claim = accepted_claim(subject, "local_zonotopes", ball)
            if claim is not None:
                return Specimen(subject, claim, others)
            continue
        if key == "weights":  # which the search takes for longer sequences alone
            columns = sum(len(stage.A) for stage in stages_of(subject).stages)
            ball = {"x": x, "label": label, "norm": "l2", "radius": part * nearest}
            claim = accepted_claim(subject, "local_ellipsoids", {**ball, "weights": np.ones((len(x), columns))})
            if claim is not None:
                return Specimen(subject, claim, others)
            continue
        (claim,) = largest_balls(subject, x[None], [label], epsilon=part * nearest, **options)
        if claim is not None and claim.proof is not None and key in claim.proof.data:
            return Specimen(subject, claim, others)
    return None


@pytest.fixture(scope="module")
def specimens() -> dict[str, Specimen]:
    rng, kinds = np.random.default_rng(8), classifiers(1)
    own = np.random.default_rng(9)
    kinds["affine"] = Classifier(plain(own, "identity"), own.normal(size=(3, 3)), own.normal(size=3), "mean")
    mask = np.array([[True, False], [True, True], [False, True]])
    told: dict[str, tuple[str, str, dict[str, Any]]] = {  # with the network's name, and a key that its proof has
        "a tube": ("sigmoid", "T", {}),
        "closed from its end": ("tanh", "others", {}),
        "a budget for each step": ("tanh", "tau", {"budget": "step"}),
        "lstm": ("lstm", "weights", {}),
        "planes of an lstm": ("lstm", "tree", {"norm": "linf"}),
        "planes of a gru, masked": ("gru", "tree", {"norm": "linf", "mask": mask}),
        "planes, clipped": ("relu", "tree", {"norm": "linf", "bounds": (-2.0, 2.5)}),
        "linear, clipped steps": ("affine", "norm", {"budget": "step", "bounds": (-2.0, 2.5)}),
        "linear in a box": ("affine", "norm", {"norm": "linf", "bounds": (-2.0, 2.5)}),
        "zonotopes of an lstm, masked": ("lstm", "kept", {"norm": "linf", "mask": mask}),
        "zonotopes, clipped": ("sigmoid", "kept", {"norm": "linf", "bounds": (-2.0, 2.5)}),
    }
    found: dict[str, Specimen] = {}
    for name, (network, key, options) in told.items():
        for _ in range(60):
            one = made(kinds[network], np.clip(rng.normal(size=(3, 2)), -2.0, 2.0), key, **options)
            if one is not None:
                found[name] = one
                break
    assert set(found) == set(told), set(told) - set(found)
    return found


def test_every_kind_of_proof_is_forged_and_truth_is_near(specimens):
    kinds = [one.claim.proof.kind for one in specimens.values() if one.claim.proof is not None]
    assert set(kinds) == {
        "local_ellipsoids", "local_planes", "local_zonotopes", "local_linear",
    }  # fmt: skip
    keys = {key for one in specimens.values() for key in one.data}
    assert keys >= {"T", "tau", "others", "prices", "weights", "mask", "tree", "bounds", "budget", "kept"}
    for name, one in specimens.items():
        label = one.data["label"]
        assert not any(within(one.data, z, int(c)) for z, c in zip(one.others, classes(one))), name
        assert any(within({**one.data, "radius": 40.0 * one.data["radius"]}, z, label + 1) for z in one.others) or (
            "mask" in one.data or "bounds" in one.data
        ), name


def classes(one: Specimen) -> Array:
    return one.subject.logits(one.others).argmax(axis=1)


def lied(one: Specimen, rng: np.random.Generator) -> dict[str, Any]:
    """The data with another claim, false because of an input that is known."""
    data, z = dict(one.data), one.others[rng.integers(len(one.others))]
    label = int(one.subject.logits(z).argmax())
    x, norm, each = data["x"], data["norm"], "tau" in data or data.get("budget") == "step"
    if "mask" in data:  # the known input, where it may differ
        data["mask"] = np.where(z != x, 1.0, data["mask"])
    if "bounds" in data:
        data["bounds"] = (min(data["bounds"][0], float(z.min())), max(data["bounds"][1], float(z.max())))
    kind = int(rng.integers(4))
    if kind == 0:  # the input goes to the other one
        data["x"] = z + rng.choice([0.0, 1e-12, 1e-3]) * rng.normal(size=x.shape) * (z != x)
    elif kind == 1:
        data["label"] = label + 1 if label + 1 < one.subject.classes and label + 1 != data["label"] else 0
        z, label = x, int(one.subject.logits(x).argmax())
        data["label"] = data["label"] if data["label"] != label else (label + 1) % one.subject.classes
        return data
    d = z - data["x"]
    size = np.abs(d).max() if norm == "linf" else np.sqrt((d * d).sum(axis=1 if each else None)).max()
    data["radius"] = max(float(size) * (1.0 + rng.choice([1e-8, 1e-4, 0.1])), 1e-9)
    if kind == 2 and "points" in data:  # keys and numbers of the proof grow with it
        data["points"] = x + (data["points"] - x) * data["radius"] / one.data["radius"]
    return data


def harmed(value: Any, rng: np.random.Generator) -> Any:
    """A number, array, list or mapping of a proof, changed."""
    if isinstance(value, Mapping):
        out = dict(value)
        if out and rng.random() < 0.1:
            out.pop(rng.choice(sorted(out)))
        elif out:
            key = rng.choice(sorted(out))
            out[key] = harmed(out[key], rng)
        return out
    if isinstance(value, (list, tuple)):
        out = [*value]
        if len(out) > 1 and rng.random() < 0.2:
            return out[::-1] if rng.random() < 0.5 else out[:-1]
        if out:
            k = int(rng.integers(len(out)))
            out[k] = harmed(out[k], rng)
        return out
    if isinstance(value, np.ndarray) and not value.size:
        return np.ones([(0, 1), (len(value), 1), (1, 0), (2,)][int(rng.integers(4))])
    if isinstance(value, np.ndarray):
        out, kind = value.copy(), int(rng.integers(8))
        some = rng.random(value.shape) < rng.choice([0.05, 1.0])
        changes = {
            0: lambda: np.where(some, out * 10.0 ** rng.uniform(-300, 300), out),
            1: lambda: np.where(some, -out, out),
            2: lambda: np.where(some, rng.choice([0.0, -0.0, np.nan, np.inf, 5e-324]), out),
            3: lambda: np.where(some, np.nextafter(out, np.inf), out),
            4: lambda: rng.permutation(out),
            5: lambda: out.reshape(out.shape[::-1]),
            6: lambda: out.astype(rng.choice(["float32", "int64"])) if np.isfinite(out).all() else out,
            7: lambda: np.where(some, out * np.exp(rng.normal(size=out.shape)), out),
        }
        with np.errstate(all="ignore"):
            return changes[kind]()
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return rng.choice(["linf", "l2", "step", "total", ""]).item()
    if isinstance(value, int):
        return int(value + rng.integers(-2, 3))
    return float(value) * float(rng.choice([-1.0, 0.0, np.nan, np.inf, 1.0 + 2e-16, 0.5, 2.0, 1e300]))


CLAIMED = ("x", "label", "norm", "radius", "mask", "bounds", "tau", "budget")


def none_of_these_is_believed(one: Specimen, folder: Path, count: int, seed: int) -> int:
    """Count the false ones among the forged claims, after checking that none is accepted."""
    rng, false, names = np.random.default_rng(seed), 0, classes(one)
    assert one.claim.proof is not None
    kind, digest = one.claim.proof.kind, digest_of(one.subject)
    with claim_folder(folder, "radius") as place:
        place.reserve([NETWORK_FILE, sample_file(0)], "radius")
        write_network(place, one.subject)
        for k in range(count):
            data = lied(one, rng) if k % 4 else dict(one.data)
            proof = [key for key in data if key not in CLAIMED]
            for _ in range(int(rng.integers(4))):
                key = rng.choice(proof if proof and k % 4 else sorted(data)).item()
                data[key] = harmed(data[key], rng)
            try:
                forged = propose(one.subject, kind, data)
                write_sample(place, digest, 0, forged)
            except (StabilityError, TypeError, ValueError, LookupError, ArithmeticError):
                continue  # it cannot even be worded
            check = check_sample(folder / sample_file(0), one.subject, digest)
            if not check.valid:
                false += k % 4 > 0
                continue
            x, label = data["x"], data["label"]
            assert label == int(one.subject.logits(x).argmax()), (k, label)
            assert not any(within(data, z, int(c)) for z, c in zip(one.others, names)), (k, check.statement)
            assert check.statement == forged.statement
    return false


@pytest.mark.parametrize("name", NAMES)
def test_forged_files_are_refused(name, specimens, tmp_path):
    assert none_of_these_is_believed(specimens[name], tmp_path / "proofs", 40, seed=0) > 15


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_forged_files_are_refused(name, specimens, tmp_path):
    """About 10,000 in all."""
    assert none_of_these_is_believed(specimens[name], tmp_path / "proofs", 640, seed=1) > 300


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_ties_and_radii_out_of_range_prove_nothing(norm):
    tied = Classifier(plain(np.random.default_rng(0)), np.ones((2, 3)))
    x = np.zeros((1, 2, 2))
    assert largest_balls(tied, x, [0], norm=norm) == [None]
    kind = "local_planes" if norm == "linf" else "local_ellipsoids"
    more: dict[str, Any] = {"tree": {"classes": []}} if norm == "linf" else {"T": np.full((2, 3), 100.0)}
    sure = Classifier(tied.recurrent, tied.weight, [3.0 * 10.0, 0.0])  # no input changes this class
    for radius, holds in ((1.0, True), (np.inf, False), (np.nan, False), (-1.0, False), (0.0, False), (1e13, False)):
        data = {"x": x[0], "label": 0, "norm": norm, "radius": radius, **more}
        assert RULES[kind](sure, propose(sure, kind, data))[0] is holds, radius
        assert not RULES[kind](tied, propose(tied, kind, data))[0], radius
