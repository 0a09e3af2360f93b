"""The record: what was submitted and how long it ran, for `muster replay`: a line when a gang comes, one when it ends.

Nothing is ever read back from it to decide. Both lines say the whole gang, so that the later one does alone; two files
of half the size take turns, so that the newest work is always there.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from agent.inbox import Done, Failed
from agent.watch import Watcher
from fleet.actions import CloseGang, OpenGang, SaveGang
from fleet.snapshot import Gang, GangState, PodSet

EARLIER = ".1"
"""What the name of the earlier one of the two files ends with."""


class Record(Watcher):
    """Appends to a file; each line is flushed, so that a kill loses at most the line being written."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._half = path, most_bytes // 2
        self._file = self._opened()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """Notes a gang that has come, or ended, once that is written in the cluster."""
        if not isinstance(event, Done):
            return
        match event.action:
            case OpenGang(gang=gang) | SaveGang(gang=gang, respecifies=True):
                self._write(entry(gang, now_s, None))
            case SaveGang(gang=gang) if gang.state is GangState.FINISHED:
                self._write(entry(gang, now_s, ran_s(gang, now_s)))
            case CloseGang(gang=gang) if gang.state is not GangState.FINISHED:
                self._write(entry(gang, now_s, ran_s(gang, now_s)))

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()
        if self._file.tell() >= self._half:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + EARLIER))
            self._file = self._opened()

    def _opened(self) -> TextIO:
        """Opens the file at its end, without a line that was being written at a kill."""
        with self._path.open("ab+") as there:
            there.seek(0)
            there.truncate(there.read().rfind(b"\n") + 1)
        return self._path.open("a", encoding="utf-8")


def entry(gang: Gang, now_s: float, run_s: float | None) -> dict[str, Any]:
    """The line of a gang; `run_s` None while it has not ended."""
    line = {
        "at_s": round(now_s, 3),
        "uid": gang.uid,
        "name": gang.job.name,
        "namespace": gang.namespace,
        "queue": gang.queue,
        "priority_class": gang.priority_class,
        "submitted_s": gang.created_at_s,
        "run_s": run_s if run_s is None else round(run_s, 3),
        "shapes": [_shape(pods) for pods in gang.pod_sets],
        "expected_run_s": gang.expected_run_s,
        "checkpoint_s": gang.checkpoint_interval_s,
    }
    return {name: value for name, value in line.items() if value not in ("", None) or name == "run_s"}


def ran_s(gang: Gang, now_s: float) -> float:
    """How long (s) the work took: the last run, or all of them together where it goes on from checkpoints."""
    last_s = max(0.0, now_s - gang.admitted_at_s) if gang.admitted_at_s else 0.0
    return max(gang.ran_before_s, last_s) if gang.checkpoint_interval_s else last_s


def _shape(pods: PodSet) -> dict[str, Any]:
    shape = {"name": pods.name, "pods": pods.count, "requests": dict(pods.requests)}
    return {**shape, "selector": dict(pods.node_selector)} if pods.node_selector else shape
