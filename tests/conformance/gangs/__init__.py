"""Whole scenarios of gangs on machines: what Volcano (ed72c7c8) and KAI-Scheduler (d5bc503a) decide.

A row passes when its decision is safe, has the expected outcome, evicts no more than upstream did, and is stable.
"""

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.cases import Case, Result, lines_of
from tests.conformance.gangs import kai, numeric, volcano
from tests.conformance.gangs.outcome import compare, is_economic
from tests.conformance.gangs.safety import violations
from tests.conformance.gangs.scene import Build, Pods, SceneRound, group_of, initial, play_round, settle

BUILDERS: dict[str, Build] = {"kai": kai.build, "volcano": volcano.build}
STABLE_ROUNDS, SETTLING_ROUNDS = 5, 2
SCORES = ("safety", "outcome", "economy", "stability")


class _Gangs:
    def run(self, files: Iterable[Path]) -> Iterator[Result]:
        for path in files:
            if path.suffix == ".jsonl":
                for case in lines_of(path):
                    yield run(case)

    def summary(self, results: Sequence[Result]) -> list[str]:
        lines = [
            f"{score} {name} {_percent(results, score, wanted)}"
            for name, wanted in (("volcano", {"volcano"}), ("kai", {"kai"}), ("kai plain", {"kai", "plain"}))
            for score in SCORES
        ]
        return lines + [f"{score} {_percent(results, score, set())}" for score in SCORES]


def _percent(results: Sequence[Result], score: str, wanted: set[str]) -> str:
    rows = [row for row in results if row.case and wanted <= {row.case["semantics"], *row.case["tags"]}]
    counted = [_scores(row)[score] for row in rows]
    judged = [value for value in counted if value is not None]
    return f"{100 * sum(judged) / len(judged):.1f}" if judged else "100.0"


def _scores(result: Result) -> Mapping[str, bool | None]:
    scores: Mapping[str, bool | None] | None = (result.got or {}).get("scores")
    return scores or dict.fromkeys(SCORES, False)


def run(case: Case) -> Result:
    """Play one row. What breaks the engine fails the row."""
    name, expected = case["id"], case["expect"]
    try:
        if case["schema"] in numeric.RUNNERS:
            got, note = _numeric(case)
        else:
            got, note = _scenario(case)
    except Exception as error:  # noqa: BLE001 -- whatever a row does to the engine is that row's failure
        where = traceback.extract_tb(error.__traceback__)[-1]
        note = f"{type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}"
        return Result(name, passed=False, expected=expected, got=None, note=note, case=case)
    passed = all(value is not False for value in got["scores"].values())
    return Result(name, passed=passed, expected=_essence(expected), got=got, note=note, case=case)


def _essence(expected: Mapping[str, Any]) -> Any:
    return {key: value for key, value in expected.items() if key not in {"derived", "max_calls", "checks"}}


def _numeric(case: Case) -> tuple[dict[str, Any], str]:
    got = numeric.RUNNERS[case["schema"]](case)
    right = numeric.same(case["expect"], got)
    return {**got, "scores": {"safety": True, "outcome": right, "economy": None, "stability": True}}, ""


def _scenario(case: Case) -> tuple[dict[str, Any], str]:
    build, mode = BUILDERS[case["semantics"]], case["run"]["mode"]
    staying = _staying(case)
    pods: Pods = initial(case)
    queued, rounds = frozenset[str](), list[SceneRound]()
    most = int(case["run"].get("rounds_until_match") or 1) if mode == "rounds" else 1
    shown: Pods = pods
    for _ in range(most):
        played, queued = play_round(case, build, pods, queued)
        rounds.append(played)
        pods = settle(played.after, staying)
        shown = pods if mode == "rounds" else played.after
        if mode == "rounds" and compare(case, pods, rounds, {}).same:
            break
    phases = _phases(case, queued)
    outcome = compare(case, shown, rounds, phases)
    unsafe = [text for played in rounds for text in violations(case, played)]
    changed, late = _changes(case, build, pods, queued, staying)
    evicted = _evicted(case, rounds, shown)
    economic = is_economic(case, evicted) if outcome.same else None
    scores = {"safety": not (unsafe or late), "outcome": outcome.same, "economy": economic, "stability": not changed}
    notes = [*unsafe, *late, outcome.why, "" if economic is not False else f"evicts {evicted}", *changed]
    return _emitted(case, shown, rounds, bool(changed), scores, phases), "; ".join(note for note in notes if note)


