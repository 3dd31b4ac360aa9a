"""The tests of this folder share `local_specimens.py`, a small classifier of every kind."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
