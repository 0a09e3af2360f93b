"""Machines that the cloud takes back: what a notice leads to, and what the end of a capacity block does without one.

Notices are answered as Karpenter does (`pkg/controllers/interruption`), with the deadline made explicit. Of a capacity
block the end is known beforehand: until just before it, replacements are sought (`fleet.disruption.capacity_blocks`).
From then on the machines go whatever budgets, freeze windows and annotations say, with a deadline, as the cloud asks
nobody either.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from fleet.actions import Action, SaveClaim, claim_subject, instance_subject
from fleet.fence import Decided, DecisionFailed, each
from fleet.offerings.reservations import closes_s, reservation_of, terminates_s
from fleet.reasons import Reason
from fleet.snapshot import CapacityPool, Claim, NodeDisruption, Notice, NoticeKind, Reservation, Snapshot
from model.fleet import Fleet
from model.kinds import NEVER, NodePool

MARGIN_S = 15.0
"""The drain is over this much before what the notice announces."""
SHORTAGE_S = 180.0


class InterruptionAction(StrEnum):
    """What is done with a machine that a notice names, in Karpenter's words."""

    NOTHING = "NoAction"
    DRAIN = "CordonAndDrain"
    """Its node takes nobody new and is emptied, gangs as a whole; the machine goes then."""
    FORCE = "ForcefulTermination"
    """The machine goes at once: nobody on it can be waited for."""


class NoticeRule(NamedTuple):
    """The rule for one kind of notice: what is done, by when, and why in words."""

    handling: InterruptionAction
    at_once: bool = False
    """Whether it has begun as the notice is written, so that the drain has no time; else the notice says when."""
    short: bool = False
    """Whether the capacity pool counts as short from now on."""
    words: str = ""
    """Why such a machine leaves; `{source}` stands for who says so."""


_NOTHING, _DRAIN, _FORCE = InterruptionAction
RULES: Mapping[NoticeKind, NoticeRule] = {
    NoticeKind.SPOT_INTERRUPTED: NoticeRule(_DRAIN, short=True, words="{source} takes the spot machine back"),
    NoticeKind.CAPACITY_RESERVATION_INTERRUPTED: NoticeRule(_DRAIN, short=True, words="its capacity reservation ends"),
    NoticeKind.SCHEDULED_CHANGE: NoticeRule(_DRAIN, words="{source} announces maintenance"),
    NoticeKind.INSTANCE_STOPPED: NoticeRule(_DRAIN, at_once=True, words="the machine is being stopped"),
    NoticeKind.INSTANCE_TERMINATED: NoticeRule(_DRAIN, at_once=True, words="the machine is being terminated"),
    NoticeKind.INSTANCE_STATUS: NoticeRule(_FORCE, at_once=True, words="{source}'s check of the instance fails"),
    NoticeKind.SYSTEM_STATUS: NoticeRule(_FORCE, at_once=True, words="{source}'s check of the host fails"),
    NoticeKind.EVENT_STATUS: NoticeRule(_DRAIN, words="{source} has announced an event for the machine"),
    NoticeKind.REBALANCE_RECOMMENDATION: NoticeRule(_NOTHING),
    NoticeKind.NO_OP: NoticeRule(_NOTHING),
}


ADVICE: Final = frozenset({NoticeKind.REBALANCE_RECOMMENDATION})
"""What pools may act on that ask for it; what they ask stands in the fleet."""


@dataclass(frozen=True, slots=True)
class InterruptionResponse:
    """Claims to write because of notices, and capacity pools to avoid until an instant (epoch seconds)."""

    actions: tuple[Action, ...]
    shortages: Mapping[CapacityPool, float]
    failed: tuple[DecisionFailed, ...] = ()
    """Instances about which nothing could be decided: their notices are kept."""


