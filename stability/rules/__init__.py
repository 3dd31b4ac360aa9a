"""One verifier rule a theorem: each checks one kind of proof and trusts nobody.

``stability.rules.registry.RULES`` is the table of all of them.
"""
