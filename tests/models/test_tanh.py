"""The tangent by numpy is torch's to rounding, and only where nobody records, traces, transforms or watches."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from stability.models import AntisymmetricRNN, LipschitzRNN
from stability.models.tanh import is_bare, tanh_of


def layer():
    torch.manual_seed(0)
    return LipschitzRNN(2, 4, dt=0.3, init_std=0.7).double()


class Calls(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Asked(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class Marked(torch.Tensor):
    pass


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float32, 2.0**-23), (torch.float64, 2.0**-52)])
def test_it_is_the_tangent_to_two_units_in_the_last_place(dtype, unit):
    z = torch.cat([torch.linspace(-30, 30, 20001, dtype=dtype), torch.logspace(-30, 1, 2001, dtype=dtype)])
    z = torch.cat([z, torch.tensor([0.0, -0.0, float("inf"), -float("inf")], dtype=dtype)])
    expected, found = torch.tanh(z.double()), tanh_of(z.clone()).double()
    assert ((found - expected).abs() <= 2 * unit * expected.abs()).all()
    assert tanh_of(torch.full((1,), float("nan"), dtype=dtype)).isnan().all()


@pytest.mark.parametrize("kind", [LipschitzRNN, AntisymmetricRNN])
@pytest.mark.parametrize("integrator", ["euler", "midpoint"])
def test_a_layer_without_a_graph_is_the_layer_with_one(kind, integrator):
    torch.manual_seed(1)
    own, x = kind(2, 4, dt=0.3, init_std=0.7, integrator=integrator).double(), torch.randn(3, 7, 2).double()
    start, kept = torch.randn(3, 4).double(), x.clone()
    begun = start.clone()
    expected = own(x, start)[0].detach()
    with torch.no_grad():
        found, again = own(x, start)[0], own(x, start)[0]
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-15)
    assert torch.equal(found, again)
    assert torch.equal(x, kept)
    assert torch.equal(start, begun)


def test_who_records_gets_a_graph():
    z = torch.ones(2, dtype=torch.float64, requires_grad=True)
    tanh_of(z).sum().backward()
    torch.testing.assert_close(z.grad, 1 - torch.tanh(z.detach()) ** 2)


@pytest.mark.filterwarnings("ignore")
def test_a_tangent_of_forward_mode_is_kept():
    own, x = layer().requires_grad_(False), torch.randn(1, 3, 2, dtype=torch.float64)
    v = torch.randn_like(x)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(own(forward_ad.make_dual(x, v))[1]).tangent
    assert found is not None
    h = 1e-6
    torch.testing.assert_close(found, (own(x + h * v)[1] - own(x - h * v)[1]) / (2 * h), rtol=1e-6, atol=1e-8)


def test_transforms_see_it():
    own, x = layer().requires_grad_(False), torch.randn(5, 1, 3, 2, dtype=torch.float64)
    found = torch.vmap(lambda part: own(part)[1])(x)
    torch.testing.assert_close(found[:, 0], own(x[:, 0])[1])
    one = torch.func.jacrev(tanh_of)(torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(one, torch.eye(2, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore")
def test_a_trace_has_it():
    own = layer().requires_grad_(False)
    x, other = torch.randn(2, 1, 3, 2, dtype=torch.float64)
    traced = torch.jit.trace(lambda x: own(x)[1], x)
    torch.testing.assert_close(traced(other), own(other)[1])


def test_an_export_has_it():
    own = layer().requires_grad_(False)
    x, other = torch.randn(2, 1, 3, 2, dtype=torch.float64)
    program = torch.export.export(own, (x,)).module()
    torch.testing.assert_close(program(other)[1], own(other)[1])


def test_modes_see_it():
    with Calls() as calls:
        tanh_of(torch.zeros(2))
    with Asked() as asked:
        tanh_of(torch.zeros(2))
    assert any("tanh" in name for name in calls.names)
    assert torch.tanh in asked.seen


def test_other_numbers_are_left_to_torch():
    for z in (
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2).as_subclass(Marked),
    ):
        assert not is_bare(z)
        assert torch.equal(tanh_of(z), torch.tanh(z))
        assert torch.equal(z, torch.ones_like(z))
