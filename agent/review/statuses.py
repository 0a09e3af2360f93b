"""What a review is as a commit status, and as a deployment, in the words of the forges' port."""

from collections.abc import Mapping
from typing import Final

from fleet.review.comment import Review, ReviewOutcome
from model.problem import Problem, errors_first
from providers.forge.port import Annotation, CommitStatus, Deployment, Verdict

ANNOTATIONS_MOST: Final = 50
_VERDICTS: Final[Mapping[ReviewOutcome, Verdict]] = {
    ReviewOutcome.APPLIES: Verdict.SUCCESS,
    ReviewOutcome.IN_FORCE: Verdict.SUCCESS,
    ReviewOutcome.DONE: Verdict.SUCCESS,
    ReviewOutcome.UNTOUCHED: Verdict.SUCCESS,
    ReviewOutcome.STALLED: Verdict.FAILURE,
    ReviewOutcome.UNOBSERVED: Verdict.PENDING,
    ReviewOutcome.HELD: Verdict.PENDING,
    ReviewOutcome.UNAPPROVED: Verdict.PENDING,
    ReviewOutcome.STALE: Verdict.PENDING,
    ReviewOutcome.REFUSED: Verdict.FAILURE,
    ReviewOutcome.INVALID: Verdict.FAILURE,
    ReviewOutcome.CONFLICT: Verdict.FAILURE,
    ReviewOutcome.FAILED: Verdict.FAILURE,
}
_DEPLOYED: Final[Mapping[ReviewOutcome, Verdict]] = {
    ReviewOutcome.IN_FORCE: Verdict.PENDING,
    ReviewOutcome.STALLED: Verdict.FAILURE,
    ReviewOutcome.DONE: Verdict.SUCCESS,
}
"""Of revisions that are in force; one that is not was never deployed."""


def named(cluster: str) -> str:
    """Returns what statuses and environments of a cluster are called."""
    return f"muster/{cluster}"


def commit_status(review: Review, url: str) -> CommitStatus:
    """Returns the status of the commit that a review is about, with the first of its problems; `url` leads to it."""
    problems = errors_first(review.problems)[:ANNOTATIONS_MOST]
    found = tuple(Annotation(it.file, max(1, it.line), _marked(it)) for it in problems)
    return CommitStatus(named(review.cluster), _VERDICTS[review.outcome], review.summary, url, found)


def _marked(problem: Problem) -> str:
    """Returns what stands at its line: all but the place."""
    kind = "warning: " if problem.severity == "warning" else ""
    return f"{kind}{str(problem).removeprefix(f'{problem.place}: ')}"


def deployment_of(review: Review, branch: str, url: str) -> Deployment | None:
    """Returns how far the revision of a review has come in its cluster; None where it is not in force.

    A verdict is told once. It is under way when it is in force, fails where nothing comes forward any more (which may
    pass), and succeeds when nothing is left to do.
    """
    verdict = _DEPLOYED.get(review.outcome)
    if verdict is None:
        return None
    return Deployment(review.head, branch, named(review.cluster), verdict, review.summary, url)
