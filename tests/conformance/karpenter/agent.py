"""The rows about pods and machines: played on the agent until all is at rest, and how good what is left is.

What upstream's purchases cost is told by the row, or reckoned from its words (`prices`, `rounds`). Where neither is
possible the row is about legality and the number of pods, and counted apart.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.cases import Case, Result
from tests.conformance.karpenter import drifting, flexibility, pending, scarcity, spreading, standing
from tests.conformance.karpenter.judge import misplaced
from tests.conformance.karpenter.manifests import Declined
from tests.conformance.karpenter.rounds import UpstreamAnswer
from tests.conformance.karpenter.worlds import AgentWorld

CENT = 1e-6
UNPRICED = "upstream's price is not known"


@dataclass(frozen=True, slots=True)
class AgentScore:
    """What the agent makes of it. `faults` are for people."""

    id: str
    file: str
    legal: bool = False
    count: bool = False
    cost: bool = False
    declined: str = ""
    unpriced: bool = False
    """Whether nothing is known of what upstream paid."""
    otherwise: str = ""
    """What differs from upstream where that is no fault in itself."""
    faults: list[str] = field(default_factory=list)
    got: Mapping[str, Any] | None = None

    @property
    def good(self) -> bool:
        """Legal, as many pods, no dearer."""
        return self.legal and self.count and self.cost


@dataclass(frozen=True, slots=True)
class PlayedRows:
    """Rows of a kind that are about a world at rest."""

    play: Callable[[Case], AgentWorld]
    """The row as a world that has come to rest."""
    upstream: Callable[[Case], UpstreamAnswer]
    asked: Callable[[Case], bool] = lambda _case: True
    """Whether a row of the kind is about that."""


PLAYED: Mapping[str, PlayedRows] = {
    "provision": PlayedRows(pending.play, pending.upstream),
    "topology": PlayedRows(spreading.play, spreading.upstream),
    "launch": PlayedRows(scarcity.play, scarcity.upstream, lambda case: "pods" in case["given"]),
    "drift": PlayedRows(drifting.play, drifting.upstream, drifting.at_rest),
    "consolidation": PlayedRows(standing.play, standing.upstream),
}


def is_played(case: Case) -> bool:
    """Whether a row is about a world at rest; the others ask one question."""
    return case["kind"] in PLAYED and PLAYED[case["kind"]].asked(case)


OTHERWISE: Mapping[str, Callable[[Case, AgentWorld], str]] = {
    "consolidation": standing.otherwise,
    "topology": spreading.otherwise,
    "drift": drifting.otherwise,
}
"""Kind -> what differs from upstream and is no fault in itself."""


def score(case: Case, file: str = "") -> AgentScore:
    """One row."""
    rows = PLAYED[case["kind"]]
    try:
        world = rows.play(case)
    except Declined as reason:
        return AgentScore(case["id"], file, declined=str(reason))
    except Exception as error:  # noqa: BLE001 -- whatever a row does to the agent is that row's failure
        return AgentScore(case["id"], file, faults=[f"raised {type(error).__name__}: {str(error)[:200]}"])
    return _compared(case, file, world, rows.upstream(case))


def result(case: Case) -> Result:
    """The same as every suite tells it."""
    found = score(case)
    note = f"declined: {found.declined}" if found.declined else "; ".join(found.faults)
    note = note or UNPRICED * found.unpriced
    return Result(case["id"], passed=found.good, expected=case["expect"], got=found.got, note=note, case=case)


def _compared(case: Case, file: str, world: AgentWorld, wanted: UpstreamAnswer) -> AgentScore:
    own = world.places().keys() & world.asked.keys() - world.strangers
    wrong = misplaced(world.snapshot.nodes, world.places(), world.asked, newest=world.newest)
    wrong += flexibility.broken(case, world) if case["kind"] == "provision" else []
    cost, placed = world.cost_usd_h(), len(own)
    faults = [f"illegal: {text}" for text in wrong]
    fits = placed == wanted.placed if wanted.none_allowed else placed >= wanted.placed
    if not fits:
        faults.append(f"placed {placed}, upstream {wanted.placed}: {sorted(set(world.waits().values()))[:2]}")
    cheap = wanted.cost_usd_h is None or cost <= wanted.cost_usd_h + CENT or placed > wanted.placed
    if not cheap:
        faults.append(f"cost {cost:.6f}, upstream {wanted.cost_usd_h}: {world.bought()}")
    differs = OTHERWISE[case["kind"]](case, world) if case["kind"] in OTHERWISE else ""
    got = {"scheduled": placed, "cost_usd_h": round(cost, 9), "machines": world.bought(), "otherwise": differs}
    unpriced = wanted.cost_usd_h is None
    return AgentScore(
        case["id"], file, not wrong, fits, cheap, faults=faults, unpriced=unpriced, otherwise=differs, got=got
    )
