r"""Execution models: the arithmetic in which a network runs.

A format rounds a number ``x`` to within ``unit |x| + tiny``. An operation returns the rounded exact result of its
rounded arguments; the terms of a matrix product are added in any order, with or without fused operations. A sum of
``k`` products then is within :math:`\gamma_k = k u / (1 - k u)` times the sum of absolute values
(Higham, "Accuracy and stability of numerical algorithms", 2002, section 3.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.directed_functions import upper
from stability.kernel.checks import as_choice
from stability.kernel.format.fields import require
from stability.kernel.format.sentences import at_least, exact_text

Array = np.ndarray


class Format(NamedTuple):
    """Binary floating-point format.

    Attributes:
        unit: largest relative error of rounding to nearest.
        tiny: largest absolute error among subnormal numbers.
        normal: smallest normal number; smaller results are lost if a processor flushes them to zero.
        largest: largest finite number.
    """

    unit: float
    tiny: float
    normal: float
    largest: float


FORMATS = {
    "float64": Format(2.0**-53, 2.0**-1074, 2.0**-1022, 1.79e308),
    "float32": Format(2.0**-24, 2.0**-150, 2.0**-126, 3.40e38),
    "tf32": Format(2.0**-10, 2.0**-136, 2.0**-126, 3.40e38),  # tensor cores may cut digits off instead of rounding
    "bfloat16": Format(2.0**-8, 2.0**-134, 2.0**-126, 3.38e38),
    "float16": Format(2.0**-11, 2.0**-25, 2.0**-14, 65504.0),
    "float8_e4m3": Format(2.0**-4, 2.0**-10, 2.0**-6, 448.0),
    "float8_e5m2": Format(2.0**-3, 2.0**-17, 2.0**-14, 57344.0),
}
_INTEGER = re.compile(r"int([2-9]|1[0-6])(?::([1-9][0-9]{0,8}))?")
_NARROW = ("bfloat16", "float16", "tf32", "float8_e4m3", "float8_e5m2")
ROUNDINGS = ("nearest", "stochastic", "feedback", "noise_shaping")
SUMMATIONS = ("any", "products", "pairwise")


SMALLEST_STEP = 6.2e-5
"""Step of torch's dynamic quantization for vectors of a smaller range: it never takes a scale below 6.1e-5."""


def _is_whole(factors: str) -> bool:
    """Return True for factors in integers with one scale."""
    return re.fullmatch(r"int[4-8]", factors) is not None


