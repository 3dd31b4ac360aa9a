"""Errors of the toolkit, all ``ValueError`` with expectation, actual value and remedy."""

from __future__ import annotations


class StabilityError(ValueError):
    """Root of all errors that a caller's input can cause."""


class DimensionError(StabilityError):
    """A matrix or tensor has a wrong shape."""

    def __init__(self, name: str, expected: object, got: object, hint: str = "") -> None:
        super().__init__(f"{name} must have shape {expected}, got {got}" + (f"; {hint}" if hint else ""))


class NonFiniteError(StabilityError):
    """A matrix or tensor holds NaN or an infinity."""

    def __init__(self, name: str, hint: str = "check the training run or the file it came from") -> None:
        super().__init__(f"{name} must be finite, but holds NaN or infinite entries; {hint}")


class MaskedError(NonFiniteError):
    """An array of ``numpy.ma`` has masked entries, whose values have no meaning."""

    def __init__(self, name: str, count: int) -> None:
        entries = "1 masked entry" if count == 1 else f"{count} masked entries"
        StabilityError.__init__(self, f"{name} holds {entries}: fill them, for example by {name}.filled(0.0)")


class IllPosedError(StabilityError):
    """The channel equation ``z = C x + D phi(z)`` is not proved to have exactly one solution."""


class RankError(StabilityError):
    """A factorization needs a rank that its argument does not have."""


class ConfigurationError(StabilityError):
    """An option, a name or a combination of options does not exist."""


class FolderInUseError(ConfigurationError):
    """A folder is locked by another process; the text names it, its machine, and since when."""


class UnsupportedError(StabilityError):
    """A valid object for which the requested result does not exist; the text gives the reason."""


class DisagreementError(StabilityError):
    """A model and the system read from its weights compute different numbers; the text shows both."""


class ContradictionError(StabilityError):
    """A proof and a counterexample to it were both found: one is wrong, so no result of the run is reliable."""


class FileFormatError(StabilityError):
    """A file is missing, unreadable, truncated, malicious, or not of the format it claims."""
