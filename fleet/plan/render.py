"""A plan for people (Terraform's symbols and closing line) and for machines (Terraform's plan JSON shape)."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from fleet.actions import PurchaseTally
from fleet.plan.changes import SYMBOLS, PlannedChange, When
from fleet.plan.consequences import GangImpact
from model.plain_text import plain_lines

if TYPE_CHECKING:
    from fleet.plan import Plan

FORMAT_VERSION = "1.1"
HOURS_A_MONTH = 730
"""As clouds count them."""
_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "create": ("create",),
    "update": ("update",),
    "delete": ("delete",),
    "replace": ("delete", "create"),
    "keep": ("no-op",),
}


def to_text(plan: "Plan") -> str:
    """Returns the plan as lines marked `+ ~ - -/+`, machines with their prices, stopped gangs, and the closing line."""
    return plain_lines(_lines(plan))


def _lines(plan: "Plan") -> Iterator[str]:
    yield from _head(plan)
    if plan.empty:
        yield "No changes. The fleet is as declared."
    for change in plan.declared:
        yield from _declared(change)
    yield from _listed("Machines:", (f"{_marked(change)}  {_machine(change)}" for change in plan.machines))
    if plan.purchase:
        yield _purchase(plan.purchase)
    yield from _listed("Gangs:", (f"! {_gang(gang)}" for gang in plan.gangs))
    yield from _listed("Without this change as well:", _without(plan))
    yield ""
    yield summary(plan)
    yield from _bill(plan)
    yield from _listed("Declared without effect:", (f"  ? {warning}" for warning in plan.warnings))
    refused = (f"  x {refusal}" for refusal in plan.refusals)
    yield from _listed("Refused by the guard rails; the last good revision stays in force:", refused)


def _head(plan: "Plan") -> Iterator[str]:
    yield f"# {plan.base_revision or 'nothing'} -> {plan.head_revision or 'the fleet given'}"
    observed = datetime.fromtimestamp(plan.observed_at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    world = f"prices of {plan.region}: {plan.price_source}" if plan.region else "without a world"
    yield f"# plan {plan.plan_id[:12]}, observed {observed}, {world}"
    yield ""


def _without(plan: "Plan") -> Iterator[str]:
    for change in plan.without.machines:
        yield f"  {SYMBOLS[change.verb]} {change.address}  {_machine(change)}"
    for gang in plan.without.gangs:
        yield f"  ! {_gang(gang)}"


def _bill(plan: "Plan") -> Iterator[str]:
    now, without, then = plan.now, plan.without.bill, plan.then
    if now is None or without is None or then is None:
        yield "Machines, gangs and costs are not known without the world: needs --world."
        return
    yield f"GPUs: {now.gpus} -> {then.gpus}. USD/h: {now.usd_h:.2f} -> {then.usd_h:.2f}."
    caused_usd_h = then.usd_h - without.usd_h
    yield f"This change: {caused_usd_h:+.2f} USD/h, {caused_usd_h * HOURS_A_MONTH:+,.0f} USD a month."


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields an empty line, a title and its lines; nothing where there are no lines."""
    found = tuple(lines)
    yield from ("", title, *found) if found else ()


def _declared(change: PlannedChange) -> Iterator[str]:
    yield _marked(change)
    for field in change.fields:
        yield f"    {field.path}: {_value(field.before)} -> {_value(field.after)}"


def _marked(change: PlannedChange) -> str:
    return f"{SYMBOLS[change.verb]} {change.address}"


def _gang(gang: GangImpact) -> str:
    held = ", ".join(f"{amount} {name}" for name, amount in gang.resources.items()) or "no GPU"
    lost = f"; loses work worth {gang.lost_usd:.2f} USD" if gang.lost_usd else ""
    when = f" ({gang.when})" if not gang.when.held else ""
    return f"{gang.name} (queue {gang.queue}, {held}): {gang.reason}{when}{lost}"


def summary(plan: "Plan") -> str:
    """Returns Terraform's closing line, over declarations and machines."""
    counts = plan.counts()
    held = sum(1 for change in plan.machines if change.when.held)
    more = f" {held} held." if held else ""
    return f"Plan: {counts['create']} to add, {counts['update']} to change, {counts['delete']} to destroy.{more}"


