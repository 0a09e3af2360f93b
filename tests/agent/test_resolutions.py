"""What pools name, asked of the cloud: who asks, when, and what follows for the fleet in a simulation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from agent.demo.jobs import Manifest
from agent.failures import Failures
from agent.inbox import Event, NamesResolved
from agent.mirror import Mirror
from agent.reports import NAMED, pool_reports
from agent.resolutions import ResolutionQuestions, resolutions_listener
from agent.world import read_world
from fleet.catalog import ImageKind
from fleet.explain.verdicts import verdicts
from fleet.plan import make_plan
from fleet.snapshot import LaunchConfiguration, Resolutions, Resolved
from model.kinds import NodeTemplate
from model.loader import load
from providers.clock import VirtualClock
from providers.kube.errors import Forbidden, NotFound
from providers.kube.objects.paths import NODE_POOLS
from providers.ports import Cloud, CloudThrottled
from tests.agent.scenes import CATALOG, Scene, gpu_job, gpu_jobset, simple
from tests.support.fleets import NOW, small_fleet
from tests.support.world import World

KIND = ImageKind("amd64", "nvidia")
ONE, TWO = (LaunchConfiguration(name, NodeTemplate(), (KIND,)) for name in ("one", "two"))
ANSWER = Resolved({KIND: "ami-1"})


class Oracle:
    """Answers what it is asked, or raises what it is given."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.trouble: Exception | None = None

    def resolve(self, births: Sequence[LaunchConfiguration]) -> dict[str, Resolved]:
        self.asked.append([birth.pool_hash for birth in births])
        if self.trouble is not None:
            raise self.trouble
        return {birth.pool_hash: ANSWER for birth in births}


class Listening:
    """An ear with a cloud and a clock of its own; `questions` are what it is to ask."""

    def __init__(self) -> None:
        self.cloud, self.clock = Oracle(), VirtualClock(NOW)
        self.heard: list[Event] = []
        self.questions: tuple[LaunchConfiguration, ...] = ()
        self._listen = resolutions_listener(
            cast("Cloud", self.cloud), self.heard.append, self.clock, 300.0, lambda: self.questions
        )

    def after(self, seconds: float) -> list[list[str]]:
        """What is asked then; looks as often as the ear wants to."""
        before, until_s = len(self.cloud.asked), self.clock.now() + seconds
        while self.clock.now() < until_s:
            self.clock.advance(self._listen())
        return self.cloud.asked[before:]


def test_nothing_is_asked_before_there_is_a_question() -> None:
    ear = Listening()
    assert ear.after(600) == []
    assert ear.heard == []


def test_a_question_is_asked_soon_and_then_now_and_then() -> None:
    ear = Listening()
    ear.after(45)
    ear.questions = (ONE,)
    assert ear.after(15) == [["one"]]
    assert ear.heard == [NamesResolved(Resolutions(NOW + 45, {"one": ANSWER}))]
    assert ear.after(280) == []
    assert ear.after(15) == [["one"]]


def test_a_new_question_is_asked_soon_with_all_others() -> None:
    ear = Listening()
    ear.questions = (ONE,)
    ear.after(15)
    ear.questions = (ONE, TWO)
    assert ear.after(15) == [["one", "two"]]
    assert ear.after(270) == []


def test_without_an_answer_nothing_is_known_any_more() -> None:
    ear = Listening()
    ear.questions = (ONE,)
    ear.after(15)
    ear.cloud.trouble = CloudThrottled("x")
    ear.after(300)
    assert ear.heard[1:] == [NamesResolved(Resolutions(NOW + 300))]


def test_a_reading_that_says_what_is_known_is_no_news_until_a_machine_was_launched_since() -> None:
    world, mirror = World(small_fleet()), Mirror("default")
    world.machine("m0")
    claim, first = world.snapshot().claims["m0"], Resolutions(NOW, {"one": ANSWER})
    mirror.claims.assume("m0", replace(claim, launched_at_s=NOW - 60), NOW)
    mirror.resolve(first)
    mirror.resolve(Resolutions(NOW + 300, {"one": ANSWER}))
    assert mirror.resolved is first
    mirror.claims.assume("m0", replace(claim, launched_at_s=NOW + 310), NOW)
    mirror.resolve(Resolutions(NOW + 600, {"one": ANSWER}))
    assert mirror.resolved.at_s == NOW + 600
    mirror.resolve(Resolutions(NOW + 900))
    assert mirror.resolved == Resolutions(NOW + 900)


