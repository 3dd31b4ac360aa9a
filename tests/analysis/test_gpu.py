"""Every measurement of a model on a CUDA device: the same as on the processor. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stability import Verdict, certify, verify
from stability import analysis as an
from stability.analysis.attacks.strong import strong
from stability.models import LAYERS, SequenceModel, load, save

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICE = "cuda"
T, F, CLASSES, N = 9, 4, 3, 8


def data(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(12, T, F, generator=generator, dtype=dtype), torch.randint(CLASSES, (12,), generator=generator)


def network(kind: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return SequenceModel(LAYERS[kind](F, N), CLASSES).to(dtype)


def both(model: nn.Module, found, dtype: torch.dtype = torch.float64):
    """Return ``found(model, x, y)`` on the processor and on the device, with inputs and labels there as well."""
    x, y = data(dtype)
    here = found(model, x, y)
    there = found(model.to(DEVICE), x.to(DEVICE), y.to(DEVICE))
    assert next(model.parameters()).device.type == DEVICE
    return here, there


def close(here, there, tol: float = 1e-7) -> None:
    as_array = lambda v: v.detach().cpu().numpy() if isinstance(v, Tensor) else np.asarray(v, dtype=float)  # noqa: E731
    np.testing.assert_allclose(as_array(there), as_array(here), rtol=tol, atol=tol)


@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_layers_and_their_gradients(kind: str) -> None:
    def found(model, x, y):
        x = x.clone().requires_grad_()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        return [logits, *torch.autograd.grad(loss, [x, *(p for p in model.parameters() if p.requires_grad)])]

    for here, there in zip(*both(network(kind).train(), found)):
        assert there.device.type == DEVICE
        close(here, there)


@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_certificates_and_files(kind: str, tmp_path: Path) -> None:
    def found(model, x, y):
        answer = certify(model, seed=1)
        assert answer.verdict is Verdict.INCONCLUSIVE or verify(answer).verdict == answer.verdict.value
        return answer

    model = network(kind)
    here, there = both(model, found)
    assert there.verdict is here.verdict
    file = save(model, tmp_path / "model.npz")
    x, _ = data(torch.float64)
    close(model(x.to(DEVICE)), load(file)(x))


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("attack", [an.fgsm, an.pgd, an.apgd, strong, an.deepfool])
@pytest.mark.parametrize("kind", ["contracting", "lstm"])
def test_attacks(kind: str, attack, norm: str) -> None:
    mask = torch.ones(T, F, dtype=torch.bool)
    mask[2] = False

    def found(model, x, y):
        result = attack(model, x, model(x).argmax(1), epsilon=0.3, norm=norm, mask=mask.to(x.device), seed=3)
        assert torch.equal(result.adversarial[:, 2], x[:, 2])
        return result

    here, there = both(network(kind), found)
    assert there.adversarial.device.type == DEVICE
    assert torch.equal(there.success.cpu(), here.success)
    close(here.adversarial, there.adversarial, 1e-4)


def test_sweeps() -> None:
    def found(model, x, y):
        y = model(x).argmax(1)
        noise = [
            an.noise_sweep(model, x, y, kind=kind, levels=[0, 0.3], draws=2, seed=1)
            for kind in ("white", "salt_pepper")
        ]
        return [*noise, an.parameter_noise_sweep(model, x, y, levels=[0, 0.5], draws=2, seed=1)]

    for here, there in zip(*both(network("lipschitz"), found)):
        close(here.accuracy, there.accuracy)


def test_scores_of_a_regression() -> None:
    x, _ = data(torch.float64)
    task = an.task_from_arrays(x.numpy(), x.sum((1, 2)).numpy()[:, None], held_out=0.5)
    model = SequenceModel(LAYERS["lipschitz"](F, N), 1).double()
    found = []
    for device in ("cpu", DEVICE):
        x, y = (t.to(device, torch.float64) for t in task.test)
        swept = an.attack_scores(model.to(device), x, y, task=task, epsilons=[0.0, 0.2])
        found.append([*swept.score, *an.evaluate(model, x, y, task)])
    close(*found, 1e-6)


@pytest.mark.parametrize("kind", ["contracting", "lipschitz", "lstm"])
def test_dynamics(kind: str) -> None:
    def found(model, x, y):
        drift = an.norm_drift(model, x, factor=2)
        return [
            an.lyapunov_exponents(model, x, 3).exponents,
            an.finite_time_exponents(model, x, 2, skip=0),
            an.lyapunov_penalty(model, x, -0.1),
            an.measured_recovery(model, x).steps,
            drift.rms,
            drift.grad_norm,
            an.hessian_summary(model, x, y, tol=1e-6).lambda_max,
            an.spectral_density(model, x, y, n_vectors=2, steps=8).grid,
        ]

    for here, there in zip(*both(network(kind), found)):
        close(here, there, 1e-5)


def test_margins_that_training_asks_for() -> None:
    close(*both(network("lipschitz"), lambda model, x, y: an.margin_penalty(model, 0.1)))
    close(*both(network("elman"), lambda model, x, y: an.contraction_gap(model.layer)))


def test_what_rounding_moves() -> None:
    here, there = both(
        network("lstm", torch.float32), lambda model, x, y: an.rounding_distance(model, x).largest, torch.float32
    )
    assert 0.0 < here < 1e-4
    assert 0.0 < there < 1e-4


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("kind", ["contracting", "lipschitz", "gru"])
def test_radii_of_single_inputs(kind: str, norm: str, tmp_path: Path) -> None:
    def found(model, x, y):
        kept = []
        answer = an.local_radius(
            model, x[:3], model(x[:3]).argmax(1), norm=norm, keep=lambda k, claim: kept.append(claim)
        )
        assert len(kept) == 3
        return answer

    here, there = both(network(kind), found)
    assert np.all(np.asarray(there.radius) > 0.0)
    close(here.radius, there.radius, 1e-3)
    close(here.attack_radius, there.attack_radius, 1e-3)


def test_the_radius_of_a_global_gain() -> None:
    here, there = both(network("contracting"), lambda model, x, y: an.certified_radius(model, x, y).radius)
    close(here, there)


def test_what_was_trained_there_is_read_here(tmp_path: Path) -> None:
    """With the same weights, and gone on with."""
    x, y = data(torch.float32)
    task = an.task_from_arrays(x.numpy(), y.numpy(), held_out=0.5)
    model = network("lstm", torch.float32)
    result = an.train(model.to(DEVICE), task, epochs=2, out=tmp_path / "run")
    assert next(model.parameters()).device.type == DEVICE
    assert result.history[1].train_loss < result.history[0].train_loss
    stored = load(tmp_path / "run")
    assert next(stored.parameters()).device.type == "cpu"
    close(model.cpu()(x), stored(x), 1e-6)
    assert an.train(network("lstm", torch.float32), task, epochs=3, resume=tmp_path / "run").epochs == 3