@dataclass(frozen=True)
class ExecutionModel:
    r"""Arithmetic of a run: formats, rounding of the stored state, order of summation, errors of functions.

    Args:
        format: format of all results of operations, a key of ``FORMATS``; or an integer format of the state, such as
            ``int8`` or ``int8:64``, for operations in float32.
        state: format of the state between two steps. ``int8`` rounds to multiples of the largest absolute value of the
            state over 127, ``int8:64`` does so in blocks of 64 entries; 2 to 16 bits. Default: ``format``.
        rounding: rounding of an integer state: ``nearest``; ``stochastic`` (up or down); ``feedback``: to nearest, and
            the residual is kept in ``format`` and added to the state before the next step; ``noise_shaping``: the same,
            but it is added to the result of the next step, so no gate acts on it.
        accumulation: format of the sums inside matrix products; by default float32 for narrower formats, else
            ``format``.
        factors: format to which the factors of matrix products are rounded first, such as ``tf32``; ``int4`` to
            ``int8``: states and inputs are rounded to that many bits over the range of the vector, as by dynamic
            quantization (torch: ``int7``). By default none.
        weights: format to which the weights are rounded, by default ``format``; or ``stored``, if the certified
            numbers run as they are.
        summation: ``any``: all terms of an entry in any order, such as ``torch.addmm``, which may add each product to
            the drive; ``products``: the terms of each matrix product in any order, then the products; ``pairwise``: as
            ``products``, by halves.
        weight_error: further difference of the weights that run from those of the certificate, relative to the largest
            entry of each matrix: for weights that the network computes from its parameters.
        biases: largest absolute value of the two biases of a network such as ``torch.nn.RNN``, which adds them one
            after the other; the certified bias is their sum.
        ulps: error bound of tanh, sigmoid and exp in units in the last place of ``format``; by default 4 for float32
            and float64, and 1 for narrower formats, whose functions are computed in float32 and rounded.
        flush: True if results below the smallest normal number become zero.

    Raises:
        ConfigurationError: an unknown format, rounding or order, or a number out of its range.

    Example:
        >>> ExecutionModel("int8:64").state, ExecutionModel("bfloat16").accumulation
        ('int8:64', 'float32')
    """

    format: str = "float32"
    state: str = ""
    rounding: str = "nearest"
    accumulation: str = ""
    factors: str = ""
    weights: str = ""
    summation: str = "any"
    weight_error: float = 0.0
    biases: float = 0.0
    ulps: float = 0.0
    flush: bool = False

    def __post_init__(self) -> None:
        texts = (getattr(self, field.name) for field in fields(self) if field.type == "str")
        if not all(isinstance(text, str) for text in texts):
            raise ConfigurationError("formats, rounding and order of an execution model must be texts")
        name, state = self.format, self.state
        if _INTEGER.fullmatch(name) and not state:
            name, state = "float32", name
        as_choice("format of an execution model", name, (*FORMATS, "int8", "int8:BLOCK"))
        state = state or name
        if state not in FORMATS and not _INTEGER.fullmatch(state):
            raise ConfigurationError(f"state must be one of {', '.join(FORMATS)}, int8 or int8:BLOCK, got {state!r}")
        accumulation = self.accumulation or ("float32" if name in _NARROW else name)
        for given, known in (
            (accumulation, FORMATS),
            (name if _is_whole(self.factors) else self.factors or name, FORMATS),
            (self.weights or name, ("stored", *FORMATS)),
            (self.rounding, ROUNDINGS),
            (self.summation, SUMMATIONS),
        ):
            as_choice("execution model", given, known)
        if self.rounding != "nearest" and state in FORMATS:
            raise ConfigurationError(f"rounding {self.rounding} is for an integer state, and the state is {state}")
        ulps = self.ulps or (1.0 if name in _NARROW else 4.0)
        if type(ulps) not in (int, float) or not 0.5 <= ulps <= 64.0 or type(self.flush) is not bool:
            raise ConfigurationError(f"ulps must be a number in [0.5, 64] and flush true or false, got {ulps!r}")
        if type(self.weight_error) not in (int, float) or not 0.0 <= self.weight_error < 0.1:
            raise ConfigurationError(f"weight_error must be a number in [0, 0.1), got {self.weight_error!r}")
        if type(self.biases) not in (int, float) or not 0.0 <= self.biases < 1e30:
            raise ConfigurationError(f"biases must be a number in [0, 1e30), got {self.biases!r}")
        numbers = {"ulps": ulps, "weight_error": self.weight_error, "biases": self.biases}
        used = {"format": name, "state": state, "accumulation": accumulation, "weights": self.weights or name}
        vars(self).update(**used, **{key: float(value) for key, value in numbers.items()})

    def payload(self) -> dict[str, Any]:
        """Return all settings, as they are stored in a proof."""
        return asdict(self)

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> ExecutionModel:
        """Return the model with the settings of ``payload``.

        Raises:
            ConfigurationError: settings that are missing, unknown or of another type.
        """
        types = {"ulps": float, "weight_error": float, "biases": float, "flush": bool}
        names = {field.name for field in fields(cls)}
        if set(data) != names or any(type(data[name]) is not types.get(name, str) for name in names):
            raise ConfigurationError(f"an execution model has the settings {', '.join(sorted(names))}")
        model = cls(**data)
        if model.payload() != dict(data):
            raise ConfigurationError("the settings of an execution model must be written in full")
        return model

    @property
    def phrase(self) -> str:
        """Description of the arithmetic for sentences."""
        sums = "sums" if self.accumulation == self.format else f"sums in {self.accumulation}"
        factors = f", factors of products rounded to {self.factors}" if self.factors else ""
        weights = f", weights {'as stored' if self.weights == 'stored' else f'rounded to {self.weights}'}"
        if self.weight_error:  # assumed by the claim, so rounded down
            weights += f" with further errors up to {at_least(self.weight_error)} times their matrix's largest entry"
        weights += f", two biases of at most {at_least(self.biases)} added one by one" if self.biases else ""
        state = "" if self.state == self.format else f", state in {self.state}"
        ways = {"nearest": "", "stochastic": " rounded up or down", "feedback": " with error feedback"}
        how = "" if self.state in FORMATS else ways.get(self.rounding, " with noise shaping")
        order = {"products": "any order within each matrix product", "any": "any order", "pairwise": "pairwise order"}
        flush = ", subnormal results flushed to zero" if self.flush else ""
        functions = f"tanh, sigmoid and exp within {exact_text(self.ulps)} ulp"
        how = f"{sums} in {order[self.summation]}{factors}{weights}{state}{how}, {functions}{flush}"
        return f"{self.format} arithmetic ({how})"

    @property
    def largest(self) -> float:
        """Largest number that no format here turns into infinity."""
        names = {self.format, self.accumulation, self.factors, self.weights, self.state} & set(FORMATS)
        return min(FORMATS[name].largest for name in names)

    def relative_error(self, terms: Any, operations: int, products: float = 1.0) -> Array:
        r"""Return :math:`\gamma`: relative error of sums of products, in units of the sums of absolute values.

        Args:
            terms: numbers of products that are added, any shape.
            operations: further operations on the way from arguments to result.
            products: matrix products on that way, whose weights and factors are rounded first.

        Returns:
            The bounds in the shape of ``terms``; infinite where the format is too narrow for one.
        """
        count = np.asarray(terms, dtype=np.float64)
        depth = count if self.summation != "pairwise" else np.ceil(np.log2(np.maximum(count, 1.0))) + 1.0
        total = depth * FORMATS[self.accumulation].unit + operations * FORMATS[self.format].unit
        rounded = 2.0 * FORMATS[self.factors].unit if self.factors in FORMATS else 0.0
        total = total + products * (rounded + (FORMATS[self.weights].unit if self.weights != "stored" else 0.0))
        return np.where(total < 0.5, total / (1.0 - np.minimum(total, 0.5)) * (1.0 + 1e-12), np.inf)

    @property
    def lost(self) -> float:
        """Absolute error of one operation with a subnormal result: twice that of the format with the largest one."""
        used = {self.format, self.accumulation, self.factors, self.weights} & set(FORMATS)
        return 2.0 * max(FORMATS[name].normal if self.flush else FORMATS[name].tiny for name in used)

    @property
    def function_error(self) -> float:
        """Relative error of tanh, sigmoid and exp in ``format``."""
        return 2.0 * self.ulps * FORMATS[self.format].unit

    @property
    def function_lost(self) -> float:
        """Absolute error of tanh, sigmoid and exp: libraries lose subnormal results, such as ``sigmoid(-90)``."""
        normal = FORMATS["float64" if self.format == "float64" else "float32"].normal
        return max(self.ulps, 1.0) * self.lost + 2.0 * normal

    def factor_errors(self, size: Array) -> Array:
        """Bound the error of a vector that is rounded to integers of one scale before a product.

        Args:
            size: ``(n,)`` bounds of the absolute values of its entries.

        Returns:
            ``(n,)``: one step of the range from ``-max`` to ``max``; zero if the factors are not integers.
        """
        if not _is_whole(self.factors):
            return np.zeros_like(size)
        steps = 2 ** int(self.factors.removeprefix("int")) - 1
        step = max(2.0 * size.max(initial=0.0) / steps, SMALLEST_STEP)
        return np.full(size.shape, upper(np.array(step * (1.0 + 8.0 * FORMATS[self.format].unit))))

    def state_errors(self, size: Array) -> tuple[Array, Array]:
        """Bound the error of storing a state.

        Args:
            size: ``(n,)`` bounds of the absolute values of its entries.

        Returns:
            ``(n,)`` error of the state that enters the next step, and ``(n,)`` distance of the stored state to it: zero
            without error feedback, else the residual.

        Raises:
            Refused: noise shaping, whose residual acts outside of the step: an analysis of its own is needed.
        """
        require(self.rounding != "noise_shaping", "noise shaping is for gated linear layers; set rounding='feedback'")
        unit = FORMATS[self.format].unit
        if self.state in FORMATS:
            kind = FORMATS[self.state]
            return upper(kind.unit * size + (kind.normal if self.flush else kind.tiny)), np.zeros_like(size)
        bits, block = _INTEGER.fullmatch(self.state).groups()  # pyright: ignore[reportOptionalMemberAccess]
        length = int(block) if block else len(size)
        scale = np.concatenate([np.full(min(length, len(size) - k), size[k : k + length].max())
                                for k in range(0, len(size), length)])  # fmt: skip
        levels = 2 ** (int(bits) - 1) - 1
        share = 1.0 if self.rounding == "stochastic" else 0.5
        # scale and quotient are rounded to the format; what a scale loses among subnormal numbers, every level loses
        error = upper(scale * (share / levels + 4.0 * unit) + self.lost * (levels + 1.0))
        if self.rounding != "feedback":
            return error, np.zeros_like(size)
        return upper(4.0 * unit * (size + error) + 2.0 * self.lost), error