def test_the_brains_last_turn_says_what_to_ask() -> None:
    questions, world = ResolutionQuestions(), World(small_fleet())
    assert questions.asked() == ()
    questions.turned(world.fleet, world.snapshot())
    assert questions.asked() == ()
    world.machine("m0")
    questions.turned(world.fleet, world.snapshot())
    (birth,) = questions.asked()
    assert birth.kinds == (KIND,)


# -- in a simulation --------------------------------------------------------------------------------------------------

ALL = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1h", "budgets": [{"nodes": "100%"}]}
ONE_BY_ONE = {**ALL, "budgets": [{"nodes": 1}]}


def images(scene: Scene) -> list[str]:
    return sorted({machine.image for machine in scene.sim.machines()})


def test_a_machine_that_came_with_the_newest_image_does_not_go_by_an_older_reading() -> None:
    scene = Scene(simple(disruption=ALL))
    scene.runs(gpu_job("a"))
    scene.settle(600)
    assert (scene.bought(), scene.laws.evictions) == (1, {})
    scene.sim.cloud.names.publish()
    scene.runs(gpu_job("b"))
    scene.until(lambda: scene.laws.evictions["a"] == 1, 900)
    scene.until_running("a")
    scene.settle(900)
    assert (scene.bought(), scene.laws.evictions) == (3, {"a": 1})


def test_a_new_image_replaces_machines_first_and_within_the_budget() -> None:
    scene = Scene(simple(disruption=ONE_BY_ONE))
    for name in "abc":
        scene.runs(gpu_job(name))
    before, (old,) = {machine.id for machine in scene.sim.machines()}, images(scene)
    least_running, most_machines = 3, 0

    def watch(_event: object) -> None:
        nonlocal least_running, most_machines
        least_running = min(least_running, sum(scene.sim.running(name) for name in "abc"))
        most_machines = max(most_machines, len(scene.sim.machines()))

    scene.sim.store.subscribe(watch, resource=scene.sim.store.resource("Workload"))
    published_s = scene.sim.now_s
    scene.sim.cloud.names.publish()
    words = f"its image is {old}, node pool h100 now gets "
    scene.until(lambda: any(claim.disruption for claim in scene.sim.claims().values()), 600)
    assert scene.sim.now_s - published_s <= 300 + 180, "read every five minutes, and a machine is bought first"
    (why,) = {claim.disruption.message for claim in scene.sim.claims().values() if claim.disruption}
    assert why.startswith(words), why
    scene.until(lambda: not before & {machine.id for machine in scene.sim.machines()}, 3600)
    for name in "abc":
        scene.until_running(name)
    assert (len(images(scene)), old in images(scene)) == (1, False)
    assert least_running >= 2, "the budget is one machine at a time"
    assert most_machines <= 4, "replacement first, one at a time"
    scene.settle(1800)
    assert scene.bought() == 6, "those that came with the new image stay"


def test_a_pinned_image_stays() -> None:
    scene = Scene(simple(disruption=ALL, template={"amis": [{"alias": "al2023@v20250505"}]}))
    scene.runs(gpu_job("a"))
    scene.sim.cloud.names.publish()
    scene.settle(1800)
    assert scene.bought() == 1


def test_a_gang_moves_whole_when_security_groups_or_subnets_are_others() -> None:
    scene = Scene(simple(disruption=ALL))
    scene.runs(gpu_jobset("g"))
    scene.sim.cloud.names.security_groups = ("sg-more", "sg-nodes")
    scene.until(lambda: scene.laws.evictions["g"] == 1, 1200)
    scene.until_running("g", 600)
    scene.settle(900)
    assert {machine.security_groups for machine in scene.sim.machines()} == {("sg-more", "sg-nodes")}
    zones = {zone: f"subnet-new-{zone}" for zone in scene.sim.cloud.names.subnets}
    scene.sim.cloud.names.subnets = zones
    scene.until(lambda: scene.laws.evictions["g"] == 2, 1200)
    scene.until_running("g", 600)
    scene.settle(900)
    assert {machine.subnet for machine in scene.sim.machines()} <= set(zones.values())
    assert scene.bought() == 6


