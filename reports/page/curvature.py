"""The Hessian's section: ends of its spectrum, trace and density, by two programs."""

from __future__ import annotations

from ..figures import crowd
from ..formatting import count, number, signed
from ..stored.collect import Report
from ..stored.reasons import reasons_for
from .layout import NAMED, Section, crowded, field, tabulate
from .protocol import protocol
from .trainings import several

HESSIAN = (
    ("lambda_max", "largest eigenvalue"),
    ("lambda_max_residual", "± residual"),
    ("lambda_min", "smallest eigenvalue"),
    ("lambda_min_residual", "± residual"),
    ("trace", "trace"),
    ("trace_half_width", "± 95 %"),
    ("condition_number", "condition number"),
    ("gradient_norm", "gradient norm"),
    ("loss", "loss"),
)

OPINION = (
    ("largest eigenvalue, Lanczos", "lambda_max", number),
    ("PyHessian", "pyhessian.lambda_max", number),
    ("± residual", "pyhessian.lambda_max_residual", number),
    ("relative difference", "pyhessian.lambda_max_difference", signed),
    ("trace, Lanczos", "trace", number),
    ("± 95 %", "trace_half_width", number),
    ("PyHessian", "pyhessian.trace", number),
    ("± 95 %", "pyhessian.trace_half_width", number),
    ("relative difference", "pyhessian.trace_difference", signed),
    ("probes", "pyhessian.trace_samples", count),
)


def _first_of(report: Report) -> str:
    return " Densities are those of the first training of each model." if several(report) else ""


def curvature(report: Report) -> Section | None:
    """Ends of the Hessian's spectrum and its trace by Lanczos, and by PyHessian on the same sequences.

    Args:
        report: what ``collect`` read.
    """
    models = [m for m in report.models if "hessian" in m.documents]
    shown = {name for m in models for name, value in m.documents["hessian"].items() if value is not None}
    columns = [field(title, "hessian", name, number) for name, title in HESSIAN if name in shown]
    said = protocol(models, "hessian")
    return Section(
        "hessian",
        "Curvature of the loss",
        "Eigenvalues of the Hessian of the loss with respect to the parameters at the trained weights. "
        "A large largest eigenvalue is a sharp minimum; a negative smallest one says that training "
        "stopped at a point that is no minimum. PyHessian finds the eigenvalue by power iteration, from below "
        "and with the residual that is shown, and the trace by Hutchinson's probes alone; Lanczos takes the outliers "
        "out of the trace first, so that its interval is the narrower one." + _first_of(report),
        tabulate(
            "Hessian of the training loss",
            (NAMED, *columns),
            models,
            "the smallest eigenvalue is not told apart from 0, or it was not computed",
            protocol=said,
            made=("hessian",),
        )
        + tabulate(
            "Lanczos and PyHessian on the same sequences",
            (NAMED, *(field(title, "hessian", path, show) for title, path, show in OPINION)),
            [m for m in models if m.documents["hessian"].get("pyhessian")],
            "not computed",
            protocol=said,
            made=("hessian",),
        ),
        crowded(crowd.density(models)),
        reasons_for(report.models, "hessian"),
        protocol=said,
        made=("hessian",),
    ).kept
