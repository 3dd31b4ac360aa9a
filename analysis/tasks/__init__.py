"""Tasks: sequences with targets, a loss, a metric and a chance level, by name through ``make_task``."""

from .archive import data, data_options
from .arrays import task_from_arrays
from .base import TASKS, Task, identity, make_task, register_task
from .idx import read_idx
from .images import digits
from .listops import listops, listops_expression, solve_listops
from .ranges import Range
from .speech import spoken
from .synthetic import adding, copying, pendulum
from .text import characters
from .timeseries import ucr

__all__ = [
    "TASKS",
    "Range",
    "Task",
    "adding",
    "characters",
    "data",
    "data_options",
    "copying",
    "digits",
    "listops",
    "listops_expression",
    "identity",
    "make_task",
    "pendulum",
    "read_idx",
    "register_task",
    "solve_listops",
    "spoken",
    "task_from_arrays",
    "ucr",
]
