"""A kind that the server does not serve: there are none of it, and it is looked for now and then."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from agent.mirror import job_table
from agent.sources import WATCHED
from agent.world import read_world
from fleet.snapshot import Catalog
from providers.clock import VirtualClock
from providers.kube.batches import Batch, Replace
from providers.kube.config import from_url
from providers.kube.objects.crds import definitions
from providers.kube.objects.jobs import BY_GROUP_KIND
from providers.kube.reflector import Reflector, Timing
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store
from tests.support.work import install, manifest

KIND = BY_GROUP_KIND["ray.io", "RayJob"]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(Store(VirtualClock())) as running:
        yield running
        running.drop_connections()


def test_it_is_seen_once_it_is_installed(server: ApiServer) -> None:
    batches: list[Batch[Any]] = []
    pauses: list[float] = []

    def hear(batch: Batch[Any]) -> None:
        batches.append(batch)
        if isinstance(batch, Replace) and batch.objects:
            reflector.stop()

    def pause(gap_s: float) -> None:
        pauses.append(gap_s)
        if len(pauses) == 2:
            install(server.store, KIND)
            server.store.create(server.store.resource("RayJob"), manifest(KIND))

    reflector = Reflector(
        KubeTransport(from_url(server.url)),
        WATCHED[job_table(KIND)],
        hear,
        clock=VirtualClock(),
        rng=random.Random(1),
        timing=Timing(absent_s=7.0),
        wait=pause,
    )
    reflector.run()
    assert reflector.synced.is_set()
    assert pauses == [7.0, 7.0]
    assert batches[0] == Replace({}, "0")
    (found,) = batches[1].objects.values()  # type: ignore[union-attr]
    assert (found.ref.kind, found.ref.name, len(batches)) == ("RayJob", "train", 2)


def test_a_look_at_the_world_needs_none_of_it(server: ApiServer) -> None:
    for definition in definitions():
        server.store.create(server.store.resource("CustomResourceDefinition"), definition)
    server.store.create(server.store.resource("Job"), manifest(BY_GROUP_KIND["batch", "Job"]))
    snapshot = read_world(KubeTransport(from_url(server.url)), VirtualClock(), Catalog())
    assert [job.ref.name for job in snapshot.jobs.values()] == ["train"]
