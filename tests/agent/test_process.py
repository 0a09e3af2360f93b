"""The agent's process on a real API server, a real EC2 wire and a real repository; two of them and one lease."""

import threading

import pytest

from agent.process import Agent
from providers.kube.errors import Unreachable
from tests.agent.processes import SHORT, WITHIN_S, AgentPlace, until
from tests.agent.scenes import simple
from tests.support.work import group_pod


def test_plain_pods_run_on_a_cluster_that_has_none_of_the_operators(place: AgentPlace) -> None:
    first = place.start("first", election=False)
    for name in ("a", "b"):
        place.world.store.create(place.world.store.resource("Pod"), group_pod(name), namespace="t")
    until(lambda: place.running("g"), "the group runs")
    pods = place.world.store.list(place.world.store.resource("Pod"), "t")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    first.stop()


def test_an_agent_starts_works_and_stops(place: AgentPlace) -> None:
    first = place.start("first", election=False)
    until(lambda: first.get("/readyz") == (200, "ok\n"), "ready")
    assert first.get("/healthz") == (200, "ok\n")
    place.submit("a")
    until(lambda: place.running("a"), "the job runs")
    assert "muster_machines_bought_total" in first.get("/metrics")[1]
    until(lambda: place.billed() > 0, "the machine is billed")
    first.stop()
    assert not first.agent.lost_lease
    assert first.get("/healthz")[0] == 0
    assert [line["event"] for line in first.lines("launched")] == ["launched"]
    before = place.in_the_ledger()
    assert before["a"] > 0, "what is open is kept when it stops"
    again = place.start("again", election=False)
    until(lambda: again.get("/readyz") == (200, "ok\n"), "ready again")
    place.submit("b")
    until(lambda: place.running("b"), "the next job runs")
    assert len(place.world.cloud.ledger()) == 2
    again.stop()
    after = place.in_the_ledger()
    assert after["a"] > before["a"], "the next agent goes on from there"
    assert after["b"] > 0


def test_it_is_not_ready_and_says_why_while_no_fleet_is_in_force(place: AgentPlace) -> None:
    (place.repository.clone / "fleet.yaml").write_text("kind: Nonsense\n", encoding="utf-8")
    place.repository.push("A mistake")
    first = place.start("first", election=False)
    until(lambda: "no fleet in force" in first.get("/readyz")[1], "it says why")
    assert first.get("/readyz")[0] == 503
    assert first.get("/healthz")[0] == 200
    (place.repository.clone / "fleet.yaml").write_text(simple()["fleet.yaml"], encoding="utf-8")
    place.repository.push("Mended")
    until(lambda: first.get("/readyz")[0] == 200, "ready")


def test_of_two_agents_one_acts_and_the_other_takes_over_when_it_is_stopped(place: AgentPlace) -> None:
    first = place.start("first")
    until(lambda: first.leads, "the first leads")
    second = place.start("second")
    until(lambda: second.get("/readyz") == (200, "ok\n"), "a standby is ready to take over")
    place.submit("a")
    until(lambda: place.running("a"), "the job runs")
    assert first.leads
    assert not second.leads
    assert second.lines("launched") == []
    first.stop()
    assert not first.agent.lost_lease, "it gave the lease up of its own will"
    until(lambda: second.leads, "the second leads")
    place.submit("b")
    until(lambda: place.running("b"), "the next job runs")
    assert place.running("a")
    assert len(second.lines("launched")) == 1
    assert len(place.world.cloud.ledger()) == 2


@pytest.mark.parametrize("to_standby", [False, True])
def test_a_delivery_counts_whichever_agent_it_reaches(place: AgentPlace, to_standby: bool) -> None:
    """The next poll is an hour away: only the delivery can bring the push to the leader."""
    (place.folder / "secret").write_text("test\n", encoding="utf-8")
    first = place.start("first", poll_s=3600.0)
    until(lambda: first.leads and first.get("/readyz")[0] == 200, "the first leads")
    second = place.start("second", poll_s=3600.0)
    until(lambda: second.get("/readyz") == (200, "ok\n"), "a standby waits")
    commit = place.repository.push("Another revision")
    reached = second if to_standby else first
    assert reached.deliver("wrong") == 403
    assert reached.deliver("test") == 202
    until(lambda: commit in place.applied(), "the push is in force")
    assert not second.leads
    if to_standby:
        until(lambda: place.sync()["metadata"]["annotations"]["muster.dev/requested-at"] == place.handled(), "its echo")
    assert 'muster_webhook_deliveries_total{sender="generic",status="202"} 1.0' in reached.get("/metrics")[1]


def test_a_deposed_agent_ends_with_an_error_and_the_other_takes_over(
    place: AgentPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = place.start("first", timing=SHORT)
    until(lambda: first.leads, "the first leads")
    second = place.start("second")

    def cut_off(*_: object, **__: object) -> bytes:
        raise Unreachable("no route to host")

    assert first.agent._elector is not None
    lease = first.agent._elector._lease
    monkeypatch.setattr(lease, "read", cut_off)
    monkeypatch.setattr(lease, "update", cut_off)
    first.thread.join(WITHIN_S)
    assert not first.thread.is_alive()
    assert first.agent.lost_lease, "which `muster run` turns into exit code 1"
    until(lambda: second.leads, "the second leads")
    place.submit("a")
    until(lambda: place.running("a"), "the job runs")
    assert first.lines("launched") == []


def test_a_deposed_agent_is_not_elected_again_while_it_shuts_down(
    place: AgentPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its workers still had in line would be carried out in a term whose decisions somebody else has made."""
    shut_down = threading.Event()

    def lead(agent: Agent) -> None:
        agent._stopping.wait(WITHIN_S)
        shut_down.wait(WITHIN_S)

    monkeypatch.setattr(Agent, "_lead", lead)
    first = place.start("first", timing=SHORT)
    until(lambda: first.agent._elector is not None and first.agent._elector.leading(), "the first leads")
    elector = first.agent._elector
    assert elector is not None

    def cut_off(*_: object, **__: object) -> bytes:
        raise Unreachable("no route to host")

    with monkeypatch.context() as cut:
        cut.setattr(elector._lease, "read", cut_off)
        cut.setattr(elector._lease, "update", cut_off)
        until(lambda: first.agent.lost_lease, "its lease runs out")
    second = place.start("second", timing=SHORT)
    until(lambda: second.agent._elector is not None and second.agent._elector.leading(), "the second leads")
    assert first.thread.is_alive(), "still shutting down"
    assert not elector.leading()
    shut_down.set()
    first.thread.join(WITHIN_S)
    assert not first.thread.is_alive()
