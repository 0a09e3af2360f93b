"""Sentences with numbers: what was asked, what is free, who holds the rest, what would change it."""

from collections.abc import Sequence

from fleet.admission.preempt import Victim
from fleet.admission.share import owner
from fleet.admission.tree import Cohort, FlavorResource, QuotaTree, Usage
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Gang
from model.quantity import format_amount


def amount_of(cell: FlavorResource, amount: int) -> str:
    """`8 nvidia.com/gpu of h100`."""
    return f"{format_amount(cell.resource, amount)} {cell.resource} of {cell.flavor}"


def max_quota_exceeded(cell: FlavorResource, amount: int, most: int) -> Refusal:
    """It can never run as it is."""
    return Refusal(
        Reason.EXCEEDS_MAX_QUOTA,
        f"asks {amount_of(cell, amount)}, but its queue could get at most {format_amount(cell.resource, most)} "
        "with everybody else idle; raise the quota or the borrowing limit, or ask less",
    )


def quota_missing(tree: QuotaTree, gang: Gang, usage: Usage) -> Refusal:
    """How much is missing, who borrows it, and what the own team still has coming."""
    cell, amount = next((c, a) for c, a in sorted(usage.items()) if a > tree.available(gang.queue, c))
    free = tree.available(gang.queue, cell)
    team = owner(tree.queues[gang.queue])
    missing, asked, left = (format_amount(cell.resource, value) for value in (amount - free, amount, free))
    sentence = [f"needs {missing} more {cell.resource} of {cell.flavor}: asks {asked}, {left} available"]
    if borrowers := _borrowers(team, cell):
        sentence.append("; ".join(f"{name} borrows {format_amount(cell.resource, much)}" for name, much in borrowers))
    unused = team.unused(cell)
    sentence.append(
        f"{team.name} is {format_amount(cell.resource, unused)} below its guarantee"
        if unused > 0
        else f"{team.name} uses its whole guarantee and would borrow"
    )
    return Refusal(Reason.WAITING_FOR_QUOTA, "; ".join(sentence))


def _borrowers(team: Cohort, cell: FlavorResource) -> list[tuple[str, int]]:
    found = []
    stack = [team.root]
    while stack:
        node = stack.pop()
        stack += node.children
        if node is not team and node.parent is not None and not node.is_queue and node.unused(cell) < 0:
            found.append((node.name, -node.unused(cell)))
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))[:3]


def waiting_for(leaving: Sequence[Gang], chosen: Sequence[Victim]) -> Refusal:
    """It will run when these are gone."""
    names = sorted({victim.gang.name for victim in chosen} | {held.name for held in leaving})
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return Refusal(Reason.WAITING_FOR_PREEMPTED, f"waits until {shown} {'have' if len(names) > 1 else 'has'} left")
