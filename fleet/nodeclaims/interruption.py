"""What an interruption notice leads to (Karpenter `pkg/controllers/interruption`, with the deadline made explicit)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from fleet.actions import Action, SaveClaim, instance_subject
from fleet.fence import DecisionFailed, each
from fleet.nodeclaims.lifecycle import leaving
from fleet.reasons import Reason
from fleet.snapshot import CapacityPool, Claim, Notice, NoticeKind, Snapshot
from model.kinds import NEVER, NodePool

NOTICE_S = 120.0
"""EC2 takes a spot machine this long after the notice was written."""
MARGIN_S = 15.0
"""The drain is over this much earlier."""
SHORTAGE_S = 180.0


class Handling(StrEnum):
    """What is done with a machine that a notice names (Karpenter's words)."""

    NOTHING = "NoAction"
    DRAIN = "CordonAndDrain"
    """Its node takes nobody new and is emptied, gangs as a whole; the machine goes then."""
    FORCE = "ForcefulTermination"
    """The machine goes at once: nobody on it can be waited for."""


class Rule(NamedTuple):
    """What a kind of notice leads to."""

    handling: Handling
    grace_s: float
    """From the time the notice was written until the drain must be over; NEVER = by what the notice itself says."""
    short: bool
    """Whether the capacity pool counts as short from now on."""
    words: str


RULES: Mapping[NoticeKind, Rule] = {
    NoticeKind.SPOT_INTERRUPTED: Rule(Handling.DRAIN, NOTICE_S - MARGIN_S, True, "EC2 takes the spot machine back"),
    NoticeKind.CAPACITY_RESERVATION_INTERRUPTED: Rule(
        Handling.DRAIN, NOTICE_S - MARGIN_S, True, "its capacity reservation ends"
    ),
    NoticeKind.SCHEDULED_CHANGE: Rule(Handling.DRAIN, NEVER, False, "AWS Health announces maintenance"),
    NoticeKind.INSTANCE_STOPPED: Rule(Handling.DRAIN, 0.0, False, "the machine is being stopped"),
    NoticeKind.INSTANCE_TERMINATED: Rule(Handling.DRAIN, 0.0, False, "the machine is being terminated"),
    NoticeKind.INSTANCE_STATUS: Rule(Handling.FORCE, 0.0, False, "EC2's check of the instance fails"),
    NoticeKind.SYSTEM_STATUS: Rule(Handling.FORCE, 0.0, False, "EC2's check of the host fails"),
    NoticeKind.EVENT_STATUS: Rule(Handling.DRAIN, NEVER, False, "EC2 has announced an event for the machine"),
    NoticeKind.REBALANCE_RECOMMENDATION: Rule(Handling.NOTHING, NEVER, False, ""),
    NoticeKind.NO_OP: Rule(Handling.NOTHING, NEVER, False, ""),
}


ADVICE: Final = frozenset({NoticeKind.REBALANCE_RECOMMENDATION})
"""What pools may act on that ask for it; what they ask stands in the fleet."""


@dataclass(frozen=True, slots=True)
class Response:
    """Writes that follow from notices, and capacity pools to avoid until an instant."""

    actions: tuple[Action, ...]
    shortages: Mapping[CapacityPool, float]
    failed: tuple[DecisionFailed, ...] = ()
    """Instances about which nothing could be decided: their notices are kept."""


def respond(
    notices: Iterable[Notice], snapshot: Snapshot, pools: Mapping[str, NodePool] = MappingProxyType({})
) -> Response:
    """Mark the machines concerned; their gangs then lose them, and go on without or leave. A repeat changes nothing.

    Advice to move away is written down for machines of those `pools` that act on it (`disrupt.rebalance`).
    """
    by_instance = {claim.instance_id: claim for claim in snapshot.claims.values() if claim.instance_id}
    changed: dict[str, Claim] = {}
    shortages: dict[CapacityPool, float] = {}

    def mark(named: tuple[Notice, str]) -> Iterator[Claim]:
        notice, instance_id = named
        claim = by_instance.get(instance_id)
        if claim is None:
            return
        rule, current = RULES[notice.kind], changed.get(claim.name, claim)
        marked = _marked(current, notice, rule, pools.get(claim.node_pool), snapshot.now_s)
        if rule.short:
            shortages[claim.capacity_pool] = snapshot.now_s + SHORTAGE_S
        if marked is not current and (rule.handling is not Handling.NOTHING or notice.kind in ADVICE):
            yield marked

    failed = []
    subjects = ((instance_subject(name), (notice, name)) for notice in notices for name in notice.instance_ids)
    for found in each(snapshot, subjects, mark):
        if isinstance(found, DecisionFailed):
            failed.append(found)
        else:
            changed[found.name] = found
    return Response(tuple(SaveClaim(claim) for _, claim in sorted(changed.items())), shortages, tuple(failed))


def _marked(claim: Claim, notice: Notice, rule: Rule, pool: NodePool | None, now_s: float) -> Claim:
    if notice.kind in ADVICE:
        return _advised(claim, pool, now_s)
    return leaving(claim, Reason.INTERRUPTED, rule.words, now_s, _deadline_s(rule, notice))


def _deadline_s(rule: Rule, notice: Notice) -> float:
    """When the drain must be over. What should have begun before it was announced has no time that one could go by."""
    due_s = notice.due_s - MARGIN_S if notice.due_s > notice.at_s else NEVER
    return min(notice.at_s + rule.grace_s, due_s)


def _advised(claim: Claim, pool: NodePool | None, now_s: float) -> Claim:
    asks = pool is not None and pool.spec.disruption.on_rebalance == "Replace"
    return replace(claim, advised_at_s=now_s) if asks and not claim.advised_at_s else claim
