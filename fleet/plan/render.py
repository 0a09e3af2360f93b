"""A plan for people (Terraform's symbols and closing line) and for machines (Terraform's plan JSON shape)."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final

from fleet.actions import PurchaseTally
from fleet.cost.indicators import HOURS_A_MONTH
from fleet.plan.changes import PlannedChange, When
from fleet.plan.consequences import GangImpact, PeakBill
from fleet.plan.plan import Plan
from fleet.plan.quotas import Overcommitment, QuotaChange
from fleet.plan.sections import REFUSED, WHAT_IT_DOES, PlanDocument, PlanSection, document
from model.plain_text import code_span, fenced, markdown, plain
from model.quantity import format_amount

FORMAT_VERSION = "2.0"
_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "create": ("create",),
    "update": ("update",),
    "delete": ("delete",),
    "replace": ("delete", "create"),
    "keep": ("no-op",),
}
_RESET: Final = "\x1b[0m"
_COLOURS: Final[Mapping[str, str]] = {
    "+": "\x1b[32m",
    "~": "\x1b[33m",
    "-": "\x1b[31m",
    "-/+": "\x1b[35m",
    "!": "\x1b[33m",
    "x": "\x1b[31m",
    "#": "\x1b[2m",
}
"""Sign -> how a terminal is told its colour; the others have none."""


# -- text -------------------------------------------------------------------------------------------------------------


def to_text(plan: Plan, *, colour: bool = False) -> str:
    """Returns the plan as lines whose first column says what they tell: `+ ~ - -/+ =`, `!` for gangs.

    Colours are put around lines that are escaped already: nothing that others wrote brings its own.
    """
    return "\n".join(_painted(line, colour=colour) for line in _lines(document(plan)))


def _painted(line: str, *, colour: bool) -> str:
    shown = plain(line)
    style = _COLOURS.get(line.partition(" ")[0], "") if colour else ""
    return f"{style}{shown}{_RESET}" if style else shown


def _lines(told: PlanDocument) -> Iterator[str]:
    yield from (f"# {name}: {value}" for name, value in told.facts)
    yield from _block("", told.notes)
    for section in told.sections:
        yield from _block(section.title, map(str, section.lines))
    yield from _block("", told.totals)
    yield from _block(REFUSED, (f"x {refusal}" for refusal in told.refusals))


def _block(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields an empty line, a title and its lines; nothing where there are no lines."""
    found = tuple(lines)
    yield from ("", *([f"{title}:"] if title else []), *found) if found else ()


# -- markdown ---------------------------------------------------------------------------------------------------------

MARKDOWN_MOST: Final = 65_000
"""Signs of a comment: GitHub takes 65,536."""
_LINE_MOST: Final = 1_000
_WIDTHS: Final = (2_000, 400, 80)
"""Signs of a fact or a refusal, the first with which all of them take no more than half."""
_REFUSALS_MOST: Final = 50
_OPEN_LINES: Final = 20
"""A section with more lines folds."""


