"""Training and analysis of one model of a campaign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from stability.errors import UnsupportedError
from stability.storage.writing import make_folder

from ...models.factories import registered_layer
from ...models.recurrent import LAYERS
from ...models.wrapped import unwrapped
from ..tasks import make_task
from ..training.front import resume_run
from ..training.outcome import Progress
from ..training.presets import known_presets, train_preset
from ..training.runs import RUN_FILE, read_run
from .budgets import AnalysisSettings
from .fitting import examined_on, joined
from .pipeline import analyse
from .plan import Campaign
from .record import can_go_on, is_whole, take_over


@dataclass(frozen=True)
class RunJob:
    """One run of a campaign, without the given models of the other runs.

    Attributes:
        campaign: models, data and settings.
        run: name of the run directory.
        name: name of the model.
        settings: settings of its analysis, including the seed.
        code: class of a user's layer or cell, which a worker process must import.
    """

    campaign: Campaign
    run: str
    name: str
    settings: AnalysisSettings
    code: str = ""

    @property
    def folder(self) -> Path:
        """Run directory of the job."""
        return self.campaign.folder / "models" / self.run


def examine_one(job: RunJob, tell: Callable[[str], None]) -> None:
    """Train or load a model, then analyze it.

    Args:
        job: job of the model.
        tell: gets its news.

    Raises:
        StabilityError: the model cannot be trained or analyzed.
    """
    (_examine if job.campaign.given else _train)(job, tell)


def _train(job: RunJob, tell: Callable[[str], None]) -> None:
    """Train a preset, or resume its training, then analyze."""
    campaign, folder = job.campaign, job.folder
    if job.code and job.name not in LAYERS:
        registered_layer(job.code)
    name, options = campaign.task
    task = make_task(name, data_dir=campaign.data_dir, seed=campaign.seed, **options)

    def progress(news: Progress) -> None:
        if news.finished is not None:
            tell(f"epoch {news.epoch} of {news.epochs}, held-out {task.metric_name} {news.finished.test_metric:.3f}")

    more: dict[str, Any] = {"progress": progress, "time_limit": campaign.train_seconds, "device": campaign.device}
    if is_whole(folder):
        model = read_run(folder).model().to(campaign.device)
    else:
        if can_go_on(folder, tell):
            model, result = resume_run(folder, data_dir=campaign.data_dir, **more)
        else:
            tell("training")
            more |= {"quick": campaign.quick, "seed": job.settings.seed, "out": folder}
            more |= {"overwrite": job.settings.overwrite}
            model, result = train_preset(job.name, task, **more)
        if result.interrupted:
            raise KeyboardInterrupt
        if result.epochs == 0:
            raise UnsupportedError(f"training finished no epoch ({result.detail})")
    preset = known_presets()[job.name]
    about = {"title": preset.title or job.name, "source": f"trained here: {preset.why}"}
    analyse(folder, model, job.settings, model=model, task=task, progress=tell, **about)


def _examine(job: RunJob, tell: Callable[[str], None]) -> None:
    """Analyse a given model; the files of its run directory are copied."""
    campaign, (given,) = job.campaign, job.campaign.given
    source = Path(given.path)
    make_folder(job.folder)
    task = None if given.task is None else examined_on(given.task, source, campaign.data_dir, campaign.seed)
    if (source / RUN_FILE).is_file():
        take_over(source, job.folder, job.settings.overwrite)
        if task is None:
            run = read_run(source)  # a generated task reads nothing from the folder that others read
            task = run.task(campaign.data_dir if run.reads_data else None)
    model = given.subject.to(campaign.device) if isinstance(given.subject, nn.Module) else None
    if task is not None and model is not None:
        model, task = joined(task, model, given.path)
    subject = given.subject if model is None else unwrapped(model)
    about = {"title": given.title or given.name, "source": given.path, "given": given.digest}
    analyse(job.folder, subject, job.settings, model=model, task=task, progress=tell, **about)
