"""Whether those who have to agree to a revision did: approvals of its plan, and owners of what it changes.

An approval is of a plan. It holds for another one that declares the same and whose consequences are the same or milder
(Atlantis and GitHub drop approvals when a commit is pushed; here the world may make a plan worse without any push).
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from fleet.plan.owners import unowned
from fleet.plan.plan import Plan
from model.fleet import Fleet
from model.kinds.approval import ApprovalTolerance, OwnerRule
from model.plain_text import counted

NAMED_MOST = 20
"""Stopped gangs that an approved plan is remembered with by name; of more, only the number counts."""


@dataclass(frozen=True, slots=True)
class PlanExtent:
    """What somebody who approves a plan agrees to."""

    plan_id: str
    declared: str
    """A digest of the changes of declarations."""
    nodes_added: int = 0
    nodes_removed: int = 0
    nodes_replaced: int = 0
    usd_h_added: float = 0.0
    usd_h_exposed: float = 0.0
    """By how much limits let more be spent."""
    gangs_stopped: int = 0
    stopped: tuple[str, ...] = ()
    """The first of them by name."""
    observed: bool = True
    """Whether the plan looked at the cluster."""


@dataclass(frozen=True, slots=True)
class GivenApproval:
    """Somebody who may approve and did."""

    user: str
    teams: frozenset[str] = frozenset()
    """Of the teams that owner rules name, those that the user is a member of."""
    author: bool = False
    """Whether it is who opened the pull request."""
    extent: PlanExtent | None = None
    """The plan that was shown then; None where that is not known."""


@dataclass(frozen=True, slots=True)
class ApprovedPlan:
    """An approval as it is remembered, since a forge does not know which plan somebody saw."""

    request: int
    """The pull request's number."""
    head: str
    """The commit that it was of."""
    user: str
    at_s: float
    """When it was given (epoch)."""
    extent: PlanExtent | None = None
    """As in GivenApproval."""
    commanded: bool = False
    """Given by the comment `/muster approve`, and not as a review of the forge."""


APPROVALS_MOST = 50
"""Approvals that are remembered: the newest."""


def with_approvals(
    known: Sequence[ApprovedPlan], new: Sequence[ApprovedPlan], request: int, head: str
) -> tuple[ApprovedPlan, ...]:
    """Returns what is remembered once the forge has told which approvals of a request's head there are now.

    `new` has each with the plan that is shown now. One that is known keeps the plan that was shown when it was given;
    a review that the forge does not tell of any more is withdrawn. Whoever approves again approves what is shown now.
    """
    mine = {it.user: it for it in known if (it.request, it.head) == (request, head)}
    kept = {user: it for user, it in mine.items() if it.commanded}
    for it in sorted(new, key=lambda it: it.at_s):
        before = kept.get(it.user, mine.get(it.user))
        if before is None or it.commanded:  # a command is heard once, whatever the second that it came in
            kept[it.user] = replace(it, at_s=max(it.at_s, before.at_s)) if before is not None else it
        else:
            kept[it.user] = it if it.at_s > before.at_s else before
    others = (it for it in known if (it.request, it.head) != (request, head))
    return tuple(sorted((*others, *kept.values()), key=lambda it: (it.at_s, it.request, it.user)))[-APPROVALS_MOST:]


class ApprovalState(StrEnum):
    """How a revision and those who have to agree to it stand."""

    NOT_ASKED = "NotAsked"
    GIVEN = "Given"
    MISSING = "Missing"
    STALE = "Stale"
    """It was approved, and the plan is worse now."""


class ApprovalVerdict(NamedTuple):
    """Whether a revision may come into force as far as people have to agree."""

    state: ApprovalState
    sentence: str = ""
    by: tuple[str, ...] = ()
    """Whose approvals count."""

    @property
    def holds_back(self) -> bool:
        """Returns whether the revision has to wait."""
        return self.state in (ApprovalState.MISSING, ApprovalState.STALE)


def asks_for_approval(fleet: Fleet, least: int = 0) -> bool:
    """Returns whether anybody has to agree to the next revision, by the policy in force or by `least` approvals."""
    spec = fleet.policy.spec
    return least > 0 or spec.approvals.required > 0 or bool(spec.owners)


def needs_a_forge(fleet: Fleet) -> bool:
    """Returns whether nothing could ever be approved without a forge that is asked."""
    spec = fleet.policy.spec
    return spec.approvals.required > 0 or any(not rule.signers for rule in spec.owners)


def teams_asked_for(fleet: Fleet) -> tuple[str, ...]:
    """Returns the teams of the forge that owner rules name, by name."""
    return tuple(sorted({team for rule in fleet.policy.spec.owners for team in rule.teams}))


def extent_of(plan: Plan) -> PlanExtent:
    """Returns what there is to agree to in a plan."""
    told = [(it.address, it.verb, [(f.path, f.before, f.after) for f in it.fields], it.after) for it in plan.declared]
    digest = hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    if plan.tally is None:
        return PlanExtent(plan.plan_id, digest, observed=False)
    stopped = sorted(gang.name for gang in plan.gangs if gang.stopped)
    replaced = sum(change.verb == "replace" for change in plan.machines)
    return PlanExtent(
        plan.plan_id, digest, plan.tally.nodes_added, plan.tally.nodes_removed, replaced, plan.tally.usd_h_added,
        plan.tally.usd_h_exposed, len(stopped), tuple(stopped[:NAMED_MOST]),
    )  # fmt: skip


