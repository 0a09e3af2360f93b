"""The election's lease as the API sees it."""

import contextlib
import json
import random
import threading

import pytest

from providers.clock import SystemClock, VirtualClock
from providers.kube.config import from_url
from providers.kube.elector import ElectionTiming, Elector, FencingToken
from providers.kube.errors import AlreadyExists, Conflict, Unreachable
from providers.kube.lease import KubeLease, LeaseRecord
from providers.kube.resources import PODS
from providers.kube.transport import KubeTransport
from tests.providers.kube.scripted import Asked, Peer, Scripted, reply, scripted, silence, status, watch

PATH = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"


def lease_of(server: Scripted) -> KubeLease:
    return KubeLease(KubeTransport(from_url(server.url)), "agent", "muster-system")


def stored(version: int = 5, **spec: object) -> dict:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "agent", "uid": "u-1", "resourceVersion": str(version), "labels": {"team": "x"}},
        "spec": spec,
    }


def test_no_lease_is_none() -> None:
    with scripted(status(404, "NotFound")) as server:
        assert lease_of(server).read(timeout_s=1.0) is None


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": None, "leaseDurationSeconds": None, "leaseTransitions": None}])
def test_an_empty_spec_is_held_by_nobody(spec: dict) -> None:
    with scripted(reply(stored(**spec))) as server:
        assert lease_of(server).read(timeout_s=1.0) == LeaseRecord("", 0, 0, "u-1", "5")


def test_create_sends_a_whole_lease() -> None:
    with scripted(reply(stored(holderIdentity="ada", leaseDurationSeconds=15, leaseTransitions=0))) as server:
        made = lease_of(server).create(LeaseRecord("ada", 15, 0), now_s=1_800_000_000.25, timeout_s=1.0)
        (asked,) = server.asked
    assert made == LeaseRecord("ada", 15, 0, "u-1", "5")
    assert (asked.method, asked.path) == ("POST", PATH)
    assert asked.json()["spec"] == {
        "holderIdentity": "ada",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "renewTime": "2027-01-15T08:00:00.250000Z",
        "acquireTime": "2027-01-15T08:00:00.250000Z",
    }


def test_update_keeps_what_is_not_ours_and_says_what_it_replaces() -> None:
    old = stored(
        holderIdentity="ada",
        leaseDurationSeconds=15,
        leaseTransitions=3,
        acquireTime="2027-01-01T00:00:00.000000Z",
        strategy="OldestEmulationVersion",
    )
    with scripted(reply(old), reply(old)) as server:
        lease = lease_of(server)
        seen = lease.read(timeout_s=1.0)
        assert seen is not None
        lease.update(seen, now_s=1_800_000_000.0, timeout_s=1.0)
        sent = server.asked[1].json()
    assert (server.asked[1].method, server.asked[1].path) == ("PUT", f"{PATH}/agent")
    assert sent["metadata"] == old["metadata"]
    assert sent["spec"]["strategy"] == "OldestEmulationVersion"
    assert sent["spec"]["acquireTime"] == "2027-01-01T00:00:00.000000Z"
    assert sent["spec"]["renewTime"] == "2027-01-15T08:00:00.000000Z"


def test_a_new_term_has_a_new_acquire_time() -> None:
    old = stored(holderIdentity="ada", leaseTransitions=3, acquireTime="2027-01-01T00:00:00.000000Z")
    with scripted(reply(old)) as server:
        lease = lease_of(server)
        lease.read(timeout_s=1.0)
        lease.update(LeaseRecord("bob", 15, 4, "u-1", "5"), now_s=1_800_000_000.0, timeout_s=1.0)
        assert server.asked[1].json()["spec"]["acquireTime"] == "2027-01-15T08:00:00.000000Z"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff"])
def test_what_is_no_lease_is_unreachable(body: bytes) -> None:
    with scripted(reply(body)) as server, pytest.raises(Unreachable):
        lease_of(server).read(timeout_s=1.0)