def to_markdown(plan: Plan, *, most: int = MARKDOWN_MOST) -> str:
    """Returns the plan for a comment of a forge: what the text says, in at most `most` signs.

    Counts, bill and refusals stand on top and always stay; what happens to gangs and quotas follows. Sections are
    blocks marked `diff`; long ones fold, and where all together are too long the longest are cut at whole lines and say
    how many are left out.
    """
    told = document(plan)
    tops = (_top(told, width) for width in _WIDTHS)
    top = next((it for it in tops if len(it) <= most // 2), "") or _top(told, _WIDTHS[-1])
    ordered = sorted(told.sections, key=lambda it: it.title not in WHAT_IT_DOES)
    sections = [(it, [clipped(str(line), _LINE_MOST) for line in it.lines]) for it in ordered]
    rooms = _shared([len(_framed(it, lines, len(lines))) for it, lines in sections], most - len(top))
    return top + "".join(_fitted(it, lines, room) for (it, lines), room in zip(sections, rooms, strict=True))


def clipped(text: str, most: int) -> str:
    """Returns the text on one line, with no more than about so many signs of it."""
    shown = plain(text)
    return shown if len(shown) <= most else f"{shown[:most]}... ({len(shown) - most} more signs)"


def _top(told: PlanDocument, width: int) -> str:
    """Returns what always stays."""
    closing, *bill = (markdown(clipped(line, width)) for line in told.totals)
    refused = [f"- {markdown(clipped(refusal, width))}" for refusal in told.refusals[:_REFUSALS_MOST]]
    refused += [f"- and {more} more"] if (more := len(told.refusals) - _REFUSALS_MOST) > 0 else []
    facts = " · ".join(f"{name} {code_span(clipped(value, width))}" for name, value in told.facts)
    notes = [markdown(clipped(note, width)) for note in told.notes]
    blocks = [f"### {closing}", "\n".join(f"- {line}" for line in bill), *notes]
    blocks += [f"**{REFUSED}:**\n\n" + "\n".join(refused)] if refused else []
    return "\n\n".join([*filter(None, blocks), facts]) + "\n"


def _shared(needs: Sequence[int], room: int) -> list[int]:
    """Returns how much of the room each gets: what it needs, or an equal part of what the smaller ones leave."""
    rooms = [0] * len(needs)
    for taken, index in enumerate(sorted(range(len(needs)), key=lambda index: (needs[index], index))):
        rooms[index] = min(needs[index], room // (len(needs) - taken))
        room -= rooms[index]
    return rooms


def _fitted(section: PlanSection, lines: Sequence[str], room: int) -> str:
    """Returns the section with as many of its lines as there is room for."""
    if len(whole := _framed(section, lines, len(lines))) <= room:
        return whole
    cut = range(len(lines))  # where each more is longer
    most = bisect_right(cut, room, key=lambda count: len(_framed(section, lines, count))) - 1
    return _framed(section, lines, max(0, most))


def _framed(section: PlanSection, lines: Sequence[str], count: int) -> str:
    title = f"{section.title} ({section.count})"
    blocks = [fenced("\n".join(lines[:count]), "diff")] if count else []
    if count < len(lines):
        blocks.append(f"{len(lines) - count} more lines are left out here; `muster plan` with `--output text` has all.")
    body = "\n\n".join(blocks)
    if len(lines) <= _OPEN_LINES:
        return f"\n**{title}**\n\n{body}\n"
    return f"\n<details><summary>{title}</summary>\n\n{body}\n\n</details>\n"


# -- JSON -------------------------------------------------------------------------------------------------------------


def to_json(plan: Plan) -> dict[str, Any]:
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
        "peak": _peak(plan.peak),
        "exposure": _exposure_json(plan),
        "quotas": [_quota_json(change) for change in plan.allowed.quotas],
        "overcommitted": [_overcommitment_json(it) for it in plan.allowed.overcommitted],
        "purchase": _tally(plan.purchase),
        "gpus": _gpus(plan),
        "disruption": [_gang_json(gang) for gang in plan.gangs],
        "without_this_change": {
            "resource_changes": [_change(change) for change in plan.without.machines],
            "disruption": [_gang_json(gang) for gang in plan.without.gangs],
        },
        "held": plan.held or None,
        "refusals": list(plan.refusals),
        "denials": [{"check": it.check, "message": it.message, "overrides": list(it.overrides)} for it in plan.denials],
        "rollout": list(plan.rollout),
        "warnings": list(plan.warnings),
    }


def _cost(plan: Plan) -> dict[str, float] | None:
    """Returns the bill before, after, and after the same time without the revision; None without a world."""
    now, without, then = plan.now, plan.without.bill, plan.then
    if now is None or without is None or then is None:
        return None
    bills = {"before": now.usd_h, "after": then.usd_h, "without": without.usd_h}
    per_hour = {f"usd_per_hour_{name}": usd_h for name, usd_h in bills.items()}
    return per_hour | {f"usd_per_month_{name}": round(usd_h * HOURS_A_MONTH, 2) for name, usd_h in bills.items()}


def _peak(peak: PeakBill | None) -> dict[str, Any] | None:
    return None if peak is None else {"nodes": peak.nodes, "usd_per_hour": peak.usd_h, "when": _when(peak.when)}


def _gpus(plan: Plan) -> dict[str, dict[str, int]] | None:
    """Returns the GPUs of each model before and after, and of all; None without a world."""
    if plan.now is None or plan.then is None:
        return None
    before, after = dict(plan.now.gpus), dict(plan.then.gpus)
    return {"before": before, "after": after, "total": {"before": sum(before.values()), "after": sum(after.values())}}


def _exposure_json(plan: Plan) -> dict[str, Any] | None:
    """Returns what the limits allow to be spent before and after; None where no prices are known."""
    before, after = plan.allowed.exposed_before, plan.allowed.exposed_after
    if before is None or after is None:
        return None
    return {
        "usd_per_hour_before": before.usd_h,
        "usd_per_hour_after": after.usd_h,
        "usd_per_month_after": after.usd_h * HOURS_A_MONTH,
        "node_pools": {name: usd_h if isfinite(usd_h) else None for name, usd_h in after.by_pool.items()},
        "unbounded": list(after.unbounded),
    }


def _quota_json(change: QuotaChange) -> dict[str, Any]:
    before, after = (None if it is None else format_amount(change.resource, it) for it in (change.before, change.after))
    return {
        "address": change.address,
        "flavor": change.flavor,
        "resource": change.resource,
        "before": before,
        "after": after,
    }


def _overcommitment_json(it: Overcommitment) -> dict[str, Any]:
    guaranteed, most = (format_amount(it.resource, amount) for amount in (it.guaranteed, it.most))
    return {"flavors": list(it.flavors), "resource": it.resource, "guaranteed": guaranteed, "most": most}


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
    return {"after_s": None if when.held else when.after_s, "held_by": when.held or None, "until": when.until or None}


def _tally(tally: PurchaseTally | None) -> dict[str, float | None] | None:
    if tally is None:
        return None
    return {
        "usd_per_hour": tally.cost_usd_h,
        "bound_usd_per_hour": tally.bound_usd_h,
        "one_kind_usd_per_hour": tally.one_kind_usd_h,
        "karpenter_usd_per_hour": tally.karpenter_usd_h if isfinite(tally.karpenter_usd_h) else None,
        "beside_usd_per_hour": tally.beside_usd_h,
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
