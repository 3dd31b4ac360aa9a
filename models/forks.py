"""A fork of a process in which torch has worked: it works on, with one thread.

A fork has none of its parent's threads. The OpenMP library that torch comes with (libgomp) waits for them for ever as
soon as anything is computed with more than one: a ``multiprocessing`` pool of a program that has trained before, say.
Such a fork is told to work alone; ``torch.set_num_threads`` there would bring the waiting back.
"""

from __future__ import annotations

import os

import torch

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