@pytest.mark.parametrize("answer", [Resolved(), CloudThrottled("x")], ids=["nothing is found", "no answer"])
def test_what_cannot_be_found_out_moves_nobody(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(simple(disruption=ALL))
    scene.runs(gpu_job("a"))

    def resolve(births: Sequence[LaunchConfiguration]) -> dict[str, Resolved]:
        if isinstance(answer, Exception):
            raise answer
        return {birth.pool_hash: answer for birth in births}

    monkeypatch.setattr(scene.sim.cloud, "resolve", resolve)
    scene.sim.cloud.names.publish()
    scene.settle(3600)
    assert scene.bought() == 1


def test_the_agent_may_die_at_any_time_in_between() -> None:
    scene = Scene(simple(disruption=ALL))
    scene.runs(gpu_jobset("g"))
    old = set(images(scene))
    scene.sim.cloud.names.publish()
    for _ in range(4):
        scene.sim.advance(97)
        scene.sim.crash()
        scene.sim.advance(3)
        scene.sim.restart()
    scene.until(lambda: not old & set(images(scene)), 3600)
    scene.until_running("g", 900)
    scene.settle(1800)
    assert len(scene.sim.machines()) == 2


# -- what is told of it -----------------------------------------------------------------------------------------------


def told_to_stay(name: str) -> Manifest:
    manifest = gpu_job(name)
    manifest["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    return manifest


def test_the_pools_status_tells_and_who_only_reads_the_cluster_hears_it() -> None:
    """A machine that has drifted and may not go: its pool's status, `muster explain node` and a plan say why."""
    scene = Scene(simple(disruption=ALL))
    scene.runs(told_to_stay("a"))
    (old,) = images(scene)
    assert "drifted" not in status(scene)
    scene.sim.cloud.names.publish()
    scene.settle(330)
    (claim,) = scene.sim.claims().values()
    (found,) = status(scene)["drifted"]
    assert (found["reason"], found["nodes"], found["nodeClaims"]) == ("AMIDrift", 1, [claim.name])
    assert found["message"].startswith(f"its image is {old}, node pool h100 now gets ami-")
    world = read_world(scene.sim.api, scene.sim.clock, CATALOG)
    fleet = load({"fleet.yaml": simple(disruption=ALL)["fleet.yaml"].encode()})
    (verdict,) = (it for it in verdicts(fleet, world, world.claims[claim.name]) if it.method == "drift")
    assert verdict.message.startswith(found["message"])
    (change,) = make_plan(fleet, fleet, world, base_revision="main@sha1:1").without.machines
    assert (change.verb, change.reason) == ("replace", found["message"])
    assert change.when.held in verdict.message


def status(scene: Scene) -> dict[str, Any]:
    (pool,) = scene.sim.objects("NodePool")
    found: dict[str, Any] = pool["status"]
    return found


@pytest.mark.parametrize("refusal", [Forbidden("no"), NotFound("no")])
def test_who_may_not_read_pools_sees_the_rest(refusal: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(simple(), publishes=False)
    listed = scene.sim.api.list_pages

    def list_pages(resource: Any, *args: Any, **named: Any) -> Any:
        if resource == NODE_POOLS:
            raise refusal
        return listed(resource, *args, **named)

    monkeypatch.setattr(scene.sim.api, "list_pages", list_pages)
    assert dict(read_world(scene.sim.api, VirtualClock(), CATALOG).strays) == {}


def test_of_many_machines_the_first_are_named() -> None:
    world = World(small_fleet())
    for number in range(NAMED + 20):
        world.machine(f"m{number:03}")
    world.fleet = small_fleet(template={"labels": {"a": "b"}})
    (report,) = pool_reports(world.fleet, world.snapshot(), Failures())
    (drifted,) = report.drifted
    assert (drifted.reason, drifted.nodes, len(drifted.claims)) == ("NodePoolDrifted", NAMED + 20, NAMED)
    assert (drifted.claims[0], drifted.claims[-1]) == ("m000", f"m{NAMED - 1:03}")
