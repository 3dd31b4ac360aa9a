"""Trusted code: what ``verify`` rests on. It needs numpy and the standard library, and nothing outside but the errors.

``systems`` define what a claim is about, ``arithmetic`` bounds rounding errors, ``reachability`` encloses states,
``theorems`` check one kind of proof each, ``format`` reads and writes claims.
"""
