"""Report on networks and data in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from stability.errors import ConfigurationError, StabilityError


def report(
    models: nn.Module | Mapping[str, nn.Module],
    x: Any,
    y: Any,
    *,
    out: str | Path,
    quick: bool = False,
    seed: int = 0,
    input_box: tuple[float, float] | None = None,
    overwrite: bool = False,
    progress: Callable[[str, str], Any] | None = None,
    **data: Any,
) -> Path:
    """Analyze networks on arrays of data, and write the report page.

    Args:
        models: a network, called as ``model(x)``, or several networks by name; an embedding may read tokens.
        x: floats ``(n, time, features)``, tokens ``(n, time)``, or a list of sequences of unequal length.
        y: ``(n,)`` integers for classes or floats for values; for a target at every step see ``task_from_arrays``.
        out: output folder; a second run in the same folder keeps finished results.
        quick: use small budgets.
        seed: random seed.
        input_box: lower and upper end of all inputs, for claims about inputs in a box: the only claims for LSTM and
            GRU, and further claims for other networks. Default: the range of the data, slightly widened for
            networks other than LSTM and GRU.
        overwrite: whether a report of other models or settings may be replaced.
        progress: called with a model's name and the current analysis.
        **data: ``x_test``, ``y_test``, ``classes``, ``lower``, ``upper``, ``lengths`` and ``mask``, which exist for the
            test part, too, and ``loss``, a user's loss function.

    Returns:
        Path of ``report.html``.

    Raises:
        ConfigurationError: no network, an unknown option, or data that do not fit the networks.
        StabilityError: the analysis of a model failed; the page with the other results is written.

    Example:
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> report(SequenceModel(ElmanRNN(3, 4), 2), [[1.0]], [0], out="unused")
        Traceback (most recent call last):
        ...
        stability.errors.FileFormatError: arrays: x must have shape (n, time, features), got (1, 1); one feature ...
    """
    from ..analysis.campaign.campaign import opened, run_campaign
    from ..analysis.campaign.fitting import joined
    from ..analysis.campaign.labels import names_for
    from ..analysis.campaign.plan import Campaign, Given
    from ..analysis.tasks import make_task
    from ..analysis.tasks.own_sources import in_memory, read_source
    from .page.html import FORMATS, QUICK_FORMATS, page_files, render

    networks = dict(models) if isinstance(models, Mapping) else {type(models).__name__: models}
    wrong = next((name for name, model in networks.items() if not isinstance(model, nn.Module)), None)
    if wrong is not None or not networks:
        raise ConfigurationError(f"models must be a torch.nn.Module, or several by name; {wrong} is no Module")
    with in_memory({"x": x, "y": y, **data}) as source:
        task_options = ("data", {"file": source, "digest": read_source(source).digest, "held_out": None})
        task = make_task("data", seed=seed, **task_options[1])
        for name, model in networks.items():
            joined(task, model, name)
        folders = names_for(list(networks))
        subjects = tuple(
            Given(folder, f"python:{name}", model, task_options, name)
            for folder, (name, model) in zip(folders, networks.items())
        )
        campaign = Campaign(Path(out), tuple(folders), subjects, quick=quick, seed=seed, input_box=input_box)
        with opened(campaign, overwrite=overwrite, pages=page_files()):
            outcomes = run_campaign(campaign, processes=1, news=progress, overwrite=overwrite)
            failed = {o.name: o.error for o in outcomes if o.error is not None}
            reasons = "; ".join(f"{k}: {v}" for k, v in failed.items())
            if len(failed) == len(subjects):
                raise StabilityError(reasons)
            page = render(out, overwrite=overwrite, formats=QUICK_FORMATS if quick else FORMATS)
    if failed:
        raise StabilityError(f"{page} lacks models whose analysis failed: {reasons}")
    return page
