"""Table of theorems: the rule that decides each kind of proof, and the refusals common to all rules.

A rule lists the subjects, claims, verdict and data that its theorem covers. Other combinations are refused before the
theorem's own check runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any, TypeVar, cast

import numpy as np

from stability.kernel.arithmetic.definiteness import FLUSHED, flushes_small_numbers
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.fields import FIELDS, Datum, ProofData, Refused, require, required, sizes
from stability.kernel.format.sentences import OPEN
from stability.kernel.format.theorem_files import KINDS

Outcome = tuple[bool, str]
Kind = TypeVar("Kind", bound=ProofData)
BY_CHECK = ""
"""Value of ``Rule.value`` for a rule whose own check compares the claim's value."""


@dataclass(frozen=True, eq=False)
class Rule:
    """Theorem: the subjects that it covers, and the type of its proof with the check.

    Attributes:
        kind: the proof's kind in a certificate file.
        subject: types of the subjects.
        claim: names of the claims.
        verdict: verdict that it proves, ``certified`` or ``refuted``.
        data: type of the proof, with its fields, sentence and check.
        value: name of the datum that must equal the claim's value; ``None`` for a claim without a value; or
            ``BY_CHECK``.
        unfit: function of the subject that returns the reason why the theorem does not cover it, or ``None``.
        size: reason for refusing an array of another size than the subject's, with ``{n}``, ``{m}``, ``{p}``.

    Raises:
        ValueError: a field of an unknown type, or an array with a size and no words for another one.
    """

    kind: str
    subject: tuple[type, ...]
    claim: tuple[str, ...]
    verdict: Verdict
    data: type[ProofData]
    value: str | None = None
    unfit: Callable[[Any], str | None] = lambda _: None
    size: str = ""

    def __post_init__(self) -> None:
        if not {datum.type for datum in self.types.values()} <= set(FIELDS):
            raise ValueError(f"a field of the rule {self.kind!r} has no known type")
        if any(datum.size and not (datum.words or self.size) for datum in self.types.values()):
            raise ValueError(f"the rule {self.kind!r} has no words for an array of another size")

    @cached_property
    def types(self) -> Mapping[str, Datum]:
        """Return type and size of every datum of the proof, by name."""
        return {**self.data.types(optional=False), **self.data.types(optional=True)}

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """Return the types of required data: keys of ``FIELDS`` by name."""
        return {name: datum.type for name, datum in self.data.types(optional=False).items()}

    @cached_property
    def optional(self) -> Mapping[str, str]:
        """Return the types of optional data."""
        return {name: datum.type for name, datum in self.data.types(optional=True).items()}

    def __call__(self, subject: Any, claim: Claim) -> Outcome:
        """Decide a claim about a subject, ignoring its sentence; refuse cases that the theorem does not cover."""
        try:
            proof = self.read(subject, claim)
        except Refused as refusal:
            return False, str(refusal)
        return self.decide(subject, claim, proof)

    @np.errstate(all="ignore")
    def read(self, subject: Any, claim: Claim) -> ProofData:
        """Return the data of a claim's proof, with the types and sizes of the theorem.

        Raises:
            Refused: the theorem does not cover this claim about this subject, or a datum is missing, unknown, or of
                another type, value or size.
        """
        proof, about = f"a proof of kind {self.kind}", " or ".join(t.__name__ for t in self.subject)
        fits = isinstance(subject, self.subject)
        require(fits, f"{proof} is about a {about}, not about a {type(subject).__name__}")
        require(claim.name in self.claim, f"{proof} is about {' or '.join(self.claim)}, not about {claim.name!r}")
        fits = claim.verdict is self.verdict
        require(fits, f"{proof} supports the verdict {self.verdict}, not {claim.verdict}")
        data = required(claim.proof, "there is no proof").data
        require(isinstance(data, Mapping), "the proof's data are no mapping")  # pyright: ignore[reportUnnecessaryIsInstance]
        missing, unknown = sorted(set(self.fields) - set(data)), sorted(str(k) for k in set(data) - set(self.types))
        parts = {"lacks": missing, "holds unknown": unknown}
        wrong = " and ".join(f"{word} {', '.join(keys)}" for word, keys in parts.items() if keys)
        require(not wrong, f"{proof} {wrong}")
        for name, value in data.items():
            words, test = FIELDS[self.types[name].type]
            require(test(value), f"{name} must be {words}")
        require(self.value is not None or claim.value is None, "this claim has no value")
        if self.value:
            stated = data[self.value]
            require(claim.value == stated, f"the claim says {self.value} {claim.value}, the proof {stated}")
        reason = self.unfit(subject)
        require(not reason, str(reason))
        for name, value in data.items():
            datum = self.types[name]
            if datum.size is not None and not datum.size.admits(value, subject):
                raise Refused((datum.words or self.size).format(**sizes(subject)))
        # files may store a number as an integer
        return self.data.of({k: float(v) if self.types[k].type == "number" else v for k, v in data.items()})

    def decide(self, subject: Any, claim: Claim, proof: ProofData) -> Outcome:
        """Run the theorem's check on data that ``read`` returned.

        Overflow gives infinite or NaN values without a warning; every comparison of a check refuses them.
        """
        if flushes_small_numbers():
            return False, FLUSHED
        with np.errstate(all="ignore"):
            try:
                proved = proof.check(subject, claim)
            except Refused as refusal:
                return False, str(refusal)
        return (True, proved) if proved else (False, "the check does not say what it proved")


