r"""Expected norm of a hidden state, and its certified upper bound.

**Expected.** For linear layers, :math:`E|x_t|^2` has a closed form for white input: entries of mean zero and equal
variance, independent over time and features. For RotRNN it is :math:`\sum_{heads} c\,(1 - \gamma^{2t})`. It scales with
the variance of the input and is a *mean square*: compare it with the root mean square over sequences. The mean norm is
smaller. Input that is not white, such as images, has no expected norm.

**Certified.** If a step shrinks the distance of two states under the same input by a factor ``rho`` in the norm
``|.|_P``, the state stays close to any point ``r``:

.. math:: \|h_t - r\|_P \le \rho\,\|h_{t-1} - r\|_P + \|f(r, u_t) - r\|_P ,

which holds for the given inputs. For constant input and ``r`` equal to the equilibrium ``h*``, it becomes
:math:`|h_t - h_*| \le C \rho^t |h_0 - h_*|`.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stability.certificate import Certificate
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.kernel.format.sentences import at_most
from stability.search.gated_linear import layer_claims
from stability.systems import DrivenSystem, GatedLinearLayer

from ...models.gated_linear.block import GatedLinearBlock
from ...models.linear import LinearLayer
from ...models.orthogonal import OrthogonalLayer
from ...models.recurrent import RecurrentLayer
from ...models.tensors import to_numpy
from ..unroll import flat_state
from .stepbound import SLACK, StepBound, step_bound

Array = NDArray[np.float64]
SIGMAS = 6.0  # standard errors of a sample statistic beyond which an input is not white
LAGS = 8  # time lags of the correlations in the test for white noise
BLOCK = 1 << 22  # numbers per block of states, 32 MiB in float64
EQUILIBRIUM_STEPS = 200  # steps of the mean input towards an equilibrium; the reference state need not be exact


def why_not_white(x: Tensor) -> str | None:
    """Return the reason why sequences are no sample of white noise, or ``None`` if the tests pass.

    The tests compare the mean, the variance of each feature and time step, and correlations between features and over
    up to eight steps with white noise. The tolerance is six standard errors.

    Args:
        x: ``(batch, time, features)``.

    Example:
        >>> white = torch.randn(50, 20, 2, generator=torch.Generator().manual_seed(0))
        >>> why_not_white(white), why_not_white(white + 3), why_not_white(white * torch.arange(20.0)[:, None])
        (None, 'its mean is not zero', 'its power or mean changes over time')
    """
    u = x.detach().double().cpu().numpy()
    batch, steps, features = u.shape
    power = float((u**2).mean())
    if power == 0 or not math.isfinite(power):
        return "it is zero"
    u = u / math.sqrt(power)
    count = batch * steps
    excess = SIGMAS * math.sqrt(max(float((u**2).var()), 1.0))  # of a mean of squares of one entry

    def differs(values: Array, samples: int, scale: float) -> bool:
        return bool((np.abs(values) > scale / math.sqrt(samples)).any())

    if differs(u.mean((0, 1)), count, SIGMAS):
        return "its mean is not zero"
    if differs((u**2).mean((0, 1)) - 1, count, excess):
        return "its features differ in power"
    if differs((u**2).mean((0, 2)) - 1, batch * features, excess) or differs(u.mean((0, 2)), batch * features, SIGMAS):
        return "its power or mean changes over time"
    products = np.einsum("btf,btg->fg", u, u) / count
    if features > 1 and differs(products[~np.eye(features, dtype=bool)], count, SIGMAS):
        return "its features are correlated"
    for lag in range(1, min(LAGS, steps - 1) + 1):
        shifted = np.einsum("btf,btg->fg", u[:, lag:], u[:, :-lag]) / (batch * (steps - lag))
        if differs(shifted, batch * (steps - lag), SIGMAS):
            return f"inputs {lag} step{'s' if lag > 1 else ''} apart are correlated"
    return None


def expected_rms(layer: Any, x: Tensor, length: int, extension: str) -> tuple[Array | None, str]:
    """Return the expected root mean square norm over time for white input of the same power, and its assumption.

    Args:
        layer: a recurrent layer; its ``expected_norm(t)`` assumes white input of variance one.
        x: ``(batch, length, features)``, the given sequences.
        length: number of steps of the curve.
        extension: continuation of the sequences: only ``noise`` stays white.

    Returns:
        The curve ``(length,)``, NaN after the input stops being white; ``None`` if the norm has no closed form or the
        input is not white. And a sentence, empty for a layer without a closed form.
    """
    if layer.expected_norm(1) is None:
        return None, ""
    reason = why_not_white(x)
    if reason is not None:
        return None, f"no norm is expected: the theory is for white input, and {reason}"
    size = math.sqrt(float(x.detach().double().square().mean()))
    known = length if extension == "noise" else x.shape[1]
    curve = np.full(length, np.nan)
    curve[:known] = [size * float(layer.expected_norm(t)) for t in range(1, known + 1)]
    return curve, f"root mean square expected for white input of standard deviation {size:.4g}"


def _state_bound(layer: GatedLinearLayer) -> float | None:
    """Return a proved bound of the Euclidean norm of the whole state of a layer; ``None`` where there is none."""
    claims = (c for c in layer_claims(layer) if c.name == "state_bound" and c.verdict is Verdict.CERTIFIED)
    proof = next((claim.proof for claim in claims), None)
    if proof is None:
        return None
    entries = layer.unit_states if layer.unit == "channel" else 1  # other units: the norm of all their entries
    return math.sqrt(entries) * float(np.linalg.norm(proof.data["bounds"])) * (1 + SLACK)


def norm_bound(layer: RecurrentLayer, x: Tensor, certificate: Certificate | None = None) -> tuple[Array | None, str]:
    """Bound the hidden state's norm over time for every given sequence; also return the source of the bound.

    The bound holds for the stored weights in exact arithmetic and for the layer's own initial state. It is computed in
    float64 with a slack of 1e-9, without interval arithmetic.

    Args:
        layer: a recurrent layer.
        x: ``(batch, time, features)``.
        certificate: certificate by the multiplier inequality; its proof is checked again. Default: the layer's own
            proof, or the norm of its orthogonal or linear map. The state bound of a gated linear layer is proved here.

    Returns:
        Bound ``(time,)`` and its source; ``None`` and an empty text if no contraction is proved.

    Example:
        >>> from stability.models import ContractingRNN
        >>> layer, x = ContractingRNN(1, 4, rate=0.9), torch.ones(2, 50, 1)
        >>> bound, source = norm_bound(layer, x)
        >>> bool((layer(x)[0].norm(dim=2).max(0).values.detach().numpy() <= bound).all()), source
        (True, 'certified contraction at rate 0.8...')
    """
    if isinstance(layer, GatedLinearBlock):
        size = _state_bound(layer.gated_linear())
        return (None, "") if size is None else (np.full(x.shape[1], size), "certified state bound")
    step_bound = _step(layer, certificate)
    if step_bound is None:
        return None, ""
    bound, source = step_bound
    smallest = np.full(tuple(x.shape[:2]), math.inf)
    norm_ratio = float(np.linalg.norm(np.linalg.inv(bound.root), 2))  # |d|_2 <= norm_ratio |d|_P
    replay = _Replay(layer, x)
    for reference in replay.references():
        size = np.linalg.norm((replay.start - reference) @ bound.root.T, axis=1)
        displacement = replay.displacements(reference, bound.root)
        for t in range(x.shape[1]):
            size = bound.rate * size + displacement[:, t]
            smallest[:, t] = np.minimum(smallest[:, t], np.linalg.norm(reference) + norm_ratio * size)
    return smallest.max(axis=0) * (1 + SLACK) + SLACK, source


def _step(layer: RecurrentLayer, certificate: Certificate | None) -> tuple[StepBound, str] | None:
    """Return a norm, the factor (at most one) by which a step shrinks distances in it, and its source; or ``None``."""
    witness = layer.witness()
    if certificate is not None:
        if not isinstance(certificate, Certificate):
            raise ConfigurationError(f"certificate must be a Certificate, got {type(certificate).__name__}")
        proof = certificate.claim.proof
        if certificate.verdict is Verdict.CERTIFIED and proof is not None and proof.kind == "multiplier_lmi":
            witness = dict(proof.data)
    if isinstance(layer, OrthogonalLayer) and witness is None:
        expansion = layer.expansion()
        factor = expansion.factor * (1 + SLACK)
        words = f"{expansion.kind} in the Euclidean norm"
        return (_euclidean(layer.hidden_size, factor), words) if expansion.factor <= 1 + SLACK else None
    try:
        subject = layer.driven()
    except UnsupportedError:
        return None
    if not isinstance(subject, DrivenSystem) or not subject.system.is_discrete:
        return None
    if isinstance(layer, LinearLayer):  # a certificate's metric may be in other coordinates than the state
        factor = float(np.linalg.norm(subject.system.A, 2)) * (1 + SLACK)
        words = f"linear map of norm {at_most(factor, near=1.0)}"
        return (_euclidean(subject.system.states, factor), words) if factor < 1 else None
    if witness is None:
        return None
    bound = step_bound(subject, witness)
    return bound, f"certified contraction at rate {at_most(bound.rate, near=1.0)}"


def _euclidean(states: int, rate: float) -> StepBound:
    return StepBound(np.eye(states), rate, math.nan, "")


class _Replay:
    """Float64 copy of the stored map, applied to one state under the inputs of all sequences."""

    def __init__(self, layer: RecurrentLayer, x: Tensor) -> None:
        self.subject = None if isinstance(layer, (LinearLayer, OrthogonalLayer)) else layer.driven()
        self.layer = copy.deepcopy(layer).double().eval()
        self.x = x.detach().double()
        with torch.no_grad():
            self.prepared, state = self.layer.begin(self.x)
            self.drives = self.layer.drive(self.x, self.prepared)
        self.start = to_numpy(flat_state(state))

    def displacements(self, reference: Array, root: Array) -> Array:
        """Return ``|R (f(r, u_t) - r)|`` for one state ``r (n,)``, shape ``(batch, time)``."""
        batch, steps, _ = self.x.shape
        block = max(1, BLOCK // (batch * len(reference)))
        parts = [self._images(reference, slice(t, t + block)) for t in range(0, steps, block)]
        return np.concatenate([np.linalg.norm((part - reference) @ root.T, axis=2) for part in parts], axis=1)

    def _images(self, reference: Array, times: slice) -> Array:
        """Return ``f(r, u_t)`` at the selected times, ``(batch, times, n)``."""
        if self.subject is not None:  # the layer's matrices with the rounding of a run
            return self.subject.advance(reference, self.x[:, times].cpu().numpy())
        drives = self.drives[:, times]
        with torch.no_grad():
            states = torch.as_tensor(reference, device=drives.device).expand(drives.shape[0] * drives.shape[1], -1)
            images = self.layer.transition(drives.flatten(0, 1), states, self.prepared)
        return to_numpy(flat_state(images)).reshape(*drives.shape[:2], -1)

    def references(self) -> list[Array]:
        """Return reference states: zero, and the settled state under the mean input."""
        zero = np.zeros(self.start.shape[1])
        if self.subject is None:
            return [zero]
        mean, h = self.x.mean((0, 1)).cpu().numpy(), zero
        for _ in range(EQUILIBRIUM_STEPS):
            h = self.subject.advance(h, mean)
        return [zero, h]
