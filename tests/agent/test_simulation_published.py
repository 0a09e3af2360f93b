"""What people see in the cluster, and what a restart takes up again: reports, events, books, the revision in force."""

import json
from typing import Any

from agent.accounts import SAVED_EVERY_S
from agent.inbox import Pushed
from providers.git.errors import RemoteUnreachable
from providers.kube.objects.instants import instant_of
from tests.agent.scenes import G6, P5, A, Scene, doc, files, gpu_job, pool, queue, simple, team


def condition(scene: Scene, kind: str) -> dict[str, Any]:
    found = [c for c in scene.sim.sync().get("conditions", ()) if c["type"] == kind]
    return found[0] if found else {}


def status(scene: Scene, kind: str, name: str) -> dict[str, Any]:
    found = scene.sim.object(kind, name)
    assert found is not None, f"no {kind} {name}"
    return found.get("status") or {}


def test_queues_and_pools_are_shown_as_they_stand_and_withdrawn_when_they_go() -> None:
    scene = Scene(files(pool(), pool("other", (G6,)), team(), queue()))
    scene.runs(gpu_job("a"))
    scene.sim.submit(gpu_job("b", pods=4))
    scene.sim.advance(5)
    shown = status(scene, "Queue", "t")
    assert (shown["pending"], shown["admitted"]) == (1, 1)
    assert shown["usage"][0]["used"] == "8"
    assert status(scene, "NodePool", "h100")["nodes"] == 1
    scene.sim.push(simple())
    scene.sim.advance(5)
    assert scene.sim.object("NodePool", "other") is None


def test_what_stands_as_declared_is_not_applied_again_with_each_report() -> None:
    """And what somebody has changed, or deleted, is."""
    scene, written = Scene(simple()), list[str]()
    scene.settle(60)
    scene.sim.on_write(lambda write: written.append(write.subject) if "/queues/" in write.subject else None)
    scene.runs(gpu_job("a"))
    assert written
    assert all(path.endswith("/status") for path in written)
    (shown,) = scene.sim.objects("Queue")
    resource = scene.sim.store.resource("Queue", "muster.dev")
    scene.sim.store.update(resource, {**shown, "spec": {**shown["spec"], "flavors": ["mine"]}})
    scene.runs(gpu_job("b"))
    assert scene.sim.objects("Queue")[0]["spec"] == shown["spec"]
    scene.sim.delete(shown)
    scene.runs(gpu_job("c"))
    assert status(scene, "Queue", "t")["admitted"] == 3


def test_pools_tell_what_is_short_while_it_is_and_how_old_prices_are() -> None:
    scene = Scene(files(pool(zones=[A]), pool("other", (G6,)), team(), queue()))
    scene.short(P5, A)
    scene.sim.submit(gpu_job("a"))
    scene.until(lambda: "shortages" in status(scene, "NodePool", "h100"), 60)
    (told,) = status(scene, "NodePool", "h100")["shortages"]
    until_s = instant_of(told["until"])
    assert {**told, "until": ""} == {"instanceType": P5, "zone": A, "capacityType": "on-demand", "until": ""}
    assert 0 < until_s - scene.sim.clock.now() <= 180
    assert "shortages" not in status(scene, "NodePool", "other")
    age_s = scene.sim.clock.now() - instant_of(status(scene, "NodePool", "h100")["pricedAt"])
    assert 0 <= age_s <= 3600
    scene.short(P5, A, on=False)
    scene.until(lambda: "shortages" not in status(scene, "NodePool", "h100"), 300)


def test_what_was_declared_before_a_restart_and_not_after_it_is_withdrawn_too() -> None:
    scene = Scene(files(pool(), pool("other", (G6,)), team(), queue()))
    scene.sim.advance(5)
    scene.sim.crash()
    scene.sim.push(simple())
    scene.sim.restart()
    scene.sim.advance(10)
    assert scene.sim.object("NodePool", "other") is None
    assert scene.sim.object("NodePool", "h100") is not None


def test_events_tell_the_story_of_a_job() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g"))
    scene.sim.cloud.kill(scene.sim.machines()[0].id)
    scene.until(lambda: scene.laws.evictions["g"] == 1, 300)
    scene.until_running("g", 900)
    about = [e for e in scene.sim.objects("Event") if e.get("involvedObject", {}).get("name") == "g"]
    reasons = [event["reason"] for event in sorted(about, key=lambda e: e.get("firstTimestamp") or e["eventTime"])]
    assert {"Buying", "Admitted", "PodsReady", "Evicted"} <= set(reasons)
    evicted = next(event for event in about if event["reason"] == "Evicted")
    assert "is being terminated" in evicted["message"]


