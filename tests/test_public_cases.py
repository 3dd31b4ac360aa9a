"""Models, files and data as users bring them, each with the answer that is known for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from stability import DrivenSystem, LureSystem, certify, verify
from stability.analysis import attack_sweep, hessian_summary
from stability.errors import DimensionError, FileFormatError, StabilityError
from stability.models.adapters.modules import recurrent_subject
from stability.models.sources import load_module, load_subject
from stability.reports import cli

FILES = Path(__file__).parent / "data" / "files"


# matrices


@pytest.mark.parametrize("states", [2, 3, 4, 5, 6, 8, 16, 64])
def test_hippo_matrices_are_certified_near_their_rate(states) -> None:
    b = np.sqrt(2.0 * np.arange(states) + 1.0)
    A = -np.tril(np.outer(b, b), -1) - np.diag(np.arange(states) + 1.0)
    assert 0.5 <= certify(LureSystem.linear(A)).rate < 1.0
    assert certify(LureSystem.linear(A), rate=0.5).overshoot < 1.001  # P = I proves it but for rounding errors


@pytest.mark.parametrize("scale", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("condition", [1.0, 100.0])
def test_slow_linear_systems_are_certified_near_their_rate(scale, condition, rng) -> None:
    U, V = (np.linalg.qr(rng.normal(size=(6, 6)))[0] for _ in range(2))
    T = U @ np.diag(np.geomspace(1.0, 1.0 / condition, 6)) @ V
    for dt, eigenvalues in (
        (None, -np.geomspace(scale, 1.0, 6)),
        (1.0, np.array([1 - scale, 0.9, 0.7, 0.5, 0.3, 0.1])),
    ):
        rate = certify(LureSystem.linear(T @ np.diag(eigenvalues) @ np.linalg.inv(T), dt)).rate
        assert (rate if dt is None else 1.0 - rate) == pytest.approx(scale, rel=0.01)


def test_certificates_near_the_boundary_verify(rng) -> None:
    for size in (1, 2, 3):
        for beyond in 10.0 ** -np.arange(2.0, 14.0, 1.5):
            W = np.diag(np.r_[1 + beyond, rng.uniform(-0.9, 0.9, size - 1)])
            assert verify(certify(LureSystem(np.zeros_like(W), np.eye(size), W, dt=1.0))).valid
    W = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    found = certify(DrivenSystem(LureSystem(np.zeros((8, 8)), np.eye(8), W, dt=1.0), "relu", np.eye(8)))
    assert found.verdict == "inconclusive" or verify(found).valid


A = np.array([[-3.0, -3.0, -1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
B, C = np.eye(3)[:, :1], np.eye(3)[2:]


@pytest.mark.parametrize(
    ("slope", "verdict"), [(1.0, "certified"), (3.0, "certified"), (5.0, "inconclusive"), (9.0, "refuted")]
)
def test_a_third_order_lag_under_feedback(slope, verdict, tmp_path) -> None:
    for name in "WC":
        np.savez(tmp_path / "m.npz", A=A, B=-B, slope=[0.0, slope], **{name: C})
        assert certify(load_subject(tmp_path / "m.npz").subject).verdict == verdict


def test_matrices_of_other_programs() -> None:
    found = load_subject(FILES / "abcd.npz").subject
    assert np.array_equal(found.B, -B)
    found = load_subject(FILES / "lure.mat").subject
    assert [getattr(found, name).tolist() for name in "ABC"] == [A.tolist(), B.tolist(), C.tolist()]


def test_what_is_no_system_is_refused(tmp_path, rng) -> None:
    np.savez(tmp_path / "complex.npz", A=np.diag([0.9j, -0.9j]), dt=1.0)
    np.savez(tmp_path / "sparse.npz", indices=[0], indptr=[0, 1], shape=[1, 1], data=[1.0], format=b"csr")
    np.save(tmp_path / "A.npy", A)
    np.savetxt(tmp_path / "A.csv", A, delimiter=",")
    for path in tmp_path.iterdir():
        with pytest.raises(StabilityError):
            load_subject(path)


# reservoirs


def test_a_reservoir_with_its_read_out(tmp_path) -> None:
    held = dict(np.load(FILES / "open_with_wout.npz"))
    W, Win, read_out = (held.pop(name) for name in ("W", "Win", "Wout"))
    np.savez(tmp_path / "open.npz", W=W, Win=Win, **held)
    assert certify(load_subject(tmp_path / "open.npz").subject).verdict == "certified"
    closed = load_subject(FILES / "open_with_wout.npz").subject
    x = np.linspace(-1, 1, len(W))
    pre = W @ x + Win @ (read_out @ x) + held["bias"]
    for u in ([0.0], [9.0]):
        np.testing.assert_allclose(closed.advance(x, np.array(u)), 0.5 * x + 0.5 * np.tanh(pre), rtol=1e-12)
    assert certify(closed).verdict == "refuted"  # its loop oscillates
    np.savez(tmp_path / "closed.npz", W=W, Win=Win, Wout=read_out, bout=0.25, **held)
    pre += Win @ [0.25]
    biased = load_subject(tmp_path / "closed.npz").subject
    np.testing.assert_allclose(biased.advance(x, np.zeros(1)), 0.5 * x + 0.5 * np.tanh(pre), rtol=1e-12)
    np.savez(tmp_path / "classes.npz", W=W, Win=Win, Wout=np.vstack([read_out, read_out]), **held)
    with pytest.raises(DimensionError, match="Wout"):
        load_subject(tmp_path / "classes.npz")


# weights


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.glob("*.ckpt")))
def test_checkpoints_with_objects_beside_the_tensors_give_their_tensors(name) -> None:
    torch.manual_seed(0)
    expected = recurrent_subject(nn.GRU(3, 5))
    assert np.array_equal(load_subject(FILES / name).subject.w_hh, expected.w_hh)


def test_a_state_dict_in_json_is_read() -> None:
    state, found = json.loads((FILES / "gru.json").read_text()), load_subject(FILES / "gru.json").subject
    assert np.array_equal(found.w_hh, np.array(state["weight_hh_l0"]))


@pytest.mark.parametrize(("name", "way"), [("keras_like.npz", "recurrent_kernel.T"), ("whole.pt", "state_dict()")])
def test_what_is_refused_names_the_way(name, way) -> None:
    with pytest.raises(FileFormatError) as caught:
        load_subject(FILES / name)
    assert way in str(caught.value)


def test_what_is_open_for_gated_layers_says_why(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    stack, cell = nn.GRU(3, 6, 2), nn.LSTM(3, 6)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.mul_(1.6)
        cell.bias_ih_l0[6:12] = 40.0
    layers = [f for f in certify(recurrent_subject(stack).with_inputs(0.0, 1.0)).findings if "layer" in f.criterion]
    assert len(layers) == 2
    assert all(finding.margin < 0 for finding in layers)
    torch.save(cell.state_dict(), "forget.pt")
    assert cli.run(["certify", "forget.pt", "--input-box", "0", "1"]) == 1
    assert "No criterion holds: a forget gate may reach 1" in capsys.readouterr().out


# ONNX


STEPS = (
    "elman_step",
    "lstm_step",
    "gru_state_io",
    "lstm_state_io",
    "lstm_in_if",
    "lstm_layout1",
    "lstm_lengths",
    "lstm_plain",
)


@pytest.mark.parametrize("name", STEPS)
def test_one_small_network_is_certified_however_it_is_exported(name) -> None:
    pytest.importorskip("onnx")
    found = load_subject(FILES / f"{name}.onnx")
    subject = found.subject if name == "elman_step" else found.subject.with_inputs(-1.0, 1.0)
    assert certify(subject).verdict == "certified"
    if name.startswith("lstm"):
        assert np.array_equal(subject.w_hh, load_subject(FILES / "lstm_plain.onnx").subject.w_hh)


def test_a_mean_of_the_last_ten_outputs_is_no_mean_of_all(capsys) -> None:
    pytest.importorskip("onnx")
    assert load_module(FILES / "last_ten.onnx") is None
    assert load_subject(FILES / "last_ten.onnx").subject.inputs == 2
    assert cli.run(["radius", f"{FILES}/last_ten.onnx", "--data", f"{FILES}/last_ten.npz"]) == 2
    assert "window" in capsys.readouterr().err


# networks on data


class Classifier(nn.Module):
    """An LSTM with a head on its last output; with ``flat``, one logit without an axis of its own."""

    def __init__(self, classes: int = 2, flat: bool = False) -> None:
        super().__init__()
        self.rnn, self.head, self.flat = nn.LSTM(2, 5, batch_first=True), nn.Linear(5, classes), flat

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.head(self.rnn(x)[0][:, -1])
        return out[:, 0] if self.flat else out


def test_a_size_for_each_feature_is_one_size_of_standardised_features() -> None:
    x, scale = torch.randn(40, 6, 2), torch.tensor([1.0, 1000.0])
    model = Classifier().eval()
    y, far = model(x).argmax(1), nn.Sequential(Divided(scale), model).eval()
    wanted = attack_sweep(model, x, y, epsilons=[0.1, 0.5], bounds=None).accuracy
    found = attack_sweep(far, x * scale, y, epsilons=[0.1 * scale, 0.5 * scale], bounds=None).accuracy
    assert found == pytest.approx(wanted, abs=0.03)


class Divided(nn.Module):
    def __init__(self, scale: torch.Tensor) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / self.scale


def test_one_logit_gives_what_two_give() -> None:
    x, one, two = torch.randn(40, 6, 2), Classifier(1, flat=True).eval(), Classifier().eval()
    state = one.state_dict()
    two.load_state_dict(state | {k: torch.cat([0 * state[k], state[k]]) for k in ("head.weight", "head.bias")})
    y, column = two(x).argmax(1), Classifier(1).eval()
    column.load_state_dict(state)
    assert (y == (one(x) > 0)).all()
    accuracies = [
        attack_sweep(m, x, y, epsilons=[0.2, 0.6], attack="strong", bounds=None).accuracy for m in (one, column, two)
    ]
    assert accuracies[0] == accuracies[1] == accuracies[2]


PACKED = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.rnn, self.head = torch.nn.LSTM(3, 4, batch_first=True), torch.nn.Linear(4, 2)
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0][-1])

class Zeros(Net):
    def forward(self, x):
        return super().forward(x, (x.abs().sum(2) > 0).sum(1).clamp(min=1))

def with_lengths():
    return Net().eval()

def from_padding():
    return Zeros().eval()
"""


