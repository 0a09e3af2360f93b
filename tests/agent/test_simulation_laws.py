"""Drawn histories keep the laws; and a checker that sees a law broken says so."""

import json
from random import Random
from typing import Any

import pytest

from agent.simulation import Simulation
from agent.simulation.checker import LOOK_S, Checker
from agent.simulation.command import main
from agent.simulation.drawing import drawn_change, drawn_fleet, drawn_mistake, loaded, sold, text_of
from agent.simulation.laws.facts import Facts
from agent.simulation.laws.machines import replaced_by_more, replaced_twice, replacements
from agent.simulation.laws.quota import excess
from agent.simulation.play import play
from agent.simulation.profiles import drawn_history
from fleet.snapshot import CapacityPool, LaunchRequest
from providers.sim.store import RELEASES
from tests.agent.scenes import P5, A, files, gpu_job, pool, queue, simple, team

# -- the histories ----------------------------------------------------------------------------------------------------


def test_calm_histories_keep_the_laws_and_are_a_line_of_json_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1..2", "--profile", "calm"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["machines"]
    assert first["digest"] != second["digest"]


def test_a_seed_is_the_same_history_whatever_was_drawn_before() -> None:
    alone = drawn_history(5, "calm")
    drawn_history(4, "calm")
    assert drawn_history(5, "calm") == alone
    assert {drawn_history(seed, "calm").release for seed in range(20)} == set(RELEASES)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_drawn_loads_and_mistakes_do_not(seed: int) -> None:
    rng = Random(seed)
    docs = drawn_fleet(rng)
    assert loaded(text_of(docs)) is not None
    assert loaded(text_of(drawn_change(rng, docs))) is not None
    assert loaded(drawn_mistake(rng, docs)) is None if "[" not in drawn_mistake(rng, docs) else True


# -- the checker ------------------------------------------------------------------------------------------------------


