"""The rows answered by what the agent runs, and how good it is: `python -m tests.conformance.karpenter PATH...`.

Upstream's cost is that of the reference the rows are held to elsewhere; a row says how many pods it places.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.cases import Case, files_below
from tests.conformance.karpenter import cases_of, drifting, flexibility, pending, scarcity, spreading, standing
from tests.conformance.karpenter.judge import misplaced
from tests.conformance.karpenter.manifests import Declined
from tests.conformance.karpenter.worlds import AgentWorld

CENT = 1e-6


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """What upstream makes of a row."""

    placed: int
    """Pods of the row that run."""
    cost_usd_h: float
    none_allowed: bool = False
    """Whether more pods than these would break a rule of the row."""


@dataclass(frozen=True, slots=True)
class AgentScore:
    """What the agent makes of it. `faults` are for people."""

    id: str
    file: str
    legal: bool = False
    count: bool = False
    cost: bool = False
    declined: str = ""
    otherwise: str = ""
    """What differs from upstream where that is no fault in itself."""
    faults: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Legal, as many pods, no dearer."""
        return self.legal and self.count and self.cost


Play = Callable[[Case], AgentWorld]
RUNNERS: Mapping[str, tuple[Play, Callable[[Case], UpstreamAnswer]]] = {
    "provision": (pending.play, lambda case: UpstreamAnswer(*pending.upstream(case))),
    "topology": (spreading.play, lambda case: UpstreamAnswer(*spreading.upstream(case))),
    "launch": (scarcity.play, lambda case: UpstreamAnswer(*scarcity.upstream(case))),
    "drift": (drifting.play, lambda case: UpstreamAnswer(*drifting.upstream(case))),
    "consolidation": (standing.play, lambda case: UpstreamAnswer(*standing.upstream(case))),
}
"""Kind -> the row as a world that has come to rest, and what upstream makes of it."""


OTHERWISE: Mapping[str, Callable[[Case, AgentWorld], str]] = {
    "consolidation": standing.otherwise,
    "topology": spreading.otherwise,
    "drift": drifting.otherwise,
}
"""Kind -> what differs from upstream and is no fault in itself."""


def score(case: Case, file: str) -> AgentScore:
    """One row."""
    play, upstream = RUNNERS[case["kind"]]
    try:
        world = play(case)
    except Declined as reason:
        return AgentScore(case["id"], file, declined=str(reason))
    except Exception as error:  # noqa: BLE001 -- whatever a row does to the agent is that row's failure
        return AgentScore(case["id"], file, faults=[f"raised {type(error).__name__}: {str(error)[:200]}"])
    wanted = upstream(case)
    return _compared(case, file, world, wanted)


def _compared(case: Case, file: str, world: AgentWorld, wanted: UpstreamAnswer) -> AgentScore:
    own = world.places().keys() & world.asked.keys() - world.strangers
    wrong = misplaced(world.snapshot.nodes, world.places(), world.asked, newest=world.newest)
    wrong += flexibility.broken(case, world) if case["kind"] == "provision" else []
    cost, placed = world.cost_usd_h(), len(own)
    faults = [f"illegal: {text}" for text in wrong]
    fits = placed == wanted.placed if wanted.none_allowed else placed >= wanted.placed
    if not fits:
        faults.append(f"placed {placed}, upstream {wanted.placed}: {sorted(set(world.waits().values()))[:2]}")
    cheap = cost <= wanted.cost_usd_h + CENT or placed > wanted.placed
    if not cheap:
        faults.append(f"cost {cost:.6f}, upstream {wanted.cost_usd_h:.6f}: {world.bought()}")
    differs = OTHERWISE[case["kind"]](case, world) if case["kind"] in OTHERWISE else ""
    return AgentScore(case["id"], file, not wrong, fits, cheap, faults=faults, otherwise=differs)


def table(scores: Sequence[AgentScore]) -> list[str]:
    """A line a file."""
    columns = ("rows", "legal", "count", "cost", "good", "declined")
    counts: dict[str, Counter[str]] = {}
    for it in scores:
        mine = {"rows": 1, "legal": it.legal, "count": it.count, "cost": it.cost, "good": it.good}
        counts.setdefault(it.file, Counter()).update({**mine, "declined": bool(it.declined)})
    total: Counter[str] = sum(counts.values(), Counter())
    return [
        f"{'file':<22}" + "".join(f"{name:>10}" for name in columns),
        *(
            f"{file:<22}" + "".join(f"{count[name]:>10}" for name in columns)
            for file, count in [*counts.items(), ("all", total)]
        ),
    ]


def report(paths: Sequence[str]) -> tuple[list[str], bool]:
    """A line a row that is not as good as upstream, or otherwise; then the table; and whether all rows are good."""
    scores = [
        score(case, path.stem)
        for path in files_below(map(Path, paths))
        for case in cases_of(path)
        if case["kind"] in RUNNERS
    ]
    return [*filter(None, map(_line, scores)), *table(scores)], all(it.good for it in scores)


def _line(it: AgentScore) -> str:
    if it.good:
        return f"{it.file}/{it.id}: good, but otherwise: {it.otherwise}" if it.otherwise else ""
    return f"{it.file}/{it.id}: " + (f"declined: {it.declined}" if it.declined else "; ".join(it.faults))
