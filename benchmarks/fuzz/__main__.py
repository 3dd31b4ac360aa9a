"""A structure-aware fuzzer of every reader: ``python -m benchmarks.fuzz --minutes 120 --seed 0``.

It begins with valid files of each kind, changes them by what they are (a field, a type, a size, a header, a member, an
opcode, a node) and gives them to the command line in a forked child with bounds on memory and time. Files that reach
lines of the readers which none before reached are kept and changed further. A finding is any of: a traceback, more than
one line of error, an exit code that is no answer, a control character on the terminal, too much memory or time, a file
written where none may be, a certificate that is accepted though it says something else than those it came from.

Case ``k`` depends on the seed, on ``k`` and on the files kept before. The folder (``runs/fuzz`` by default) holds what
was found and how far it came; the same command goes on there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .jail import Outcome, command, fault, jailed, warm
from .mutations import mutated
from .seeds import KINDS, Kind, Specimen, seeds_of

MEMORY, SECONDS = 2048, 20
ROOMS = ("models", "stability", "analysis", "reports")
ROOT = Path(__file__).resolve().parents[2]
CORPUS = 200
TRACED = 0.3
"""Of the cases: to see which lines are reached makes Python slow."""


class Fuzzer:
    """Files that are kept, lines that were reached, and the folder where findings go."""

    def __init__(self, folder: Path, seed: int, kinds: list[str]) -> None:
        self.folder, self.seed, self.kinds = folder, seed, kinds
        self.state_file = folder / f"state-{seed}.json"
        state = json.loads(self.state_file.read_text()) if self.state_file.is_file() else {}
        self.next: int = state.get("next", 0)
        self.counts: dict[str, dict[str, int]] = state.get("counts", {})
        self.seconds: float = state.get("seconds", 0.0)
        self.lines: dict[str, set[str]] = {k: set(v) for k, v in state.get("lines", {}).items()}
        self.corpus = {name: seeds_of(KINDS[name]) for name in kinds}
        for name in kinds:
            self.corpus[name] += [_unpacked(p) for p in sorted((folder / "corpus" / name).glob("*.bin"))]
        self.answers = {name: _answers(KINDS[name], self.corpus[name]) for name in kinds if name == "certificate"}

    def case(self) -> str:
        """Try one file; the finding in words, or nothing."""
        rng = random.Random(f"{self.seed} {self.next}")
        self.next += 1
        name = rng.choices(self.kinds, [KINDS[k].weight for k in self.kinds])[0]
        kind = KINDS[name]
        files = dict(rng.choice(self.corpus[name]))
        target = rng.choice(sorted(files))
        files[target] = mutated(rng, target, files[target])
        outcome, strays = _tried(kind, files, rng.random() < TRACED)
        wrong = fault(outcome, kind.codes) or strays or self._other_claim(name, kind, outcome)
        code = "fault" if outcome.kind != "value" else str(outcome.value[0])
        here = self.counts.setdefault(name, {})
        here[code] = here.get(code, 0) + 1
        if wrong:
            here["findings"] = here.get("findings", 0) + 1
            self._keep_finding(name, files, wrong, outcome)
        elif len(outcome.value) > 3:
            self._keep_if_new(name, files, set(outcome.value[3]))
        return f"{name}: {wrong}" if wrong else ""

    def _other_claim(self, name: str, kind: Kind, outcome: Outcome) -> str:
        """A certificate that is accepted says what one of those says that it came from."""
        if name != "certificate" or outcome.value[0] != 0:
            return ""
        answer = _claim(outcome.value[1])
        return "" if answer in self.answers[name] else f"accepted with another claim: {answer}"

    def _keep_if_new(self, name: str, files: Specimen, lines: set[str]) -> None:
        known = self.lines.setdefault(name, set())
        if lines - known and len(self.corpus[name]) < CORPUS and sum(map(len, files.values())) < 2**20:
            known |= lines
            self.corpus[name].append(files)
            place = self.folder / "corpus" / name
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{self.next:08d}.bin").write_bytes(_packed(files))

    def _keep_finding(self, name: str, files: Specimen, wrong: str, outcome: Outcome) -> None:
        key = hashlib.sha256(f"{name} {wrong[:80]}".encode(errors="replace")).hexdigest()[:10]
        place = self.folder / "findings" / f"{name}-{key}"
        if place.exists():  # the same words before
            return
        for path, data in files.items():
            (place / "files" / path).parent.mkdir(parents=True, exist_ok=True)
            (place / "files" / path).write_bytes(data)
        words = f"{wrong}\n\nstability {' '.join(KINDS[name].arguments)}\ncase {self.next - 1} of seed {self.seed}\n\n"
        (place / "words.txt").write_text(words + outcome.text, errors="backslashreplace")

    def save(self) -> None:
        """How far it came."""
        state = {
            "next": self.next, "seconds": self.seconds, "counts": self.counts,
            "lines": {k: sorted(v) for k, v in self.lines.items()},
        }  # fmt: skip
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.state_file.with_suffix(".partial")
        part.write_text(json.dumps(state))
        part.replace(self.state_file)


def _tried(kind: Kind, files: Specimen, traced: bool = False) -> tuple[Outcome, str]:
    """Run the command on the files, in a folder of their own; and what it wrote where it may not."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as base:
        folder = Path(base) / "in"
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        beside = Path(base) / "beside.txt"
        beside.write_text("not yours")
        arguments = [str(folder / kind.main) if a == "@" else a for a in kind.arguments]
        before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        outcome = jailed(
            _traced(command(*arguments)) if traced else command(*arguments), memory=MEMORY, seconds=SECONDS
        )
        strays = [str(p.relative_to(base)) for p in Path(base).iterdir() if p not in (folder, beside)]
        if kind.main:  # what is only read stays as it is
            after = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
            strays += [str(p.relative_to(base)) for p in after.keys() ^ before.keys()]
            strays += [str(p.relative_to(base)) for p, data in before.items() if after.get(p) != data]
        if beside.read_text() != "not yours":
            strays.append(beside.name)
    return outcome, f"wrote {', '.join(strays)}" if strays else ""


