"""Who holds the quota that a waiting gang lacks, by name, and until when."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from fleet.explain.what_if import QuotaStanding
from fleet.quota.build_tree import usages
from fleet.quota.queue_binding import binding_of, payer_of
from fleet.quota.specs import FlavorResource
from fleet.scheduling.queue_order import ends_at_s
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet


@dataclass(frozen=True, slots=True)
class QuotaHolder:
    """A gang that holds some of a quota that another one lacks."""

    gang: str
    team: str
    queue: str
    flavor: str
    resource: str
    amount: int
    ends_s: float | None
    """When it will have ended; None = nothing tells."""
    ends_by: str
    """What that stands on."""


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """When a gang that runs will have ended, and what that stands on; None = nothing tells."""

    at_s: float | None
    by: str


def short_of(quotas: Sequence[QuotaStanding]) -> list[QuotaStanding]:
    """Returns what is missing in the flavor where least is, a row a resource; nothing where one has all."""
    flavors: dict[str, list[QuotaStanding]] = {}
    for it in quotas:
        flavors.setdefault(it.levels[0].flavor, []).append(it)
    found = [[it for it in rows if it.asked > it.free] for rows in flavors.values()]
    return min(found, key=lambda rows: (len(rows), sum(it.asked - it.free for it in rows)), default=[])


def quota_holders(
    fleet: Fleet, snapshot: Snapshot, gang: Gang, short: Sequence[QuotaStanding], ends: Mapping[str, ExpectedEnd]
) -> Iterator[QuotaHolder]:
    """Yields who holds the quotas that it lacks in its tree, the first to end first, then by amount and name."""
    roots = {FlavorResource(it.levels[0].flavor, it.levels[0].resource): it.levels[-1].node for it in short}
    taken = usages(fleet, snapshot) if roots else {}
    others = ((snapshot.gangs.get(uid), cells) for uid, cells in taken.items() if uid != gang.uid)
    found = [
        _holder(fleet, holder, cell, cells[cell], expected_end(holder, snapshot.now_s, ends))
        for holder, cells in others
        if holder is not None and holder.holds_capacity
        for cell in sorted(cells.keys() & roots.keys())
        if cells[cell] and _root_of(fleet, holder) in {"", roots[cell].strip("/").partition("/")[0]}
    ]
    yield from sorted(found, key=lambda it: (inf if it.ends_s is None else it.ends_s, -it.amount, it.gang))


def _holder(fleet: Fleet, gang: Gang, cell: FlavorResource, amount: int, end: ExpectedEnd) -> QuotaHolder:
    team = payer_of(fleet, gang.namespace, gang.queue) or ""
    return QuotaHolder(gang.name, team, gang.queue, *cell, amount, end.at_s, end.by)


def _root_of(fleet: Fleet, gang: Gang) -> str:
    """Returns the team at the root of a gang's tree; empty where that is not one of ours."""
    binding = binding_of(fleet, gang.namespace, gang.queue)
    team = binding.team if binding is not None else None
    seen: set[str] = set()
    while team is not None and team.spec.parent and team.spec.parent in fleet.teams and team.name not in seen:
        seen.add(team.name)
        team = fleet.teams[team.spec.parent]
    return team.name if team is not None else ""


def expected_end(gang: Gang, now_s: float, ends: Mapping[str, ExpectedEnd]) -> ExpectedEnd:
    """Returns when a gang ends: as it has declared, as runs like it took, or nobody knows."""
    declared_s = ends_at_s(gang, now_s)
    if gang.state is GangState.EVICTING:
        return ExpectedEnd(now_s, "it is leaving")
    return ExpectedEnd(declared_s, "as declared") if declared_s < inf else ends.get(gang.uid, ExpectedEnd(None, ""))