def respond(
    notices: Iterable[Notice], snapshot: Snapshot, pools: Mapping[str, NodePool] = MappingProxyType({})
) -> InterruptionResponse:
    """Marks the claims of the machines named; their gangs then replace them, or leave. A repeat changes nothing.

    Rebalance recommendations are noted on claims of those `pools` that act on them (`fleet.disruption.rebalance`).
    """
    by_instance = {claim.instance_id: claim for claim in snapshot.claims.values() if claim.instance_id}
    changed: dict[str, Claim] = {}
    shortages: dict[CapacityPool, float] = {}

    def mark(named: tuple[Notice, str]) -> Iterator[Claim]:
        """Yields the claim as it is to be written, if the notice makes it another, and notes what is short by it."""
        notice, instance_id = named
        claim = by_instance.get(instance_id)
        if claim is None:
            return
        rule, current = RULES[notice.kind], changed.get(claim.name, claim)
        marked = _marked(current, notice, rule, pools.get(claim.node_pool), snapshot.now_s)
        if rule.short:
            shortages[claim.capacity_pool] = snapshot.now_s + SHORTAGE_S
        if marked is not current and (rule.handling is not InterruptionAction.NOTHING or notice.kind in ADVICE):
            yield marked

    failed = []
    subjects = ((instance_subject(name), (notice, name)) for notice in notices for name in notice.instance_ids)
    for found in each(snapshot, subjects, mark):
        if isinstance(found, DecisionFailed):
            failed.append(found)
        else:
            changed[found.name] = found
    saved = tuple(SaveClaim(claim) for _, claim in sorted(changed.items()))
    return InterruptionResponse(saved, shortages, tuple(failed))


def _marked(claim: Claim, notice: Notice, rule: NoticeRule, pool: NodePool | None, now_s: float) -> Claim:
    if notice.kind in ADVICE:
        return _advised(claim, pool, now_s)
    message = rule.words.format(source=notice.source)
    return claim.with_disruption(NodeDisruption(Reason.INTERRUPTED, message, now_s, _deadline_s(rule, notice)))


def _deadline_s(rule: NoticeRule, notice: Notice) -> float:
    """Returns when the drain must be over (epoch s). A due time before the notice was written says nothing."""
    if rule.at_once:
        return notice.at_s
    return notice.due_s - MARGIN_S if notice.due_s > notice.at_s else NEVER


def _advised(claim: Claim, pool: NodePool | None, now_s: float) -> Claim:
    asks = pool is not None and pool.spec.disruption.on_rebalance == "Replace"
    return replace(claim, advised_at_s=now_s) if asks and not claim.advised_at_s else claim


# -- capacity blocks that end ------------------------------------------------------------------------------------------


def decide(fleet: Fleet, snapshot: Snapshot) -> list[Decided]:
    """Tells every claim to go whose capacity block ends so soon that work must stop now; a repeat changes nothing."""
    if not any(known.ends_machines for known in snapshot.reservations.values()):
        return []

    def last_call(claim: Claim) -> Iterator[Action]:
        known = reservation_of(snapshot, claim)
        if known is not None and snapshot.now_s >= last_call_s(fleet.node_pools.get(claim.node_pool), known):
            why = NodeDisruption(Reason.BLOCK_ENDS, block_ends_message(known), snapshot.now_s, terminates_s(known))
            yield SaveClaim(claim.with_disruption(why))

    reserved = (claim for _, claim in sorted(snapshot.claims.items()) if claim.capacity_pool.reservation)
    staying = ((claim_subject(it.name), it) for it in reserved if it.disruption is None and not it.deleting)
    return list(each(snapshot, ((name, it) for name, it in staying if name not in snapshot.busy), last_call))


def last_call_s(pool: NodePool | None, reservation: Reservation) -> float:
    """Returns when work has to stop (epoch s): half of the pool's lead time is for replacements, half for the drain."""
    return (closes_s(pool, reservation) + terminates_s(reservation)) / 2


def block_ends_message(reservation: Reservation) -> str:
    """Returns why a machine of the ending capacity block leaves, in words."""
    return f"capacity block {reservation.id} ends, and the cloud terminates its machines"