def _evicted(case: Case, rounds: Sequence[SceneRound], pods: Pods) -> list[str]:
    """Pods that ran and were made to leave for good; like upstream's list, it does not count what started meanwhile."""
    first = initial(case)
    left = {eviction.pod for played in rounds for eviction in played.decision.evicted}
    return sorted(
        name for name in left if first[name].state != "Pending" and pods[name].state in {"Pending", "Releasing"}
    )


def _staying(case: Case) -> frozenset[str]:
    """Pods of groups that are being deleted never come back."""
    deleted = {group["name"] for group in case["podgroups"] if group.get("being_deleted")}
    return frozenset(pod for pod, group in group_of(case).items() if group in deleted)


def _changes(
    case: Case, build: Build, pods: Pods, queued: frozenset[str], staying: frozenset[str]
) -> tuple[list[str], list[str]]:
    """What five more rounds change once things have settled, and what is unsafe in any of them."""
    changed: list[str] = []
    unsafe: list[str] = []
    for number in range(SETTLING_ROUNDS + STABLE_ROUNDS):
        played, queued = play_round(case, build, pods, queued)
        unsafe += violations(case, played)
        after = settle(played.after, staying)
        if number >= SETTLING_ROUNDS and after != pods:
            changed += [f"round {number}: {pod} {pods[pod]} -> {after[pod]}" for pod in pods if pods[pod] != after[pod]]
        pods = after
    return changed, unsafe


def _phases(case: Case, queued: frozenset[str]) -> dict[str, str]:
    found = {}
    for group in case["podgroups"]:
        name = f"{group.get('namespace', '')}/{group['name']}"
        found[name] = "Inqueue" if name in queued else group.get("phase", "")
    return found


def _emitted(
    case: Case,
    pods: Pods,
    rounds: Sequence[SceneRound],
    changed: bool,
    scores: Mapping[str, bool | None],
    phases: Mapping[str, str],
) -> dict[str, Any]:
    """The row as `--emit` writes it."""
    first, groups = initial(case), group_of(case)
    nominated = {name for played in rounds for name in (*played.decision.nominated, *played.decision.moved)}
    bound = {
        name: pod.node
        for name, pod in pods.items()
        if pod.state in {"Binding", "Running"} and first[name].state == "Pending" and pod.state != first[name].state
    }
    return {
        "podgroups": {
            group["name"]: {"status": _status([pods[pod].state for pod in groups if groups[pod] == group["name"]])}
            for group in case["podgroups"]
        },
        "phases": dict(phases) if case["semantics"] == "volcano" else {},
        "bound": bound,
        "nominated": {name: pods[name].node for name in sorted(nominated) if pods[name].state == "Pipelined"},
        "evicted": sorted({eviction.pod for played in rounds for eviction in played.decision.evicted}),
        "moved": {
            name: pods[name].node for name in sorted({name for played in rounds for name in played.decision.moved})
        },
        "pending": sorted(name for name, pod in pods.items() if pod.state == "Pending"),
        "changed_in_stable_rounds": changed,
        "scores": dict(scores),
    }


def _status(states: Sequence[str]) -> str:
    """One word for a group: that of its pods if they agree, else the one that says most."""
    for word in ("Binding", "Pipelined", "Running", "Releasing", "StuckInReleasing", "Pending"):
        if word in states:
            return word
    return states[0] if states else "Pending"


SUITE = _Gangs()
