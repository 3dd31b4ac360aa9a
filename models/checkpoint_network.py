"""Language models of checkpoints as torch modules whose gated linear layers are blocks of this toolkit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import FileFormatError, UnsupportedError

from .checkpoint_blocks import PURE, build_block, epsilon
from .checkpoints.folder import Checkpoint, open_checkpoint
from .checkpoints.layer_weights import EMBEDDINGS, LayerWeights
from .checkpoints.stored_tensors import Read
from .gated_linear.block import GatedLinearBlock, RMSNorm

HEAD, FINAL_NORM = "lm_head.weight", "norm_f.weight"
PROBE_STEPS = 24
"""Tokens on which the mixers of a hybrid are compared with those of transformers."""
AGREEMENT = 1e-3
"""Largest relative difference of two float32 implementations of a mixer; another function differs by far more."""


class CheckpointNetwork(nn.Module):
    """Language model: embedding, residual blocks, norm and head; ``network(tokens)`` gives logits of the next token.

    Attributes:
        embedding: vectors of the tokens.
        layers: residual blocks, each a ``GatedLinearBlock``.
        paths: path of every mixer in the checkpoint, by the number of its layer.
        norm: norm behind the last block.
        head: linear map to the logits; its weight may be that of the embedding.
    """

    def __init__(
        self, embedding: Tensor, layers: Iterable[GatedLinearBlock], paths: dict[int, str], norm: RMSNorm
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(embedding, freeze=False)
        self.layers, self.paths, self.norm = nn.ModuleList(layers), paths, norm
        self.head = nn.Linear(*reversed(embedding.shape), bias=False, device="meta")
        self.head.weight = self.embedding.weight

    @property
    def tokens(self) -> int:
        """Number of tokens in the vocabulary."""
        return self.embedding.num_embeddings

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits ``(batch, time, vocabulary)`` of the token after each of ``tokens (batch, time)``."""
        x = self.embedding(tokens.to(self.embedding.weight.device))
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(self.norm(x))


def load_network(path: str | Path, dtype: torch.dtype = torch.float32) -> CheckpointNetwork | HybridNetwork:
    """Read a whole language model, with the floors of its steps.

    Networks of Mamba, FalconMamba or Mamba-2 layers alone need no further package. Those with other layers beside
    (attention, experts) are run by ``transformers``, with its mixers replaced by the blocks of this toolkit.

    Args:
        path: folder or file, as for ``open_checkpoint``.
        dtype: precision of the weights and of the computation.

    Returns:
        A ``CheckpointNetwork`` or a ``HybridNetwork`` on the CPU, in evaluation mode.

    Raises:
        UnsupportedError: layers or variants that are not run, or no ``transformers`` for a hybrid.
        FileFormatError: missing tensors, or shapes that do not fit together.

    Example:
        >>> import json, tempfile
        >>> from safetensors.torch import save_file
        >>> from stability.models import Mamba
        >>> folder, block = Path(tempfile.mkdtemp()), Mamba(4, 4).state_dict()
        >>> tensors = {f"backbone.layers.0.{name}": value for name, value in block.items()}
        >>> tensors |= {"backbone.embeddings.weight": torch.eye(4), "backbone.norm_f.weight": torch.ones(4)}
        >>> save_file(tensors, folder / "model.safetensors")
        >>> _ = (folder / "config.json").write_text(json.dumps({"model_type": "mamba"}))
        >>> load_network(folder)(torch.tensor([[0, 3, 1]])).shape
        torch.Size([1, 3, 4])
    """
    checkpoint = open_checkpoint(path)
    paths = {layer.index: layer.path for layer in checkpoint.layers}
    if checkpoint.config.get("model_type") not in PURE:
        return HybridNetwork(_by_transformers(path, checkpoint, dtype), checkpoint, paths, dtype).eval()
    tensors = checkpoint.layers[0].weights.tensors
    embedding, norm, head = (_find(tensors, *names) for names in (EMBEDDINGS, (FINAL_NORM,), (HEAD,)))
    if embedding is None or norm is None:
        raise FileFormatError(f"{path} holds no embedding of tokens or no norm {FINAL_NORM} behind the last layer")
    read = {name: torch.from_numpy(tensors[name]()).to(dtype) for name in (embedding, norm, head) if name}
    last = RMSNorm(len(read[norm]), epsilon(LayerWeights(tensors, checkpoint.config)))
    last.weight = nn.Parameter(read[norm])
    pairs = [build_block(layer, dtype) for layer in checkpoint.layers]
    if left := sorted(set(tensors) - set(read) - {name for _, names in pairs for name in names}):
        raise UnsupportedError(f"{path} cannot be run: the tensor {left[0][:100]} has no place in such a network")
    network = CheckpointNetwork(read[embedding], (block for block, _ in pairs), paths, last)
    if head is not None:
        if read[head].shape != read[embedding].shape:
            raise FileFormatError(f"{path}: {head} and {embedding} differ in shape")
        network.head.weight = nn.Parameter(read[head])
    return network.eval()


