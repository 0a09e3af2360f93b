"""Puts what a forge tells into the order of the port, and leaves out what was not asked for."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from providers.forge.port import Approval, Comment, PullRequest, RequestState


class GivenReview(NamedTuple):
    """A review that approves or objects. `id` orders those of one moment."""

    at: datetime
    id: int
    user: int
    login: str
    approves: str
    """The commit that is approved; empty where it objects, is dismissed, or does not say which."""


def open_into(found: Iterable[PullRequest], base: str) -> tuple[PullRequest, ...]:
    """Returns the open requests into a branch by number, each once."""
    requests = {each.number: each for each in found if each.state is RequestState.OPEN and each.base == base}
    return tuple(requests[number] for number in sorted(requests))


LATELY_MOST: Final = 30
"""Closed requests, those that changed last, of which the merged ones are looked at."""


def merged_into(found: Iterable[PullRequest], base: str) -> tuple[PullRequest, ...]:
    """Returns the merged requests into a branch, the one that changed last first, each once."""
    merged = (each for each in found if each.state is RequestState.MERGED and each.base == base)
    requests = {each.number: each for each in merged}
    return tuple(sorted(requests.values(), key=lambda each: (-each.updated_at_s, each.number)))


def ours_from(found: Iterable[PullRequest], branch: str) -> tuple[PullRequest, ...]:
    """Returns the requests from a branch of the repository itself by number, each once."""
    requests = {each.number: each for each in found if each.branch == branch and not each.from_fork}
    return tuple(requests[number] for number in sorted(requests))


def still_open(requests: Iterable[PullRequest]) -> int:
    """Returns the number of the last one that is open; 0 where none is."""
    return max((each.number for each in requests if each.state is RequestState.OPEN), default=0)


def in_order(found: Iterable[Comment]) -> tuple[Comment, ...]:
    """Returns comments by age, each once."""
    comments = {each.id: each for each in found}
    return tuple(sorted(comments.values(), key=lambda each: (each.created_at_s, each.id)))


def standing(reviews: Iterable[GivenReview]) -> tuple[Approval, ...]:
    """Returns the approvals that stand, oldest first: of each user the last word decides."""
    approvals: dict[int, Approval] = {}
    for review in sorted(reviews):
        approvals.pop(review.user, None)
        if review.approves:
            approvals[review.user] = Approval(review.login, review.approves, review.at.timestamp())
    return tuple(approvals.values())
