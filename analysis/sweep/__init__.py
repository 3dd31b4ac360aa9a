"""Sweeps: many trainings, certificates and attacks, on one machine or on a cluster, with the same results."""

from .description import Sweep
from .job import Job
from .rows import JobList
from .running.runner import SweepOutcome, run_sweep, sweep_state
from .running.table import over_trainings, store_frame, table_of

__all__ = [
    "Job",
    "JobList",
    "Sweep",
    "SweepOutcome",
    "over_trainings",
    "run_sweep",
    "store_frame",
    "sweep_state",
    "table_of",
]
