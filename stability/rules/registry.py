"""The table of verifier rules, by the proof's kind, and the preamble that all of them share.

A rule enumerates what its theorem covers: which subjects, which claims, which verdict, which data. The preamble refuses
everything else before the rule's own body runs, so that no rule can be talked into a combination it was not written
for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rigor.definite import FLUSHED, flushes_small_numbers

__all__ = ["FIELDS", "RULES", "Outcome", "Rule", "rule", "verdict_of", "worded"]

Outcome = tuple[bool, str]
Body = Callable[[Any, Claim, Mapping[str, Any]], Outcome]
Words = Callable[[Any, Claim, Mapping[str, Any]], str]
RULES: dict[str, Rule] = {}
EXACT_INTEGERS = 2**53
LARGEST = 1e100  # of a pair that names an eigenvalue


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) <= EXACT_INTEGERS
    return isinstance(value, float) and math.isfinite(value)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64 and bool(np.isfinite(value).all())


def _is_pair(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return _is_array(value) and value.shape == (2,) and bool((np.abs(value) <= LARGEST).all())
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return False
    return all(_is_number(x) and abs(x) <= LARGEST for x in value)


FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "number": ("a finite number", _is_number),
    "number or null": ("a finite number or null", lambda v: v is None or _is_number(v)),
    "count": ("a positive integer", lambda v: type(v) is int and 0 < v <= EXACT_INTEGERS),
    "index": ("an integer from zero", lambda v: type(v) is int and 0 <= v <= EXACT_INTEGERS),
    "array": ("an array of finite numbers", _is_array),
    "pair": ("a pair of numbers up to 1e100", _is_pair),
    "text": ("a string", lambda v: isinstance(v, str)),
    "mapping": ("a mapping", lambda v: isinstance(v, Mapping)),
    "list": ("a list", lambda v: isinstance(v, (list, tuple))),
}
"""What a datum of a proof can be, in words and as a test."""


@dataclass(frozen=True, eq=False)
class Rule:
    """One theorem: what it is about, and the body that checks it.

    Attributes:
        kind: the proof's kind in a certificate file.
        subject: the types it is about.
        claim: the names of the claims it can decide.
        verdict: the answers it can give; ``inconclusive`` for a replay, which shows something and proves nothing.
        fields: name of every datum the proof must hold, with its type, a key of ``FIELDS``.
        optional: those it may hold.
        value: the datum that must equal the claim's value; ``None`` for a claim without a value; ``""`` where the
            body compares it.
        statement: ``(subject, claim, data) -> str``, the only sentence that such a proof may carry.
        body: ``(subject, claim, data) -> (valid, reason)``, run on what has passed the preamble.
    """

    kind: str
    subject: tuple[type, ...]
    claim: tuple[str, ...]
    verdict: tuple[Verdict, ...]
    fields: Mapping[str, str]
    optional: Mapping[str, str]
    value: str | None
    statement: Words
    body: Body

    def __call__(self, subject: Any, claim: Claim) -> Outcome:
        """Decide a claim about a subject; what the theorem does not cover is refused.

        Bodies see no warnings of numpy: what overflows becomes infinite or NaN, which every comparison there refuses.
        """
        problem = self.refusal(subject, claim)
        if problem is not None or claim.proof is None:
            return False, problem or "there is no proof"
        if flushes_small_numbers():
            return False, FLUSHED
        with np.errstate(all="ignore"):
            return self.body(subject, claim, claim.proof.data)

    def refusal(self, subject: Any, claim: Claim) -> str | None:
        """Why the theorem does not cover this claim about this subject, or ``None`` where it does."""
        if not isinstance(subject, self.subject):
            names = " or ".join(t.__name__ for t in self.subject)
            return f"a proof of kind {self.kind} is about a {names}, not about a {type(subject).__name__}"
        if claim.name not in self.claim:
            return f"a proof of kind {self.kind} is about {' or '.join(self.claim)}, not about {claim.name!r}"
        if claim.verdict not in self.verdict:
            answers = " or ".join(self.verdict)
            return f"a proof of kind {self.kind} supports the verdict {answers}, not {claim.verdict}"
        if claim.proof is None:
            return "there is no proof"
        data = claim.proof.data
        if not isinstance(data, Mapping):
            return "the proof's data are no mapping"
        missing = sorted(set(self.fields) - set(data))
        unknown = sorted(str(k) for k in set(data) - set(self.fields) - set(self.optional))
        if missing or unknown:
            parts = {"lacks": missing, "holds unknown": unknown}
            what = " and ".join(f"{word} {', '.join(keys)}" for word, keys in parts.items() if keys)
            return f"a proof of kind {self.kind} {what}"
        for name, value in data.items():
            words, test = FIELDS[self.fields.get(name) or self.optional[name]]
            if not test(value):
                return f"{name} must be {words}"
        if self.value is None and claim.value is not None:
            return "this claim has no value"
        if self.value and claim.value != data[self.value]:
            return f"the claim says {self.value} {claim.value}, the proof {data[self.value]}"
        return None


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def rule(
    kind: str,
    *,
    subject: type | tuple[type, ...],
    claim: str | tuple[str, ...],
    verdict: Verdict | tuple[Verdict, ...],
    fields: Mapping[str, str],
    statement: Words,
    optional: Mapping[str, str] | None = None,
    value: str | None = None,
) -> Callable[[Body], Rule]:
    """Decorator: make a body ``(subject, claim, data) -> (valid, reason)`` the rule for one kind of proof.

    Args:
        kind: the proof's kind in a certificate file.
        subject: the type or types it is about.
        claim: the name or names of the claims.
        verdict: the answer or answers.
        fields: the data that a proof must hold, with their types (keys of ``FIELDS``).
        statement: the only sentence that such a proof may carry; the verifier refuses any other, so that nobody can
            put different words above a valid proof. It is asked for the sentence only after the preamble.
        optional: data that a proof may hold.
        value: the datum that the claim's value repeats; ``None``: the claim has none; ``""``: the body decides.

    Returns:
        The decorator; the rule takes the function's place.

    Raises:
        ValueError: for a kind that is taken, or a type of datum that is unknown.
    """

    def register(function: Body) -> Rule:
        types = {**fields, **(optional or {})}
        if kind in RULES or not set(types.values()) <= set(FIELDS):
            raise ValueError(f"the rule {kind!r} is there already, or one of its fields has no known type")
        made = Rule(
            kind,
            _tuple(subject),
            _tuple(claim),
            _tuple(verdict),
            dict(fields),
            dict(optional or {}),
            value,
            statement,
            function,
        )
        RULES[kind] = made
        return made

    return register


def worded(subject: Any, claim: Claim) -> Claim:
    """A claim under the only sentence that its proof may carry.

    Args:
        subject: what it is about.
        claim: the claim, with a proof of a kind that has a rule; whether it is valid is the rule's to say.

    Returns:
        The same claim, its statement replaced.

    Raises:
        ValueError: it has no proof.
        KeyError: no rule knows the proof's kind, or a datum that the sentence names is missing.
    """
    if claim.proof is None:
        raise ValueError(f"no sentence for a claim of {claim.name} without a proof")
    return replace(claim, statement=RULES[claim.proof.kind].statement(subject, claim, claim.proof.data))


def verdict_of(kind: str, data: Mapping[str, Any]) -> Verdict:
    """The verdict that a witness against a claim supports: refuted where it proves, inconclusive where it is replayed.

    Args:
        kind: the kind of the witness.
        data: its data; a witness about a stack that hands on another kind holds it as ``kind`` and ``data``.

    Returns:
        The verdict.

    Raises:
        KeyError: for a kind without a rule.
    """
    answers = RULES[kind].verdict
    if len(answers) == 1:
        return answers[0]
    inner = data.get("kind")
    if isinstance(inner, str) and inner in RULES and isinstance(data.get("data"), Mapping):
        return verdict_of(inner, data["data"])
    return answers[0]
