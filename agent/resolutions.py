"""What pools name (images, subnets, security groups), asked of the cloud now and then: who asks, and what for."""

from collections.abc import Callable, Mapping
from operator import is_

import structlog

from agent.inbox import NamesResolved
from agent.sources import Enqueue
from agent.watch import Watcher
from fleet.nodeclaims.launch import launch_configurations
from fleet.snapshot import Catalog, Claim, LaunchConfiguration, Resolutions, Snapshot
from model.fleet import Fleet
from providers.clock import Clock
from providers.ports import Cloud, CloudError

log = structlog.get_logger(__name__)

RESOLVE_EVERY_S = 300.0
"""Karpenter looks at drift as often."""
_CURIOUS_EVERY_S = 15.0


class ResolutionQuestions(Watcher):
    """What is to be asked of the cloud about the pools that have machines, by the last turn of the brain."""

    def __init__(self) -> None:
        self._seen: tuple[Fleet, Catalog, Mapping[str, Claim]] | None = None
        self._answered: tuple[tuple[Fleet, Catalog, Mapping[str, Claim]], tuple[LaunchConfiguration, ...]] | None = None
        """What the questions were worked out of last, and those; used by the thread that asks alone."""

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Remembers fleet and snapshot, from which `asked` works the questions out on the thread that asks."""
        seen = fleet, snapshot.catalog, snapshot.claims
        if self._seen is None or not all(map(is_, seen, self._seen)):
            self._seen = seen

    def asked(self) -> tuple[LaunchConfiguration, ...]:
        """The questions; none before the first turn."""
        if self._seen is None:
            return ()
        seen, known = self._seen, self._answered
        if known is not None and known[0] is seen:
            return known[1]
        fleet, catalog, claims = seen
        questions = launch_configurations(fleet, catalog.types, claims)
        self._answered = seen, questions
        return questions


def resolutions_listener(
    cloud: Cloud,
    enqueue: Enqueue,
    clock: Clock,
    interval_s: float,
    asked: Callable[[], tuple[LaunchConfiguration, ...]],
) -> Callable[[], float]:
    """Asks what images, subnets and security groups pools would get: now and then, and soon for a new question.

    Where there is no answer nothing is known any more, whatever was known before.
    """
    last: tuple[LaunchConfiguration, ...] = ()
    due_s = 0.0

    def listen() -> float:
        """Ask the cloud if a question is new or the last answer `interval_s` old; seconds until the next look."""
        nonlocal last, due_s
        questions, at_s = asked(), clock.now()
        if not questions or (questions == last and at_s < due_s):
            return min(_CURIOUS_EVERY_S, interval_s)
        last, due_s = questions, at_s + interval_s
        try:
            enqueue(NamesResolved(Resolutions(at_s, cloud.resolve(questions))))
        except CloudError as error:
            log.warning("names_not_resolved", error=str(error))
            enqueue(NamesResolved(Resolutions(at_s)))
        return min(_CURIOUS_EVERY_S, interval_s)

    return listen