def _machine(change: PlannedChange) -> str:
    """Returns what the machine is, what it becomes where that is something else, and why and when."""
    old, new = change.before, change.after
    told = " -> ".join(dict.fromkeys(_facts(it) for it in (old, new) if it))
    return f"{told}  ({change.reason}; {change.when})"


def _facts(facts: Mapping[str, Any]) -> str:
    cut = f" cut to {facts['layout']}" if facts.get("layout") else ""
    place = f"{facts['instanceType']} {facts['capacityType']} {facts['zone']}"
    return f"{place}{cut} {facts['usdPerHour']:.2f} USD/h"


def _purchase(tally: PurchaseTally) -> str:
    return (
        f"For waiting gangs {tally.cost_usd_h:.2f} USD/h are spent; no machines for the same pods cost less than "
        f"{tally.bound_usd_h:.2f} (gap {100 * tally.gap:.1f} %)."
    )


def _value(value: Any) -> str:
    return "(unset)" if value is None else str(value)


def to_json(plan: "Plan") -> dict[str, Any]:
    """Returns the plan in the shape of Terraform's plan JSON, with cost, GPUs, gangs and refusals beside it."""
    return {
        "format_version": FORMAT_VERSION,
        "plan_id": plan.plan_id,
        "base_revision": plan.base_revision,
        "head_revision": plan.head_revision,
        "observed_at_s": plan.observed_at_s,
        "applyable": not plan.refusals,
        "resource_changes": [_change(change) for change in (*plan.declared, *plan.machines)],
        "summary": plan.counts(),
        "region": plan.region or None,
        "price_source": plan.price_source or None,
        "cost": _cost(plan),
        "purchase": _tally(plan.purchase),
        "gpus": {"before": plan.now.gpus, "after": plan.then.gpus} if plan.now and plan.then else None,
        "disruption": [_gang_json(gang) for gang in plan.gangs],
        "without_this_change": {
            "resource_changes": [_change(change) for change in plan.without.machines],
            "disruption": [_gang_json(gang) for gang in plan.without.gangs],
        },
        "refusals": list(plan.refusals),
        "warnings": list(plan.warnings),
    }


def _cost(plan: "Plan") -> dict[str, float] | None:
    """Returns the bill before, after, and after the same time without the revision; None without a world."""
    now, without, then = plan.now, plan.without.bill, plan.then
    if now is None or without is None or then is None:
        return None
    return {
        "usd_per_hour_before": now.usd_h,
        "usd_per_hour_after": then.usd_h,
        "usd_per_hour_without": without.usd_h,
    }


def _gang_json(gang: GangImpact) -> dict[str, Any]:
    return {
        "gang": gang.name,
        "queue": gang.queue,
        "gpus": gang.gpus,
        "resources": dict(gang.resources),
        "reason": gang.reason,
        "stopped": gang.stopped,
        "lost_usd": gang.lost_usd,
        "when": _when(gang.when),
    }


def _when(when: When) -> dict[str, Any]:
    return {"after_s": None, "held_by": when.held} if when.held else {"after_s": when.after_s, "held_by": None}


def _tally(tally: PurchaseTally | None) -> dict[str, float | None] | None:
    if tally is None:
        return None
    return {
        "usd_per_hour": tally.cost_usd_h,
        "bound_usd_per_hour": tally.bound_usd_h,
        "one_kind_usd_per_hour": tally.one_kind_usd_h,
        "karpenter_usd_per_hour": tally.karpenter_usd_h if isfinite(tally.karpenter_usd_h) else None,
    }


def _change(change: PlannedChange) -> dict[str, Any]:
    return {
        "address": change.address,
        "type": change.address.partition("/")[0],
        "change": {
            "actions": list(_ACTIONS[change.verb]),
            "before": change.before,
            "after": change.after,
            "paths": [field.path for field in change.fields],
        },
        "action_reason": change.reason,
        "when": _when(change.when),
    }