def test_padding_and_lengths_of_the_data(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "public_nets.py").write_text(PACKED)
    lengths = torch.arange(4, 16).repeat(2)
    x = torch.randn(24, 15, 3) * (torch.arange(15) < lengths[:, None])[..., None]
    y = torch.arange(24) % 2
    np.savez("own.npz", x=x.numpy(), y=y.numpy(), lengths=lengths.numpy())
    np.savez("plain.npz", x=x.numpy(), y=y.numpy())
    tables = []
    for name, data in (("with_lengths", "own.npz"), ("from_padding", "plain.npz")):
        assert cli.run(["attack", f"public_nets.py:{name}", "--data", data, "--attack", "pgd", "--json"]) == 0
        told = capsys.readouterr()
        tables.append(json.loads(told.out))
    assert "padding" in told.err
    assert tables[0]["accuracy"] == pytest.approx(tables[1]["accuracy"], abs=0.1)


def test_the_least_eigenvalue_of_a_hessian_is_that_of_the_dense_one() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.RNN(2, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    x, model = torch.randn(64, 9, 2).double(), Net().double()
    y = (x.sum((1, 2)) > 0).long() + (x[:, :, 0].mean(1) > 0.2).long()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    found, dense = hessian_summary(model, x, y), hessian_summary(model, x, y, method="dense")
    assert found.converged
    assert found.lambda_min == pytest.approx(dense.lambda_min, rel=0.02)
    assert found.condition_number == pytest.approx(dense.condition_number, rel=0.02)
