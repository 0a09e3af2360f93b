"""The API keeps refusing a write: what it is about says so in the API's words, and nothing is bought for it.

The agent's writes alone are refused here (`api_rules` stand before its connection).
"""

import re
from typing import Any

import pytest

from agent.demo.jobs import Manifest
from providers.sim.apiserver.faults import WRITES, FaultRule, WebhookDenies, WebhookFails
from tests.agent.scenes import P4DE, B, C, Scene, files, gpu_job, job, layout, pool, queue, simple, team

HOOK = "policy.example.com"


def refusing(scene: Scene, *resources: str, verbs: frozenset[str] = WRITES, fails: bool = False) -> FaultRule:
    effect = WebhookFails(HOOK) if fails else WebhookDenies(HOOK, "not today")
    return scene.sim.api_rules.add(FaultRule(effect, verbs=verbs, resources=frozenset(resources)))


def condition(found: Manifest | None, kind: str = "WriteRefused") -> dict[str, Any]:
    assert found is not None
    return next((it for it in found["status"].get("conditions", ()) if it["type"] == kind), {})


def workload(scene: Scene, name: str) -> Manifest:
    gang = scene.sim.gang(name)
    assert gang is not None
    found = scene.sim.object("Workload", gang.workload, gang.namespace)
    assert found is not None
    return found


def sync(scene: Scene) -> Manifest | None:
    return scene.sim.object("FleetSync", scene.sim.cluster_name)


def events(scene: Scene, reason: str) -> list[str]:
    return [
        it["note"] if "note" in it else it["message"] for it in scene.sim.objects("Event") if it["reason"] == reason
    ]


@pytest.mark.parametrize(
    ("resource", "fails", "reason", "words"),
    [
        (
            "jobs.batch",
            False,
            "Forbidden",
            "starting its job is refused: .*admission webhook .policy.example.com. denied",
        ),
        ("pods", True, "ServerError", "letting its pods onto their nodes is refused: .*failed calling webhook"),
    ],
)
def test_a_gang_that_cannot_be_started_says_so_and_nothing_more_is_bought_for_it(
    resource: str, fails: bool, reason: str, words: str
) -> None:
    """Eight machines ran behind `Admitted - placed` without a pod, and nothing told why."""
    scene = Scene(simple())
    rule = refusing(scene, resource, fails=fails)
    scene.sim.submit(gpu_job("g", pods=2))
    scene.until(lambda: bool(condition(workload(scene, "g"))) if scene.sim.gang("g") else False, 300)
    told = condition(workload(scene, "g"))
    assert (told["status"], told["reason"]) == ("True", reason)
    assert re.search(words, told["message"]), told["message"]
    assert "not today" in told["message"] or "deadline exceeded" in told["message"]
    assert [it for it in events(scene, "WriteRefused") if "refused" in it]
    scene.sim.advance(2)
    assert condition(sync(scene))["status"] == "True"
    bought = scene.bought()
    scene.sim.cloud.kill(scene.sim.machines()[0].id)
    scene.sim.advance(200)
    assert scene.bought() == bought, "a machine for a gang that cannot start"
    scene.sim.api_rules.remove(rule)
    scene.until_running("g", 1500)
    scene.sim.advance(60)
    assert condition(workload(scene, "g")) == {}
    assert condition(sync(scene)) == {}
    scene.settle(300)


def test_one_sick_object_does_not_stop_the_others() -> None:
    scene = Scene(simple())
    rule = refusing(scene, "jobs.batch")
    scene.sim.submit(gpu_job("g"))
    scene.sim.advance(200)
    scene.sim.api_rules.remove(rule)
    scene.runs(gpu_job("other"))


def test_a_single_refusal_is_no_news() -> None:
    scene = Scene(simple())
    scene.sim.api_rules.add(
        FaultRule(WebhookFails(HOOK), verbs=WRITES, resources=frozenset({"jobs.batch"}), when=lambda n: n <= 2)
    )
    scene.runs(gpu_job("g"))
    scene.settle()
    assert events(scene, "WriteRefused") == []


# -- the MIG layouts --------------------------------------------------------------------------------------------------


def mig() -> dict[str, str]:
    return files(
        pool("mig", (P4DE,), zones=[B, C], sharing={"mig": {"layouts": ["thin"]}}),
        layout("thin", **{"1g_10gb": 7}),
        team(quotas={"mig": {"nvidia.com/mig-1g.10gb": 56}}),
        queue(flavors=("mig",)),
    )


def sliced(name: str) -> Manifest:
    return job(name, "t", "normal", pods=1, requests={"nvidia.com/mig-1g.10gb": "1"})


def test_layouts_that_cannot_be_published_are_told_at_once_and_buy_nothing_until_they_are() -> None:
    """They were written once: refused, machines were bought that could never be cut, until the agent was restarted."""
    scene = Scene()
    rule = refusing(scene, "configmaps")
    scene.sim.push(mig())
    scene.sim.advance(10)
    told = condition(sync(scene))
    assert (told["status"], told["reason"]) == ("True", "Forbidden")
    assert (
        "layouts: writing MIG layouts and GPU sharing (is the component `mig` installed?) is refused" in told["message"]
    )
    scene.sim.submit(sliced("g"))
    scene.sim.advance(120)
    assert scene.bought() == 0
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.reason, "MIG layouts" in gang.message) == ("WriteRefused", True)
    scene.sim.api_rules.remove(rule)
    scene.until_running("g", 600)
    assert condition(sync(scene)) == {}


def test_slices_that_stand_are_used_while_the_layouts_cannot_be_published() -> None:
    scene = Scene(mig())
    scene.runs(sliced("first"))
    refusing(scene, "configmaps")
    scene.sim.advance(400)
    assert condition(sync(scene))["status"] == "True"
    scene.runs(sliced("g"), 60)
    assert scene.bought() == 1


def test_layouts_that_somebody_deletes_are_published_again() -> None:
    scene = Scene(mig())
    scene.sim.advance(5)
    assert scene.sim.object("ConfigMap", "muster-mig-config", "gpu-operator") is not None
    named = {"name": "muster-mig-config", "namespace": "gpu-operator"}
    scene.sim.delete({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named})
    scene.sim.advance(310)
    assert scene.sim.object("ConfigMap", "muster-mig-config", "gpu-operator") is not None


def test_reports_that_cannot_be_written_are_told_in_the_fleet_sync() -> None:
    scene = Scene(simple())
    rule = refusing(scene, "queues.muster.dev")
    scene.sim.submit(gpu_job("g"))
    scene.until_state("g", "Admitted", 900)
    scene.sim.advance(60)
    told = condition(sync(scene))
    assert (told["status"], told["reason"]) == ("True", "Forbidden")
    assert re.match(r"Queue \w+: writing it is refused: .*denied the request: not today", told["message"])
    scene.sim.api_rules.remove(rule)
    scene.sim.advance(60)
    assert condition(sync(scene)) == {}
