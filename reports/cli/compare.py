"""Command ``stability compare``: norm drift and margins of several models on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError, StabilityError, UnsupportedError
from stability.storage.writing import write_text

from ..boxes import box_note
from ..formatting import MISSING, bound, count, margin_words, number, percent, signed, table, verdict_word
from ..jsonable import jsonable, write_json
from ..names import printable
from ..stored.certificates import view
from ..stored.reasons import advice, shell_name
from ..vocabulary import NAMES, mark, state
from .data import OWN, check_data_dir, open_with_task
from .options import Compute, DataOptions, InputBox, Output, Results, Samples, check_seconds, choice, no_default

PAGE = "compare.html"
FILES = ("compare.json", "norms.csv", PAGE)
SOURCES = {"expected": "expected norm", "envelope": "proved bound"}


def compare(
    context: typer.Context,
    models: Annotated[
        list[str],
        typer.Argument(help="Run directories or model files.", metavar="MODEL ..."),
    ],
    *,
    factor: Annotated[int, typer.Option(min=1, help="Length of the runs, as a multiple of the sequence length.")] = 10,
    extension: Annotated[
        str, choice("Inputs after the end of a sequence.", ("repeat", "zero", "hold", "noise"), "--extension")
    ] = "repeat",
    samples: Samples = 64,
    steps: Annotated[int, typer.Option(min=1, help="Number of steps of random inputs, if there are no data.")] = 100,
    time_limit: Annotated[
        float | None,
        no_default("Time limit of each certificate; 0: no certificates.", "--time-limit", metavar="SECONDS"),
    ] = None,
    data: DataOptions,
    input_box: InputBox = None,
    results: Results,
    compute: Compute,
    output: Output,
) -> None:
    """Compare the drift of the hidden state's norm.

    The table begins with the smallest change of the norm over runs of --factor times the sequence length. Verdicts and
    margins follow. Exit code 2 if a certificate failed; the table still shows the other results.
    """
    time_limit = check_seconds(time_limit, least=">=")
    folder = results.claim(context, *FILES)
    from ...analysis import norm_drift
    from ...analysis.campaign.inputs import check_box
    from ...analysis.dynamics.norms import check_followed
    from ...models.counting import free_parameters

    box = None if input_box is None else check_box(input_box)
    if data.task is None and data.file is None:
        check_data_dir(models, compute.data_dir)
    subjects = [open_with_task(m, data, compute, required=False, answers=False) for m in models]
    _refuse_both_ways(subjects)
    x, inputs, seen = _inputs(subjects, samples, steps, compute.seed)
    for s in subjects:  # before the certificates, which take their time
        check_followed(x, factor, s.model)
    names = _names(models)
    rows, drifts, failed = [], [], {}
    for name, subject in zip(names, subjects):
        output.status(f"{name} ...")
        certificate, margins, failure = _margins(subject, seen, box, time_limit, compute.seed)
        failed |= {name: failure} if failure else {}
        here = next((p for p in subject.model.parameters() if p.is_floating_point()), x)
        drift = norm_drift(
            subject.model, x.to(compute.device, here.dtype), name=name, factor=factor, extension=extension,
            seed=compute.seed, certificate=certificate,
        )  # fmt: skip
        drifts.append(drift)
        size = free_parameters(subject.model)
        known = {"model": name, "path": subject.name, "parameters": size, "accuracy": _accuracy(subject, seen)}
        rows.append({**known, **_drift_row(drift), **margins})
    output.status()
    rows.sort(key=lambda r: abs(math.log(r["norm_factor"])) if r["norm_factor"] else math.inf)
    document = {"inputs": inputs, "factor": factor, "extension": extension, "ranking": "norm_factor", "models": rows}
    where = _write(folder, document, drifts, results.overwrite) if folder is not None else ""
    output.show(document, _text(rows, inputs) + where)
    if failed:
        why = "; ".join(f"{name}: {text}" for name, text in failed.items())
        raise StabilityError(f"the certificates of {len(failed)} of {len(models)} models failed: {why}")


def _refuse_both_ways(subjects: list[Any]) -> None:
    """Refuse models that run both ways before anything is computed: what they are in a step depends on the future.

    Raises:
        UnsupportedError: naming the first.
    """
    for s in subjects:
        if any(getattr(part, "bidirectional", False) is True for part in s.model.modules()):
            raise UnsupportedError(
                f"{s.name} is bidirectional, so that its norms are not defined beyond the end of a sequence: "
                "leave it out"
            )


def _inputs(subjects: list[Any], samples: int, steps: int, seed: int) -> tuple[Any, str, Any]:
    """Return the sequences that every model reads, their description and task (first known task, or none)."""
    import torch

    from ...analysis.dynamics.norms import NUMBERS

    sizes = {s.name: getattr(s.model, "input_size", None) for s in subjects}
    if len(set(sizes.values()) - {None}) > 1:
        listed = ", ".join(f"{k} takes {v}" for k, v in sizes.items())
        raise ConfigurationError(f"all models must have the same number of input features, got {listed}")
    task = next((s.task for s in subjects if s.task is not None), None)
    if task is not None and "embedded_by" in task.data:
        raise ConfigurationError(
            "compare needs the same real inputs for all models, and these embed tokens: use `stability report`"
        )
    if task is not None:
        x = task.test[0][:samples]
        which = task.data.get("what", task.data.get("source")) if task.name == "data" else task.name
        held = "" if task.test[0] is task.train[0] else "held-out "
        return x, f"{len(x)} {held}sequences of {which}, {x.shape[1]} steps", task
    silent = [name for name, n in sizes.items() if n is None]
    if silent:
        raise ConfigurationError(f"the number of inputs of {silent[0]} is unknown: name a task with --task, or {OWN}")
    (size,) = {n for n in sizes.values() if n is not None}
    if samples * steps * size > NUMBERS:
        raise ConfigurationError(
            f"{samples} sequences of {steps} steps and {size} features are {samples * steps * size:.2g} numbers, the "
            "limit is 2^27: use smaller --samples or --steps"
        )
    x = torch.randn(samples, steps, size, generator=torch.Generator().manual_seed(seed))
    return x, f"{samples} sequences of white noise, {steps} steps", None


def _accuracy(subject: Any, seen: Any) -> float | None:
    """Return the accuracy on the test data of the model, or of those that all see; ``None`` where there is none."""
    from ...analysis.campaign.performance import performance

    task = subject.task or seen
    if task is None or task.metric_name != "accuracy":
        return None
    try:
        device = next((p.device for p in subject.model.parameters()), "cpu")
        return jsonable(performance(subject.model, task.to(device))["value"])
    except StabilityError:  # its answers are about something else
        return None


def _names(paths: list[str]) -> list[str]:
    """Short names, unique; printable, since they stand in tables, which hold no other text."""
    short = [printable(Path(p).stem if Path(p).is_file() else Path(p).resolve().name) for p in paths]
    names = short if len(set(short)) == len(short) else [printable(p) for p in paths]
    return [n if names.count(n) == 1 else f"{n} ({names[: k + 1].count(n)})" for k, n in enumerate(names)]


def _drift_row(drift: Any) -> dict[str, Any]:
    def at(curve: Any, t: int) -> float | None:
        return None if curve is None else jsonable(float(curve[t]))

    end = drift.length - 1
    middle, later = drift.quantiles[-1, :, 1], drift.mean.shape[1] > drift.length
    return {
        "norm_factor": jsonable(float(middle[-1] / middle[end])) if later and middle[end] > 0 else None,
        "norm_at_end_of_sequence": float(drift.mean[-1, end]),
        "norm_at_last": float(drift.mean[-1, -1]),
        "rms_at_end_of_sequence": float(drift.rms[-1, end]),
        "expected_rms_at_end_of_sequence": at(drift.expected, end),
        "bound_at_end_of_sequence": at(drift.envelope, end),
        "bound_at_last": at(drift.envelope, -1),
        "theory": drift.sources,
        "slope": float(drift.slope[-1]),
        "doublings": jsonable(drift.drift_index),
        "gradient_slope": jsonable(drift.grad_slope),
    }


def _margins(subject: Any, seen: Any, box: Any, time_limit: float | None, seed: int) -> tuple[Any, dict[str, Any], str]:
    """Certify a model; return its certificate (if any), the margins for the table, and the error message.

    Args:
        subject: the model.
        seen: the task whose sequences every model sees, ``None`` for white noise.
        box: ends of the box that was stated for inputs of LSTM and GRU; by default the range of the sequences.
        time_limit: time limit of the certificate, in seconds; ``None``: no limit; 0: no certificate.
        seed: random seed of the searches.
    """
    if time_limit == 0:
        return None, {"verdict": None, "findings": []}, ""
    from stability.certificate import Certificate
    from stability.certification import certify

    from ...analysis.campaign.fitting import fitted
    from ...analysis.campaign.inputs import about_inputs

    task, use = None, {}
    if seen is not None:
        task = fitted(seen, subject.model, subject.name, answers=False)
        task = task.to(next((p.device for p in subject.model.parameters()), "cpu"))
    target, about = about_inputs(subject.model, subject.model, task, box)
    if task is not None:
        use = {"input_range": about["input_seen"], "horizon": int(task.test[0].shape[1])}
    about = {} if about["input_box"] is None else about
    try:
        certificate = certify(target, time_limit=time_limit, seed=seed, **use)
    except StabilityError as error:  # a kind of model about which no claim can be made is said, and no failure
        failure = "" if isinstance(error, UnsupportedError) else str(error)
        return None, {"verdict": None, "reason": str(error), "findings": [], **about}, failure
    if not isinstance(certificate, Certificate):
        why = f"it has {len(certificate.layers)} gated linear layers, each with its own claims: use stability certify"
        return None, {"verdict": None, "reason": why, "findings": [], **about}, ""
    summary = view(certificate)
    if summary["gated_linear"]:
        summary["findings"] = []  # which have no margins
    fields = ("verdict", "evidence", "criterion", "rate", "needs_box", "findings", "gated_linear")
    return certificate, {**{k: summary[k] for k in fields}, **_bounds(summary["gated_linear"]), **about}, ""


def _bounds(gated: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return state bound and memory horizons of a gated linear layer for the table; empty for other models."""
    if not gated:
        return {}
    median, most = (
        None if gated["decay_max"] is None else "no limit" if gated["horizon"][k] is None else gated["horizon"][k]
        for k in ("median", "max")
    )
    return {"state_bound": gated["state_bound"], "horizon_median": median, "horizon_largest": most}