def worse_than(approved: PlanExtent, now: PlanExtent, tolerance: ApprovalTolerance) -> tuple[str, ...]:
    """Returns in which ways a plan is worse than one that was approved; empty = the same, or milder."""
    if now.plan_id == approved.plan_id:
        return ()
    if now.declared != approved.declared:
        return ("it declares something else",)
    if not (now.observed and approved.observed):
        return ("it was approved without a look at the cluster",)
    return tuple(_worse(approved, now, tolerance))


def _worse(approved: PlanExtent, now: PlanExtent, tolerance: ApprovalTolerance) -> Iterator[str]:
    counts = (
        ("adds", now.nodes_added, approved.nodes_added),
        ("removes", now.nodes_removed, approved.nodes_removed),
        ("replaces", now.nodes_replaced, approved.nodes_replaced),
    )
    for verb, count, before in counts:
        if count > before + tolerance.nodes:
            yield f"it {verb} {counted(count, 'machine')} instead of {before}"
    for verb, usd_h, before_usd_h in (
        ("adds", now.usd_h_added, approved.usd_h_added),
        ("lets", now.usd_h_exposed, approved.usd_h_exposed),
    ):
        if usd_h > before_usd_h + tolerance.usd_per_hour:
            words = "" if verb == "adds" else " more be spent"
            yield f"it {verb} {usd_h:.2f} USD/h{words} instead of {before_usd_h:.2f}"
    others = _others_stopped(approved, now)
    if others > tolerance.gangs:
        yield f"it stops {counted(others, 'gang')} that the approved plan did not name"


def _others_stopped(approved: PlanExtent, now: PlanExtent) -> int:
    """Returns how many gangs are stopped that were not approved: at least so many where not all names are known."""
    unnamed = len(set(now.stopped) - set(approved.stopped)) if approved.gangs_stopped <= NAMED_MOST else 0
    return max(unnamed, now.gangs_stopped - approved.gangs_stopped)


def judge_approvals(
    before: Fleet, after: Fleet, plan: Plan, given: Sequence[GivenApproval], signer: str = "", *, least: int = 0
) -> ApprovalVerdict:
    """Returns whether those agree to a revision who have to, by the policy in force *before* it.

    `signer` is who signed the commit, by a signature that was verified; empty = nobody. `least` approvals are needed
    whatever the policy asks for. To a revision that says what is in force, file by file, nobody has to agree: somebody
    has reverted what was not approved, or written to another file.
    """
    says_nothing_new = not plan.declared and before.files == after.files and not least
    if (says_nothing_new or not asks_for_approval(before, least)) and not plan.denials:
        return ApprovalVerdict(ApprovalState.NOT_ASKED)
    tolerance = before.policy.spec.approvals.tolerance
    required = max(least, before.policy.spec.approvals.required)
    now = extent_of(plan)
    worse = {it.user: _worse_for(it, now, tolerance) for it in given}
    fresh = [it for it in given if not worse[it.user]]
    by = tuple(sorted({it.user for it in fresh}))
    if not (missing := _missing(required, before, after, plan, fresh, signer)):
        return ApprovalVerdict(ApprovalState.GIVEN, f"approved by {', '.join(by)}" if by else "", by)
    if len(fresh) < len(given) and not _missing(required, before, after, plan, given, signer):
        changed = "; ".join(dict.fromkeys(words for it in given for words in worse[it.user]))
        return ApprovalVerdict(ApprovalState.STALE, f"it is not the plan that was approved any more: {changed}", by)
    return ApprovalVerdict(ApprovalState.MISSING, "; ".join(missing), by)


def _worse_for(given: GivenApproval, now: PlanExtent, tolerance: ApprovalTolerance) -> tuple[str, ...]:
    if given.extent is None:
        return (f"{given.user} approved before any plan of it was shown",)
    return worse_than(given.extent, now, tolerance)


def _missing(
    required: int, before: Fleet, after: Fleet, plan: Plan, given: Sequence[GivenApproval], signer: str
) -> tuple[str, ...]:
    """Returns who has yet to agree, in sentences."""
    agreed = _rules_agreed(before, given, signer)
    return (*_too_few(required, given), *unowned(before, after, plan, agreed), *_denied(plan, agreed))


def _too_few(required: int, given: Sequence[GivenApproval]) -> Iterator[str]:
    others = {it.user for it in given if not it.author}
    if len(others) < required:
        yield f"{len(others)} of {counted(required, 'approval')} by others than its author"


def _denied(plan: Plan, agreed: Sequence[OwnerRule]) -> Iterator[str]:
    """Yields the checks that deny the revision, and that none of the owners agrees to who may."""
    names = {rule.name for rule in agreed}
    for denial in plan.denials:
        if names.isdisjoint(denial.overrides):
            yield f"{denial.message}: an owner of {' or '.join(denial.overrides)} may agree to it"


def _rules_agreed(before: Fleet, given: Sequence[GivenApproval], signer: str) -> tuple[OwnerRule, ...]:
    """Returns the owner rules of whose people somebody agrees."""
    return tuple(rule for rule in before.policy.spec.owners if _agrees(rule, given, signer))


def _agrees(rule: OwnerRule, given: Sequence[GivenApproval], signer: str) -> bool:
    if signer and signer in rule.signers:
        return True
    users = {user.casefold() for user in rule.users}  # forges tell names apart without regard to case
    return any(it.user.casefold() in users or not it.teams.isdisjoint(rule.teams) for it in given)
