"""The first screen says what the files prove, whatever kinds of models a report holds."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from stability.analysis.campaign.certificate import in_box
from stability.certificate import Certificate
from stability.certification import certify
from stability.checkpoint_certificate import CheckpointCertificate
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.gated_cell import GatedCell
from stability.models import Mamba2, MinGRU, SequenceModel, save
from stability.reports.figures.two_runs import envelope, two_runs
from stability.reports.page.cards import card
from stability.reports.page.claims import claim, covered, gist, not_covered
from stability.reports.page.next_step import next_step
from stability.reports.page.verdict_table import columns, table
from stability.reports.page.verdicts import headline, summary
from stability.reports.stored.collect import Report, collect, read_model
from stability.reports.stored.facts import attack_size, attacked, certified_accuracy, halved
from stability.reports.stored.records import ModelRecord
from stability.storage.documents import file_digest
from stability.systems import (
    Affine,
    ConstantGate,
    ConvexInjection,
    DrivenSystem,
    GatedLinearLayer,
    LinearInjection,
    LureSystem,
    NormBall,
    SigmoidGate,
)

from ..conftest import seal

BALL = NormBall(np.ones(4))
VALUES = Affine(np.full((3, 4), 0.1), BALL)
BOUNDED = GatedLinearLayer(SigmoidGate(VALUES), ConvexInjection(VALUES), "minGRU")
"""A layer whose state stays below 0.4."""
GROWING = GatedLinearLayer(ConstantGate(BALL, rate=[0.1]), LinearInjection(np.ones((2, 4))), "S5")
FAST = LureSystem([[0.5]], [[0.0]], [[0.0]], dt=1.0)
SLOW = LureSystem([[0.9999]], [[0.0]], [[0.0]], dt=1.0)
WRONG = LureSystem([[1.5]], [[0.0]], [[0.0]], dt=1.0)
OPEN = LureSystem(np.diag([0.5, 0.4]), np.eye(2), 0.9 * np.eye(2), dt=1.0)
LATCH = DrivenSystem(LureSystem([[0.3]], [[0.7]], [[2.0]], dt=1.0), "tanh", [[1.0]], [2.0])
RANGE = (-0.2, 0.2)


def report(folder: Path, *subjects: object, **analysis: object) -> Report:
    """A report of these systems, without data, each examined as networks of sequences of 28 steps are."""
    models = []
    for k, subject in enumerate(subjects):
        place = folder / f"m{k}"
        place.mkdir()
        found = (
            certify(subject, rate="any", input_range=RANGE)
            if subject is LATCH
            else certify(subject, refute=subject is not OPEN)
        )
        (in_box(found, RANGE) if subject is LATCH else found).save(place / "certificate.json")
        told = {"title": f"N{k}", "discrete": True, "sequence_length": 28, "steps": {}, **analysis}
        (place / "analysis.json").write_text(json.dumps(told))
        seal(place)
        models.append(read_model(place))
    return Report(folder, {}, tuple(models))


@pytest.mark.parametrize(
    ("subjects", "said"),
    [
        ((FAST,), "N0 is proven stable. After 2 steps (0.1 sequences) any disturbance of its state is at most half as"),
        ((SLOW,), "N0 is proven stable, but too slowly to matter. After 6 93"),
        ((WRONG,), "N0: not stable for every input."),
        ((OPEN,), "N0: undecided."),
        ((LATCH,), "N0: not stable for every input, but proven stable for inputs between −0.22 and 0.22"),
        ((FAST, WRONG), "Best with a proof: N0. After 2 steps (0.1 sequences) any disturbance"),
        ((SLOW, WRONG), "No proof is fast enough to matter: N0 halves a difference first, within 6 93"),
        ((LATCH, WRONG), "No network is proven stable for every input. N0 is, for inputs between −0.22 and 0.22"),
        ((WRONG, OPEN), "No network is proven stable."),
    ],
)
def test_the_headline_claims_what_is_proved_and_no_more(
    tmp_path: Path, subjects: tuple[object, ...], said: str
) -> None:
    found = report(tmp_path, *subjects)
    assert headline(found).replace("\u202f", " ").startswith(said)
    assert ("whatever the input" in headline(found)) == (FAST in subjects or subjects == (SLOW,))
    (checked,) = [text for text in summary(found) if "checked again" in text]
    assert "not valid" not in checked


CELL = GatedCell("gru", 0.5 * np.ones((6, 1)), 0.3 * np.ones((6, 2)), input_low=-0.5, input_high=0.5)


@pytest.mark.parametrize("limited", [certify(LATCH, input_box=RANGE, refute=False), certify(CELL)])
def test_a_proof_for_a_range_of_inputs_never_speaks_of_every_input(tmp_path: Path, limited: Certificate) -> None:
    assert limited.verdict is Verdict.CERTIFIED
    first, *others = report(tmp_path, FAST, WRONG).models
    limited.save(first.folder / "certificate.json")
    seal(first.folder)
    model = read_model(first.folder)
    for models in ((model,), (model, *others)):
        found = Report(tmp_path, {}, models)
        assert "for inputs between" in headline(found)
        assert two_runs(models) is None
        keys = (columns(found)[0].key, str(claim(model)), covered(model), gist(model))
        for text in (headline(found), *summary(found), *keys):
            assert not re.search("whatever the input|any disturbance|every input|under any input", text)


def test_a_proof_of_single_layers_is_not_told_as_one_of_the_network(tmp_path: Path) -> None:
    """The output of a layer differs between two runs, so that no bound on the whole state follows."""
    first = report(tmp_path, FAST).models[0]
    path = first.folder / "certificate.json"
    dataclasses.replace(Certificate.load(path), meta={"part": "recurrent-layers-side-by-side of N"}).save(path)
    seal(first.folder)
    model = read_model(first.folder)
    assert "each recurrent layer with its own input" in headline(Report(tmp_path, {}, (model,)))
    assert "disturbance" not in headline(Report(tmp_path, {}, (model,)))
    assert "(1 layer by layer, each layer with its own input)" in summary(Report(tmp_path, {}, (first, model)))[0]
    assert envelope(model, np.arange(3)) is None
    assert envelope(first, np.arange(3)) is not None


def test_pairs_that_came_together_are_counted(tmp_path: Path) -> None:
    first = report(tmp_path, WRONG).models[0]
    for closer, said in ((100, "100 of 100 pairs of runs came closer together"), (89, "")):
        told = {"pairs": 100, "steps": 30, "start": 1.0, "closer": closer, "counter": None}
        (first.folder / "pairs.json").write_text(json.dumps(told))
        seal(first.folder)
        text = headline(Report(tmp_path, {}, (read_model(first.folder),)))
        assert (said in text) if said else ("pairs" not in text)


def test_a_slow_proof_says_how_little_it_gives_within_a_sequence(tmp_path: Path) -> None:
    found = report(tmp_path, SLOW, FAST)
    cells = [columns(found)[0].show(model) for model in found.models]
    assert [cell.tone for cell in cells if cell] == ["slow", ""]
    assert "N0 is proven stable, but too slowly to matter" in " ".join(summary(found))
    alone = Report(found.folder, {}, found.models[:1])
    (share,) = re.findall(r"may keep ([\d.]+) %", " ".join(summary(alone)))
    assert 100 * 0.9999**28 <= float(share) <= 100 * 0.9999**28 + 0.01


def test_proved_shares_of_the_table_are_rounded_down_and_measured_ones_to_the_nearest(drawn: Path) -> None:
    found = collect(drawn)
    size = attack_size(found.models)
    assert size is not None
    for model in found.models:
        cell, left, sure = columns(found)[-1].show(model), attacked(model, size), certified_accuracy(model, size)
        assert cell is not None
        assert left is not None
        low, high = re.findall(r"\d+|\?", cell.detail)
        assert abs(int(high) - 100 * left[0]) <= 0.5
        assert low == "?" if sure is None else 100 * sure - 1 < int(low) <= 100 * sure


def test_factors_that_keep_a_proof_are_rounded_down(tmp_path: Path) -> None:
    found = report(tmp_path, FAST)
    found = dataclasses.replace(
        found, models=(dataclasses.replace(found.models[0], margins={"gain_certified": 1.1388}),)
    )
    (cell,) = [c.show(found.models[0]) for c in columns(found) if c.head[1] == "scaled to"]
    assert cell is not None
    assert cell.text == "×\u00a01.13"
    assert "×\u00a01.13" in covered(found.models[0])


def test_loops_are_told_in_seconds_and_without_words_of_networks(tmp_path: Path) -> None:
    loop = LureSystem([[0.8]], [[0.0]], [[0.0]], dt=0.1)
    found = report(tmp_path, loop, source="loop.npz", sequence_length=None)
    when = halved(found.models[0])
    assert when is not None
    assert f"After {when:.0f} steps ({0.1 * when:.1f} s)" in headline(found)
    assert "for every activation with slopes in [0, 1]" in headline(found)
    (decay,) = [c.show(found.models[0]) for c in columns(found) if c.head[1] == "per second"]
    assert decay is not None
    assert -math.log(0.8) / 0.1 - 0.05 <= float(decay.text) <= -math.log(0.8) / 0.1
    said = " ".join((headline(found), *summary(found), *(c.key for c in columns(found))))
    assert not re.search("network|sequence|data|weights", said)


def test_a_proof_of_bounded_states_is_not_told_as_contraction(tmp_path: Path) -> None:
    for folder, subjects in (("one", (BOUNDED,)), ("two", (SLOW, BOUNDED)), ("three", (FAST, BOUNDED, GROWING))):
        (tmp_path / folder).mkdir()
        found = report(tmp_path / folder, *subjects)
        model = found.models[len(subjects) > 1]
        words = " ".join((headline(found), *summary(found)))
        if subjects[0] is not FAST:  # contraction within ten sequences is the stronger proof, a slower one is not
            assert f"each entry of the state of {model.title} is at most 0.4" in headline(found)
        assert "slowly" not in words.replace("N0 is proven stable, but too slowly", "")
        told = " ".join((claim(model).striptags(), gist(model), covered(model), not_covered(model)))
        assert "whether two runs approach each other" in told
        assert not re.search(r"at most half|halve", told)
        row = table(found)["rows"][len(subjects) > 1]
        shown = [row["detail"], *(cell.detail for cell in row["cells"] if cell)]
        assert [text for text in shown if text.startswith("|h| ≤ 0.4")] != []
        assert {"state bound", "memory horizon"} <= {label for label, _ in card(model, None, {}, False)["facts"]}
    assert "grows without limit" in claim(found.models[2]).striptags()


def test_the_proof_of_several_layers_is_checked_with_the_weights_beside_it(tmp_path: Path) -> None:
    """Not of other weights, and not of a part of the layers."""
    network = SequenceModel([MinGRU(2, 4), Mamba2(4, 4)], 2)
    save(network, tmp_path / "model.safetensors")
    certificate = certify(network)
    bounds = [layer.summary()["state_bound"] for layer in certificate.layers]
    (tmp_path / "analysis.json").write_text(json.dumps({"title": "N", "steps": {}}))

    def read(found: CheckpointCertificate) -> ModelRecord:
        digest = file_digest(tmp_path / "model.safetensors")
        dataclasses.replace(found, meta={"model": digest}).save(tmp_path / "certificate.json")
        seal(tmp_path)
        return read_model(tmp_path)

    model = read(certificate)
    assert model.certificate is not None
    assert model.certificate["gated_linear"]["state_bound"] == max(bounds)
    assert "of every layer of N" in headline(Report(tmp_path, {}, (model,)))
    assert next_step(model).command.endswith("--weights models/" + model.name + "/model.safetensors")
    assert read(dataclasses.replace(certificate, layers=certificate.layers[:1])).state == "invalid"
    save(SequenceModel([MinGRU(2, 4), Mamba2(4, 4)], 2), tmp_path / "model.safetensors")
    assert read(certificate).state == "invalid"
