"""Examples of commands for the help texts; a test parses each of them."""

from __future__ import annotations

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
        "stability train --from runs/mine --margin-penalty 1 --set until_certified=true",
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
    "sweep": ("stability sweep sweep.toml", "stability sweep sweep.toml --workers 4 --json"),
    "doctor": ("stability doctor", "stability doctor --json"),
}


def help_examples(command: str) -> str | None:
    """Return the examples of a command as the end of its help; ``None`` if it has none.

    Example:
        >>> help_examples("doctor").split()
        ['Examples:', 'stability', 'doctor', 'stability', 'doctor', '--json']
    """
    lines = EXAMPLES.get(command)
    return None if lines is None else "\n\n".join(("Examples:", *lines))