def _traced(call: Callable[[], tuple[int, str, str]]) -> Callable[[], tuple[int, str, str, list[str]]]:
    """The call, and every line of the readers that it reached."""
    rooms = tuple(str(ROOT / room) for room in ROOMS)
    quiet = ("solve", "refute", "criteria", "parametrizations")

    def traced() -> tuple[int, str, str, list[str]]:
        seen: set[tuple[str, int]] = set()

        def local(frame: Any, event: str, argument: Any) -> Any:
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            return local

        def enter(frame: Any, event: str, argument: Any) -> Any:
            file = frame.f_code.co_filename
            return local if file.startswith(rooms) and not any(room in file for room in quiet) else None

        sys.settrace(enter)
        try:
            code, out, err = call()
        finally:
            sys.settrace(None)
        return code, out, err, [f"{Path(file).name}:{line}" for file, line in seen]

    return traced


def _claim(out: str) -> tuple[Any, ...]:
    said = json.loads(out)
    return tuple(said.get(k) for k in ("verdict", "evidence", "statement", "rate", "overshoot"))


def _answers(kind: Kind, files: list[Specimen]) -> set[tuple[Any, ...]]:
    outcomes = [_tried(kind, f)[0] for f in files[: kind.ways]]
    return {_claim(o.value[1]) for o in outcomes if o.kind == "value" and o.value[0] == 0}


def _packed(files: Specimen) -> bytes:
    head = json.dumps({k: len(v) for k, v in files.items()}).encode()
    return len(head).to_bytes(4, "little") + head + b"".join(files.values())


def _unpacked(path: Path) -> Specimen:
    raw = path.read_bytes()
    at = 4 + int.from_bytes(raw[:4], "little")
    files = {}
    for name, size in json.loads(raw[4:at]).items():
        files[name], at = raw[at : at + size], at + size
    return files


def main() -> int:
    """Fuzz for some minutes; exit code 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background of a shell the first is ignored otherwise
        signal.signal(number, signal.default_int_handler)
    warm()
    fuzzer = Fuzzer(options.out, options.seed, options.kinds)
    begun = last = time.monotonic()
    found = 0
    try:
        while time.monotonic() - begun < 60 * options.minutes:
            words = fuzzer.case()
            if words:
                found += 1
                print(f"case {fuzzer.next - 1}: {words[:400]}".encode("unicode_escape").decode(), flush=True)
            if time.monotonic() - last > 60:
                fuzzer.seconds += time.monotonic() - last
                last = time.monotonic()
                fuzzer.save()
                kept = {k: len(v) for k, v in fuzzer.corpus.items()}
                print(f"{fuzzer.next} cases, {fuzzer.seconds / 60:.0f} min, kept {kept}, {fuzzer.counts}", flush=True)
    except KeyboardInterrupt:
        pass
    fuzzer.seconds += time.monotonic() - last
    fuzzer.save()
    print(f"{fuzzer.next} cases in {fuzzer.seconds / 60:.1f} minutes, {found} findings now; {options.out / 'findings'}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
