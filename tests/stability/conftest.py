"""The tests of this folder share `specimens.py`, one valid claim of every kind of proof."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