class Judged:
    """A simulation whose agent can be silenced while the checker believes that it could act."""

    def __init__(self, fleet: dict[str, str] | None = None) -> None:
        self.checker = Checker()
        self.sim = Simulation(catalog=sold(), more=[self.checker])
        self.facts: Facts = self.checker.watch(self.sim)
        self.sim.push(fleet or simple())
        self.sim.advance(1)

    def silence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From here on the agent does nothing, as if it did not see what is wrong."""
        self.sim.crash()
        monkeypatch.setattr(type(self.sim), "able", property(lambda _: True))

    def buy(self, count: int = 1) -> None:
        tags = {"muster.dev/cluster": "default", "muster.dev/node-pool": "h100", "muster.dev/launch-group": "g"}
        request = LaunchRequest("token", count, CapacityPool("on-demand", P5, A), "h100", {}, (), tags)
        assert self.sim.watched_cloud.launch(request).instances

    def broken(self) -> set[str]:
        return {violation.law for violation in self.facts.violations}


def test_a_machine_without_a_claim_breaks_a_law_after_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged()
    judged.silence(monkeypatch)
    judged.buy()
    judged.sim.advance(100)
    assert judged.broken() == set()
    judged.sim.advance(60)
    assert judged.broken() == {"nothing unclaimed"}


def test_more_machines_than_a_pool_may_have_break_a_law_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged(simple(limits={"nodes": 2, "usdPerHour": 120}))
    judged.silence(monkeypatch)
    judged.buy(3)
    assert judged.broken() == {"pool limits"}
    assert len(judged.facts.violations) == 1, "the first limit tells, once a pool"


def test_an_idle_machine_breaks_a_law_after_its_quiet_time_and_a_quarter_of_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = Judged()
    job = gpu_job("a")
    judged.sim.submit(job)
    assert judged.sim.advance_until(lambda: judged.sim.running("a"), 600)
    judged.silence(monkeypatch)
    judged.sim.delete(job)
    judged.sim.advance(60 + 900)
    assert "nothing idle" not in judged.broken()
    judged.sim.advance(120 + LOOK_S)
    assert "nothing idle" in judged.broken()


def test_a_gang_in_part_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged()
    judged.sim.submit(gpu_job("a", pods=2, gpus=4))
    assert judged.sim.advance_until(lambda: judged.sim.running("a"), 600)
    judged.silence(monkeypatch)
    pod = judged.sim.objects("Pod")[0]
    job = judged.sim.objects("Job")[0]
    store = judged.sim.store
    store.update(store.resource("Job"), {**job, "spec": {**job["spec"], "backoffLimit": 6}})
    judged.sim.delete({"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]})
    judged.sim.advance(600)
    assert "gang whole" in judged.broken()


def test_a_pod_on_a_node_that_does_not_take_it_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged()
    judged.sim.submit(gpu_job("a", gpus=8))
    assert judged.sim.advance_until(lambda: judged.sim.running("a"), 600)
    judged.silence(monkeypatch)
    node = judged.sim.objects("Node")[0]["metadata"]["name"]
    other = gpu_job("b", gpus=8)["spec"]["template"] | {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "b", "namespace": "t"},
    }
    other["spec"]["schedulingGates"] = []
    judged.sim.submit(other)
    judged.sim.store.bind("b", "t", node)
    judged.sim.advance(1)
    assert judged.broken() == {"pod seats"}


def test_quota_is_reckoned_with_lending_and_borrowing() -> None:
    gpu = "nvidia.com/gpu"
    cell = ("h100", gpu)

    def tree(**lending: object) -> object:
        lender = {"h100": {"guaranteed": {gpu: 16}, **lending}}
        borrower = {"h100": {"guaranteed": {gpu: 8}, "borrowingLimit": {gpu: 16}}}
        org = team("org", {}, namespaces=[])
        fleet = files(pool(), org, team("t", lender, parent="org"), team("u", borrower, parent="org"), queue())
        return loaded(fleet["fleet.yaml"])

    assert not excess(tree(), {"u": {cell: 24}}, "u", {cell})
    assert excess(tree(), {"u": {cell: 25}}, "u", {cell}), "its borrowing limit"
    assert excess(tree(), {"u": {cell: 24}, "t": {cell: 8}}, "t", {cell}), "the whole tree has 24"
    assert excess(tree(lendingLimit={gpu: 8}), {"u": {cell: 17}}, "u", {cell}), "what is not lent cannot be borrowed"
    assert not excess(tree(lendingLimit={gpu: 8}), {"u": {cell: 16}, "t": {cell: 8}}, "t", {cell})


def bought(group: str, *replaces: str, usd_h: float = 2.0, size: int = 1) -> dict[str, Any]:
    return {"replaces": list(replaces), "usdPerHour": usd_h, "launch": {"group": group, "size": size}}


def test_machines_that_go_together_are_replaced_by_one_launch_of_about_their_price() -> None:
    """Found by `--profile two-agents --seed 10260` and `--profile clocks --seed 20032`, in which the law was wrong."""
    ((olds, specs),) = replacements([bought("g", "a", "b"), bought("g", "a", "b"), bought("h", "b", "c"), {}])
    assert olds == ["a", "b", "c"]
    assert replaced_by_more(olds, specs, dict.fromkeys("abc", 0.5)) == "", "no more machines than before"
    assert replaced_twice([bought("g", "a", "b", size=2), bought("h", "a", "b")]) == "", "one of g never came"
    assert "2 launches" in replaced_twice([bought("g", "a"), bought("h", "a")])
    three = [bought("g", "big", "small", size=3)] * 3
    assert replaced_by_more(["big", "small"], three, {"big": 4.0, "small": 1.0}) == "", "of little more in all"
    assert "3 machines at 6.00" in replaced_by_more(["big", "small"], three, {"big": 2.0, "small": 1.0})


@pytest.mark.parametrize(
    ("back_after_s", "blind", "broken"),
    [
        pytest.param(60.0, False, False, id="the cloud lists the end"),
        pytest.param(60.0, True, True, id="it does, and the books do not look"),
        pytest.param(3900.0, True, False, id="it has forgotten it"),
    ],
)
def test_the_books_know_what_ended_unseen_as_long_as_the_cloud_does(
    monkeypatch: pytest.MonkeyPatch, back_after_s: float, *, blind: bool, broken: bool
) -> None:
    """Found by `--profile faults --seed 20774`: the agent had crashed, and git did not answer when it was back."""
    if blind:
        monkeypatch.setattr("agent.accounts.ended_uses", lambda *_: ())
    judged = Judged()
    judged.sim.submit(gpu_job("a"))
    assert judged.sim.advance_until(lambda: judged.sim.running("a"), 600)
    judged.sim.crash()
    judged.sim.advance(600)
    judged.sim.cloud.terminate([machine.id for machine in judged.sim.machines()])
    judged.sim.advance(back_after_s)
    judged.sim.restart()
    judged.sim.advance(300)
    judged.checker.ended()
    assert ("books agree" in judged.broken()) is broken


def test_what_fails_in_a_history_is_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_sim: Simulation, _seconds: float) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(Simulation, "advance", fail)
    outcome = play(drawn_history(1, "calm"))
    assert [(it.law, it.words) for it in outcome.violations] == [("nothing fails", "RuntimeError: no more")]
