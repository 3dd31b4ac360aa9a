"""Imported once in the process from which those of the jobs are forked: what they need is loaded then, in all of them.

A proof about one state asks for most of what proofs load when they need it.
"""

from __future__ import annotations

from stability.certification import certify
from stability.storage.sources import code_version
from stability.systems import LureSystem

from ..job import KINDS, kind_of

for _kind in KINDS.homes:
    kind_of(_kind)
code_version()
certify(LureSystem.recurrent([[-2.0]], [[1.0]]))
