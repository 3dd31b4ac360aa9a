"""A training with its certificate: the job behind a row of a sweep's table."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from stability.certificate import Certificate
from stability.certification import certify
from stability.errors import UnsupportedError

from ..campaign.inputs import about_inputs
from ..tasks import Task, make_task
from ..training.front import train
from ..training.outcome import Progress
from ..training.planned import make_network, settings_for
from .certificates import certificate_memory, certificate_values
from .job import Found, Given, register_kind

FILES = ("model.safetensors", "run.json", "metrics.csv")
RESULT = ("epochs", "stopped", "metric", "chance", "train_loss", "train_metric", "test_loss", "test_metric")


def task_of(options: Mapping[str, Any], given: Given) -> Task:
    """The task of a training, made again.

    Args:
        options: of the training.
        given: where files and folders lie.

    Raises:
        StabilityError: as ``make_task``.
    """
    name, own = options["task"]
    own = {**own, "file": str(given.file(own["digest"]))} if name == "data" else dict(own)
    data_dir = given.places.get("data_dir") if options.get("data") else None
    return make_task(name, data_dir=data_dir, seed=options["seed"], **own)


def _memory(options: Mapping[str, Any]) -> int:
    hidden = int(options["hidden"]) * int(options["layers"])
    return certificate_memory(hidden) + 2**22 * hidden  # activations of a batch of 64 over some hundred steps


@register_kind("training", memory=_memory)
def train_and_certify(options: Mapping[str, Any], given: Given) -> Found:
    """Train a network from scratch, as ``stability train`` does, and certify it.

    Args:
        options: ``model``, ``hidden``, ``layers``, ``set`` (of the layer), ``task`` (name and options), ``seed`` (of
            everything random), ``train`` (fields of ``Settings``), ``certificate`` (options of ``certify``, ``None``
            for none), ``device``.
        given: data.

    Returns:
        What it came to; the files of its run directory and ``certificate.json``.

    Raises:
        KeyboardInterrupt: it was interrupted.
        UnsupportedError: no epoch was finished.
        StabilityError: options that do not fit.
    """
    task, seed = task_of(options, given), int(options["seed"])
    network = make_network(options["model"], options["hidden"], options["layers"], options["set"], task, seed)
    network = network.to(options["device"])

    def progress(now: Progress) -> None:
        if now.finished is not None:
            given.tell(f"epoch {now.epoch} of {now.epochs}, held-out {task.metric_name} {now.finished.test_metric:.3f}")

    settings = {**settings_for(options["model"], options["train"], task), "seed": seed}
    with tempfile.TemporaryDirectory(prefix="stability-job-") as folder:
        result = train(network, task, out=folder, progress=progress, **settings)
        if result.interrupted:
            raise KeyboardInterrupt
        if result.epochs == 0:
            raise UnsupportedError(f"training finished no epoch ({result.detail})")
        members = {name: (Path(folder) / name).read_bytes() for name in FILES}
        values = {"parameters": result.parameters, **{name: getattr(result, name) for name in RESULT}}
        if options["certificate"] is not None:
            given.tell("certificate")
            found, words = certified(network, task, seed, options["certificate"])
            values |= words
            if found is not None:
                found.save(Path(folder) / "certificate.json")
                members["certificate.json"] = (Path(folder) / "certificate.json").read_bytes()
    return values, members


def certified(
    network: nn.Module, task: Task, seed: int, options: Mapping[str, Any]
) -> tuple[Certificate | None, dict[str, Any]]:
    """The certificate of a trained network, of an LSTM or GRU for inputs in the range of its data.

    Args:
        network: trained.
        task: its data.
        seed: of the searches.
        options: of ``certify``.

    Returns:
        The certificate, ``None`` where there can be none, and its row of the table.
    """
    stated = options.get("input_box")
    target, about = about_inputs(network, network, task, None if stated is None else tuple(stated))
    use = {"input_range": about["input_seen"], "horizon": int(task.test[0].shape[1])}
    use |= {name: value for name, value in options.items() if name != "input_box"}
    try:
        found = certify(target, seed=seed, **use)
    except UnsupportedError as error:
        return None, certificate_values(None, str(error))
    return found, certificate_values(found)