class _Theorems(Mapping[str, Rule]):
    """Rules of all kinds of proof in ``KINDS``; each file is imported on first use.

    The table is closed: a rule enters it once, while the file that ``KINDS`` names for its kind is imported.
    """

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}

    def __getitem__(self, kind: str) -> Rule:
        if kind not in self._rules:
            import_module(KINDS[kind])
        return self._rules[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)

    def enter(self, made: Rule) -> None:
        """Enter a rule.

        Raises:
            ValueError: its kind is taken, or belongs to another file.
        """
        if made.kind in self._rules or KINDS.get(made.kind) != made.data.__module__:
            raise ValueError(
                f"the rule {made.kind!r} is there already, or not in its row of kernel/format/theorem_files.py"
            )
        self._rules[made.kind] = made


RULES = _Theorems()


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
    """Decorate a type of proof to register it in the table, as the rule for one kind.

    The verifier refuses a claim with any other sentence than the one of ``sentence``, so that a valid proof cannot
    stand below a different statement. ``sentence`` is called only after ``Rule.read``.

    Args:
        kind: the proof's kind in a certificate file.
        subject: type or types of the subjects.
        claim: name or names of the claims.
        verdict: verdict that the proof supports.
        value: see ``Rule``.
        unfit: see ``Rule``.
        size: see ``Rule``.

    Returns:
        The decorator.

    Raises:
        ValueError: for a kind that is taken or has no row in ``theorem_files``, or a field of an unknown type.
    """

    def register(data: type[Kind]) -> type[Kind]:
        RULES.enter(Rule(kind, _tuple(subject), _tuple(claim), verdict, data, value, unfit, size))
        return data

    return register


certifies = partial(rule, verdict=Verdict.CERTIFIED)
"""Decorator ``rule`` for a theorem."""
refutes = partial(rule, claim="contraction", verdict=Verdict.REFUTED)
"""Decorator ``rule`` for a witness, against contraction unless it names another claim."""


def reason_of(outcome: Outcome) -> str:
    """Return the result of another rule or theorem in words.

    Raises:
        Refused: no proof.
    """
    require(*outcome)
    return outcome[1]


def worded(subject: Any, claim: Claim) -> Claim:
    """Return a claim with the only sentence that its proof, or an undecided claim of its name, may have.

    Args:
        subject: the certified system.
        claim: the claim, undecided or with a proof of a known kind; the proof is not checked here.

    Returns:
        The claim with this statement.

    Raises:
        KeyError: no rule knows the proof's kind, or no undecided claim has this name.
        AttributeError: a datum that the sentence names is missing.
    """
    if claim.proof is None:
        return replace(claim, statement=OPEN[claim.name](subject))
    proof = RULES[claim.proof.kind].data.of(claim.proof.data)
    return replace(claim, statement=proof.sentence(subject, claim))
