"""Who approves a pull request, and which plan: the forge knows the first, what was shown then the agent alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from agent.inbox import ApprovalsSeen, Event, MergeSeen
from fleet.plan.approvals import ApprovedPlan, GivenApproval, PlanExtent, teams_asked_for, with_approvals
from model.fleet import Fleet
from providers.forge.port import Approval, Forge, ForgeError, ForgeUnreachable, Permission, PullRequest

log = structlog.get_logger(__name__)

SHOWN_MOST = 200
"""Requests whose last plan is remembered, also once they are merged."""


class Approver(NamedTuple):
    """Somebody who approves a request, as the forge tells it now."""

    user: str
    at_s: float
    commanded: bool = False
    """By a comment, and not as a review."""
    earlier: str = ""
    """The head that it was of, where that is another one by now: it counts while the plan is no worse."""


class _Shown(NamedTuple):
    """What was shown of a request last."""

    head: str
    extent: PlanExtent
    since_s: float
    """When a plan of this head was shown first."""


@dataclass(slots=True)
class Approvers:
    """Remembers which plan was shown when somebody approved. What is remembered stands in the FleetSync."""

    tell: Callable[[Event], None]
    known: tuple[ApprovedPlan, ...] = ()
    unknown_teams: dict[str, str] = field(default_factory=dict)
    """Team -> why the forge does not tell of its members. Nobody is one then: a slip of the pen locks nobody else out.
    """
    _shown: dict[int, _Shown] = field(default_factory=dict)
    _merge: MergeSeen | None = None
    """What was last told of by whose hands a revision came."""

    def shows(self, request: int, head: str, extent: PlanExtent, now_s: float) -> None:
        """Remember what is shown of a request from now on."""
        before = self._shown.pop(request, None)
        since_s = before.since_s if before is not None and before.head == head else now_s
        self._shown[request] = _Shown(head, extent, since_s)
        while len(self._shown) > SHOWN_MOST:
            del self._shown[next(iter(self._shown))]

    def shown(self, request: int, head: str) -> PlanExtent | None:
        """Returns the plan of this head that was shown last; None where that is not known any more."""
        shown = self._shown.get(request)
        return shown.extent if shown is not None and shown.head == head else None

    def reviews(self, forge: Forge, request: PullRequest) -> tuple[Approver, ...]:
        """Returns who approves a request by a review of the forge, by name, and may write in the repository now.

        A forge that does not say of which commit an approval is must have it from after the head was shown.
        """
        shown = self._shown.get(request.number)
        since_s = shown.since_s if shown is not None and shown.head == request.head else None
        told = (self._approver(request, it, since_s) for it in forge.approvals(request.number))
        found = (it for it in told if it is not None)
        return tuple(sorted(it for it in found if forge.permission(it.user) >= Permission.WRITE))

    def _approver(self, request: PullRequest, it: Approval, since_s: float | None) -> Approver | None:
        """Returns the approver of this head, or of an earlier one whose plan is known; None of neither."""
        if it.commit == request.head or (not it.commit and self._is_of(request, it.user, it.at_s, since_s)):
            return Approver(it.user, it.at_s)
        for known in reversed(self._earlier(request)):
            same = it.commit == known.head or (not it.commit and it.at_s <= known.at_s)
            if same and known.user == it.user and not known.commanded:
                return Approver(it.user, it.at_s, earlier=known.head)
        return None

    def _earlier(self, request: PullRequest) -> list[ApprovedPlan]:
        """Returns the approvals of heads that a request had before, of plans that are known; oldest first."""
        ours = (it for it in self.known if it.request == request.number and it.head != request.head)
        return [it for it in ours if it.extent is not None]

    def saw_merge(self, forge: Forge, request: PullRequest, commit: str) -> MergeSeen:
        """Returns who merged a request and who approves its head, and tells of it once.

        It is a record alone: a forge that does not tell who approves keeps nothing else back.
        """
        try:
            reviews = {it.user for it in self.reviews(forge, request) if not it.earlier}
        except ForgeUnreachable:
            raise
        except ForgeError as error:
            log.warning("approvals_not_told", request=request.number, why=str(error))
            reviews = set()
        known = {it.user for it in self.known if (it.request, it.head) == (request.number, request.head)}
        seen = MergeSeen(commit, request.number, request.merger, tuple(sorted(reviews | known)))
        if seen != self._merge:
            self._merge = seen
            self.tell(seen)
        return seen

    def _is_of(self, request: PullRequest, user: str, at_s: float, since_s: float | None) -> bool:
        if since_s is not None and at_s >= since_s:
            return True
        about = (request.number, request.head, user)
        return any((it.request, it.head, it.user) == about and at_s <= it.at_s for it in self.known)

    def given(
        self, forge: Forge, request: PullRequest, approvers: Sequence[Approver], shown: PlanExtent | None, fleet: Fleet
    ) -> tuple[GivenApproval, ...]:
        """Returns the approvals of a request with the plans that they are of; new ones, of its head, are of `shown`.

        Who approved an earlier head and not this one is among them: whether the plan is still as good is judged with
        it. `fleet` is in force: its owner rules name the teams that members are asked for.
        """
        number, head = request.number, request.head
        new = [ApprovedPlan(number, head, it.user, it.at_s, shown, it.commanded) for it in approvers if not it.earlier]
        known = with_approvals(self.known, new, number, head)
        if known != self.known:
            self.known = known
            self.tell(ApprovalsSeen(known))
        earlier = {(it.user, it.earlier) for it in approvers}
        kept = (it for it in self._earlier(request) if it.commanded or (it.user, it.head) in earlier)
        now = (it for it in known if (it.request, it.head) == (number, head))
        teams = teams_asked_for(fleet)
        return tuple(
            GivenApproval(
                it.user,
                frozenset(team for team in teams if self._is_member(forge, it.user, team)),
                it.user.casefold() == request.author.casefold(),
                it.extent,
            )
            for it in {it.user: it for it in (*kept, *now)}.values()
            if forge.permission(it.user) >= Permission.WRITE
        )

    def _is_member(self, forge: Forge, user: str, team: str) -> bool:
        if team in self.unknown_teams:
            return False
        try:
            return forge.is_member(user, team)
        except ForgeUnreachable:
            raise
        except ForgeError as error:
            self.unknown_teams[team] = f"members of team {team}, an owner by the FleetPolicy, are not told: {error}"
            return False
