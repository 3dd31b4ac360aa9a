"""Sweeps: trainings, certificates and analyses over models, tasks, options and seeds."""

from .description import Sweep
from .run import SweepOutcome, run_sweep, sweep_state
from .table import over_trainings

__all__ = ["Sweep", "SweepOutcome", "over_trainings", "run_sweep", "sweep_state"]
