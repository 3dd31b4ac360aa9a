"""The table of verifier rules, by the proof's kind, and the preamble that all of them share.

A rule enumerates what its theorem covers: which subjects, which claims, which verdict, which data. The preamble refuses
everything else before the theorem's own check runs, so that no rule can be talked into a combination it was not written
for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from stability.kernel.arithmetic.definiteness import FLUSHED, flushes_small_numbers
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import FIELDS, Datum, ProofData, Refused, require, sizes
from stability.kernel.format.lazy_table import Table
from stability.kernel.format.theorem_files import KINDS, rule_files

Outcome = tuple[bool, str]
Kind = TypeVar("Kind", bound=ProofData)


@dataclass(frozen=True, eq=False)
class Rule:
    """One theorem: what it is about, and the type of its proof, which checks itself.

    Attributes:
        kind: the proof's kind in a certificate file.
        subject: the types it is about.
        claim: the names of the claims it can decide.
        verdict: the answer that it proves, ``certified`` or ``refuted``.
        value: the datum that must equal the claim's value; ``None`` for a claim without a value; ``""`` where the
            check compares it.
        unfit: ``subject -> str``, why the theorem is not about this subject, or ``None`` where it is.
        size: the words for an array that is not of the subject's size, with ``{n}``, ``{m}``, ``{p}`` for the sizes.
        data: the type of the proof: fields, sentence, check.
        fields: name of every datum the proof must hold, with its type, a key of ``FIELDS``.
        optional: those it may hold.
    """

    kind: str
    subject: tuple[type, ...]
    claim: tuple[str, ...]
    verdict: Verdict
    value: str | None
    unfit: Callable[[Any], str | None]
    size: str
    data: type[ProofData]
    fields: Mapping[str, str]
    optional: Mapping[str, str]
    types: Mapping[str, Datum]

    def __call__(self, subject: Any, claim: Claim) -> Outcome:
        """Decide a claim about a subject; what the theorem does not cover is refused.

        Checks see no warnings of numpy: what overflows becomes infinite or NaN, which every comparison there refuses.
        """
        problem = self.refusal(subject, claim)
        if problem is not None or claim.proof is None:
            return False, problem or "there is no proof"
        if flushes_small_numbers():
            return False, FLUSHED
        given = claim.proof.data.items()  # an integer stands for the same number
        data = {name: float(value) if self.types[name].type == "number" else value for name, value in given}
        with np.errstate(all="ignore"):
            problem = self.misfit(subject, data)
            try:
                proved = self.data.of(data).check(subject, claim) if problem is None else None
                return (True, proved) if proved else (False, problem or "the check does not say what it proved")
            except Refused as refusal:
                return False, str(refusal)

    def refusal(self, subject: Any, claim: Claim) -> str | None:
        """Why the theorem does not cover this claim about this subject, or ``None`` where it does."""
        problem = self._uncovered(subject, claim)
        if problem is not None or claim.proof is None:
            return problem or "there is no proof"
        data = claim.proof.data
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            return "the proof's data are no mapping"
        return self._mistyped(data) or self._other_value(claim, data)

    @np.errstate(all="ignore")
    def misfit(self, subject: Any, data: Mapping[str, Any]) -> str | None:
        """Why the theorem is not about this subject, or data of the right types are not of its size, or ``None``."""
        return self.unfit(subject) or self._missized(subject, data)

    def _uncovered(self, subject: Any, claim: Claim) -> str | None:
        proof = f"a proof of kind {self.kind}"
        if not isinstance(subject, self.subject):
            names = " or ".join(t.__name__ for t in self.subject)
            return f"{proof} is about a {names}, not about a {type(subject).__name__}"
        if claim.name not in self.claim:
            return f"{proof} is about {' or '.join(self.claim)}, not about {claim.name!r}"
        if claim.verdict is not self.verdict:
            return f"{proof} supports the verdict {self.verdict}, not {claim.verdict}"
        return None

    def _mistyped(self, data: Mapping[str, Any]) -> str | None:
        missing = sorted(set(self.fields) - set(data))
        unknown = sorted(str(k) for k in set(data) - set(self.types))
        if missing or unknown:
            parts = {"lacks": missing, "holds unknown": unknown}
            what = " and ".join(f"{word} {', '.join(keys)}" for word, keys in parts.items() if keys)
            return f"a proof of kind {self.kind} {what}"
        for name, value in data.items():
            words, test = FIELDS[self.types[name].type]
            if not test(value):
                return f"{name} must be {words}"
        return None

    def _other_value(self, claim: Claim, data: Mapping[str, Any]) -> str | None:
        if self.value is None and claim.value is not None:
            return "this claim has no value"
        if self.value and claim.value != data[self.value]:
            return f"the claim says {self.value} {claim.value}, the proof {data[self.value]}"
        return None

    def _missized(self, subject: Any, data: Mapping[str, Any]) -> str | None:
        for name, value in data.items():
            datum = self.types[name]
            if datum.size is not None and not datum.size.admits(value, subject):
                return (datum.words or self.size).format(**sizes(subject))
        return None


RULES: Table[Rule] = Table(KINDS, rule_files)
"""The rule for every kind of proof; its file is loaded when it is asked for."""


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(cast(Sequence[Any], value)) if isinstance(value, (tuple, list)) else (value,)


def rule(
    kind: str,
    *,
    subject: type | tuple[type, ...],
    claim: str | tuple[str, ...],
    verdict: Verdict,
    value: str | None = None,
    unfit: Callable[[Any], str | None] = lambda _: None,
    size: str = "",
) -> Callable[[type[Kind]], type[Kind]]:
    """Decorator: enter a type of proof in the table, as the rule for one kind.

    Its ``sentence`` is the only one that such a proof may carry; the verifier refuses any other, so that nobody can put
    different words above a valid proof. It is asked for the sentence only after the preamble.

    Args:
        kind: the proof's kind in a certificate file.
        subject: the type or types it is about.
        claim: the name or names of the claims.
        verdict: the answer.
        value: the datum that the claim's value repeats; ``None``: the claim has none; ``""``: the check decides.
        unfit: why the theorem is not about a subject of these types, or ``None``; asked before the check.
        size: the words for an array of another size than its field names; needed where a field names one.

    Returns:
        The decorator.

    Raises:
        ValueError: for a kind that is taken, or a type of datum that is unknown.
    """

    def register(data: type[Kind]) -> type[Kind]:
        needed, optional = data.types(optional=False), data.types(optional=True)
        types = {**needed, **optional}
        if kind in RULES or not {datum.type for datum in types.values()} <= set(FIELDS):
            raise ValueError(f"the rule {kind!r} is there already, or one of its fields has no known type")
        if any(datum.size and not (datum.words or size) for datum in types.values()):
            raise ValueError(f"the rule {kind!r} has no words for an array of another size")
        names = [{name: datum.type for name, datum in part.items()} for part in (needed, optional)]
        about = _tuple(subject), _tuple(claim)
        RULES[kind] = Rule(kind, *about, verdict, value, unfit, size, data, names[0], names[1], types)
        return data

    return register


certifies = partial(rule, verdict=Verdict.CERTIFIED)
"""``rule`` of a theorem."""
refutes = partial(rule, claim="contraction", verdict=Verdict.REFUTED)
"""``rule`` of a witness, against contraction where it names no more."""


def reason_of(outcome: Outcome) -> str:
    """What another rule or theorem proved, in words.

    Raises:
        Refused: where it proved nothing.
    """
    require(*outcome)
    return outcome[1]


def worded(subject: Any, claim: Claim) -> Claim:
    """A claim under the only sentence that its proof may carry.

    Args:
        subject: what it is about.
        claim: the claim, with a proof of a kind that has a rule; whether it is valid is the rule's to say.

    Returns:
        The same claim, its statement replaced.

    Raises:
        ValueError: it has no proof.
        KeyError: no rule knows the proof's kind.
        AttributeError: a datum that the sentence names is missing.
    """
    if claim.proof is None:
        raise ValueError(f"no sentence for a claim of {claim.name} without a proof")
    proof = RULES[claim.proof.kind].data.of(claim.proof.data)
    return replace(claim, statement=proof.sentence(subject, claim))


def propose(
    subject: Any,
    kind: str,
    data: Mapping[str, Any],
    name: str | None = None,
    *,
    verdict: Verdict | None = None,
    value: float | None = None,
) -> Claim:
    """The claim that a proof supports, in the words of its rule, which has yet to check it.

    Args:
        subject: what it is about.
        kind: the proof's kind.
        data: its data.
        name: the claim; the first of the rule's by default.
        verdict: by default the one that such a proof supports.
        value: by default what the proof says.

    Returns:
        The claim.
    """
    about = RULES[kind]
    value = data.get(about.value) if value is None and about.value else value
    draft = Claim(name or about.claim[0], "", verdict or about.verdict, Proof(kind, data), value)
    return worded(subject, draft)


def accepted(subject: Any, kind: str, data: Mapping[str, Any], name: str | None = None) -> Claim | None:
    """The claim of ``propose`` where its rule accepts it, else ``None``."""
    claim = propose(subject, kind, data, name)
    return claim if RULES[kind](subject, claim)[0] else None
