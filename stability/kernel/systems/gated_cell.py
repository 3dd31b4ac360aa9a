"""LSTM and GRU cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.arithmetic.activations import activation
from stability.kernel.checks import as_choice, as_column, as_matrix, as_numbers, as_vectors
from stability.kernel.format.serialization import subject
from stability.kernel.systems.gated_equations import FLOATS, GATES, step_and_derivative
from stability.kernel.systems.parts import as_part, origin_phrase, part_phrase
from stability.kernel.systems.subjects import Subject

Array = np.ndarray
sigmoid = activation("sigmoid").function


def _vector(name: str, value: Any, size: int) -> Array:
    """Return a read-only finite float64 vector; a number is repeated, ``None`` is zero."""
    raw = as_numbers(name, 0.0 if value is None else value)
    if raw.ndim > 1 or (raw.ndim == 1 and len(raw) != size):
        raise DimensionError(name, (size,), raw.shape)
    return as_column(name, np.broadcast_to(raw, size), size)


@subject("gated")
@dataclass(frozen=True, eq=False, repr=False)
class GatedCell(Subject):
    r"""LSTM or GRU cell with its weights and the box of its inputs.

    LSTM, state ``(h, c)``, gates stacked in the order i, f, g, o:

    .. math:: (i, f, o) = \sigma(W u + b + R h + r), \; g = \tanh(W u + b + R h + r), \;
              c^+ = f c + i g, \; h^+ = o \tanh c^+ .

    GRU, state ``h``, gates stacked in the order r, z, n:

    .. math:: (r, z) = \sigma(W u + b + R h + r_0), \; n = \tanh(W u + b + r (R h + r_0)), \;
              h^+ = (1 - z) n + z h .

    These are the conventions of ``torch.nn``. With ``reset_after=False`` the GRU's reset gate multiplies the
    state before the product instead: ``n = tanh(W u + b + R (r h) + r_0)``.

    Args:
        kind: ``"lstm"`` or ``"gru"``.
        w_ih: ``(g m, p)`` input weights for ``g`` gates and ``m`` hidden units.
        w_hh: ``(g m, m)`` recurrent weights.
        b_ih: ``(g m,)`` input bias; ``None`` is zero.
        b_hh: ``(g m,)`` recurrent bias; ``None`` is zero.
        input_low: ``(p,)`` or a number: lower end of the input box; ``None`` (both): any input.
        input_high: ``(p,)`` or a number: upper end of the input box.
        reset_after: True if the GRU's reset gate acts after the product; ignored for an LSTM.
        name: name in reports.
        part: ``"PATH of WHOLE"`` for a part of a larger model, see ``stability.kernel.systems.parts``.

    Raises:
        ConfigurationError: an unknown kind, an empty box, or a box with one end only.
        DimensionError: shapes that do not fit together.
        NonFiniteError: NaN or infinite entries.

    Example:
        >>> cell = GatedCell("gru", np.zeros((3, 1)), np.zeros((3, 1)), input_low=-1.0, input_high=1.0)
        >>> cell.advance(np.array([0.8]), np.array([0.3]))
        array([0.4])
    """

    kind: str
    w_ih: Any
    w_hh: Any
    b_ih: Any = None
    b_hh: Any = None
    input_low: Any = None
    input_high: Any = None
    _: KW_ONLY
    reset_after: bool = True
    name: str = "cell"
    part: str = ""

    rests_on_boxes = True

    def __post_init__(self) -> None:
        kind, low, high = self.kind, self.input_low, self.input_high
        count = len(GATES[as_choice("gated cell", kind, GATES)])
        recurrent = as_matrix("w_hh", self.w_hh)
        hidden = recurrent.shape[1]
        if hidden == 0 or recurrent.shape[0] != count * hidden:
            raise DimensionError("w_hh", f"({count} m, m) with m >= 1 for a {kind}", recurrent.shape)
        entry = as_matrix("w_ih", self.w_ih, (count * hidden, None))
        if (low is None) != (high is None):
            raise ConfigurationError("an input box needs both input_low and input_high (or neither: any input)")
        if low is not None:
            low = _vector("input_low", low, entry.shape[1])
            high = _vector("input_high", high, entry.shape[1])
            if (low > high).any():
                j = int(np.argmax(low > high))
                raise ConfigurationError(
                    f"the input box is empty: input_low {low[j]} > input_high {high[j]} at input {j}"
                )
        biases = {name: _vector(name, getattr(self, name), count * hidden) for name in ("b_ih", "b_hh")}
        self._set(w_ih=entry, w_hh=recurrent, input_low=low, input_high=high, **biases)
        self._set(reset_after=bool(self.reset_after), name=str(self.name), part=as_part(self.part))

    def __repr__(self) -> str:
        box = "any input" if self.input_low is None else "inputs in a box"
        return f"GatedCell({self.kind!r}, inputs={self.inputs}, hidden={self.hidden}, {box}, name={self.name!r})"

    @property
    def hidden(self) -> int:
        """Number of hidden units ``m``."""
        return self.w_hh.shape[1]

    @property
    def states(self) -> int:
        """Size of the state: ``2 m`` (h, then c) for an LSTM, ``m`` for a GRU."""
        return self.hidden * (2 if self.kind == "lstm" else 1)

    @property
    def inputs(self) -> int:
        """Number of inputs ``p``."""
        return self.w_ih.shape[1]

    @property
    def outputs(self) -> int:
        """Number of outputs: the hidden units."""
        return self.hidden

    @property
    def kind_name(self) -> str:
        """Name of this kind of layer in sentences."""
        return self.kind.upper()

    @property
    def output_bound(self) -> float:
        """One: hidden units stay in ``[-1, 1]``, for a GRU if they start there."""
        return 1.0

    @property
    def phrase(self) -> str:
        """Subject of a claim's sentence, without quantifiers."""
        title = part_phrase(self, f"{self.kind.upper()} cell")
        return f"{title} (stored weights and biases{origin_phrase(self)}, exact arithmetic)"

    def with_inputs(self, low: Any, high: Any) -> GatedCell:
        """Return the cell with another input box (``None, None``: any input)."""
        return replace(self, input_low=low, input_high=high)

    def gate(self, name: str) -> tuple[Array, Array, Array, Array]:
        """Return the rows of one gate: ``w_ih (m, p)``, ``w_hh (m, m)``, ``b_ih (m,)``, ``b_hh (m,)``."""
        k = GATES[self.kind].index(name)
        rows = slice(k * self.hidden, (k + 1) * self.hidden)
        return self.w_ih[rows], self.w_hh[rows], self.b_ih[rows], self.b_hh[rows]

    def output(self, state: Array) -> Array:
        """Return the hidden units ``h (..., m)`` inside a state ``(..., n)``."""
        return state[..., : self.hidden]

    def advance(self, state: Array, u: Array) -> Array:
        """Run one step.

        Args:
            state: ``(..., n)``; for an LSTM ``h`` first, then ``c``.
            u: ``(..., p)`` input.

        Returns:
            The next state ``(..., n)``.

        Raises:
            DimensionError: state or input of another size than the cell's.
            NonFiniteError: NaN or infinite entries.
        """
        state, u = as_vectors("state", state, self.states), as_vectors("u", u, self.inputs)
        return self._parts(state, u)["next"]

    def jacobian(self, state: Array, u: Array) -> Array:
        """Return the derivative of the next state by the state: ``(n,)``, ``(p,)`` to ``(n, n)``."""
        return self._derivative(state, u, by_input=False)

    def input_jacobian(self, state: Array, u: Array) -> Array:
        """Return the derivative of the next state by the input: ``(n,)``, ``(p,)`` to ``(n, p)``."""
        return self._derivative(state, u, by_input=True)

    def _derivative(self, state: Array, u: Array, *, by_input: bool) -> Array:
        x, v = np.asarray(state, dtype=np.float64), np.asarray(u, dtype=np.float64)
        return step_and_derivative(self, x, v, FLOATS, by_input=by_input)[1]

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> GatedCell:
        """Invert ``payload``."""
        if not isinstance(data["kind"], str) or not isinstance(data["reset_after"], bool):
            raise ConfigurationError("a gated cell needs a kind and a true or false reset_after")
        return super().from_payload(data)

    def _parts(self, state: Array, u: Array) -> dict[str, Array]:
        """Return every intermediate value of one step, by its name in the equations."""
        m = self.hidden
        h, from_input = state[..., :m], u @ self.w_ih.T + self.b_ih
        if self.kind == "lstm":
            z = from_input + h @ self.w_hh.T + self.b_hh
            i, f, o = sigmoid(z[..., :m]), sigmoid(z[..., m : 2 * m]), sigmoid(z[..., 3 * m :])
            g, c = np.tanh(z[..., 2 * m : 3 * m]), state[..., m:]
            after = f * c + i * g
            following = np.concatenate([o * np.tanh(after), after], axis=-1)
            return {"h": h, "c": c, "i": i, "f": f, "g": g, "o": o, "c_next": after, "next": following}
        gates = from_input[..., : 2 * m] + h @ self.w_hh[: 2 * m].T + self.b_hh[: 2 * m]
        r, z = sigmoid(gates[..., :m]), sigmoid(gates[..., m:])
        v = (h if self.reset_after else r * h) @ self.w_hh[2 * m :].T + self.b_hh[2 * m :]
        n = np.tanh(from_input[..., 2 * m :] + (r * v if self.reset_after else v))
        return {"h": h, "r": r, "z": z, "v": v, "n": n, "next": (1 - z) * n + z * h}
