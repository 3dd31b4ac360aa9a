"""Phrases for unstable eigenvalues: with the number if it is proved, else with the region alone."""

from __future__ import annotations

import math

from stability.kernel.arithmetic.eigenpairs import Matrix
from stability.kernel.arithmetic.unstable_matrices import prove_not_stable
from stability.kernel.format.fields import Pair, ProofData, require

BOUNDARY = "no eigenvalue is proved to lie outside the stability region"


class Unstable(ProofData):
    """Proof of an eigenvalue outside the stability region; its sentence shows a number only if the proof names one."""

    eigenvalue: Pair | None = None

    @property
    def named(self) -> complex | None:
        """Return the eigenvalue that the proof names, or ``None``."""
        return None if self.eigenvalue is None else complex(*self.eigenvalue)

    def outside(self, matrix: Matrix, discrete: bool, reason: str = BOUNDARY, *, strict: bool = True) -> str:
        """Prove that every matrix in a ball has an eigenvalue outside the stability region; return the result in words.

        If the proof names an eigenvalue, it is proved for this one.

        Raises:
            Refused: it is not proved; the text is ``reason``.
        """
        proved = prove_not_stable(matrix, discrete, self.named, strict=strict)
        require(proved is not None, reason)
        return str(proved)

    def phrase(self, discrete: bool, *, strict: bool = True) -> str:
        """Describe the eigenvalue, see ``eigenvalue_phrase``."""
        return eigenvalue_phrase(self.named, discrete, strict=strict)

    def unstable(self, inputs: str, discrete: bool, found: str = "equilibrium whose Jacobian", where: str = "") -> str:
        """State that an equilibrium or orbit under the inputs has an unstable eigenvalue; ``where`` names a part."""
        noun = found.partition(" ")[0]
        return f"Under {inputs} there is an {found} has {self.phrase(discrete)}{where}. This {noun} is unstable."


def _decimal(value: float, places: int) -> str:
    if not -6 <= places <= 12:
        return f"{value:.6g}"
    text = f"{value:.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number(value: complex) -> str:
    """Format six digits of the larger of real and imaginary part, and the other one to the same decimal place."""
    places = 5 - math.floor(math.log10(max(abs(value.real), abs(value.imag))))
    real, imag = _decimal(value.real, places), _decimal(abs(value.imag), places)
    if not float(imag):
        return real
    sign = "+" if value.imag > 0 else "-"
    return f"{real} {sign} {imag}i" if float(real) else f"{'-' * (value.imag < 0)}{imag}i"


def eigenvalue_phrase(value: complex | None, discrete: bool, *, strict: bool = True) -> str:
    """Return ``the eigenvalue ... of modulus above 1``, or the phrase of an unnamed one.

    Args:
        value: the eigenvalue that the proof names, or ``None``.
        discrete: whether the boundary is the unit circle instead of the imaginary axis.
        strict: require that an unnamed eigenvalue lies outside the closed stability region, not on its boundary.

    Returns:
        The phrase.

    Example:
        >>> eigenvalue_phrase(0.971134 + 0.294673j, True)
        'the eigenvalue 0.971134 + 0.294673i of modulus above 1'
        >>> eigenvalue_phrase(None, False, strict=False)
        'an eigenvalue of real part at least 0'
    """
    side = "modulus above 1" if discrete else "positive real part"
    if value is not None and value != 0:
        return f"the eigenvalue {_number(value)} of {side}"
    if strict:
        return f"an eigenvalue of {side}"
    return f"an eigenvalue of {'modulus at least 1' if discrete else 'real part at least 0'}"
