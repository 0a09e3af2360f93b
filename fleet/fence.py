"""Fences: a subject that makes a decider raise is set aside, and everybody else is decided in the same turn.

A decider that looks at its subjects one by one uses `each`. One that decides about all of them together works on values
that nobody else sees: it says with `concerning` whom it is looking at, and `together` decides anew without whoever made
it fail. What is set aside comes back as a `DecisionFailed`, which the brain turns into a condition, an event, a metric
and a pause; the next snapshot then names the subject in `set_aside`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, TypeVar

from fleet.actions import Action, claim_subject, pool_subject
from fleet.snapshot import DecisionFailure, Snapshot

A = TypeVar("A")
T = TypeVar("T")

MOST_SET_ASIDE: Final = 16
"""So many subjects of one decider are set aside in a turn; beyond that the decider itself is what fails."""
MOST_WORDS: Final = 200
"""Longest cause that is told of a failure, in characters."""
EVERYBODY: Final = ""
"""The subject of a failure that is nobody's in particular."""
_SUBJECT: Final = "_muster_subject"


@dataclass(frozen=True, slots=True)
class DecisionFailed:
    """A decider raised while it looked at one subject, about which it decides nothing in this turn."""

    subject: str
    """Such as `gang/<uid>` or `claim/<name>`; `EVERYBODY` where it is not known whom it was about."""
    error: Exception

    @property
    def failure(self) -> DecisionFailure:
        """Returns what is shown of it: the exception's class, and its message in one short line."""
        said = str(self.error).strip().splitlines() or ["it says nothing"]
        name = type(self.error).__name__.lstrip("_")
        return DecisionFailure(name if name.isascii() else "Exception", said[0][:MOST_WORDS])


Decided = Action | DecisionFailed
"""What a decider yields."""


def told_apart(decided: Iterable[Decided]) -> tuple[list[Action], list[DecisionFailed]]:
    """Returns (actions, failures), both in order."""
    there = list(decided)
    failed = [it for it in there if isinstance(it, DecisionFailed)]
    if not failed:
        return there, []  # type: ignore[return-value]
    return [it for it in there if not isinstance(it, DecisionFailed)], failed


class concerning:  # noqa: N801  reads as the statement it is
    """`with concerning(subject):` an exception raised inside is about that subject; the innermost one counts.

    A function that returns the subject is asked only when something is raised: once around a loop over many subjects.
    """

    __slots__ = ("_subject",)

    def __init__(self, subject: str | Callable[[], str]) -> None:
        self._subject = subject

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, Exception) and not hasattr(error, _SUBJECT):
            setattr(error, _SUBJECT, self._subject if isinstance(self._subject, str) else self._subject())


def each(
    snapshot: Snapshot, subjects: Iterable[tuple[str, T]], decide: Callable[[T], Iterable[A]]
) -> Iterator[A | DecisionFailed]:
    """Yields what is decided about each of `subjects` (name, value to decide about), in order.

    All that is asked for one of them or, where that raises, none of it.
    """
    for subject, value in subjects:
        if subject in snapshot.set_aside:
            continue
        try:
            decided = list(decide(value))
        except Exception as error:  # noqa: BLE001  the fence: it is this subject's alone
            yield DecisionFailed(subject, error)
        else:
            yield from decided


def together(snapshot: Snapshot, decide: Callable[[Snapshot], Sequence[A]]) -> list[A | DecisionFailed]:
    """Returns what is decided about all of a snapshot but those that make it fail: they are set aside for it."""
    failed: dict[str, DecisionFailed] = {}
    world = snapshot
    while True:
        try:
            return [*decide(world), *failed.values()]
        except Exception as error:  # noqa: BLE001  the fence: decided anew without it
            subject = getattr(error, _SUBJECT, EVERYBODY)
            hopeless = subject in failed or subject == EVERYBODY or len(failed) >= MOST_SET_ASIDE
            failed[EVERYBODY if hopeless else subject] = DecisionFailed(EVERYBODY if hopeless else subject, error)
            if hopeless:
                return list(failed.values())
            world = replace(snapshot, set_aside=snapshot.set_aside | failed.keys())


def claims_set_aside(snapshot: Snapshot) -> frozenset[str]:
    """Returns the claims that are left alone, as a decision about them or their pool has failed lately."""
    subjects = snapshot.set_aside
    if not any(subject.startswith(pool_subject("")) for subject in subjects):
        return claims_among(subjects)
    of_pools = {name for name, claim in snapshot.claims.items() if pool_subject(claim.node_pool) in subjects}
    return claims_among(subjects) | of_pools


def claims_among(subjects: Iterable[str]) -> frozenset[str]:
    """Returns the names of the claims among subjects."""
    prefix = claim_subject("")
    return frozenset(subject.removeprefix(prefix) for subject in subjects if subject.startswith(prefix))
