"""Export the network of ``train_plain_torch.py`` to ONNX, without this toolkit.

Train, export and certify::

    python examples/train_plain_torch.py runs/plain
    python examples/export_onnx.py runs/plain
    stability certify runs/plain/rnn.onnx

Needs the package ``onnx`` (``pip install 'rnn-stability[onnx]'``). ``dynamo=False`` chooses torch's exporter that
keeps the RNN as one node and needs nothing else; the newer one needs ``onnxscript`` as well.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from train_plain_torch import Smoother


def main(folder: Path) -> None:
    """Read the weights in ``folder`` and write the ONNX file beside them."""
    torch.set_num_threads(1)
    model = Smoother().eval()
    model.load_state_dict(torch.load(folder / "rnn.pt", weights_only=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the exporter's age
        torch.onnx.export(model, (torch.zeros(1, 30, 1),), str(folder / "rnn.onnx"), dynamo=False)
    print(f"wrote {folder / 'rnn.onnx'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/plain"))