def test_nothing_is_told_twice_of_one_fact_and_the_workload_tells_it_too() -> None:
    """The drain of a deleted node moved its deadline, and was announced anew; a refused write is a second try."""
    scene = Scene(simple(limits={"nodes": 1}))
    scene.sim.api_faults.conflicts = 6
    scene.runs(gpu_job("g"))
    (node,) = scene.nodes_of("g")
    scene.sim.store.delete(scene.sim.store.resource("Node"), node)
    scene.sim.advance(15)
    events = [e for e in scene.sim.objects("Event") if e["source"].get("component") == "muster"]
    assert {(e["involvedObject"]["kind"], e["reason"]): e["count"] for e in events if e["count"] > 1} == {}
    gang = scene.sim.gang("g")
    workload = scene.sim.object("Workload", gang.workload if gang else "", "t")
    assert workload is not None
    of_kind = {
        kind: {(e["reason"], e["message"]) for e in events if e["involvedObject"].get("uid") == uid}
        for kind, uid in (("Job", gang.uid if gang else ""), ("Workload", workload["metadata"]["uid"]))
    }
    assert {"Admitted", "PodsReady", "Evicted"} <= {reason for reason, _ in of_kind["Workload"]}
    assert of_kind["Workload"] == of_kind["Job"]


def test_books_go_on_after_a_crash() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g"))
    scene.sim.advance(1800)

    def total() -> int:
        held = scene.sim.object("ConfigMap", "muster-books", "muster-system")
        return int(json.loads(held["data"]["books.json"])["total"]) if held else 0

    before = total()
    scene.sim.crash()
    scene.sim.advance(60)
    scene.sim.restart()
    scene.sim.advance(60)
    hourly = 55.04e6
    assert before <= total() <= before + hourly * (SAVED_EVERY_S + 120) / 3600, "what was not saved, and two minutes"
    assert before > hourly * 0.4


def refusing(replicas: int) -> dict[str, str]:
    rails = doc("FleetPolicy", "p", guardRails={"maxPercentRemoved": 30})
    fixed = [
        pool("fixed", replicas=replicas),
        team(quotas={"fixed": {"nvidia.com/gpu": 64}}),
        queue(flavors=("fixed",)),
    ]
    return files(*fixed, rails)


def test_a_restart_never_adopts_what_was_refused() -> None:
    scene = Scene(refusing(4))
    scene.until(lambda: len([c for c in scene.sim.claims().values() if c.ready_at_s]) == 4, 600)
    good = scene.sim.sync()["appliedRevision"]
    refused = scene.sim.push(refusing(0))
    scene.sim.advance(30)
    for _ in range(3):
        scene.sim.crash()
        scene.sim.restart()
        scene.sim.advance(60)
        assert scene.sim.sync()["appliedRevision"] == good
        assert scene.sim.sync()["attemptedRevision"] == refused
        assert len(scene.sim.machines()) == 4
    scene.settle()


def test_an_unreachable_repository_is_said_and_changes_nothing() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g"))
    scene.sim.commits.trouble = RemoteUnreachable("no answer")
    scene.sim.advance(200)
    assert "no answer" in json.dumps(scene.sim.sync())
    assert scene.sim.running("g")
    scene.sim.commits.trouble = None
    scene.sim.advance(200)
    assert "no answer" not in json.dumps(scene.sim.sync()["conditions"])
    assert condition(scene, "Ready")["status"] == "True"


def test_a_restart_while_the_repository_is_away_decides_nothing_and_loses_nothing() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g"))
    scene.sim.crash()
    scene.sim.commits.trouble = RemoteUnreachable("no answer")
    scene.sim.restart()
    scene.sim.submit(gpu_job("later"))
    scene.sim.advance(600)
    assert not scene.sim.brain.ready
    assert scene.state("later") == ""
    assert scene.sim.running("g")
    assert len(scene.sim.machines()) == 1
    scene.sim.commits.trouble = None
    scene.until_running("later", 900)
    scene.settle()


def test_a_revision_that_vanished_from_the_repository_is_not_replaced_by_another_unasked() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g"))
    applied = scene.sim.sync()["appliedRevision"]
    scene.sim.crash()
    other = files(pool("other", (G6,)), team(quotas={}), queue(flavors=("other",)))
    scene.sim.commits.pushed[:] = [Pushed("main@sha1:ff", {name: text.encode() for name, text in other.items()})]
    scene.sim.restart()
    scene.sim.advance(300)
    assert scene.sim.sync()["appliedRevision"] == applied
    assert scene.sim.running("g")
    assert condition(scene, "Stalled")["status"] == "True"
