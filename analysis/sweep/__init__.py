"""Sweeps: many trainings, certificates and attacks, on one machine or on a cluster, with the same results."""

from .description import Sweep
from .job import Job
from .rows import JobList
from .running.runner import SweepOutcome, run_sweep, sweep_state
from .running.study import export_run, study_of, write_study
from .running.table import over_trainings, read_store, store_frame, table_of

__all__ = [
    "Job",
    "JobList",
    "Sweep",
    "SweepOutcome",
    "export_run",
    "over_trainings",
    "read_store",
    "run_sweep",
    "store_frame",
    "study_of",
    "sweep_state",
    "table_of",
    "write_study",
]
