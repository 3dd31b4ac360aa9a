"""Help of the commands: options in groups, and examples that a test parses as the command does."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

GROUPS = {
    "Model": "models model train_models preset source hidden layer_settings cell continuous",
    "Data": "task settings task_settings file data data_dir samples text tokenizer unit input_box bounds mask",
    "Output": "out overwrite proofs redraw full as_json quiet help",
}
"""Headings of the options that several commands share, by the names of their parameters."""
OWN_GROUPS = {"train": "Training", "certify": "Proof", "verify": "Proof", "radius": "Proof", "loop": "Proof"}
"""Heading of a command's other options; ``Computation`` for commands that are not named here."""
ORDER = ("Model", "Data", "Training", "Proof", "Computation", "Output")
METAVARS = {"int": "N", "int range": "N", "float": "NUMBER", "str": "NAME", "path": "PATH", "list[str]": "NAME=VALUE"}
"""Placeholders of the help for the names of types."""
RANGE = re.compile(r"(?<=\[)(?:[\d<=]*x[<>=\d]+|required)|; [\d<=]*x[<>=\d]+")
"""Range of a number, and ``required``, in a help text: an error states them."""


class Command(TyperCommand):
    """A command whose help lists its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, and the arguments among them, under the headings of ``ORDER``."""
        headings = {name: heading for heading, names in GROUPS.items() for name in names.split()}
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                heading = headings.get(str(parameter.name), OWN_GROUPS.get(str(self.name), "Computation"))
                name, _, kind = record[0].rstrip(">").partition(" <")
                name += f" {METAVARS[kind]}" if kind and parameter.param_type_name == "option" else ""
                groups.setdefault(heading, []).append((name, _text(record[1])))
        for heading in filter(groups.get, ORDER):
            with formatter.section(heading):
                formatter.write_dl(groups[heading], col_max=23)


def _text(text: str) -> str:
    """Return a help text with its default, without ranges."""
    return re.sub(r"default: \((.+)\)\]", r"default: \1]", RANGE.sub("", text)).replace("[]", "").strip()


EXAMPLES: dict[str, tuple[str, ...]] = {
    "report": (
        "stability report",
        "stability report runs/mine net.onnx --out runs/report",
        "stability report mymodel:load --data sensor.npz",
        "stability report --models lipschitz,lstm --task digits --seeds 5",
        "stability report --redraw runs/report",
    ),
    "train": (
        "stability train --model contracting --task digits --out runs/mine",
        "stability train --model lstm --data sensor.npz --epochs 20",
        "stability train --from runs/a --margin-penalty 1 --set until_certified=true",
        "stability train --resume runs/mine",
    ),
    "certify": (
        "stability certify runs/mine -o certificate.json",
        "stability certify net.pt --cell rnn_tanh --time-limit 60",
        "stability certify lstm.onnx --input-box -1,1",
        "stability certify a.npz b.npz c.npz --require proved --min-rate 0.95 --json",
    ),
    "verify": ("stability verify certificate.json", "stability verify proofs", "stability verify certificates --json"),
    "compare": ("stability compare runs/rotrnn runs/lstm --out runs/drift",),
    "hessian": ("stability hessian runs/mine", "stability hessian mymodel:load --data sensor.npz --json"),
    "attack": ("stability attack runs/mine --attack apgd --unit std",),
    "noise": ("stability noise mymodel:load --data mydata:arrays --unit std",),
    "radius": (
        "stability radius runs/mine --samples 20 --proofs proofs",
        "stability radius net.onnx --data test.npz --norm linf --epsilon 0.01",
        "stability radius runs/mine --mask sensor.npy --proofs proofs",
    ),
    "study": (
        "stability study --list",
        "stability study lrnn-spectra --quick",
        "stability study --all --quick --out runs/studies",
    ),
    "loop": (
        "stability loop loop.npz --out runs/loop",
        "stability loop plant.npz --sign -1 --slope 0.1 1",
        "stability loop myplant:pendulum --json",
    ),
    "repair": (
        "stability repair runs/mamba2 --out runs/floored",
        "stability repair mamba-130m --text prose.txt --floor 0.01 --out floored",
    ),
    "fixed-points": (
        "stability fixed-points runs/mine",
        "stability fixed-points rnn.pt --cell rnn_tanh --input 0.5,0 --json",
    ),
    "sweep": ("stability sweep sweep.toml", "stability sweep sweep.toml --workers 4 --json"),
    "doctor": ("stability doctor", "stability doctor --json"),
}


def epilog(command: str) -> str | None:
    r"""Return the examples of a command as the end of its help, ``None`` for a command without any.

    Example:
        >>> epilog("doctor").split()
        ['\x08', 'Examples:', 'stability', 'doctor', 'stability', 'doctor', '--json']
    """
    lines = EXAMPLES.get(command)
    return None if lines is None else "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
