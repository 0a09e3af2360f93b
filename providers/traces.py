"""Reads work that was submitted somewhere: our CSV and the agent's record, Philly's and openb's CSV, Kueue's Workloads.

A CSV is told by its header, whatever the file is called. What a trace has no word for is left out and said so
(`ReadTrace.notes`); a column or a value that is not understood is a `TraceError` with file and line.
"""

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import StringIO
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

from fleet.replay.submissions import PodShape, SubmittedGang
from model import labels
from model.plain_text import counted
from model.quantity import InvalidQuantity, canonical_resources

EPOCH_S: Final = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
"""When a trace begins that counts from zero: a Monday, midnight UTC."""
_SINCE_EPOCH_S: Final = 1e8
"""Instants after this count since 1970, those before it from the beginning of the trace."""
_GPUS_A_POD: Final = 8
"""A trace that knows GPUs only is taken for pods on machines with so many."""
REQUIRED: Final = ("submit_s", "queue", "pods", "gpus", "run_s")
OPTIONAL: Final = (
    "name", "namespace", "priority_class", "cpu", "memory", "resource", "selector", "checkpoint_s", "expected_run_s",
)  # fmt: skip
_PHILLY: Final = {"timestamp", "duration", "num_gpus", "cluster"}
_OPENB: Final = {"name", "num_gpu", "gpu_milli", "creation_time", "deletion_time"}


class TraceError(Exception):
    """A trace cannot be used; the message names file and line."""


@dataclass(frozen=True, slots=True)
class ReadTrace:
    """The work of a trace, by arrival, and what is not in it."""

    work: tuple[SubmittedGang, ...]
    notes: tuple[str, ...] = ()
    unended: frozenset[str] = frozenset()
    """Uids of the work of a record that had not ended: how long it has run says not how long it runs."""


