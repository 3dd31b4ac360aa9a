"""Laws that every layer obeys: registered ones, a user's own, stacks, layers of a deep network, wrapped torch modules.

A new layer is under test as soon as it is registered.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, DimensionError, NonFiniteError, UnsupportedError
from stability.kernel.format.serialization import decode, encode
from stability.models import LAYERS, SequenceModel, build, describe, load, save
from stability.models.classifier import classifier
from stability.models.gated_linear.block import GatedLinearBlock
from stability.systems import DrivenSystem, LureSystem

from .every_layer import (
    DTYPES,
    EVERY,
    HIDDEN,
    INPUT,
    OPTIONS,
    REGISTERED,
    SYSTEM,
    close,
    drawn_like,
    flat,
    inputs,
    leaves,
    make,
    own_layers,  # noqa: F401 - a fixture
    system_of,
)


@DTYPES
@EVERY
def test_shapes_and_dtypes(name, dtype):
    layer = make(name, dtype)
    outputs, state = layer(inputs(dtype=dtype))
    assert outputs.shape == (4, 6, layer.output_size)
    assert outputs.dtype == dtype
    assert torch.isfinite(outputs).all()
    if not isinstance(layer, GatedLinearBlock):  # whose size is the width of its outputs
        assert layer.hidden(state).shape == (4, layer.hidden_size)
    assert layer.hidden(state).dtype == dtype
    assert all(leaf.shape[0] == 4 for leaf in leaves(state))
    assert (layer.input_size, layer.hidden_size) == (INPUT, HIDDEN)


@DTYPES
@EVERY
def test_steps_equal_the_forward_pass(name, dtype):
    layer, x = make(name, dtype), inputs(dtype=dtype)
    outputs, final = layer(x)
    state = None
    for t in range(x.shape[1]):
        output, state = layer.step(x[:, t], state)
        torch.testing.assert_close(output, outputs[:, t], **close(dtype))
    for one, other in zip(leaves(state), leaves(final), strict=True):
        torch.testing.assert_close(one, other, **close(dtype))


@EVERY
def test_a_sequence_can_be_cut_anywhere(name):
    layer, x = make(name), inputs()
    outputs, final = layer(x)
    first, state = layer(x[:, :2])
    second, state = layer(x[:, 2:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), outputs, **close(torch.float64))
    for one, other in zip(leaves(state), leaves(final), strict=True):
        torch.testing.assert_close(one, other, **close(torch.float64))


@EVERY
def test_causality(name):
    layer, x = make(name), inputs()
    changed = x.clone()
    changed[:, 4:] += 1.0
    one, two = layer(x)[0], layer(changed)[0]
    torch.testing.assert_close(one[:, :4], two[:, :4], **close(torch.float64))
    assert (one[:, 4:] - two[:, 4:]).abs().max() > 1e-6


@EVERY
def test_samples_of_a_batch_are_independent(name):
    layer, x = make(name), inputs()
    outputs = layer(x)[0]
    for k in range(4):
        torch.testing.assert_close(layer(x[k : k + 1])[0][0], outputs[k], **close(torch.float64))


@EVERY
def test_one_step_and_one_sample(name):
    layer = make(name)
    outputs, _ = layer(inputs(1, 1))
    assert outputs.shape == (1, 1, layer.output_size)


@EVERY
def test_strided_input_gives_the_same(name):
    layer, x = make(name), inputs()
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous()
    torch.testing.assert_close(layer(strided)[0], layer(x)[0], **close(torch.float64))


@DTYPES
@EVERY
def test_gradients_reach_every_parameter(name, dtype):
    layer, x = make(name, dtype), inputs(dtype=dtype).requires_grad_()
    outputs, _ = layer(x)
    (outputs * torch.randn_like(outputs)).sum().backward()
    for key, value in [*layer.named_parameters(), ("x", x)]:
        assert value.grad is not None, key
        assert torch.isfinite(value.grad).all(), key
        assert value.grad.abs().max() > 0, key


@EVERY
def test_gradient_of_the_input_is_right(name):
    layer, x = make(name), inputs(2, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: layer(v)[0].square().sum(), (x,), atol=1e-6)


@EVERY
def test_gradients_of_parameters_are_right(name):
    layer, x = make(name), inputs(2, 3)
    loss = layer(x)[0].square().sum()
    parameters = dict(layer.named_parameters())
    grads = torch.autograd.grad(loss, list(parameters.values()))
    generator = torch.Generator().manual_seed(5)
    for (key, value), grad in zip(parameters.items(), grads):
        direction = torch.randn(value.shape, dtype=value.dtype, generator=generator)
        ends = []
        for sign in (1.0, -1.0):
            moved = {**parameters, key: value.detach() + sign * 1e-6 * direction}
            ends.append(torch.func.functional_call(layer, moved, (x,))[0].square().sum().item())
        slope = (ends[0] - ends[1]) / 2e-6
        assert slope == pytest.approx((grad * direction).sum().item(), rel=1e-4, abs=1e-6), key


@EVERY
def test_hessian_vector_products_are_right(name):
    """Curvature needs the derivative of the gradient; checked against differences of gradients."""
    layer, x = make(name), inputs(2, 3)
    parameters = list(layer.parameters())
    generator = torch.Generator().manual_seed(7)
    v = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in parameters]

    def gradient(create_graph=False):
        return torch.autograd.grad(layer(x)[0].square().sum(), parameters, create_graph=create_graph)

    product = torch.autograd.grad(gradient(True), parameters, v, allow_unused=True)
    shifted = []
    with torch.no_grad():
        for sign in (1, -2):
            for p, direction in zip(parameters, v):
                p.add_(sign * 1e-6 * direction)
            with torch.enable_grad():
                shifted.append(gradient())
    for hv, plus, minus in zip(product, *shifted):
        hv = torch.zeros_like(plus) if hv is None else hv
        torch.testing.assert_close(hv, (plus - minus) / 2e-6, rtol=1e-4, atol=1e-5)


@EVERY
def test_the_same_seed_gives_the_same_layer(name):
    one, two, other = (
        make(name, seed=3).state_dict(),
        make(name, seed=3).state_dict(),
        make(name, seed=4).state_dict(),
    )
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@EVERY
def test_configuration_builds_the_same_layer(name):
    layer = make(name)
    description = json.loads(json.dumps(describe(layer)))
    again = build(description).double()
    assert type(again) is type(layer)
    assert describe(again) == describe(layer)
    assert {k: v.shape for k, v in again.state_dict().items()} == {k: v.shape for k, v in layer.state_dict().items()}
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(inputs())[0], layer(inputs())[0])


@EVERY
def test_saved_and_loaded_is_bit_equal(name, tmp_path):
    """A network in single precision, a layer by itself in double."""
    model, x = SequenceModel(make(name, torch.float32), 4), inputs(dtype=torch.float32)
    again = load(save(model, tmp_path / "m.safetensors"))
    assert torch.equal(again(x), model(x))
    layer = make(name)
    again = load(save(layer, tmp_path / "layer.safetensors"))
    assert torch.equal(again(inputs())[0], layer(inputs())[0])


@EVERY
def test_the_system_is_the_map_that_runs(name):
    """The certified system advances exactly as the layer does, for states far from the start too."""
    layer = make(name, **SYSTEM.get(name, {}))
    subject = system_of(layer)
    x = inputs(5, 4)
    state = drawn_like(layer(x)[1])
    x_t = x[:, 0]
    _, after = layer.step(x_t, state)
    got = subject.advance(flat(layer, state), x_t.numpy())
    np.testing.assert_allclose(got, flat(layer, after), rtol=1e-12, atol=1e-12)


STORED = {"elman", "gru", "lstm", "neural_ode", "reservoir"}


@REGISTERED
def test_a_sentence_says_where_weights_are_computed_from_parameters(name):
    """In float64, from the stored numbers, also where the module runs in float32: about stability and about radii."""
    layer = make(name, torch.float32, **SYSTEM.get(name, {}))
    system_of(layer)
    subjects = [as_subject(layer), as_subject(nn.ModuleDict({"cell": layer}))]
    if name != "unitary":
        subjects.append(classifier(SequenceModel(layer, 2)))
    for subject in subjects:
        assert ("computed in float64 from the model's parameters" in subject.phrase) == (name not in STORED)
        assert decode(encode(subject)).phrase == subject.phrase
    twice = layer.double().driven()
    assert {**encode(twice), "part": "; computed"} == {**encode(subjects[0]), "part": "; computed"}


@pytest.mark.parametrize("name", [*sorted(LAYERS), "stack of linear layers"])
def test_the_jacobian_is_that_of_a_step(name):
    subject = system_of(make(name, **SYSTEM.get(name, {})))
    rng = np.random.default_rng(0)
    states = subject.system.states if isinstance(subject, DrivenSystem) else subject.states
    x, u = rng.normal(size=states), rng.normal(size=INPUT)
    J = subject.jacobian(x, u)
    for i, column in enumerate(J.T):
        step = np.zeros_like(x)
        step[i] = 1e-6
        difference = (subject.advance(x + step, u) - subject.advance(x - step, u)) / 2e-6
        np.testing.assert_allclose(column, difference, atol=1e-7)


@EVERY
def test_lure_answers_or_says_why_not(name):
    layer = make(name, **SYSTEM.get(name, {}))
    if isinstance(layer.driven(), DrivenSystem):
        assert isinstance(layer.lure(), LureSystem)
        assert layer.lure().is_discrete
    else:
        with pytest.raises(UnsupportedError):
            layer.lure()


@EVERY
def test_a_differential_equation_is_continuous_with_a_step_or_refused(name):
    layer = make(name, **SYSTEM.get(name, {}))
    if hasattr(layer, "integrator") and getattr(layer, "time", "continuous") == "continuous":
        assert not layer.lure(continuous=True).is_discrete
        assert layer.driven(continuous=True).system.dt is None
        assert layer.lure().dt == layer.time_step > 0
    else:
        assert layer.time_step is None
        for asked in (layer.lure, layer.driven):
            with pytest.raises(UnsupportedError):
                asked(continuous=True)


@EVERY
def test_matrices_are_those_of_the_gradient_path(name):
    for key, value in make(name).matrices().items():
        assert value.dim() == 2, key
        assert torch.isfinite(value.detach().abs()).all(), key


@EVERY
def test_bad_inputs_give_typed_errors(name):
    layer, x = make(name), inputs()
    with pytest.raises(DimensionError):
        layer(x[..., :2])
    with pytest.raises(DimensionError):
        layer(x[0])
    with pytest.raises(DimensionError):
        layer(x[:0])
    with pytest.raises(DimensionError):
        layer(x[:, :0])
    with pytest.raises(ConfigurationError):
        layer(x.long())
    with pytest.raises(ConfigurationError):
        layer(x.float())
    with pytest.raises(ConfigurationError):
        layer(x.numpy())
    with pytest.raises(ConfigurationError):
        layer(None)
    with pytest.raises(DimensionError):
        layer.step(x)
    with pytest.raises(ConfigurationError):
        layer.step(x[:, 0].float())


@EVERY
def test_bad_states_give_typed_errors(name):
    layer, x = make(name), inputs()
    _, state = layer(x)
    with pytest.raises(DimensionError):
        layer(x[:2], state)
    with pytest.raises(ConfigurationError):
        layer(x, "state")
    with pytest.raises(ConfigurationError):
        layer(x, (*leaves(state), leaves(state)[0]))


@pytest.mark.parametrize("sizes", [(0, 8), (3, 0), (3, -8), (3.0, 8), (True, 8), ("3", 8), (3, None)])
@REGISTERED
def test_bad_sizes_give_typed_errors(name, sizes):
    with pytest.raises(ConfigurationError):
        LAYERS[name](*sizes, **OPTIONS.get(name, {}))


@EVERY
def test_nan_weights_have_no_system(name):
    layer = make(name)
    with torch.no_grad():
        next(layer.parameters()).view(-1)[0] = float("nan")
    with pytest.raises(NonFiniteError):
        layer.driven()


@EVERY
def test_a_layer_says_what_it_is(name):
    assert f"hidden_size={HIDDEN}" in repr(make(name))
    assert type(make(name)).__doc__


@EVERY
def test_states_of_another_batch_width_or_kind_are_refused_step_by_step(name):
    """States refused by the forward pass are refused by ``begin``, with which hand-written loops start."""
    layer, x = make(name), inputs()
    _, state = layer(x)
    first = leaves(state)[0]

    def with_first(other):
        def swapped(value):
            if isinstance(value, tuple):
                return (swapped(value[0]), *value[1:])
            return other

        return swapped(state)

    for wrong in (first[:1], first[:, :1], first[0]):
        with pytest.raises(DimensionError):
            layer.begin(x, with_first(wrong))
        with pytest.raises(DimensionError):
            layer.step(x[:, 0], with_first(wrong))
    with pytest.raises(ConfigurationError):
        layer.begin(x, with_first("state"))
    with pytest.raises(ConfigurationError):
        layer.begin(x.float(), state)
    _, begun = layer.begin(x, state)
    assert all(one is other for one, other in zip(leaves(begun), leaves(state), strict=True))
    _, own = layer.begin(x)
    assert [leaf.shape for leaf in leaves(own)] == [leaf.shape for leaf in leaves(state)]
