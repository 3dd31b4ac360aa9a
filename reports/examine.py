"""Report of networks and data that are in memory."""

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
    """Examine networks on arrays of data, and draw the page.

    Args:
        models: a network, called as ``model(x)``, or several by name; also those that take tokens by an embedding.
        x: ``(n, time, features)`` floating, tokens ``(n, time)``, or a list of sequences of unequal length.
        y: ``(n,)`` integers for classes, floats for values; a target at every step: see ``task_from_arrays``.
        out: the folder; run again over the same one, what is finished is kept.
        quick: small budgets.
        seed: random seed.
        input_box: ends of the box that every input stays in, of claims about inputs in a box (all of LSTM and GRU,
            a further one of other networks); by default the range of the data, of these a little more.
        overwrite: whether a report of other models or settings may be replaced.
        progress: called with a model's name and what is being done.
        **data: ``x_test``, ``y_test``, ``classes``, ``lower``, ``upper``, ``lengths``, ``mask`` and their likes for the
            test part, ``loss`` for a loss of one's own.

    Returns:
        Path of ``report.html``.

    Raises:
        ConfigurationError: no network, options that are none, or data that do not fit.
        StabilityError: a model whose examination failed; what is there is drawn.

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
        raise ConfigurationError(f"models must be a torch.nn.Module, or several by name; {wrong} is none")
    with in_memory({"x": x, "y": y, **data}) as place:
        task_options = ("data", {"file": place, "digest": read_source(place).digest, "held_out": None})
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
            if len(failed) == len(subjects):
                raise StabilityError("; ".join(f"{k}: {v}" for k, v in failed.items()))
            page = render(out, overwrite=overwrite, formats=QUICK_FORMATS if quick else FORMATS)
    if failed:
        raise StabilityError(f"{page} lacks: " + "; ".join(f"{k}: {v}" for k, v in failed.items()))
    return page
