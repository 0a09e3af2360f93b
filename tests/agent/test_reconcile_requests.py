"""Requests to poll: written on the FleetSync by a standby or a person, heard by the agent that leads."""

import queue
import random
import threading
from collections.abc import Iterator

import pytest

from agent.asked import Operated, ask_of, request
from agent.cli.run import install_crds
from agent.inbox import Event, RequestHandled, Tick
from agent.reconcile_requests import OpenRequests, RequestListener, leave_request, request_reflector
from model.labels import REQUESTED_AT
from providers.clock import VirtualClock
from providers.kube.config import from_url
from providers.kube.errors import Invalid
from providers.kube.objects import sync_object
from providers.kube.objects.paths import FLEET_SYNCS
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store

WITHIN_S = 60.0


@pytest.fixture
def transport() -> Iterator[KubeTransport]:
    with ApiServer(Store(VirtualClock())) as server:
        found = KubeTransport(from_url(server.url))
        install_crds(found)
        yield found


def shown(transport: KubeTransport, name: str) -> None:
    transport.apply(FLEET_SYNCS, name, sync_object(name, "https://git.example.com/x.git", "main", ""), force=True)


def test_without_a_fleet_sync_no_request_can_be_left(transport: KubeTransport) -> None:
    assert not leave_request(transport, "c", VirtualClock())


def test_requests_are_heard_each_once_and_survive_what_the_agent_writes(transport: KubeTransport) -> None:
    clock, heard, values = VirtualClock(), threading.Semaphore(0), list[str]()

    def poke(value: str) -> None:
        values.append(value)
        heard.release()

    def put(_event: Event) -> None:
        """What else is asked is another test's."""

    shown(transport, "c")
    shown(transport, "other")
    answered = request(transport, "c", clock.now())
    assert answered, "before anybody leads, and already answered"
    reflector = request_reflector(transport, "c", RequestListener(poke, put, answered), clock, random.Random(1))
    reflector.start()
    try:
        assert reflector.synced.wait(WITHIN_S)
        assert not heard.acquire(blocking=False), "what was answered is not asked again"
        for _ in range(2):
            clock.advance(1.0)
            assert leave_request(transport, "c", clock)
            assert heard.acquire(timeout=WITHIN_S)
        shown(transport, "c")  # what the agent writes of its own takes the annotation of others not away
        assert REQUESTED_AT.encode() in transport.read(FLEET_SYNCS, "c")
        assert leave_request(transport, "other", clock)
        annotated = [{"op": "add", "path": "/metadata/annotations/x", "value": "y"}]
        transport.patch_json(FLEET_SYNCS, "c", annotated)
        clock.advance(1.0)
        assert leave_request(transport, "c", clock)
        assert heard.acquire(timeout=WITHIN_S)
        assert not heard.acquire(blocking=False), "another object, and another annotation, are no request"
        assert len(set(values)) == len(values) == 3
    finally:
        reflector.stop(1.0)


def test_a_request_that_meets_another_writer_is_tried_again(
    transport: KubeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(transport, "c")
    patch, calls = transport.patch_json, list[int]()

    def contended(*arguments: object, **more: object) -> bytes:
        calls.append(1)
        if len(calls) == 1:
            raise Invalid("the test failed")
        return patch(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(transport, "patch_json", contended)
    assert leave_request(transport, "c", VirtualClock())
    assert len(calls) == 2


def test_a_request_that_is_older_than_the_agent_is_answered(transport: KubeTransport) -> None:
    shown(transport, "c")
    asked, heard = request(transport, "c", VirtualClock().now()), queue.SimpleQueue[str]()
    listener = RequestListener(heard.put, lambda _event: None, "an older one")
    reflector = request_reflector(transport, "c", listener, VirtualClock(), random.Random(1))
    reflector.start()
    try:
        assert heard.get(timeout=WITHIN_S) == asked
    finally:
        reflector.stop(1.0)


def test_who_suspends_the_sync_is_heard_and_the_agent_leaves_it_alone(transport: KubeTransport) -> None:
    shown(transport, "c")
    heard = queue.SimpleQueue[Event]()
    listener = RequestListener(lambda _value: None, heard.put)
    reflector = request_reflector(transport, "c", listener, VirtualClock(), random.Random(1))
    reflector.start()
    try:
        assert heard.get(timeout=WITHIN_S) == Operated(suspended=False)
        ask_of(transport, "c", Operated(suspended=True, reason="an audit"))
        assert heard.get(timeout=WITHIN_S) == Operated(suspended=True, reason="an audit")
        shown(transport, "c")  # the agent writes its own fields of the specification, and no others
        assert leave_request(transport, "c", VirtualClock())
        ask_of(transport, "c", Operated(suspended=False))
        assert heard.get(timeout=WITHIN_S) == Operated(suspended=False)
        assert heard.empty()
    finally:
        reflector.stop(1.0)


def test_a_request_is_answered_after_the_next_look_that_began_later() -> None:
    put = list[Event]()
    requests = OpenRequests(put.append)

    def listen() -> float:
        put.append(Tick())
        if len(put) == 1:
            requests.ask("second")  # while the look is under way: it may have missed what this is about
        return 7.0

    look = requests.answering(listen)
    requests.ask("first")
    assert [look(), look(), look()] == [7.0] * 3
    assert put == [Tick(), RequestHandled("first"), Tick(), RequestHandled("second"), Tick()]


def test_a_look_that_crashes_answers_nothing_and_the_next_one_does() -> None:
    put = list[Event]()
    requests = OpenRequests(put.append)
    requests.ask("it")

    def crash() -> float:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        requests.answering(crash)()
    assert put == []
    requests.answering(lambda: 1.0)()
    assert put == [RequestHandled("it")]
