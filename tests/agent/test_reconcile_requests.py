"""Requests to poll: written on the FleetSync by a standby or a person, heard by the agent that leads."""

import random
import threading
from collections.abc import Iterator

import pytest

from agent.cli.run import install_crds
from agent.reconcile_requests import leave_request, request_reflector
from model.labels import REQUESTED_AT
from providers.clock import VirtualClock
from providers.kube.config import from_url
from providers.kube.errors import Invalid
from providers.kube.objects import sync_object
from providers.kube.objects.paths import FLEET_SYNCS
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store

WITHIN_S = 20.0


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

    shown(transport, "c")
    shown(transport, "other")
    assert leave_request(transport, "c", clock), "before anybody leads"
    reflector = request_reflector(transport, "c", poke, clock, random.Random(1))
    reflector.start()
    try:
        assert reflector.synced.wait(WITHIN_S)
        assert not heard.acquire(blocking=False), "whoever starts polls anyway"
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
