"""What is in a store of results, at a glance: a SQLite table, derived from the files, made again when it is gone.

SQLite comes with Python and counts a hundred thousand rows in milliseconds. Its locks do not hold on network file
systems, so none are used: who runs a sweep works on a copy of its own, and publishes it whole, by one rename. Two who
do so at once replace each other's: what is missing is found when it is next compared with the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from stability.errors import FileFormatError
from stability.storage.results import DONE, FAILED, Result, unpacked
from stability.storage.storage_backends import Entry
from stability.storage.store import INDEX, ResultStore, name_of

SHARDS = [f"{n:02x}" for n in range(256)]
TABLES = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    "CREATE TABLE results (id TEXT, status TEXT, kind TEXT, seconds REAL, size INTEGER, stamp TEXT, spec TEXT, "
    "found TEXT, error TEXT, PRIMARY KEY (id, status)) WITHOUT ROWID",
    "CREATE TABLE plan (id TEXT PRIMARY KEY, kind TEXT) WITHOUT ROWID",
    "CREATE INDEX looks ON results (status, id, size, stamp, seconds)",
)
_SEAL = 64


class Index:
    """A working copy of a store's index; ``with Index(store) as index:``.

    Args:
        store: what it is about. A published index that is torn, or of another shape, is not used.
    """

    def __init__(self, store: ResultStore) -> None:
        self.store = store
        self._folder = tempfile.TemporaryDirectory(prefix="stability-index-")
        self._path = Path(self._folder.name) / INDEX
        raw = store.place.read(INDEX)
        body = memoryview(raw or b"")[:-_SEAL]  # no copy: it may have a hundred megabytes
        if raw is not None and raw[-_SEAL:] == hashlib.sha256(body).hexdigest().encode():
            self._path.write_bytes(body)
        self._base = self._opened()
        self.torn: list[str] = []

    def _opened(self) -> sqlite3.Connection:
        with contextlib.suppress(sqlite3.DatabaseError):
            base = self._connected()
            shape = base.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
            if [sql for (sql,) in shape] == list(TABLES):
                return base
            base.close()
        self._path.unlink(missing_ok=True)
        base = self._connected()
        for table in TABLES:
            base.execute(table)
        return base

    def _connected(self) -> sqlite3.Connection:
        base = sqlite3.connect(self._path, isolation_level=None)
        for setting in ("trusted_schema=OFF", "journal_mode=OFF", "synchronous=OFF"):  # a copy of one's own
            base.execute(f"PRAGMA {setting}")
        base.execute("BEGIN")
        return base

    def __enter__(self) -> Index:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._base.close()
        self._folder.cleanup()

    def publish(self) -> None:
        """Put the index beside the results, whole.

        Raises:
            FileFormatError: it cannot be written.
        """
        self._base.execute("COMMIT")
        raw = self._path.read_bytes()
        self._base.execute("BEGIN")
        self.store.place.write(INDEX, raw, hashlib.sha256(raw).hexdigest().encode(), durable=False)

    def refresh(self) -> int:
        """Compare with the files, and read those that are new or changed; returns how many rows changed.

        Files that are torn are no results: they are listed in ``torn``, and their jobs count as not done.
        """
        changed = 0
        self.torn = []
        for status in (DONE, FAILED):
            for first in SHARDS:
                changed += self._refresh_shard(status, first)
        return changed

    def _refresh_shard(self, status: str, first: str) -> int:
        rows = self._base.execute(
            "SELECT id, size, stamp FROM results INDEXED BY looks WHERE status = ? AND id >= ? AND id < ?",
            (status, first, first + "g"),
        )
        known = {job: (size, stamp) for job, size, stamp in rows}
        added = 0
        for entry in self.store.shard(status, first):
            before = known.pop(entry.name, None)
            if before == (entry.size, entry.stamp):
                continue
            name = name_of(entry.name, status)
            raw = self.store.place.read(name)
            try:
                if raw is not None:
                    self.add(unpacked(raw, name), entry)
                    added += 1
            except FileFormatError:
                self.torn.append(name)
                if before is not None:
                    known[entry.name] = before
        for job in known:  # taken away, or torn
            self._base.execute("DELETE FROM results WHERE id = ? AND status = ?", (job, status))
        return added + len(known)

    def add(self, result: Result, entry: Entry) -> None:
        """Enter a result whose file is known to be there.

        Args:
            result: what came of a job.
            entry: its file.
        """
        row = (
            result.job,
            result.status,
            str(result.spec.get("kind")),
            float(result.about.get("seconds") or 0.0),
            entry.size,
            entry.stamp,
            json.dumps(result.spec),
            json.dumps(result.values),
            None if result.error is None else json.dumps(result.error),
        )
        self._base.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def plan(self, jobs: Iterable[tuple[str, str]], digest: str, file: str = "") -> None:
        """Remember what a sweep consists of, so that its state can be told without working it out again.

        Args:
            jobs: identity and kind of each.
            digest: of the description, and of the code that it was worked out with.
            file: of the file that it stands in, where that says it all.
        """
        self._base.execute("DELETE FROM plan")
        self._base.executemany("INSERT OR IGNORE INTO plan VALUES (?, ?)", jobs)
        self._base.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", [("plan", digest), ("file", file)])

    @property
    def planned(self) -> str:
        """The digest of what ``plan`` remembers; empty for nothing."""
        return self._fact("plan")

    @property
    def described(self) -> str:
        """The digest of the file that the plan was made from; empty where that does not say it all."""
        return self._fact("file")

    def _fact(self, name: str) -> str:
        row = self._base.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row[0] if row else ""

    def state(self) -> dict[str, Any]:
        """How far the plan is: jobs, done, failed, left, seconds spent and, by kind, how many and how long they took.

        A job that has a result is done, whatever failed before it.
        """
        found = self._base.execute(
            "SELECT plan.kind, COUNT(*), COUNT(results.id), COALESCE(AVG(seconds), 0), COALESCE(SUM(seconds), 0) "
            "FROM plan LEFT JOIN results INDEXED BY looks ON plan.id = results.id AND status = 'done' "
            "GROUP BY plan.kind ORDER BY plan.kind"
        ).fetchall()
        failed, lost = self._base.execute(
            "SELECT COALESCE(SUM(NOT EXISTS (SELECT 1 FROM results AS d WHERE d.id = r.id AND d.status = 'done')), 0), "
            "COALESCE(SUM(seconds), 0) FROM results AS r JOIN plan USING (id) WHERE status = 'failed'"
        ).fetchone()
        kinds = {kind: {"jobs": n, "done": d, "seconds": mean} for kind, n, d, mean, _ in found}
        jobs, done = sum(row[1] for row in found), sum(row[2] for row in found)
        spent = float(sum(row[4] for row in found)) + float(lost)
        left = jobs - done - failed
        return {"jobs": jobs, "done": done, "failed": failed, "left": left, "seconds": spent, "kinds": kinds}

    def has(self, job: str, status: str = DONE) -> bool:
        """Whether a job has a result (or, for ``failed``, failed)."""
        found = self._base.execute("SELECT 1 FROM results WHERE id = ? AND status = ?", (job, status))
        return found.fetchone() is not None

    def values(self, job: str) -> Mapping[str, Any] | None:
        """What a job found; ``None`` where it is not done."""
        row = self._base.execute("SELECT found FROM results WHERE id = ? AND status = 'done'", (job,)).fetchone()
        return None if row is None else json.loads(row[0])

    def error(self, job: str) -> Mapping[str, Any] | None:
        """Why a job failed; ``None`` where it did not."""
        row = self._base.execute("SELECT error FROM results WHERE id = ? AND status = 'failed'", (job,)).fetchone()
        return None if row is None else json.loads(row[0])

    def rows(self, status: str = DONE) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any], float]]:
        """Everything of one status, in the order of identities.

        Yields:
            Identity, spec, what it found (the error of a failure), seconds.
        """
        what = "found" if status == DONE else "error"
        query = f"SELECT id, spec, {what}, seconds FROM results WHERE status = ? ORDER BY id"
        for job, spec, found, seconds in self._base.execute(query, (status,)):
            yield job, json.loads(spec), json.loads(found or "{}"), seconds

    def forget(self, job: str) -> None:
        """Drop the row of a failure, as ``ResultStore.forget`` drops its file."""
        self._base.execute("DELETE FROM results WHERE id = ? AND status = 'failed'", (job,))
