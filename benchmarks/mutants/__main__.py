"""``python -m benchmarks.mutants``: draw mutants, try them, write what survived (``make mutants``).

A run that was broken off goes on where it stopped. What was killed stays killed as long as the changed file and the
tests that were there still are; what survived is tried again when a test has changed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import platform
import sys
import time
from collections import Counter
from pathlib import Path

from . import making, running, selecting

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / "build" / "mutants"
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
SUBJECTS = (
    "stability/kernel/theorems/*.py",
    "stability/kernel/arithmetic/activation_bounds.py",
    "stability/kernel/arithmetic/activation_lines.py",
    "stability/kernel/arithmetic/definiteness.py",
    "stability/kernel/arithmetic/balls.py",
    "stability/kernel/arithmetic/intervals.py",
    "stability/kernel/arithmetic/eigenpairs.py",
    "stability/kernel/arithmetic/krawczyk.py",
    "stability/kernel/arithmetic/unstable_matrices.py",
    "stability/exact_verification.py",
    "stability/kernel/reachability/ellipsoid_region.py",
    "stability/kernel/reachability/backward_bounds.py",
    "stability/kernel/reachability/invariant_zonotope.py",
    "stability/kernel/reachability/ellipsoid_tube.py",
    "stability/kernel/reachability/stages.py",
    "stability/kernel/reachability/gated_tube.py",
    "stability/kernel/reachability/margin_loss.py",
    "stability/kernel/reachability/quadratic_lower_bound.py",
    "stability/kernel/reachability/affine_forms.py",
    "stability/kernel/reachability/input_box.py",
    "stability/kernel/reachability/quadratic_relaxation.py",
    "stability/kernel/reachability/linear_remainder.py",
    "stability/kernel/reachability/classifier_run.py",
    "stability/kernel/reachability/zonotope_tube.py",
    "stability/kernel/reachability/ellipsoid_operations.py",
    "stability/kernel/systems/gated_bounds.py",
    "stability/kernel/reachability/gated_orbits.py",
    "stability/kernel/format/sentences.py",
    "stability/certificate.py",
    "stability/verification.py",
    "stability/kernel/format/serialization.py",
    "stability/storage/documents.py",
    "stability/kernel/systems/parts.py",
    "stability/kernel/reachability/stack_orbits.py",
    "models/adapters/modules.py",
    "models/adapters/torch_modules.py",
    "models/adapters/weights.py",
    "models/adapters/state_dicts.py",
    "stability/storage/arrays.py",
    "models/adapters/quantized.py",
    "models/adapters/inspection.py",
    "models/adapters/cross_check.py",
    "models/onnx/parts.py",
    "models/onnx/graph.py",
    "models/onnx/algebra.py",
    "models/onnx/loops.py",
)
TESTS = ["tests/stability", "tests/models"]
KILLED = ("killed", "loops")


def subjects(patterns: list[str]) -> list[str]:
    """Files to mutate: those of ``SUBJECTS`` that match one of the patterns."""
    files = sorted({str(path.relative_to(ROOT)) for each in SUBJECTS for path in ROOT.glob(each)})
    files = [file for file in files if not file.endswith("__init__.py")]
    return [file for file in files if not patterns or any(fnmatch.fnmatch(file, f"*{each}*") for each in patterns)]


def earlier(path: Path, mutants: list[making.Mutant], mark: str) -> dict[str, dict]:
    """Answers that still count."""
    if not path.is_file():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    told = {line["key"]: line for line in lines if line["outcome"] in KILLED or line["mark"] == mark}
    return {mutant.key: told[mutant.key] for mutant in mutants if mutant.key in told}


def report(mutants: list[making.Mutant], answers: dict[str, dict], total: int, seed: int, broken: list[str]) -> dict:
    """What the results file holds."""
    old = json.loads(RESULTS.read_text(encoding="utf-8"))["survivors"] if RESULTS.is_file() else []
    reasons = {each["key"]: each.get("reason", "") for each in old}
    counts = Counter(answers[mutant.key]["outcome"] for mutant in mutants)
    tried = sum(counts.values()) - counts["not plantable"]
    killed = sum(counts[each] for each in KILLED)
    by_file = {}
    for file in sorted({mutant.file for mutant in mutants}):
        outcomes = Counter(answers[mutant.key]["outcome"] for mutant in mutants if mutant.file == file)
        by_file[file] = dict(sorted(outcomes.items()))
    survivors = [
        {
            "key": mutant.key,
            "file": mutant.file,
            "where": f"{mutant.scope}, line {mutant.lines[0]}",
            "outcome": answers[mutant.key]["outcome"],
            "diff": mutant.diff.splitlines(),
            "reason": reasons.get(mutant.key, ""),
        }
        for mutant in sorted(mutants, key=lambda each: (each.file, each.lines, each.key))
        if answers[mutant.key]["outcome"] not in (*KILLED, "not plantable")
    ]
    return {
        "python": platform.python_version(),
        "seed": seed,
        "places": total,
        "tried": tried,
        "killed": killed,
        "share": round(killed / max(tried, 1), 4),
        "outcomes": dict(sorted(counts.items())),
        "tests_that_fail_unchanged": broken,
        "by_file": by_file,
        "survivors": survivors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=1500, help="mutants to draw over all files (default 1500)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--files", nargs="*", default=[], help="only files whose path contains one of these")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="test files and folders")
    parser.add_argument("--out", type=Path, help=f"results file (default {RESULTS.relative_to(ROOT)})")
    parser.add_argument(
        "--scratch", type=Path, default=SCRATCH, help="folder of answers so far (default build/mutants)"
    )
    parser.add_argument("--fresh", action="store_true", help="forget the answers of earlier runs")
    options = parser.parse_args()
    scratch = options.scratch.resolve()
    out = options.out or (RESULTS if not options.files else scratch / "mutants.json")
    files = subjects(options.files)
    if not files:
        sys.exit("no file matches")
    scratch.mkdir(parents=True, exist_ok=True)
    log = scratch / "answers.jsonl"
    if options.fresh:
        log.unlink(missing_ok=True)
    mutants, total = making.sample(ROOT, files, options.count, options.seed)
    mark = selecting.digest(ROOT, ("stability", "models", "tests"))
    answers = earlier(log, mutants, mark)
    left = [mutant for mutant in mutants if mutant.key not in answers]
    print(f"{total} places in {len(files)} files, {len(mutants)} drawn, {len(left)} to try", flush=True)
    begun = time.monotonic()
    by_key = {mutant.key: mutant for mutant in mutants}

    def say(answer: running.Answer) -> None:
        answers[answer.key] = {**vars(answer), "mark": mark}
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(answers[answer.key]) + "\n")
        done = Counter(each["outcome"] for each in answers.values())
        if answer.outcome not in KILLED:
            mutant = by_key[answer.key]
            print(f"{answer.outcome}: {mutant.file}:{mutant.lines[0]} ({mutant.scope})\n{mutant.diff}", flush=True)
        if len(answers) % 50 == 0:
            minutes = (time.monotonic() - begun) / 60
            print(f"--- {len(answers)} of {len(mutants)} after {minutes:.1f} min: {dict(done)}", flush=True)

    broken = running.run(ROOT, files, left, options.tests, options.jobs, scratch, say) if left else []
    told = report(mutants, answers, total, options.seed, broken)
    out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"{told['killed']} of {told['tried']} killed ({100 * told['share']:.1f} %), {out}")
    if broken:
        sys.exit(f"{len(broken)} tests fail without any change, so their answers mean nothing: {broken[:5]}")


if __name__ == "__main__":
    main()
