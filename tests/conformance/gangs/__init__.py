"""Whole scenarios of gangs on machines: what Volcano (ed72c7c8) and KAI-Scheduler (d5bc503a) decide, and the agent.

A row becomes declarations and a cluster, which the agent's deciders run to rest in virtual time
(`fleet.plan.simulated_run`). The outcome is read from the cluster: a row passes when it is safe, as expected, evicts no
more than upstream did, and stays. What a row says that no declaration can say declines the row.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet.plan.simulated_run import SimulatedRun
from tests.conformance.cases import Case, Result, lines_of
from tests.conformance.gangs import kai, volcano
from tests.conformance.gangs.cluster import RowCluster, snapshot_of
from tests.conformance.gangs.declined import RowDeclined, decline_if
from tests.conformance.gangs.gate import with_machines
from tests.conformance.gangs.outcome import compare, is_economic
from tests.conformance.gangs.reading import evictions, play, round_of, settled, thrown_out
from tests.conformance.gangs.safety import violations

DIALECTS: Mapping[str, Callable[[Case], RowCluster]] = {"kai": kai.translate, "volcano": volcano.translate}
DECLINED = "declined: "
SCORES = ("safety", "outcome", "economy", "stability")
NUMBERS = frozenset({"fairshare-case/v1", "can-reclaim-case/v1", "filter-victim-case/v1"})
"""Rows that give an engine numbers, and no cluster."""


class _Gangs:
    def run(self, files: Iterable[Path]) -> Iterator[Result]:
        for path in files:
            if path.suffix == ".jsonl":
                for case in lines_of(path):
                    yield run(case)

    def summary(self, results: Sequence[Result]) -> list[str]:
        reasons = Counter(row.note for row in results if row.note.startswith(DECLINED))
        lines = [f"{count:4d} {reason}" for reason, count in reasons.most_common()]
        tags = sorted({tag for row in results if row.case for tag in (row.case["semantics"], *row.case["tags"])})
        lines += [_line(tag, [row for row in results if row.case and _has(row.case, tag)]) for tag in tags]
        return [*lines, _line("all", results)]


def _has(case: Case, tag: str) -> bool:
    return tag in (case["semantics"], *case["tags"])


def _line(name: str, rows: Sequence[Result]) -> str:
    judged = [row for row in rows if not row.note.startswith(DECLINED)]
    words = [f"{score} {_percent(judged, score)}" for score in SCORES]
    passed = sum(row.passed for row in judged)
    return f"{name:32s} rows {len(rows):3d} judged {len(judged):3d} passed {passed:3d} " + " ".join(words)


def _percent(rows: Sequence[Result], score: str) -> str:
    values = [(row.got or {}).get("scores", dict.fromkeys(SCORES, False))[score] for row in rows]
    judged = [value for value in values if value is not None]
    return f"{100 * sum(judged) / len(judged):5.1f}" if judged else "    -"


def run(case: Case) -> Result:
    """Plays one row. What breaks the agent fails the row, and what the translation does not know declines it."""
    try:
        decline_if(case["schema"] in NUMBERS, f"{case['schema']}: numbers of an engine, no cluster")
        got, note = _scenario(with_machines(case))
    except RowDeclined as declined:
        return Result(case["id"], False, case["expect"], None, f"{DECLINED}{declined}", case)
    except Exception as error:  # noqa: BLE001 -- whatever a row does to the agent is that row's failure
        where = traceback.extract_tb(error.__traceback__)[-1]
        note = f"{type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}"
        return Result(case["id"], False, case["expect"], None, note, case)
    passed = all(value is not False for value in got["scores"].values())
    return Result(case["id"], passed, case["expect"], got, note, case)


def _scenario(case: Case) -> tuple[dict[str, Any], str]:
    row = DIALECTS[case["semantics"]](case)
    first = play(row.fleet, snapshot_of(row))
    played = round_of(case, first)
    unsafe = violations(case, played)
    outcome = compare(case, played.after, played)
    evicted = [entry.pod for entry in played.decision.evicted]
    economic = is_economic(case, evicted) if outcome.same else None
    restless = [*thrown_out(first), *_restless(case, row, first)]
    scores = {"safety": not unsafe, "outcome": outcome.same, "economy": economic, "stability": not restless}
    failed = [f"{it.subject}: {it.error!r}" for it in first.failed[:1]]
    notes = [*unsafe, outcome.why, "" if economic is not False else f"evicts {evicted}", *restless, *failed]
    got = {
        "running": {name: node for name, node in settled(case, first).items() if node},
        "evicted": sorted(entry.pod for entry in evictions(case, first)),
        "said": _said(first),
        "scores": scores,
    }
    return got, "; ".join(note for note in notes if note)


def _restless(case: Case, row: RowCluster, first: SimulatedRun) -> list[str]:
    """Returns what changes when the agent is left alone for as long again."""
    if first.given_up_after_s is not None:
        return ["does not come to rest"]
    again = play(row.fleet, first.end)
    before, after = settled(case, first), settled(case, again)
    return [f"later {name}: {before[name]!r} -> {after[name]!r}" for name in before if before[name] != after[name]]


def _said(done: SimulatedRun) -> dict[str, str]:
    return {gang.name: f"{gang.state} {gang.reason}: {gang.message}" for gang in done.end.gangs.values()}


SUITE = _Gangs()