def _steps(value: Any) -> str:
    return str(value) if isinstance(value, str) else count(value)


COLUMNS = (
    ("model", "model", str),
    ("verdict", "state", verdict_word),
    ("accuracy", "accuracy", percent),
    ("norm changes by a factor", "norm_factor", number),
    ("norm at end of sequence", "norm_at_end_of_sequence", number),
    ("state bound", "state_bound", partial(bound, digits=3, up=True)),
    ("memory in steps, median", "horizon_median", _steps),
    ("memory in steps, largest", "horizon_largest", _steps),
    ("slope of log norm", "slope", signed),
    ("slope of log gradient", "gradient_slope", signed),
    ("parameters", "parameters", "{:,}".format),
)
THEORY = (
    ("model", "model", str),
    ("root mean square norm at end of sequence", "rms_at_end_of_sequence", number),
    ("expected", "expected_rms_at_end_of_sequence", number),
    ("proved bound at end of sequence", "bound_at_end_of_sequence", number),
    ("proved bound at end of run", "bound_at_last", number),
)


def _grid(rows: list[dict[str, Any]], columns: Sequence[tuple[str, str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of a table without its empty columns."""
    judged = [{**r, "state": state(r) if r["verdict"] else None} for r in rows]
    columns_shown = [c for c in columns if c[1] in ("model", "state") or any(r.get(c[1]) is not None for r in judged)]
    cells = [[show(r.get(key)) for _, key, show in columns_shown] for r in judged]
    return [title for title, *_ in columns_shown], cells


def _text(rows: list[dict[str, Any]], inputs: str) -> str:
    (header, cells), (known, theory) = _grid(rows, COLUMNS), _grid(rows, THEORY)
    lines = [
        f"Inputs: {inputs}. Models are sorted by the change of the median norm, smallest first.",
        "Slopes are per step. The gradient is that of the last state by earlier ones: a slope of its logarithm above 0",
        "means vanishing gradients, below 0 exploding ones.",
        "",
        table(header, cells, range(2, len(header))),
        *(["", table(known, theory, range(1, len(known)))] if len(known) > 2 else []),
        "",
        *(f"{r['model']}, {SOURCES[kind]}: {text}." for r in rows for kind, text in r["theory"].items()),
        *_claims(rows),
    ]
    criteria = list(dict.fromkeys(f["criterion"] for r in rows for f in r["findings"]))
    if criteria:
        findings = {(r["model"], f["criterion"]): f for r in rows for f in r["findings"]}
        margins = [(str(NAMES.get(c, c)), *(_cell(findings.get((r["model"], c))) for r in rows)) for c in criteria]
        names = ("criterion: outcome, margin", *(r["model"] for r in rows))
        lines += ["", table(names, margins, range(1, len(names))), f"{MISSING}: the criterion does not apply."]
    return "\n".join(lines)


def _claims(rows: list[dict[str, Any]]) -> list[str]:
    """Return notes on ranges of inputs, on missing verdicts, and on commands that lead further."""
    lines = []
    for r in rows:
        note = box_note(r)
        lines += [f"{r['model']}: verdict for {note[0].lower()}{note[1:]}"] if note else []
        unread = any(f["criterion"] == "form" for f in r["findings"])
        lines += [f"{r['model']}: no criterion of contraction covers its step."] * unread
        lines += [f"{r['model']}: no certificate ({r['reason']})."] if r.get("reason") else []
        hints = advice(r, shell_name(r["path"])) if r.get("verdict") else []
        lines += [f"{r['model']}: {why}: {command}" for why, command in hints]
    return lines


def _cell(finding: dict[str, Any] | None) -> str:
    if finding is None or finding["holds"] is None:
        return MISSING
    size = "" if finding["margin"] is None else f" {margin_words(finding['margin'])}"
    return mark(finding)[0] + size


def _write(folder: Any, document: dict[str, Any], drifts: list[Any], overwrite: bool) -> str:
    """Write the files, with one page of the table and of the norm drift as a report draws it."""
    import pandas as pd

    from ..figures.norm_drift import BEYOND, Norms, drift_figure, relative
    from ..names import shorten
    from ..page.study import Section, Table, write_page

    rows, frames = document["models"], {d.model: d.frame() for d in drifts}
    write_json(folder.path / "compare.json", document)
    write_text(folder.path / "norms.csv", pd.concat(frames.values(), ignore_index=True).to_csv(index=False))
    length, found = drifts[0].length, []
    for r in rows:
        last = frames[r["model"]].query("layer == layer.max()").rename(columns={"t": "step", "q50": "value"})
        norms = relative(last[["step", "value"]], length)
        verdict = state(r) if r["verdict"] else None
        if norms is not None:
            at_end = last.loc[last["step"] == length, "value"].iloc[0]
            proved = r["bound_at_last"] / at_end if r.get("gated_linear") and r["bound_at_last"] else None
            short = shorten(r["model"], 24)
            found.append(Norms(r["model"], r["model"], short, verdict, norms, bound=proved))
    caption = f"{document['inputs']}, then {BEYOND[document['extension']]}."
    figures = [drift_figure(found, length, caption, word="sequence length")] if found else []
    header, cells = _grid(rows, COLUMNS)
    sections = (
        Section("models", "Models", tables=[Table(header, cells, range(2, len(header)))]),
        Section("norms", "Norm of the hidden state", figures=figures),
    )
    title = figures[0].title if figures else f"Norms of {len(rows)} models at the end of the sequences"
    write_page(folder, PAGE, title, f"stability compare · {document['inputs']}", sections, (), "compare", overwrite)
    return f"\n\nWritten to {folder.path}: {', '.join(FILES)} and figures/norm-drift"
