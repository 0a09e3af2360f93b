"""An explanation as lines of text: what the command line, the page and comments show of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet.explain.gang import CheckStep, GangExplanation
from fleet.explain.gang_facts import StartEstimate
from fleet.explain.tried_machines import TriedOutcome
from fleet.explain.what_if import QuotaStanding, WhatIfDecision, otherwise
from fleet.snapshot import Gang, Snapshot
from model.fleet import Fleet
from model.plain_text import age, counted
from model.quantity import format_amount


@dataclass(frozen=True, slots=True)
class Otherwise:
    """How a gang would be; empty: as it is."""

    priority: str = ""
    queue: str = ""
    gpus: int | None = None
    """A pod."""

    def __bool__(self) -> bool:
        return bool(self.priority or self.queue or self.gpus is not None)

    @property
    def words(self) -> str:
        """Returns the question in words."""
        asked = [
            f"priority class {self.priority}" if self.priority else "",
            f"queue {self.queue}" if self.queue else "",
            f"{self.gpus} GPUs a pod" if self.gpus is not None else "",
        ]
        return ", ".join(it for it in asked if it)


def find(snapshot: Snapshot, name: str) -> list[Gang]:
    """Gangs by job name, Workload name, or either behind `namespace/`."""
    return [
        gang
        for _, gang in sorted(snapshot.gangs.items(), key=lambda entry: entry[1].name)
        if name in {gang.job.name, gang.workload, gang.name, f"{gang.namespace}/{gang.workload}"}
    ]


_STEPS = {
    CheckStep.CAN_RUN: "can ever run",
    CheckStep.RIGHT_PLACE: "right place",
    CheckStep.QUOTA: "quota",
    CheckStep.MACHINES: "machines",
    CheckStep.POSITION: "position",
}
OFFERS_SHOWN, HOLDERS_SHOWN, ADVICE_SHOWN = 8, 8, 4


def note_lines(notes: Sequence[str]) -> Iterator[str]:
    """Yields what else is to be said, a note a line."""
    for note in notes:
        subject, _, words = note.partition(": ")
        yield f"  {subject + ':':9} {words}"


def explanation_lines(it: GangExplanation) -> Iterator[str]:
    """Yields the explanation, line by line."""
    asked = ", ".join(f"{amount} {name}" for name, amount in it.asks.items()) or "no GPU"
    yield f"{it.name}  ({it.kind}, queue {it.queue or '-'}, priority {it.priority})"
    starts = f", starts with {it.needs}" if it.needs != it.pods else ""
    yield f"  asks:     {counted(it.pods, 'pod')} with {asked}{starts}"
    yield f"  state:    {it.state} for {age(it.at_s - it.since_s)}, {age(it.at_s - it.created_at_s)} since submission"
    yield f"  reason:   {it.reason}: {it.message}"
    if it.stands:
        yield f"  machines: {', '.join(it.stands)}"
    yield from note_lines(it.notes)
    yield from _checks(it)
    yield from _quotas(it)
    yield from _holders(it)
    yield from _offers(it)
    if it.start is not None:
        yield f"  starts:   {start_words(it.start, it.at_s)}"
    yield from _advice(it)
    yield f"  costs:    {cost_words(it)}"


def _checks(it: GangExplanation) -> Iterator[str]:
    for check in it.checks:
        mark = {True: "yes", False: "NO", None: "-"}[check.holds]
        again = f" (tried again in {age(check.retry_at_s - it.at_s)})" if check.retry_at_s > it.at_s else ""
        usage = it.position.usage if it.position is not None and check.step is CheckStep.POSITION else {}
        lately = ", ".join(f"{name} {value:.4g}" for name, value in usage.items())
        order = f"; who used less lately goes first: {lately}" if lately else ""
        yield f"  {_STEPS[check.step] + ':':14} {mark:4} {check.message}{again}{order}"


def _quotas(it: GangExplanation) -> Iterator[str]:
    """The way through the quota tree, from its queue to the root, without what it holds itself."""
    for standing in it.quotas:
        resource = standing.levels[0].resource
        asked, free = (format_amount(resource, amount) for amount in (standing.asked, standing.free))
        yield f"    {resource} of {standing.levels[0].flavor}: asks {asked}, {free} free for it"
        yield from _levels(standing)


def _levels(standing: QuotaStanding) -> Iterator[str]:
    for level in standing.levels:
        quota, used = (format_amount(level.resource, amount) for amount in (level.quota, level.used))
        bound = "" if level.most is None else f", at most {format_amount(level.resource, level.most)}"
        borrowed = f", borrows {format_amount(level.resource, level.borrowed)}" if level.borrowed else ""
        yield f"      {level.node}: uses {used} of {quota}{borrowed}{bound}"


def _holders(it: GangExplanation) -> Iterator[str]:
    for holder in it.holders[:HOLDERS_SHOWN]:
        who = holder.gang or f"a gang of team {holder.team}"
        until = (
            f"until {instant(holder.ends_s)} ({holder.ends_by})"
            if holder.ends_s is not None
            else "nobody knows until when"
        )
        amount = format_amount(holder.resource, holder.amount)
        yield f"    held by {who}: {amount} {holder.resource} of {holder.flavor}, {until}"
    left = len(it.holders) - HOLDERS_SHOWN + it.holders_more
    if left > 0:
        yield f"    and by {counted(left, 'gang')} more"


def _offers(it: GangExplanation) -> Iterator[str]:
    if it.machines is None or it.machines.free_pods >= it.machines.asked_pods > 0:
        return
    for offer in it.machines.offers[:OFFERS_SHOWN]:
        against = "could be bought now" if offer.outcome is TriedOutcome.OPEN else f"{offer.outcome}: {offer.detail}"
        again = f", tried again in {age(offer.retry_at_s - it.at_s)}" if offer.retry_at_s > it.at_s else ""
        cut = f" {offer.sharing}" if offer.sharing != "whole" else ""
        yield f"    {offer.pool} {offer.instance_type} {offer.capacity_type} {offer.zone}{cut}: {against}{again}"
    if (more := sum(it.machines.counts.values()) - OFFERS_SHOWN) > 0:
        yield f"    and {counted(more, 'offer')} more"


def _advice(it: GangExplanation) -> Iterator[str]:
    if it.advice is None:
        if it.remedy:
            yield f"  would help: {it.remedy}"
        return
    if not it.advice and it.checks:
        yield f"  would help: {it.remedy or 'none of the changes that were tried has it start now'}"
    for number, each in enumerate(it.advice[:ADVICE_SHOWN]):
        yield f"  {'would help:' if not number else '        or:'} {each.words}"


def start_words(start: StartEstimate, now_s: float) -> str:
    """Says when a gang will start, or why that is unknown."""
    if start.p50_s is None:
        return f"unknown because {start.why_unknown}"
    late = f"by {instant(start.p90_s)} in nine of ten" if start.p90_s is not None else "nobody knows how late at worst"
    if start.p50_s <= now_s:
        return f"any moment, {late} ({start.basis})"
    return f"about {instant(start.p50_s)}, in {age(start.p50_s - now_s)}; {late} ({start.basis})"


def cost_words(it: GangExplanation) -> str:
    """Says what a gang costs, in USD."""
    cost = it.cost
    parts = [f"{cost.usd_h:.2f} USD/h now" if cost.usd_h else "nothing now"]
    if cost.would_usd_h is not None and not cost.usd_h:
        parts = [f"nothing now, {cost.would_usd_h:.2f} USD/h on machines bought for it"]
    parts.append(
        f"{cost.so_far_usd:.2f} USD so far{read_words(it)}"
        if cost.so_far_usd is not None
        else "so far unknown: no ledger is kept, or it has not been read yet"
    )
    if cost.at_run_time_usd is not None:
        parts.append(f"{cost.at_run_time_usd:.2f} USD for its declared run time")
    if cost.lost_usd:
        parts.append(f"its eviction would lose {cost.lost_usd:.2f} USD of work, {age(it.at_s - cost.lost_since_s)}")
    return "; ".join(parts)


def read_words(it: GangExplanation) -> str:
    """Says how old what a gang has cost is, where it has been on machines since; else nothing."""
    until_s = it.cost.so_far_until_s
    behind = until_s and (it.cost.usd_h or it.since_s > until_s) and it.at_s - until_s >= 1.0
    return f" (the ledger is of {age(it.at_s - until_s)} ago)" if behind else ""


def instant(at_s: float) -> str:
    """Returns an instant as people read it, in UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def imagined_lines(question: Otherwise, found: WhatIfDecision) -> Iterator[str]:
    """Yields what the next decision would be if the gang were as the question has it."""
    why = f", {found.reason}: {found.message}" if found.message else ""  # what is admitted at once needs no reason
    yield f"  with {question.words}: {found.state}{why}"
    if found.evicted:
        yield f"    would make leave: {', '.join(found.evicted)}"


GANGS_MOST = 3
"""Gangs of one name that an answer tells of."""


def told_of(
    name: str,
    question: Otherwise,
    fleet: Fleet,
    snapshot: Snapshot,
    explain: Callable[[Fleet, Snapshot, Gang], GangExplanation],
) -> Iterator[str]:
    """All there is to say of the gangs of a name, in the fleet in force."""
    gangs = find(snapshot, name)
    if not gangs:
        yield f"no workload {name!r}"
    for gang in gangs[:GANGS_MOST]:
        yield from explanation_lines(explain(fleet, snapshot, gang))
        if question:
            found = otherwise(
                fleet, snapshot, gang, priority_class=question.priority, queue=question.queue, gpus=question.gpus
            )
            yield from imagined_lines(question, found)
