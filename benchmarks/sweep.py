"""What the runner of sweeps costs: ``python -m benchmarks.sweep jobs|status|plan [--out FILE.json]``.

``jobs``: 2,000 jobs that sleep for a millisecond, one after the other by hand, in one process, and on a Dask cluster of
two processes on loopback; what a job costs beyond its sleep, and how much the client's memory grows in the second half.
``status``: a store of 100,000 results, and how long ``stability sweep --status`` takes, and Python with NumPy to start.
``plan``: how long ``stability sweep --plan`` takes for a million jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stability.storage.index import Index
from stability.storage.results import Result, identity
from stability.storage.store import ResultStore

JOBS, RESULTS, NAP = 2_000, 100_000, 0.001


def memory() -> float:
    """MB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def spread(number: int, **more: Any) -> dict[str, Any]:
    """Run the naps; what each costs beyond its sleep, and the client's memory in the middle and at the end."""
    from benchmarks.naps import nap
    from stability.analysis.sweep.job import Job
    from stability.analysis.sweep.rows import JobList
    from stability.analysis.sweep.running.runner import SweepProgress, run_sweep

    def make() -> Iterator[Job]:
        for k in range(number):
            yield Job("benchmarks.naps:nap", {"number": k, "seconds": NAP}, memory=1)

    seen: dict[str, float] = {}

    def look(now: SweepProgress) -> None:
        if now.done in (number // 2, number):
            seen[str(now.done)] = memory()

    begun, processor = time.perf_counter(), time.process_time()
    for k in range(number):
        nap({"number": k, "seconds": NAP}, None)
    floor = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder:
        begun, processor = time.perf_counter(), time.process_time()
        outcome = run_sweep(JobList("naps", make), Path(folder) / "store", progress=look, **more)
        took, processor = time.perf_counter() - begun, time.process_time() - processor
    assert outcome.done == number
    assert [row["square"] for row in outcome.table] == [k * k for k in range(number)]
    half, whole = seen[str(number // 2)], seen[str(number)]
    return {
        "jobs": number, "seconds": took, "by_hand_seconds": floor, "overhead_ms": 1000 * (took - floor) / number,
        "client_processor_ms": 1000 * processor / number, "client_mb": whole, "client_growth_mb": whole - half,
    }  # fmt: skip


def on_cluster(number: int) -> dict[str, Any]:
    """The naps on a scheduler and two workers, each a process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        common = [sys.executable, "-m"]
        place = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
        started = [subprocess.Popen([*common, "distributed.cli.dask_scheduler", "--port", "0", *place], **quiet)]
        try:
            while not file.is_file() or not file.read_text().endswith("}"):
                time.sleep(0.05)
            words = ["--nthreads", "1", "--no-nanny", "--local-directory", folder, *place]
            started += [subprocess.Popen([*common, "distributed.cli.dask_worker", *words], **quiet) for _ in range(2)]
            address = json.loads(file.read_text())["address"]
            spread(20, scheduler=address)  # everybody has loaded what they need
            return {"workers": 2, **spread(number, scheduler=address)}
        finally:
            for process in started:
                process.kill()
                process.wait()


def status(number: int) -> dict[str, Any]:
    """A store of so many results, and how long its state takes to tell: index there, and thrown away."""
    from stability.analysis.sweep.description import Sweep
    from stability.storage.documents import file_digest
    from stability.storage.sources import code_version

    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder) / "sweep.toml"
        description.write_text(f'models = ["elman"]\ntasks = ["adding"]\nseeds = {number}\n')
        store = ResultStore.made(Path(folder) / "store")
        begun = time.perf_counter()
        for job in Sweep.read(description).jobs():
            spec = job.spec
            found = {"test_metric": 0.5, "verdict": "certified", "rate": 0.9}
            store.put(Result(identity(spec), spec, "done", found, None, {"seconds": 0.1}))
        written = time.perf_counter() - begun
        begun = time.perf_counter()
        with Index(store) as index:
            index.refresh()
            jobs = ((job.id, job.kind) for job in Sweep.read(description).jobs())
            index.plan(jobs, "benchmark", f"{file_digest(description)} {code_version()}")
            index.publish()
        rebuilt = time.perf_counter() - begun
        command = [sys.executable, "-m", "stability", "sweep", str(description), "--out", str(store.place.location)]
        times, starts = [], []
        for _ in range(3):
            begun = time.perf_counter()
            said = subprocess.run([*command, "--status", "--json"], capture_output=True, text=True, check=True).stdout
            times.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import numpy"], check=True)
            starts.append(time.perf_counter() - begun)
        assert json.loads(said)["done"] == number
        size = (Path(store.place.location) / "index.sqlite").stat().st_size / 2**20
    return {
        "results": number, "status_seconds": min(times), "start_of_numpy_seconds": min(starts),
        "rebuild_seconds": rebuilt, "write_ms": 1000 * written / number, "index_mb": size,
    }  # fmt: skip


def plan(number: int) -> dict[str, Any]:
    """A plan of so many trainings of two networks on two tasks, measured and printed."""
    with tempfile.TemporaryDirectory() as folder:
        description = Path(folder) / "sweep.toml"
        description.write_text(
            f'models = ["elman", "lipschitz"]\ntasks = ["digits", "adding"]\nseeds = {number // 4}\n'
            "[train]\nhidden = 32\n[task]\ndigits = {limit = 1000}\nadding = {steps = 100, train = 1000, test = 100}\n"
        )
        command = [sys.executable, "-m", "stability", "sweep", str(description), "--plan", "--json", "--workers", "64"]
        begun = time.perf_counter()
        said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        took = time.perf_counter() - begun
    names = ("jobs", "cpu_seconds", "wall_seconds", "memory", "disk")
    return {"seconds": took, **{name: said[name] for name in names}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["jobs", "status", "plan"])
    parser.add_argument("--number", type=int)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.what == "jobs":
        number = asked.number or JOBS
        found: dict[str, Any] = {"in process": spread(number), "dask": on_cluster(number)}
    elif asked.what == "status":
        found = status(asked.number or RESULTS)
    else:
        found = plan(asked.number or 10**6)
    row = {"command": f"python -m benchmarks.sweep {asked.what}", "cores": os.cpu_count(), **found}
    print(json.dumps(row, indent=1))
    if asked.out is not None:
        kept = json.loads(asked.out.read_text()) if asked.out.is_file() else {}
        asked.out.write_text(json.dumps({**kept, asked.what: row}, indent=1) + "\n")


if __name__ == "__main__":
    main()
