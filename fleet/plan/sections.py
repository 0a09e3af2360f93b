"""What a plan tells people, decided once: facts on top, sections of signed lines, totals, and why it may not.

The outlets (text, markdown) differ in form only. Nothing is escaped here: that is the outlet's last step.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fleet.actions import PurchaseTally
from fleet.cost.indicators import HOURS_A_MONTH
from fleet.mig.layouts import TAKES_OVER
from fleet.plan.changes import SYMBOLS, PlannedChange
from fleet.plan.consequences import CUT_ANEW, GangImpact, HourlyBill
from fleet.plan.plan import Plan
from model.plain_text import counted, instant, number_of
from model.quantity import format_amount


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One line: `sign` stands in the first column and says what kind of change it tells, `text` is not escaped yet."""

    sign: str
    text: str
    detail: bool = False
    """Whether it belongs to the change of the line before, and is no change of its own."""

    def __str__(self) -> str:
        return f"{self.sign} {self.text}"


@dataclass(frozen=True, slots=True)
class PlanSection:
    """Lines of one subject below a title; an outlet may fold or cut them."""

    title: str
    lines: tuple[PlanLine, ...]

    @property
    def count(self) -> int:
        """Returns how many changes it tells of."""
        return sum(not line.detail for line in self.lines)


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """A plan as every outlet shows it, from top to bottom; only `sections` may be shortened."""

    facts: tuple[tuple[str, str], ...]
    """What was planned, when and by which prices: name and value."""
    notes: tuple[str, ...]
    """Sentences that hold for the plan as a whole."""
    sections: tuple[PlanSection, ...]
    """Those that have lines."""
    totals: tuple[str, ...]
    """The counts and the bill."""
    refusals: tuple[str, ...]


REFUSED: Final = "Refused by the guard rails; the last good revision stays in force"
"""The title of the refusals."""


def document(plan: Plan) -> PlanDocument:
    """Returns what is told of a plan."""
    told = (PlanSection(title, tuple(lines(plan))) for title, lines in _SECTIONS.items())
    notes = [plan.held] if plan.held else []
    notes += ["No changes. The fleet is as declared."] if plan.empty else []
    return PlanDocument(
        tuple(_facts(plan)), tuple(notes), tuple(it for it in told if it.lines), tuple(_totals(plan)), plan.refusals
    )


def summary(plan: Plan) -> str:
    """Returns Terraform's closing line, over declarations and machines."""
    counts = plan.counts()
    held = sum(1 for change in plan.machines if change.when.held)
    more = f" {held} held." if held else ""
    return f"Plan: {counts['create']} to add, {counts['update']} to change, {counts['delete']} to destroy.{more}"