def read_trace(path: Path, now_s: float = -inf) -> ReadTrace:
    """Reads a file. Errors: OSError, `TraceError`.

    What has not ended in a record runs until `now_s`, where its agent still writes it, or as long as it goes on.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if (earlier := path.with_name(path.name + ".1")).exists() and (not text or _is_record(text)):
            text = earlier.read_text(encoding="utf-8") + text
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text") from error
    if not text.lstrip().startswith("{"):
        read = _csv(path, text)
    else:
        read = _record(path, text, now_s) if _is_record(text) else _kueue(path, text)
    if not read.work:
        raise TraceError(f"{path}: no gang in it")
    _unique(path, read.work)
    return replace(read, work=tuple(sorted(read.work, key=lambda it: (it.submitted_s, it.uid))))


def _unique(path: Path, work: Iterable[SubmittedGang]) -> None:
    seen: set[str] = set()
    for each in work:
        if each.uid in seen:
            raise TraceError(f"{path}: {each.uid.lstrip('/')} is in it twice")
        seen.add(each.uid)


# -- CSV --------------------------------------------------------------------------------------------------------------

Row = Mapping[str, str]


class _RowRefused(Exception):
    """What is wrong with one row."""


def _csv(path: Path, text: str) -> ReadTrace:
    reader = csv.DictReader(StringIO(text), strict=True)
    columns = set(reader.fieldnames or ())
    row_reader = _row_reader(path, columns)
    work: list[SubmittedGang] = []
    left_out = 0
    try:
        for row in reader:
            found = row_reader(_whole(row, len(columns)), len(work))
            work += [found] if found is not None else []
            left_out += found is None
    except (_RowRefused, csv.Error, InvalidQuantity) as error:
        raise TraceError(f"{path}:{reader.line_num}: {error}") from error
    notes = [f"{counted(left_out, 'row')} left out: no GPU is asked for, or nothing ran"] if left_out else []
    if row_reader is _openb_row:
        notes.append("of pods that share a GPU each gets a whole one, and the GPU models they name count for nothing")
    return ReadTrace(tuple(work), tuple(notes))


def _whole(row: Row, expected: int) -> Row:
    if None in row or None in row.values():
        raise _RowRefused(f"{expected} values are expected")
    return row


def _row_reader(path: Path, columns: set[str]) -> Callable[[Row, int], SubmittedGang | None]:
    if columns >= _PHILLY:
        return _philly_row
    if columns >= _OPENB:
        return _openb_row
    if columns >= _OPENB - {"creation_time", "deletion_time"}:
        raise TraceError(f"{path}:1: the pods have no creation_time and deletion_time: take a list that has them")
    if missing := [name for name in REQUIRED if name not in columns]:
        raise TraceError(f"{path}:1: column {missing[0]} is missing (of {', '.join(REQUIRED)})")
    if unknown := sorted(columns - {*REQUIRED, *OPTIONAL}):
        raise TraceError(f"{path}:1: column {unknown[0]!r} is not known (but {', '.join(OPTIONAL)})")
    return _own_row


def _own_row(row: Row, number: int) -> SubmittedGang:
    amounts = {row.get("resource") or labels.GPU_RESOURCE: row["gpus"]}
    amounts |= {name: row[name] for name in ("cpu", "memory") if row.get(name)}
    requests = {name: value for name, value in canonical_resources(amounts).items() if value}
    if not row["queue"]:
        raise _RowRefused("queue is empty")
    return SubmittedGang(
        row.get("name") or f"gang-{number + 1:06d}",
        row.get("namespace") or "",
        row["queue"],
        _instant(_number(row, "submit_s")),
        _number(row, "run_s"),
        (PodShape(_count(row, "pods"), requests, _selector(row.get("selector") or "")),),
        row.get("priority_class") or "",
        _number(row, "expected_run_s") if row.get("expected_run_s") else None,
        (_number(row, "checkpoint_s") or None) if row.get("checkpoint_s") else None,
    )


def _number(row: Row, name: str) -> float:
    try:
        value = float(row[name])
    except ValueError as error:
        raise _RowRefused(f"{name} is {row[name]!r}, not a number") from error
    if not isfinite(value) or value < 0:
        raise _RowRefused(f"{name} is {row[name]}: it has to be a number from 0 on")
    return value


def _count(row: Row, name: str) -> int:
    value = _number(row, name)
    if value != int(value) or not 1 <= value <= 100_000:
        raise _RowRefused(f"{name} is {row[name]}: it has to be a whole number from 1 to 100000")
    return int(value)


def _instant(said_s: float) -> float:
    return said_s if said_s >= _SINCE_EPOCH_S else EPOCH_S + said_s


def _selector(text: str) -> dict[str, str]:
    """Reads `label=value;label=value`."""
    pairs = [part.partition("=") for part in text.split(";") if part.strip()]
    if wrong := next((key for key, sign, _ in pairs if not sign or not key.strip()), None):
        raise _RowRefused(f"selector {wrong!r} is not label=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _philly_row(row: Row, number: int) -> SubmittedGang | None:
    gpus, run_s = _number(row, "num_gpus"), _number(row, "duration")
    if gpus < 1 or run_s <= 0:
        return None
    try:
        submitted_s = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise _RowRefused(f"timestamp is {row['timestamp']!r}") from error
    shape = _of_gpus(_count(row, "num_gpus"))
    return SubmittedGang(f"philly-{number + 1:06d}", "", row["cluster"], submitted_s, run_s, (shape,))


def _of_gpus(gpus: int) -> PodShape:
    """Returns as few equal pods as have so many GPUs in all."""
    each = next(size for size in range(min(gpus, _GPUS_A_POD), 0, -1) if gpus % size == 0)
    return PodShape(gpus // each, {labels.GPU_RESOURCE: each})


def _openb_row(row: Row, number: int) -> SubmittedGang | None:
    gpus = _number(row, "num_gpu")
    began_s = _number(row, "scheduled_time") if row.get("scheduled_time") else None
    if gpus < 1 or not row["deletion_time"] or began_s is None:
        return None
    run_s = _number(row, "deletion_time") - began_s
    if run_s <= 0:
        return None
    requests = {"cpu": int(_number(row, "cpu_milli")), "memory": int(_number(row, "memory_mib")) * 2**20}
    shape = PodShape(1, {**requests, labels.GPU_RESOURCE: _count(row, "num_gpu")})
    name = row["name"] or f"openb-{number + 1:06d}"
    return SubmittedGang(name, "", row.get("qos") or "openb", EPOCH_S + _number(row, "creation_time"), run_s, (shape,))


# -- the agent's record -----------------------------------------------------------------------------------------------


def _is_record(text: str) -> bool:
    return '"submitted_s"' in text.split("\n", 1)[0]


def _record(path: Path, text: str, now_s: float) -> ReadTrace:
    """Reads a line a gang, or two: when it came and when it ended; the later holds. The last may be torn."""
    lines = text.split("\n")
    found: dict[str, Mapping[str, Any]] = {}
    last_s = now_s
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            found[entry["uid"]] = entry
            last_s = max(last_s, entry["at_s"])
        except (ValueError, KeyError, TypeError) as error:
            if number < len(lines):  # else it was being written when the agent was killed
                raise TraceError(f"{path}:{number}: not a line of a record: {error}") from error
    try:
        work = {uid: _recorded(entry, last_s) for uid, entry in found.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"{path}: a line of the record lacks {error}") from error
    unended = frozenset(work[uid].uid for uid, entry in found.items() if entry["run_s"] is None)
    note = f"{counted(len(unended), 'gang')} had not ended: they run as long as the record goes on after they came"
    return ReadTrace(tuple(work.values()), (note,) if unended else (), unended)


def _recorded(entry: Mapping[str, Any], last_s: float) -> SubmittedGang:
    run_s = last_s - entry["submitted_s"] if entry["run_s"] is None else entry["run_s"]
    shapes = (PodShape(it["pods"], it["requests"], it.get("selector", {}), it["name"]) for it in entry["shapes"])
    return SubmittedGang(
        f"{entry['name']}-{entry['uid'][:8]}",
        entry["namespace"],
        entry["queue"],
        float(entry["submitted_s"]),
        max(0.0, float(run_s)),
        tuple(shapes),
        entry.get("priority_class", ""),
        entry.get("expected_run_s"),
        entry.get("checkpoint_s"),
    )


# -- Kueue ------------------------------------------------------------------------------------------------------------


def _kueue(path: Path, text: str) -> ReadTrace:
    """Reads `kubectl get workloads.kueue.x-k8s.io -A -o json`: the Workloads that have finished."""
    try:
        items = json.loads(text)["items"]
        found = [_workload(item) for item in items]
    except json.JSONDecodeError as error:
        raise TraceError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (KeyError, TypeError, ValueError, InvalidQuantity) as error:
        raise TraceError(f"{path}: not a list of Kueue Workloads: {error!r}") from error
    work = tuple(each for each in found if each is not None)
    unfinished = len(found) - len(work)
    return ReadTrace(work, (f"{counted(unfinished, 'Workload')} left out: not finished",) if unfinished else ())


def _workload(item: Mapping[str, Any]) -> SubmittedGang | None:
    meta, spec = item["metadata"], item["spec"]
    conditions = {it["type"]: it for it in item.get("status", {}).get("conditions", ()) if it["status"] == "True"}
    if not {"Admitted", "Finished"} <= conditions.keys():
        return None
    began_s, ended_s = (_stamp(conditions[kind]["lastTransitionTime"]) for kind in ("Admitted", "Finished"))
    return SubmittedGang(
        meta["name"],
        meta["namespace"],
        spec["queueName"],
        _stamp(meta["creationTimestamp"]),
        max(0.0, ended_s - began_s),
        tuple(_pod_set(it) for it in spec["podSets"]),
        spec.get("priorityClassName") or (spec.get("priorityClassRef") or {}).get("name", ""),
    )


def _pod_set(pod_set: Mapping[str, Any]) -> PodShape:
    pods = pod_set["template"]["spec"]
    total: dict[str, int] = {}
    for container in pods["containers"]:
        resources = container.get("resources", {})
        asked = canonical_resources({**resources.get("limits", {}), **resources.get("requests", {})})
        total = {name: total.get(name, 0) + asked.get(name, 0) for name in sorted({*total, *asked})}
    return PodShape(int(pod_set["count"]), total, pods.get("nodeSelector", {}), pod_set.get("name", "main"))


def _stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
