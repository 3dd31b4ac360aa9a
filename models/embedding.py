"""Networks behind their embedding: perturbations act on the embedded vectors, not on tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, UnsupportedError

_ENTRIES = 2**24  # of a table of distances


class BehindEmbedding(nn.Module):
    """Network with a token embedding, called on embedded sequences ``(batch, time, features)``.

    Whatever is perturbed, certified or measured then is a sequence of vectors; most of them belong to no token.

    Args:
        model: the network, called as ``model(tokens)`` with tokens ``(batch, time)``.
        path: path of the embedding within it.
        nearest: whether the network also reads its tokens (for a mask, or lengths): it then gets, at every step,
            the token whose vector is nearest. Else it gets the token 0 throughout, which it does not look at.

    Attributes:
        input_size: features of an embedded token.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(6, 2))
        >>> tokens = torch.tensor([[1, 2, 3]])
        >>> behind = BehindEmbedding(net, "0")
        >>> torch.equal(behind(behind.embed(tokens)), net(tokens))
        True
    """

    def __init__(self, model: nn.Module, path: str, nearest: bool = False) -> None:
        super().__init__()
        self.model, self.path, self.nearest = model, path, nearest
        self.input_size = int(self.embedding.embedding_dim)

    @property
    def embedding(self) -> Any:
        """Embedding module of the network."""
        return self.model.get_submodule(self.path)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the vectors of tokens ``(batch, time)``, in evaluation."""
        with torch.no_grad():
            return nn.functional.embedding(tokens, self.embedding.weight.detach())

    def forward(self, x: Tensor) -> Any:
        """Return the network's output for embedded sequences ``(batch, time, features)``."""
        handle = self.embedding.register_forward_hook(lambda module, arguments, out: x)
        try:
            return self.model(self._tokens(x))
        finally:
            handle.remove()

    def _tokens(self, x: Tensor) -> Tensor:
        if not self.nearest:
            return torch.zeros(x.shape[:2], dtype=torch.long, device=x.device)
        weight = self.embedding.weight.detach()
        rows = max(1, _ENTRIES // len(weight))
        return torch.cat(
            [torch.cdist(part, weight).argmin(1) for part in x.detach().flatten(0, 1).split(rows)]
        ).reshape(x.shape[:2])


def behind_embedding(model: nn.Module, tokens: Tensor, name: str) -> BehindEmbedding:
    """Return a network behind the embedding of its tokens, located by one run.

    Args:
        model: called as ``model(tokens)``.
        tokens: ``(batch, time)`` integers.
        name: name in error messages.

    Returns:
        The network behind it.

    Raises:
        UnsupportedError: no embedding that reads the tokens, or several; or a network that does more with them, so that
            what stands behind the embedding is not all of it.
        ConfigurationError: a network that does not take them.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(6, 2))
        >>> behind_embedding(net, torch.tensor([[1, 2, 3]]), "net").path
        '0'
    """
    embeddings = {path: part for path, part in model.named_modules() if isinstance(part, nn.Embedding)}
    seen: list[str] = []

    def watched(path: str) -> Any:
        return lambda part, arguments: seen.append(path) if arguments and _same(arguments[0], tokens) else None

    handles = [part.register_forward_pre_hook(watched(path)) for path, part in embeddings.items()]
    modes = [(part, part.training) for part in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            answer = model(tokens)
            if len(seen) != 1:
                listed = ", ".join(seen) or "none"
                raise UnsupportedError(
                    f"the data are tokens, and {name} has {len(seen)} nn.Embedding for them ({listed}), not 1"
                )
            behind = BehindEmbedding(model, seen[0])
            if not _blind(behind, answer, tokens):
                behind = BehindEmbedding(model, seen[0], nearest=True)
            again = behind(behind.embed(tokens))
    except UnsupportedError:
        raise
    except (Exception, SystemExit) as error:  # a network of the user's own may raise anything
        line = " ".join(str(error).split())[:160]
        raise ConfigurationError(
            f"{name} does not take tokens {tuple(tokens.shape)} (batch, time): {type(error).__name__}: {line}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
        for part, training in modes:
            part.training = training
    if not _agree(answer, again):
        raise UnsupportedError(
            f"{name} uses its tokens for more than the embedding {seen[0]} and its neighbors, so that the part behind "
            "the embedding is incomplete: pass a factory that returns the network on embedded sequences"
        )
    return behind


def _blind(behind: BehindEmbedding, answer: Any, tokens: Tensor) -> bool:
    """Return True if the output does not depend on the tokens; packed sequences may have no length left."""
    try:
        return _agree(answer, behind(behind.embed(tokens)))
    except (Exception, SystemExit):  # noqa: BLE001 - a network of the user's own may raise anything
        return False


def _agree(answer: Any, again: Any) -> bool:
    """Return True if two outputs agree up to rounding; outputs that are no tensors count as equal."""
    if not isinstance(answer, Tensor):
        return True
    same = isinstance(again, Tensor) and answer.shape == again.shape
    return same and torch.allclose(answer, again, rtol=1e-4, atol=1e-6)


def _same(argument: Any, tokens: Tensor) -> bool:
    """Return True if the embedding's input is the tokens; a transposed batch does not count."""
    return isinstance(argument, Tensor) and argument.shape == tokens.shape and bool((argument == tokens).all())
