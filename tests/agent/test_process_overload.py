"""An API server with two seats for everything that is not the lease's: slow, and turning requests away with 429."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from providers.clock import SystemClock
from providers.kube.config import from_url
from providers.kube.elector import ElectionTiming, Elector
from providers.kube.lease import KubeLease
from providers.kube.resources import PODS
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from providers.sim.apiserver.faults import FaultRule, FaultRules, Seats
from providers.sim.store import Store
from tests.agent.processes import WITHIN_S, AgentPlace, until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
GANGS = 40
QUICK = ElectionTiming(lease_s=4, renew_s=3.0, retry_s=0.3)


def exempt(schemas: list[dict[str, Any]]) -> frozenset[str]:
    """What FlowSchemas give to `leader-election`, as the rules of the server name resources."""
    chosen = [it["spec"] for it in schemas if it["spec"]["priorityLevelConfiguration"]["name"] == "leader-election"]
    rules = [rule for spec in chosen for rules in spec["rules"] for rule in rules["resourceRules"]]
    return frozenset(f"{res}.{group}" for it in rules for group in it["apiGroups"] for res in it["resources"])


def shipped() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "base/flow-schemas.yaml").read_text("utf-8")))


def crowded(level: Seats, store: Store, schemas: list[dict[str, Any]]) -> FaultRule:
    """The level takes every request but those that the schemas exempt."""
    return FaultRule(level, resources=frozenset(it.key for it in store.resources()) - exempt(schemas))


@pytest.mark.parametrize("schemas", [[], shipped()], ids=["without FlowSchemas", "with those of deploy"])
def test_a_lease_outlives_a_crowd_by_its_flow_schema(schemas: list[dict[str, Any]]) -> None:
    """Two slow lists hold both seats: whoever shares the level with them is turned away for as long."""
    store, rules = Store(SystemClock()), FaultRules()
    with ApiServer(store, faults=rules) as server:
        lost, held = threading.Event(), threading.Event()
        transport = KubeTransport(from_url(server.url))
        elector = Elector(
            KubeLease(transport, "agent", "muster-system"),
            "ada",
            lambda _: held.set(),
            lambda _: lost.set(),
            clock=SystemClock(),
            rng=random.Random(1),
            timing=QUICK,
        )
        elector.step()
        assert held.is_set()
        level = Seats(2, held_s=5.0)
        rules.add(crowded(level, store, schemas))
        lists = [threading.Thread(target=lambda: list(transport.list_pages(PODS))) for _ in range(2)]
        for it in lists:
            it.start()
        until(lambda: level.inside == 2, "both seats are taken")
        stop = threading.Event()
        renews = threading.Thread(target=elector.run, args=(stop,))
        renews.start()
        for it in lists:
            it.join(WITHIN_S)
        assert lost.is_set() == (not schemas)
        stop.set()
        renews.join(WITHIN_S)


def test_an_agent_keeps_its_lease_and_gets_everything_done(place: AgentPlace) -> None:
    """With the times that are shipped: shorter ones would measure how busy the machine is that runs the test."""
    first = place.start("first", timing=ElectionTiming())
    until(lambda: first.leads and first.get("/readyz")[0] == 200, "it leads")
    level = Seats(2, held_s=0.02, queue=2)
    place.world.api.faults.add(crowded(level, place.world.store, shipped()))
    for number in range(GANGS):
        place.submit(f"job-{number}")
    until(lambda: sum(place.running(f"job-{number}") for number in range(GANGS)) == 4, "as many run as have quota")
    workloads = place.world.store.resource("Workload")
    until(lambda: sum(bool(it.get("status")) for it in place.world.store.list(workloads)) == GANGS, "all are told why")
    assert level.turned_away > 10, "it was crowded"
    assert first.leads
    assert not first.agent.lost_lease
