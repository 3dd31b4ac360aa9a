"""Tasks: sequences with targets, a loss, a metric and a chance level, by name through ``make_task``."""

from .archive import data, data_options
from .arrays import task_from_arrays
from .base import TASKS, Range, Task, identity, make_task, register_task
from .cifar import cifar10
from .commands import speech_commands
from .excerpts import generation
from .frames import frames
from .idx import read_idx
from .images import digits, fashion
from .listops import listops, listops_expression, solve_listops
from .pathfinder import pathfinder, solve_pathfinder
from .recall import associative_recall, selective_copying
from .speech import spoken
from .synthetic import adding, copying, pendulum
from .text import characters, treebank
from .timeseries import ucr
from .timit import timit

__all__ = [
    "TASKS",
    "Range",
    "Task",
    "adding",
    "associative_recall",
    "characters",
    "cifar10",
    "data",
    "data_options",
    "copying",
    "digits",
    "fashion",
    "frames",
    "listops",
    "listops_expression",
    "generation",
    "identity",
    "make_task",
    "pathfinder",
    "pendulum",
    "read_idx",
    "register_task",
    "selective_copying",
    "solve_listops",
    "solve_pathfinder",
    "speech_commands",
    "spoken",
    "task_from_arrays",
    "timit",
    "treebank",
    "ucr",
]
