"""Sentences of claims in certificates of version 2, by kind of proof.

A certificate of version 2 is read under the sentence that its proof has today. Its stored sentence counts only as a
sign that nobody edited it: it must have the form of that version, up to numbers and the description of the subject.
The table has one form a line; braces hold alternatives or the name of one of ``PARTS``.
"""

from __future__ import annotations

import re
from pathlib import Path

MAX_LENGTH = 5000  # characters; sentences of version 2 have a tenth, and matching takes quadratic time
_NUMBER = r"-?\d[\d.e+-]*"
_BOX = r"(?:entries in \[#, #\]|entry j in \[low_j, high_j\] of (?:its box|the proof) \(all within \[#, #\]\))"
_SETS = (
    r"(?:h\^T Y\^-1 h <= # for the Y|\|h_i\| <= # r_i for the r|-# falls_i <= h_i <= # r_i for r and falls"
    r"|\(h - c\)\^T Y\^-1 \(h - c\) <= # for the first c and Y)"
)
_SIZES = (
    r"(?:h\(0\)\^T Y\^-1 h\(0\)|\|h_i\(0\)\| / r_i|h_i\(0\) / r_i or -h_i\(0\) / falls_i"
    r"|\(h\(0\) - c\)\^T Y\^-1 \(h\(0\) - c\))"
)
_STEPS = r"(?:ceil\(log\(\(V - 1\) / #\) / log\(1 / #\)\)(?: steps)?|log\(\(V - 1\) / #\) / #)"
PARTS = {
    "subject": r"(?:[Tt]his|[Tt]he part) [^:]*?\((?:[^:]*?exact arithmetic|code that no criterion can read)\)"
    r"(?: with every activation (?:of slopes in \[#, #\]|whose slope in channel i lies in \[alpha_i, beta_i\] of the "
    r"file \(# different intervals: \[#, #\](?:, \[#, #\])*(?:, \.\.\.)?\)))?",
    "inputs": rf"(?:every |every constant |)inputs?(?: with {_BOX})?",
    "decay": r"(?:#\^k \|d\(0\)\| after k steps|exp\(-# t\) \|d\(0\)\| at time t"
    r"|\(#\^k \+ #\^\(T-k\)\) \|d\(0\)\| at step k of T, d\(0\) that at the starts of both directions)",
    "factor": r"(?:#\^k|exp\(-# t\))",
    "later": r"\|d\([kt]\)\| <= # \* (?:#\^\(k-K\) \|d\(K\)\||exp\(-# \(t - T\)\) \|d\(T\)\|)\.",
    "entry": r"from (?:step K = # on, wherever (?:they|it) starts?"
    rf"|(?:step K|time T) on, # (?:steps )?after (?:both satisfy|it satisfies) {_SETS} of the proof \(which (?:they do"
    rf"|it does) after at most {_STEPS}, V the largest {_SIZES}, and at once where V is smaller\)"
    rf"|step K = N \+ # on, N = {_STEPS}, V the largest {_SIZES} of all layers(?: in both runs)?, and N = 0 where "
    r"V <= #),",
    "span": r"(?:in the l2 norm over (?:the whole sequence|# steps)"
    r"|at the last of (?:any number of|#) steps, \|u\| the l2 norm over all of them)",
    "c_size": r"(?: and \|c\| <= #)?",
    "layers": r"\w+(?:, \w+)*",
    "start": r"(?: in whose gated layers \|h\| <= 1 at its start)?",
    "moves": r"(?:the constant input u0 of the proof"
    r"|every input with \|u_j - u0_j\| <= # at all times, u0 that of the proof,)",
    "eigenvalue": r"(?:the eigenvalue [-+\d.e i]+|an eigenvalue) of "
    r"(?:modulus (?:above|at least) 1|positive real part|real part at least 0)",
    "witness": r"(?:constant input|input of period #) of the proof(?: \(entries in \[#, #\]\))?",
    "witness of a part": r"(?:This|The part) .* (?:is not|does not) .*\.",
}
"""Regular expressions of parts that several sentences share; ``#`` is a number."""


def _expression(part: str) -> str:
    """Return the regular expression of a part in braces, or of plain words."""
    if not part.startswith("{"):
        return re.escape(part).replace(r"\#", "#")
    name = part[1:-1]
    return PARTS[name] if name in PARTS else "|".join(map(_expression, name.split("|"))).join(("(?:", ")"))


def is_sentence(kind: str, sentence: str) -> bool:
    """Return True if a claim with this kind of proof, ``open`` without one, had a sentence of this form."""
    for row in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        kinds, _, form = row.partition(" | ")
        if kind in kinds.split() and len(sentence) <= MAX_LENGTH:
            expression = "".join(map(_expression, re.split(r"(\{[^}]*\})", form))).replace("#", _NUMBER)
            if re.fullmatch(expression, sentence):
                return True
    return False
