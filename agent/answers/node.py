"""Of a machine: why it was bought, what stands on it, and why it is kept or going."""

from collections.abc import Iterator
from math import inf

from agent.answers import NothingSo
from fleet.disruption.outcomes import DisruptionVerdict
from fleet.explain.node import GangOnMachine, MachineView, adoptable_by, claim_called, node_view
from fleet.mig.layouts import layout_name
from fleet.snapshot import Node, Snapshot
from model import labels
from model.fleet import Fleet
from model.plain_text import age


def node_lines(fleet: Fleet | None, snapshot: Snapshot, name: str) -> Iterator[str]:
    """Returns what there is to say of a node, or a claim; of methods only with a fleet. Errors: NothingSo."""
    claim = claim_called(snapshot, name)
    if claim is not None:
        return lines(node_view(snapshot, claim, fleet), snapshot.now_s)
    if fleet is not None and (node := snapshot.nodes.get(name)) is not None:
        return unclaimed_lines(fleet, snapshot, node)
    raise NothingSo(_unknown(snapshot, name))


def _unknown(snapshot: Snapshot, name: str) -> str:
    if name in snapshot.nodes:
        return f"node {name!r} {_NOT_OURS}; --fleet with the fleet's files also tells which pools could adopt it"
    known = ", ".join(sorted(claim.node or claim.name for claim in snapshot.claims.values())[:10]) or "none"
    return f"no node or claim {name!r}; there are: {known}"


_NOT_OURS = "has no claim: it was not bought here, and nobody here gives it back"


def unclaimed_lines(fleet: Fleet, snapshot: Snapshot, node: Node) -> Iterator[str]:
    """What a node without a claim is, and which pools could adopt it."""
    yield f"{node.name}  {_NOT_OURS}"
    yield f"  machine:  {node.labels.get(labels.INSTANCE_TYPE, 'of no known type')}, {node.instance_id or 'not of EC2'}"
    prospects = adoptable_by(fleet, snapshot, node)
    if prospects:
        yield f"  to adopt: tag the instance {labels.ADOPT}=<cluster>/<pool>; as far as the cluster shows"
    for prospect in prospects:
        refusal = prospect.refusal
        said = f"refused ({refusal.reason}): {refusal.message}" if refusal else "would be adopted"
        yield f"  {prospect.pool + ':':<15}{said}"


def lines(view: MachineView, now_s: float) -> Iterator[str]:
    """The explanation, line by line."""
    claim, where = view.claim, view.claim.capacity_pool
    yield f"{claim.node or claim.name}  (claim {claim.name}, pool {claim.node_pool})"
    where_words = f"{where.instance_type} {where.capacity_type} {where.zone}"
    yield f"  machine:  {where_words}, {claim.instance_id or 'no instance yet'}"
    yield from _cut(view, now_s)
    since_s = claim.ready_at_s or claim.registered_at_s or claim.launched_at_s or claim.created_at_s
    cordoned = view.node is not None and view.node.unschedulable and claim.disruption is None
    held = "; it is cordoned: nothing new comes" if cordoned else ""
    yield f"  state:    {claim.state} for {age(now_s - since_s)}{held}"
    how = "adopted: " if claim.adopts else "bought:  "
    yield f"  {how} {age(now_s - claim.created_at_s)} ago at {claim.price_usd_h:.2f} USD/h{_for_whom(view)}"
    if claim.purpose:
        yield f"  purpose:  {claim.purpose}"
    if claim.replaces:
        yield f"  replaces: {', '.join(claim.replaces)}"
    for each in view.gangs:
        yield f"  stands:   {_gang(each, now_s)}"
    for pod in view.foreign_pods:
        yield f"  stands:   pod {pod}, of no gang"
    if not view.gangs and not view.foreign_pods:
        idle = f", empty for {age(now_s - claim.emptied_at_s)}" if claim.emptied_at_s else ""
        yield f"  stands:   nothing{idle}"
    for event in claim.history:
        yield f"  happened: {age(now_s - event.at_s)} ago: {event.what}: {event.message}"
    if claim.disruption is not None:
        leaving = claim.disruption
        until = "" if leaving.deadline_s == inf else f"; the drain may take {age(leaving.deadline_s - now_s)} more"
        yield f"  leaves:   {leaving.reason}: {leaving.message}, told {age(now_s - leaving.at_s)} ago{until}"
    yield from _verdicts(view, now_s)


def _cut(view: MachineView, now_s: float) -> Iterator[str]:
    """How its GPUs are to be cut, and where they are not: how they are, since when, and what is done about it."""
    order = view.claim.cut
    if view.claim.layout:
        yield f"  cut:      {layout_name(view.claim.layout)}"
    if view.departed:
        yield f"  departs:  {view.departed}"
    if order is not None:
        tries = f", told once more {order.tries} times" if order.tries else ""
        what = f"{order.reason}: {order.message}" if order.reason else order.message
        yield f"  cutting:  {what}, for {age(now_s - order.since_s)}{tries}; it takes no new work"


def _for_whom(view: MachineView) -> str:
    if view.buyer:
        return f", for {view.buyer}"
    if view.claim.replaces:
        return ", to replace a machine"
    return "" if view.claim.purpose else ", for its pool"


def _gang(stands: GangOnMachine, now_s: float) -> str:
    gang = stands.gang
    ends = "does not say when it ends" if stands.ends_s == inf else f"ends in {age(stands.ends_s - now_s)}"
    lost = f"stopped now it loses {age(stands.lost_s)} of work, {stands.lost_usd:.2f} USD"
    pods = f"{stands.pods} pod{'' if stands.pods == 1 else 's'} here"
    return f"{gang.name}, priority {gang.effective_priority}, {pods}, {gang.state}, {ends}; {lost}"


def _verdicts(view: MachineView, now_s: float) -> Iterator[str]:
    if not view.verdicts:
        yield "  --fleet with the fleet's files also tells what each disruption method says of it"
    for verdict in view.verdicts:
        yield f"  {verdict.method + ':':<15}{_verdict(verdict, now_s)}"


def _verdict(verdict: DisruptionVerdict, now_s: float) -> str:
    known = now_s < verdict.until_s < inf
    until = f", {age(verdict.until_s - now_s)} left" if known else ""
    code = f" ({verdict.obstacle})" if verdict.obstacle else ""
    return f"{verdict.outcome}{code}: {verdict.message}{until}"
