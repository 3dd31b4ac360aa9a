"""Jobs behind the rows of a sweep: trainings with their certificates, and certificates of model files."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from stability.certificate import Certificate
from stability.certification import certify
from stability.checkpoint_certificate import CheckpointCertificate
from stability.errors import UnsupportedError
from stability.storage.arrays import npz_system
from stability.systems import GatedLinearLayer

from ...models.sources import load_subject
from ..campaign.inputs import about_inputs
from ..tasks import Task, make_task
from ..training.front import train
from ..training.outcome import Progress
from ..training.planned import make_network, settings_for
from .job import Found, Inputs

FILES = ("model.safetensors", "run.json", "metrics.csv")
RESULT = ("epochs", "stopped", "metric", "chance", "train_loss", "train_metric", "test_loss", "test_metric")
CERTIFICATE = ("verdict", "evidence", "criterion", "rate", "overshoot", "statement")


def task_of(options: Mapping[str, Any], inputs: Inputs) -> Task:
    """Make the task of a training.

    Args:
        options: options of the training.
        inputs: paths of data files.

    Raises:
        StabilityError: see ``make_task``.
    """
    name, own = options["task"]
    own = {**own, "file": str(inputs.file(own["digest"]))} if name == "data" else dict(own)
    data_dir = inputs.paths.get("data_dir") if options.get("data") else None
    return make_task(name, data_dir=data_dir, seed=options["seed"], **own)


def train_and_certify(options: Mapping[str, Any], inputs: Inputs) -> Found:
    """Train a network from scratch, as ``stability train`` does, and certify it.

    Args:
        options: ``model``, ``hidden``, ``layers``, ``set`` (of the layer), ``task`` (name and options), ``seed``,
            ``train`` (fields of ``Settings``), ``certificate`` (options of ``certify``, ``None`` for none), ``device``.
        inputs: paths of data files.

    Returns:
        Results of the training and the certificate; the files of its run directory and ``certificate.json``.

    Raises:
        KeyboardInterrupt: the training was interrupted.
        UnsupportedError: no epoch was finished.
        StabilityError: options that do not fit together.
    """
    task, seed = task_of(options, inputs), int(options["seed"])
    network = make_network(options["model"], options["hidden"], options["layers"], options["set"], task, seed)
    network = network.to(options["device"])

    def progress(now: Progress) -> None:
        if now.finished is not None:
            inputs.tell(f"epoch {now.epoch} of {now.epochs}, {task.metric_name} {now.finished.test_metric:.3f}")

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
        inputs.tell("certificate")
        certificate = _certified(network, task, seed, options["certificate"])
        values |= certificate[0]
        members |= certificate[1]
    return values, members


def certify_file(options: Mapping[str, Any], inputs: Inputs) -> Found:
    """Certify a model in a file.

    Args:
        options: ``file`` (its SHA-256), ``seed``, ``certificate`` (options of ``certify``).
        inputs: path of the file.

    Returns:
        The columns of the certificate, and ``certificate.json``.

    Raises:
        StabilityError: see ``load_subject`` and ``certify``.
    """
    path = str(inputs.file(options["file"]))
    subject: Any = npz_system(path)
    if subject is None:
        source = load_subject(path)
        subject = source.subject if source.module is None else source.module
    asked: dict[str, Any] = {k: tuple(v) if k == "input_box" else v for k, v in options["certificate"].items()}
    return _columns(certify(subject, seed=options["seed"], **asked))


def _certified(network: nn.Module, task: Task, seed: int, options: Mapping[str, Any]) -> Found:
    """Certify a trained network; an LSTM or GRU for inputs in the range of its data."""
    box = options.get("input_box")
    target, about = about_inputs(network, network, task, None if box is None else tuple(box))
    use = {"input_range": about["input_seen"], "horizon": int(task.test[0].shape[1])}
    use |= {name: value for name, value in options.items() if name != "input_box"}
    try:
        return _columns(certify(target, seed=seed, **use))
    except UnsupportedError as error:
        return {**dict.fromkeys(CERTIFICATE), "statement": f"no claim can be made: {error}"}, {}


def _columns(result: Certificate | CheckpointCertificate) -> Found:
    """Return the columns of a certificate and its file; of gated linear layers without a verdict on contraction."""
    with tempfile.TemporaryDirectory(prefix="stability-job-") as folder:
        result.save(Path(folder) / "certificate.json")
        raw = (Path(folder) / "certificate.json").read_bytes()
    values = {name: getattr(result, name, None) for name in CERTIFICATE}
    if not isinstance(result, Certificate) or isinstance(result.subject, GatedLinearLayer):
        statement = values["statement"] or f"Bounded states of {len(getattr(result, 'layers', ()))} layers."
        return {**values, "verdict": None, "evidence": None, "statement": statement}, {"certificate.json": raw}
    return {**values, "verdict": str(result.verdict), "evidence": str(result.evidence)}, {"certificate.json": raw}