def _find(tensors: Mapping[str, Read], *ends: str) -> str | None:
    return next((name for end in ends for name in tensors if name == end or name.endswith(f".{end}")), None)


class HybridNetwork(nn.Module):
    """Language model of ``transformers`` whose recurrent mixers are those of this toolkit.

    Args:
        model: the model.
        checkpoint: its checkpoint.
        paths: path of every mixer in the checkpoint, by the number of its layer.
        dtype: precision.

    Attributes:
        layers: residual blocks, whose mixers run in the model; their norms only serve claims.

    Raises:
        UnsupportedError: a mixer that computes another function than its block.
    """

    def __init__(self, model: Any, checkpoint: Checkpoint, paths: dict[int, str], dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.paths = model, paths
        self.tokens: int = model.get_input_embeddings().num_embeddings
        modules = dict(model.named_modules())
        names = {index: _module_name(path, modules) for index, path in paths.items()}
        calls: dict[str, tuple[Tensor, Any]] = {}

        def keep(name: str) -> Any:
            return lambda module, args, kwargs, output: calls.update(
                {name: (args[0] if args else kwargs["hidden_states"], output)}
            )

        hooks = [modules[n].register_forward_hook(keep(n), with_kwargs=True) for n in names.values()]
        with torch.no_grad():
            self(torch.arange(PROBE_STEPS)[None] % self.tokens)
        for hook in hooks:
            hook.remove()
        blocks = []
        for stored in checkpoint.layers:
            name = names[stored.index]
            block, _ = build_block(stored, dtype)
            u, expected = calls[name]
            floors, block.mixer.dt_floor = block.mixer.dt_floor, None
            with torch.no_grad():
                y, _ = block.mixer(u)
            block.mixer.dt_floor = floors
            first, *rest = expected if isinstance(expected, tuple) else (expected,)
            if float((y - first).abs().max()) > AGREEMENT * first.abs().max():
                raise UnsupportedError(f"{stored.path}: a variant of {stored.type} that is not run")
            model.set_submodule(name, _MixerOf(block, isinstance(expected, tuple), len(rest)))
            blocks.append(block)
        self.layers = nn.ModuleList(blocks)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits ``(batch, time, vocabulary)`` of the token after each of ``tokens (batch, time)``."""
        return self.model(tokens.to(self.model.device), use_cache=False).logits


class _MixerOf(nn.Module):
    """Mixer of a block in the place of one of ``transformers``, which may return a tuple."""

    def __init__(self, block: GatedLinearBlock, as_tuple: bool, more: int) -> None:
        super().__init__()
        self.mixer, self.as_tuple, self.more = block.mixer, as_tuple, more

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> Any:
        """Return the mixer's output, with ``None`` for all that the other one returns beside it."""
        y, _ = self.mixer(hidden_states)
        return (y, *[None] * self.more) if self.as_tuple else y


def _module_name(path: str, modules: Mapping[str, Any]) -> str:
    """Return the name of a checkpoint's module in the model: the first part of the names may differ.

    Raises:
        UnsupportedError: none.
    """
    end = path[path.index("layers.") :] if "layers." in path else path
    name = next((name for name in modules if name == path or name.endswith(f".{end}")), None)
    if name is None:
        raise UnsupportedError(f"transformers builds a model without the module {path}")
    return name


def _by_transformers(path: str | Path, checkpoint: Checkpoint, dtype: torch.dtype) -> Any:
    """Return the model that ``transformers`` builds; no code of the folder is run.

    Raises:
        UnsupportedError: the package is not installed, or it does not know the model.
    """
    types = ", ".join(sorted({layer.type for layer in checkpoint.layers} | set(checkpoint.skipped.values())))
    try:
        from transformers import AutoModelForCausalLM  # type: ignore[import-not-found] - optional
    except ImportError as error:
        raise UnsupportedError(
            f"{path} has layers of the types {types}: to run it, install the package transformers"
        ) from error
    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True, trust_remote_code=False)
    except (ValueError, OSError, KeyError, RuntimeError, ImportError) as error:
        raise UnsupportedError(f"transformers cannot run {path}: {str(error)[:200]}") from error
