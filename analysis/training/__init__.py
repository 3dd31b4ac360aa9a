"""Training: settings, loop, objectives, run directories and spectra along the way."""

from .front import resume_run, train
from .measured import evaluate
from .outcome import Epoch, Progress, TrainResult
from .runs import Run, read_run
from .spectra import SpectrumTracker

__all__ = ["Epoch", "Progress", "Run", "SpectrumTracker", "TrainResult", "evaluate", "read_run", "resume_run", "train"]