@pytest.mark.parametrize(("reason", "kind"), [("AlreadyExists", AlreadyExists), ("Conflict", Conflict)])
def test_races_are_types(reason: str, kind: type[Exception]) -> None:
    with scripted(status(409, reason)) as server, pytest.raises(kind):
        lease_of(server).create(LeaseRecord("ada", 15, 0), now_s=0.0, timeout_s=1.0)


def memory_server() -> tuple[Scripted, dict]:
    """A server with room for one Lease and a sense of resourceVersions."""
    room: dict = {"version": 0, "lease": None}
    lock = threading.Lock()

    def step(peer: Peer, asked: Asked) -> bool:
        with lock:
            return answer(asked)(peer, asked)

    def answer(asked: Asked):
        current = room["lease"]
        if asked.method == "GET":
            return reply(current) if current else status(404, "NotFound")
        body = asked.json()
        if asked.method == "POST" and current:
            return status(409, "AlreadyExists")
        if asked.method == "PUT" and body["metadata"]["resourceVersion"] != str(room["version"]):
            return status(409, "Conflict")
        room["version"] += 1
        body["metadata"] |= {"uid": "u-1", "resourceVersion": str(room["version"])}
        room["lease"] = json.loads(json.dumps(body))
        return reply(body)

    return Scripted(step), room


def test_connections_that_died_unseen_do_not_cost_the_lease() -> None:
    """A router forgets them. What is opened anew goes to watches, which keep it: renewals would try all the dead."""
    server, room = memory_server()
    answers, dead, together = server.steps[0], set(), threading.Barrier(12)

    def step(peer: Peer, asked: Asked) -> bool:
        if asked.connection in dead:
            return silence(peer, asked)
        if asked.path == "/work":
            together.wait(10)
            return reply()(peer, asked)
        return (watch(b"{}\n", then="hang") if "watch" in asked.query else answers)(peer, asked)

    server.steps = [step]
    transport, lost = KubeTransport(from_url(server.url)), threading.Event()
    lease, timing = KubeLease(transport, "agent", "muster-system"), ElectionTiming(3, 2.0, 0.3)
    elector = Elector(
        lease, "ada", lambda _: None, lambda _: lost.set(), clock=SystemClock(), rng=random.Random(1), timing=timing
    )
    with contextlib.ExitStack() as watches:
        watches.callback(server.close)
        workers = [threading.Thread(target=transport.get, args=("/work",)) for _ in range(together.parties)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(10)
        elector.step()
        assert elector.leading()
        dead |= {asked.connection for asked in server.asked}
        while room["version"] < 3 and not lost.is_set():
            elector.step()
            with contextlib.suppress(Unreachable):
                watches.enter_context(transport.watch(PODS, "1", 0, grace_s=0.2))
    assert not lost.is_set()


def test_a_thread_leads_until_told_to_stop_and_hands_over() -> None:
    server, room = memory_server()
    started, lost, stop = threading.Event(), threading.Event(), threading.Event()
    try:
        elector = Elector(
            lease_of(server),
            "ada",
            lambda _: started.set(),
            lambda _: lost.set(),
            clock=SystemClock(),
            rng=random.Random(1),
            timing=ElectionTiming(15, 10.0, 0.01),
        )
        thread = threading.Thread(target=elector.run, args=(stop,))
        thread.start()
        assert started.wait(5)
        server.wait_for(6)
        assert elector.token == FencingToken(0, "u-1")
        stop.set()
        thread.join(5)
        assert not thread.is_alive()
        assert lost.is_set()
        assert room["lease"]["spec"]["holderIdentity"] == ""
    finally:
        server.close()


def test_a_callback_that_raises_gives_the_lease_back() -> None:
    server, room = memory_server()

    def fails(_: FencingToken) -> None:
        raise RuntimeError("cannot start")

    try:
        elector = Elector(lease_of(server), "ada", fails, lambda _: None, clock=VirtualClock(), rng=random.Random(1))
        with pytest.raises(RuntimeError):
            elector.run(threading.Event())
        assert room["lease"]["spec"]["holderIdentity"] == ""
        assert not elector.leading()
    finally:
        server.close()
