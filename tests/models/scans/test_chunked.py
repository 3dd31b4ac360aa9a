"""Chunked scans of matrix states against the plain loop: values, derivatives of both orders, extreme decays."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.functional import vhp

from stability.errors import ConfigurationError, DimensionError
from stability.models import delta_rule_scan, scalar_gated_scan

SCANS = [scalar_gated_scan, delta_rule_scan]


def loop(scan, q, k, v, log_decay, *beta, initial):
    """The recurrence as it is written, one step after the other, every head for itself."""
    each = v.shape[2] // q.shape[2]
    q, k = q.repeat_interleave(each, 2), k.repeat_interleave(each, 2)
    state, outputs = initial, []
    for t in range(v.shape[1]):
        state = log_decay[:, t, :, None, None].exp() * state
        key, value = k[:, t, :, :, None], v[:, t, :, None]
        if scan is delta_rule_scan:
            strength = beta[0][:, t, :, None, None]
            state = state - strength * key @ (key.mT @ state) + strength * key @ value
        else:
            state = state + key @ value
        outputs.append((state.mT @ q[:, t, :, :, None]).squeeze(-1))
    return torch.stack(outputs, 1), state


def arguments(scan, time, kind=torch.float64, seed=0):
    """Two groups that serve two heads each; decays from one to zero, by numbers of all sizes and by infinity."""
    g = torch.Generator().manual_seed(seed)
    random = {"dtype": torch.float64, "generator": g}
    q, k = torch.randn(2, 2, time, 2, 3, **random)
    v, initial = torch.randn(2, time, 4, 5, **random), torch.randn(2, 4, 3, 5, **random)
    log_decay = -torch.rand(2, time, 4, **random)
    log_decay = torch.where(torch.rand(2, time, 4, **random) < 0.2, 1e4 * log_decay, log_decay)
    log_decay = torch.where(torch.rand(2, time, 4, **random) < 0.2, 0.0, log_decay)
    log_decay = torch.where(torch.rand(2, time, 4, **random) < 0.05, -torch.inf, log_decay)
    beta = [2 * torch.rand(2, time, 4, **random)] if scan is delta_rule_scan else []
    keys = [q, k / k.norm(dim=-1, keepdim=True)]
    return [x.to(kind) for x in (*keys, v, log_decay, *beta, initial)]


def weighted(run, *tensors):
    """A function of all outputs and of the last state with derivatives that depend on them."""
    outputs, state = run(*tensors[:-1], initial=tensors[-1])
    return outputs.sin().sum() + state.cos().sum()


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize(("time", "chunk"), [(1, 4), (4, 4), (37, 8), (37, 64), (64, 1)])
def test_a_scan_is_the_loop_with_the_same_first_and_second_derivatives(scan, time, chunk):
    tensors = arguments(scan, time)

    def chunked(*x, initial):
        return scan(*x, initial=initial, chunk=chunk)

    def plain(*x, initial):
        return loop(scan, *x, initial=initial)

    for ours, expected in zip(chunked(*tensors[:-1], initial=tensors[-1]), plain(*tensors[:-1], initial=tensors[-1])):
        torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)
    directions = tuple(torch.randn_like(x) for x in tensors)
    both = [vhp(lambda *x, run=run: weighted(run, *x), tuple(tensors), directions)[1] for run in (chunked, plain)]
    first = [
        torch.autograd.grad(weighted(run, *leaves), leaves)
        for run in (chunked, plain)
        for leaves in [[x.clone().requires_grad_() for x in tensors]]
    ]
    for ours, expected in (both, first):
        for one, other in zip(ours, expected):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scan", SCANS)
def test_float32_stays_exact_and_finite_behind_extreme_decays(scan):
    *tensors, initial = arguments(scan, 200, torch.float32)
    expected, _ = loop(scan, *(x.double() for x in tensors), initial=initial.double())
    leaves = [x.requires_grad_() for x in tensors]
    outputs, state = scan(*leaves, initial=initial)
    assert outputs.dtype == state.dtype == torch.float32
    assert (outputs.double() - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert all(torch.isfinite(grad).all() for grad in torch.autograd.grad(outputs.square().sum(), leaves))


@pytest.mark.parametrize("scan", SCANS)
def test_the_last_state_carries_a_sequence_on(scan):
    *tensors, initial = arguments(scan, 50)
    whole, last = scan(*tensors, initial=initial, chunk=16)
    _, middle = scan(*(x[:, :23] for x in tensors), initial=initial, chunk=16)
    outputs, end = scan(*(x[:, 23:] for x in tensors), initial=middle, chunk=16)
    torch.testing.assert_close(outputs, whole[:, 23:])
    torch.testing.assert_close(end, last)


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize(
    ("index", "change", "error"),
    [
        (0, lambda x: x.long(), ConfigurationError),
        (1, lambda x: x.to("meta"), ConfigurationError),
        (1, lambda x: x[:, 1:], DimensionError),
        (2, lambda x: x[:, :, :3], DimensionError),
        (3, lambda x: x[..., None], DimensionError),
        (-1, lambda x: x[:, :1], DimensionError),
    ],
)
def test_tensors_that_do_not_fit_are_refused(scan, index, change, error):
    tensors = arguments(scan, 5)
    tensors[index] = change(tensors[index])
    with pytest.raises(error):
        scan(*tensors[:-1], initial=tensors[-1])