def _facts(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "base", plan.base_revision or "nothing"
    yield "head", plan.head_revision or "the fleet given"
    yield "plan", plan.plan_id[:12]
    yield "made" if plan.now is None else "observed", instant(plan.observed_at_s)
    yield "region", plan.region or "not known without a world"
    yield "prices", plan.price_source or "not known without a world"


# -- sections: a function each ----------------------------------------------------------------------------------------


def _declared(plan: Plan) -> Iterator[PlanLine]:
    for change in plan.declared:
        sign = SYMBOLS[change.verb]
        yield PlanLine(sign, change.address)
        for field in change.fields:
            told = f"  {field.path}: {_value(field.before)} -> {_value(field.after)}"
            yield PlanLine(sign, told, detail=True)


def _value(value: Any) -> str:
    """Returns a field's value as it may be written in a repository: JSON is YAML."""
    if value is None:
        return "(unset)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _machines(plan: Plan) -> Iterator[PlanLine]:
    return map(_machine, plan.machines)


def _machine(change: PlannedChange) -> PlanLine:
    """Returns what the machine is, what it becomes where that is something else, and why and when."""
    told = " -> ".join(dict.fromkeys(_words(it) for it in (change.before, change.after) if it))
    return PlanLine(SYMBOLS[change.verb], f"{change.address}  {told}  ({change.reason}; {change.when})")


def _words(facts: Mapping[str, Any]) -> str:
    cut = f" cut to {facts['layout']}" if facts.get("layout") else ""
    place = f"{facts['instanceType']} {facts['capacityType']} {facts['zone']}"
    return f"{place}{cut} {facts['usdPerHour']:.2f} USD/h"


def _rollout(plan: Plan) -> Iterator[PlanLine]:
    if len(plan.rollout) > 1:
        yield PlanLine("~", f"node pool {plan.rollout[0]} first, then {', then '.join(plan.rollout[1:])}")
    cut = [it for it in plan.machines if it.verb == "update" and it.reason.startswith(CUT_ANEW)]
    moved = [it for it in plan.gangs if it.stopped and TAKES_OVER in it.reason]
    if cut:
        last = max((it.when for it in cut), key=lambda it: it.after_s)
        lost = f", {counted(len(moved), 'gang')} {number_of(len(moved), 'moves', 'move')}" if moved else ""
        lost += f", at most {sum(it.lost_usd for it in moved):.2f} USD of lost work" if moved else ""
        yield PlanLine("~", f"{counted(len(cut), 'machine')} re-cut{lost}, the last one {last}")


def _gangs(plan: Plan) -> Iterator[PlanLine]:
    return map(_gang, plan.gangs)


def _gang(gang: GangImpact) -> PlanLine:
    held = ", ".join(f"{amount} {name}" for name, amount in gang.resources.items()) or "no GPU"
    lost = f"; loses work worth {gang.lost_usd:.2f} USD" if gang.lost_usd else ""
    when = f" ({gang.when})" if not gang.when.held else ""
    return PlanLine("!", f"{gang.name} (queue {gang.queue}, {held}): {gang.reason}{when}{lost}")


def _without(plan: Plan) -> Iterator[PlanLine]:
    yield from map(_machine, plan.without.machines)
    yield from map(_gang, plan.without.gangs)


def _quotas(plan: Plan) -> Iterator[PlanLine]:
    for change in plan.allowed.quotas:
        before, after = (_amount(change.resource, it) for it in (change.before, change.after))
        sign = SYMBOLS["create" if change.before is None else "delete" if change.after is None else "update"]
        yield PlanLine(sign, f"{change.address}  {change.flavor} {change.resource}: {before} -> {after}")
    for it in plan.allowed.overcommitted:
        given, most = (_amount(it.resource, amount) for amount in (it.guaranteed, it.most))
        told = f"{', '.join(it.flavors)}  {given} of {it.resource} are guaranteed in all; the limits hold {most}"
        yield PlanLine("!", told)


def _amount(resource: str, amount: int | None) -> str:
    return "none" if amount is None else format_amount(resource, amount)


def _warnings(plan: Plan) -> Iterator[PlanLine]:
    return (PlanLine("?", warning) for warning in plan.warnings)


_SECTIONS: Final[Mapping[str, Callable[[Plan], Iterable[PlanLine]]]] = {
    "Declarations": _declared,
    "Machines": _machines,
    "Roll-out": _rollout,
    "Gangs": _gangs,
    "Quotas": _quotas,
    "Without this change as well": _without,
    "Warnings": _warnings,
}
"""Title -> its lines, in the order in which they are told; one without lines is left out."""
WHAT_IT_DOES: Final = ("Gangs", "Quotas", "Without this change as well", "Warnings")
"""Titles that a reviewer reads first: what the change does to others. What is declared stands in the diff as well."""


# -- totals -----------------------------------------------------------------------------------------------------------


def _totals(plan: Plan) -> Iterator[str]:
    yield summary(plan)
    yield from _bill(plan)
    yield from _fares_otherwise(plan)
    yield from _exposure(plan)


def _bill(plan: Plan) -> Iterator[str]:
    now, without, then = plan.now, plan.without.bill, plan.then
    if now is None or without is None or then is None:
        yield "Machines, gangs and costs are not known without a look at the cluster (muster plan --world)."
        return
    yield f"GPUs: {_gpus(now, then)}."
    yield (
        f"USD/h: {now.usd_h:.2f} -> {then.usd_h:.2f}. "
        f"USD a month: {now.usd_h * HOURS_A_MONTH:,.0f} -> {then.usd_h * HOURS_A_MONTH:,.0f}."
    )
    caused_usd_h = then.usd_h - without.usd_h
    yield f"This change: {caused_usd_h:+.2f} USD/h, {caused_usd_h * HOURS_A_MONTH:+,.0f} USD a month."
    if plan.peak and plan.peak.usd_h > max(now.usd_h, then.usd_h):
        machines = counted(plan.peak.nodes, "machine")
        yield f"Highest on the way: {machines}, {plan.peak.usd_h:.2f} USD/h ({plan.peak.when})."
    if plan.purchase:
        yield _purchase(plan.purchase)


def _fares_otherwise(plan: Plan) -> Iterator[str]:
    """Counts the gangs that are stopped, and those that wait and start earlier, later or not at all."""
    stopped = [it for it in plan.gangs if it.stopped]
    waiting = len(plan.gangs) - len(stopped)
    lost_usd = sum(it.lost_usd for it in stopped)
    lost = f", with the loss of work worth {lost_usd:.2f} USD" if lost_usd else ""
    if stopped:
        yield f"{counted(len(stopped), 'gang')} {number_of(len(stopped), 'is', 'are')} stopped{lost}."
    if waiting:
        yield f"The start of {counted(waiting, 'waiting gang')} changes."


def _exposure(plan: Plan) -> Iterator[str]:
    before, after = plan.allowed.exposed_before, plan.allowed.exposed_after
    if before is None or after is None:
        yield "What the limits allow at most is not known: no prices of the region are."
        return
    month = f"{after.usd_h * HOURS_A_MONTH:,.0f} USD a month"
    yield f"Limits allow at most: {before.usd_h:,.2f} -> {after.usd_h:,.2f} USD/h, {month}."
    if after.unbounded:
        yield f"Not bounded by any limit: node pools {', '.join(after.unbounded)}."


def _gpus(now: HourlyBill, then: HourlyBill) -> str:
    """Returns the GPUs of each model before and after."""
    models = sorted(now.gpus.keys() | then.gpus.keys())
    return ", ".join(f"{now.gpus.get(name, 0)} -> {then.gpus.get(name, 0)} {name}" for name in models) or "none"


def _purchase(tally: PurchaseTally) -> str:
    return (
        f"For gangs, pods and CapacityBuffers {tally.cost_usd_h:.2f} USD/h are spent, "
        f"{tally.cost_usd_h * HOURS_A_MONTH:,.0f} USD a "
        f"month; no machines for the same pods cost less than {tally.bound_usd_h:.2f} USD/h "
        f"(gap {100 * tally.gap:.1f} %)."
    )
