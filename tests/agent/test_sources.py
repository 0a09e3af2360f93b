"""Ears say what they hear and survive what they cannot; a broken one listens again."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest

from agent.inbox import Event, InstancesListed, Noticed, Priced, Pushed, ReservationsListed, SourceTrouble
from agent.sources import (
    WATCHED,
    SourceThread,
    catalog_listener,
    git_listener,
    instances_listener,
    notices_listener,
    reflectors,
    reservations_listener,
)
from agent.timetable import Timetable
from fleet.snapshot import Catalog, Instance, Notice, NoticeKind, Reservation
from providers.clock import VirtualClock
from providers.git.errors import AuthenticationFailed, RemoteUnreachable, SignatureRejected, SourceError
from providers.git.snapshot import RevisionSnapshot
from providers.git.source import GitSource, TrustStanding
from providers.ports import Cloud, CloudDenied, CloudThrottled, CloudUnreachable, Notices
from tests.support.fleets import NOW


class ScriptedSource:
    next_poll_s = 42.0

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def poll(self) -> RevisionSnapshot | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("RevisionSnapshot | None", answer)

    def standing(self) -> TrustStanding:
        return TrustStanding("", "", "")


class Clouds:
    """A cloud whose calls do what the test says."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.acknowledged: list[Notice] = []

    def _next(self, *_: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    instances = refresh = receive = reservations = _next

    def catalog(self) -> Catalog:
        return Catalog("packaged")

    def acknowledge(self, notices: Iterable[Notice]) -> None:
        self.acknowledged += notices


def listening(
    answers: Sequence[Any], ear: Callable[[Clouds, Callable[[Event], None]], Callable[[], float]]
) -> tuple[list[float], list[Event]]:
    heard: list[Event] = []
    listen = ear(Clouds(*answers), heard.append)
    return [listen() for _ in answers], heard


# -- git --------------------------------------------------------------------------------------------------------------


def test_a_revision_is_handed_on_and_nothing_new_is_not() -> None:
    class FoundRevision:
        revision, files, verified_signer, lineage = "main@sha1:1", {"a.yaml": b""}, "ada", None

        confirms = frozenset[str]()
        author = "Ada"

    heard: list[Event] = []
    listen = git_listener(cast("GitSource", ScriptedSource(FoundRevision(), None)), heard.append)
    assert [listen(), listen()] == [42.0, 42.0]
    assert heard == [Pushed("main@sha1:1", {"a.yaml": b""}, "ada", author="Ada")]


@pytest.mark.parametrize(
    ("error", "transient"),
    [(RemoteUnreachable("no answer"), True), (AuthenticationFailed("no"), False), (SignatureRejected("nobody"), False)],
    ids=lambda value: type(value).__name__,
)
def test_trouble_with_git_is_said_and_tried_again_when_the_source_says(error: SourceError, transient: bool) -> None:
    heard: list[Event] = []
    listen = git_listener(cast("GitSource", ScriptedSource(error)), heard.append)
    assert listen() == 42.0
    assert heard == [SourceTrouble(f"{type(error).__name__}: {error}", transient)]


# -- the cloud --------------------------------------------------------------------------------------------------------


def test_a_listing_carries_the_instant_it_began() -> None:
    clock = VirtualClock(NOW)

    class Slow(Clouds):
        def instances(self) -> Sequence[Instance]:
            clock.advance(7)
            return []

    heard: list[Event] = []
    pause_s = instances_listener(cast("Cloud", Slow()), heard.append, clock, 30.0)()
    assert (pause_s, heard) == (30.0, [InstancesListed((), NOW)])


def test_a_listing_that_fails_says_nothing_and_is_tried_again() -> None:
    pauses, heard = listening(
        [CloudThrottled("x"), CloudUnreachable("x"), []],
        lambda cloud, put: instances_listener(cast("Cloud", cloud), put, VirtualClock(NOW), 30.0),
    )
    assert pauses == [30.0, 30.0, 30.0]
    assert heard == [InstancesListed((), NOW)]


def test_reservations_are_asked_for_soon_until_there_is_an_answer() -> None:
    one = Reservation("cr-1", "p5.48xlarge", "us-east-1a", 4, 4)
    pauses, heard = listening(
        [CloudThrottled("x"), [one], CloudUnreachable("x"), []],
        lambda cloud, put: reservations_listener(cast("Cloud", cloud), put, VirtualClock(NOW), 60.0),
    )
    assert pauses == [5.0, 60.0, 60.0, 60.0]
    assert heard == [ReservationsListed((one,), NOW), ReservationsListed((), NOW)]


def test_who_may_not_see_reservations_has_none() -> None:
    pauses, heard = listening(
        [CloudDenied("x"), CloudDenied("x")],
        lambda cloud, put: reservations_listener(cast("Cloud", cloud), put, VirtualClock(NOW), 60.0),
    )
    assert (pauses, heard) == ([60.0, 60.0], [ReservationsListed((), NOW)] * 2)


def test_prices_of_the_package_come_first_and_fresh_ones_when_they_can() -> None:
    pauses, heard = listening(
        ["unused", CloudUnreachable("x"), Catalog("fresh")],
        lambda cloud, put: (cloud.answers.pop(0), catalog_listener(cast("Cloud", cloud), put, 3600.0))[1],
    )
    assert pauses == [0.0, 3600.0, 3600.0]
    assert [event.catalog.region for event in heard if isinstance(event, Priced)] == ["packaged", "fresh"]


def test_notices_are_handed_on_and_not_acknowledged_here() -> None:
    told = Notice("n", NoticeKind.SPOT_INTERRUPTED, ("i-1",), NOW)
    cloud = Clouds([told], [], CloudUnreachable("x"))
    heard: list[Event] = []
    listen = notices_listener(cast("Notices", cloud), heard.append)
    assert [listen(), listen(), listen()] == [0.0, 0.0, 5.0]
    assert heard == [Noticed((told,))]
    assert cloud.acknowledged == []


# -- threads ----------------------------------------------------------------------------------------------------------


def test_a_source_listens_again_at_once_when_poked_and_after_a_crash() -> None:
    stop, times, third = threading.Event(), [0], threading.Event()
    failed: list[tuple[str, str]] = []

    def listen() -> float:
        times[0] += 1
        if times[0] == 1:
            raise ZeroDivisionError
        if times[0] == 3:
            third.set()
        return 3600.0

    timetable = Timetable()
    timetable.start()
    thread = SourceThread("test", listen, stop, lambda *failure: failed.append(failure), timetable)
    thread.start()
    for _ in range(500):
        if third.wait(0.01):
            break
        thread.poke()
    assert third.is_set()
    stop.set()
    thread.join(5.0)
    timetable.stop()
    assert not thread._thread.is_alive()
    assert failed == [("test", "crash")]


def test_every_table_of_the_mirror_has_its_reflector() -> None:
    from agent.mirror import Mirror

    mirror = Mirror("c")
    assert {id(mirror.table(table)) for table in WATCHED} == {id(table) for table in mirror._tables()}
    import random

    failed: list[tuple[str, str]] = []
    count = lambda *failure: failed.append(failure)  # noqa: E731
    made = reflectors(cast("Any", None), lambda _event: None, VirtualClock(), random.Random(1), count)
    assert [str(it._watched.resource) for it in made] == [str(watched.resource) for watched in WATCHED.values()]
    for reflector in made:
        reflector._on_trouble(ValueError("no"), 1.0)
        reflector._watched.on_undecodable(None)
    assert failed == [(table, kind) for table in WATCHED for kind in ("watch", "undecodable")]
