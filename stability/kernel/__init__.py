"""Trusted code behind ``verify``: numpy, the standard library and ``stability.errors``.

``systems`` define what a claim is about, ``arithmetic`` bounds rounding errors, ``reachability`` encloses states,
``theorems`` check one kind of proof each, ``format`` reads and writes claims.
"""
