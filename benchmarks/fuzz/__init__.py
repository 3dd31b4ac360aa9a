"""Files with one thing wrong: every reader must answer in one line, in bounded memory and time."""
