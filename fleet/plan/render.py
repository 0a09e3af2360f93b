"""A plan for people (Terraform's symbols and closing line) and for machines (Terraform's plan JSON shape)."""

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from fleet.actions import PurchaseTally
from fleet.plan.changes import SYMBOLS, PlannedChange
from fleet.plan.forecast import GangImpact
from model.plain_text import plain_lines

if TYPE_CHECKING:
    from fleet.plan import Plan

FORMAT_VERSION = "1.0"
_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "create": ("create",),
    "update": ("update",),
    "delete": ("delete",),
    "replace": ("delete", "create"),
}


def to_text(plan: "Plan") -> str:
    """Returns the plan as lines marked `+ ~ - -/+`, machines with their prices, stopped gangs, and the closing line."""
    return plain_lines(_lines(plan))


def _lines(plan: "Plan") -> Iterator[str]:
    if plan.empty:
        yield "No changes. The fleet is as declared."
    for change in plan.declared:
        yield from _declared(change)
    yield from _listed("Machines:", (f"{_marked(change)}  {_machine(change)}" for change in plan.machines))
    if plan.purchase:
        yield _purchase(plan.purchase)
    yield from _listed("Gangs stopped and requeued:", (f"  ! {_gang(gang)}" for gang in plan.gangs))
    yield ""
    yield summary(plan)
    yield f"GPUs: {plan.now.gpus} -> {plan.then.gpus}. USD/h: {plan.now.usd_h:.2f} -> {plan.then.usd_h:.2f}."
    yield from _listed("Declared without effect:", (f"  ? {warning}" for warning in plan.warnings))
    refused = (f"  x {refusal}" for refusal in plan.refusals)
    yield from _listed("Refused by the guard rails; the last good revision stays in force:", refused)


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields an empty line, a title and its lines; nothing where there are no lines."""
    found = tuple(lines)
    yield from ("", title, *found) if found else ()


def _declared(change: PlannedChange) -> Iterator[str]:
    yield _marked(change)
    for field in change.fields:
        yield f"      ~ {field.path}: {_value(field.before)} -> {_value(field.after)}"


def _marked(change: PlannedChange) -> str:
    return f"{SYMBOLS[change.verb]:>3} {change.address}"


def _gang(gang: GangImpact) -> str:
    held = ", ".join(f"{amount} {name}" for name, amount in gang.resources.items()) or "no GPU"
    return f"{gang.name} (queue {gang.queue}, {held}): {gang.reason}"


def summary(plan: "Plan") -> str:
    """Returns Terraform's closing line, over declarations and machines."""
    counts = plan.counts()
    return f"Plan: {counts['create']} to add, {counts['update']} to change, {counts['delete']} to destroy."


def _machine(change: PlannedChange) -> str:
    facts = change.after or change.before or {}
    return (
        f"{facts['instanceType']} {facts['capacityType']} {facts['zone']} "
        f"{facts['usdPerHour']:.2f} USD/h  ({change.reason})"
    )


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
        "cost": {"usd_per_hour_before": plan.now.usd_h, "usd_per_hour_after": plan.then.usd_h},
        "purchase": _tally(plan.purchase),
        "gpus": {"before": plan.now.gpus, "after": plan.then.gpus},
        "disruption": [
            {
                "gang": gang.name,
                "queue": gang.queue,
                "gpus": gang.gpus,
                "resources": dict(gang.resources),
                "reason": gang.reason,
            }
            for gang in plan.gangs
        ],
        "refusals": list(plan.refusals),
        "warnings": list(plan.warnings),
    }


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
    }
