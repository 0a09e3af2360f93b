"""Deployments and ReplicaSets as a real cluster runs them: counts of a roll-out as data, their life as stories."""

from collections.abc import Mapping
from typing import Any

import pytest

from providers.sim.controllers.apps.replicaset import worth_of
from providers.sim.controllers.apps.rollout import (
    DESIRED,
    MOST,
    DeploymentWork,
    RolloutSets,
    is_saturated,
    latest_or_only,
    proportional,
)
from providers.sim.controllers.objects import condition_of, labels_of, node_of
from tests.providers.sim.controllers.world import ControllerWorld, Obj, pod_template

# -- the rules of a roll-out, as data ---------------------------------------------------------------------------------


def deployed(replicas: int, **rolling: int | str) -> DeploymentWork:
    spec: Obj = {"replicas": replicas, "strategy": {"rollingUpdate": rolling}}
    return DeploymentWork.of({"spec": spec})


@pytest.mark.parametrize(
    ("replicas", "rolling", "surge", "unavailable"),
    [
        (12, {}, 3, 3),
        (10, {}, 3, 2),  # surge rounds up, unavailability down
        (1, {}, 1, 0),
        (3, {"maxSurge": 0, "maxUnavailable": 0}, 0, 1),  # one of them must be possible
        (3, {"maxSurge": 0, "maxUnavailable": "10%"}, 0, 1),
        (2, {"maxSurge": "100%", "maxUnavailable": 5}, 2, 2),
        (0, {"maxSurge": 1, "maxUnavailable": 1}, 1, 0),
    ],
)
def test_shares_of_a_rolling_update(replicas: int, rolling: Mapping[str, Any], surge: int, unavailable: int) -> None:
    work = deployed(replicas, **rolling)
    assert (work.max_surge, work.max_unavailable) == (surge, unavailable)


def sized(
    name: str, replicas: int, available: int | None = None, *, age: int = 0, desired: int = 0, most: int = 0
) -> Obj:
    notes = {DESIRED: str(desired), MOST: str(most)} if desired else {}
    created = f"2026-01-01T00:00:{30 - age:02d}Z"
    return {
        "metadata": {"name": name, "creationTimestamp": created, "annotations": notes},
        "spec": {"replicas": replicas},
        "status": {"availableReplicas": replicas if available is None else available},
    }


@pytest.mark.parametrize(
    ("old", "new", "grows_to"),
    [
        ([10], 0, 3),  # of 10 with a surge of 3
        ([10], 3, 3),  # no room: 13 there
        ([6], 3, 7),
        ([0], 7, 10),
        ([2], 9, 10),  # never beyond what is wanted
        ([], 12, 10),
    ],
)
def test_the_new_one_grows_within_the_surge(old: list[int], new: int, grows_to: int) -> None:
    sets = RolloutSets(sized("new", new), [sized(f"old-{i}", size) for i, size in enumerate(old)])
    assert sets.wanted_of_new(deployed(10), new) == grows_to


@pytest.mark.parametrize(
    ("old", "new", "keeps"),
    [
        ([(10, 10)], (3, 0), {"old-0": 8}),  # ten stand, eight must be available
        ([(8, 8)], (5, 0), {}),  # the new ones are not available yet
        ([(8, 8)], (5, 2), {"old-0": 6}),
        ([(10, 4)], (0, 0), {"old-0": 8}),  # those that are not available go first, and none beyond the bound
        ([(4, 0), (6, 6)], (0, 0), {"old-0": 2}),
        ([(1, 1), (4, 4)], (8, 8), {"old-0": 0, "old-1": 0}),  # the oldest first
        ([(2, 2), (4, 4)], (5, 5), {"old-0": 0, "old-1": 3}),
        ([], (10, 10), {}),
    ],
)
def test_the_old_ones_give_up_what_is_not_needed(
    old: list[tuple[int, int]], new: tuple[int, int], keeps: dict[str, int]
) -> None:
    held = [sized(f"old-{i}", *sizes, age=20 - i) for i, sizes in enumerate(old)]
    assert RolloutSets(sized("new", *new), held).shrunk(deployed(10)) == keeps


def test_a_deployment_scaled_amidst_a_roll_out_scales_all_in_proportion() -> None:
    """The example of the documentation: 10 with a surge of 3 scaled to 15 while 8 and 5 stand."""
    old, new = sized("old", 8, age=9, desired=10, most=13), sized("new", 5, desired=10, most=13)
    work = deployed(15, maxSurge=3, maxUnavailable=2)
    assert proportional(work, RolloutSets(new, [old]), 13) == {"old": 11, "new": 7}
    assert proportional(deployed(0), RolloutSets(new, [old]), 13) == {"old": 0, "new": 0}


def test_which_one_is_scaled_alone() -> None:
    old, new = sized("old", 0, age=9), sized("new", 0)
    assert latest_or_only(RolloutSets(new, [old])) is new
    assert latest_or_only(RolloutSets(None, [sized("older", 0, age=20), old])) is old
    assert latest_or_only(RolloutSets(new, [sized("old", 2)])) == sized("old", 2)
    assert latest_or_only(RolloutSets(sized("new", 1), [sized("old", 2)])) is None
    assert latest_or_only(RolloutSets(None, [])) is None


def test_what_is_saturated() -> None:
    work = deployed(3)
    assert is_saturated(work, sized("new", 3, desired=3, most=4))
    assert not is_saturated(work, sized("new", 3, 2, desired=3, most=4))
    assert not is_saturated(work, sized("new", 3, desired=2, most=3))
    assert not is_saturated(work, None)


def standing(uid: str, **facts: Any) -> Obj:
    """A pod that is ready on a node; `facts` say what is otherwise."""
    cost = {"controller.kubernetes.io/pod-deletion-cost": str(facts["cost"])} if "cost" in facts else {}
    since = {"lastTransitionTime": facts.get("ready_since", "2026-01-01T00:00:00Z")}
    created = facts.get("created", "2026-01-01T00:00:00Z")
    return {
        "metadata": {"uid": uid, "creationTimestamp": created, "annotations": cost},
        "spec": {"nodeName": facts.get("node", "a")},
        "status": {
            "phase": facts.get("phase", "Running"),
            "conditions": [{"type": "Ready", "status": facts.get("ready", "True"), **since}],
            "containerStatuses": [{"restartCount": facts.get("restarts", 0)}],
        },
    }


@pytest.mark.parametrize(
    ("first", "near"),
    [
        ({"node": ""}, 0),
        ({"phase": "Pending"}, 0),
        ({"ready": "False"}, 0),
        ({"cost": -1}, 0),
        ({}, 3),
        ({"ready_since": "2026-01-01T00:59:00Z"}, 0),
        ({"restarts": 2}, 0),
        ({"created": "2026-01-01T00:59:00Z"}, 0),
    ],
)
def test_who_goes_first(first: Mapping[str, Any], near: int) -> None:
    now = 1767229200.0  # 2026-01-01T01:00:00Z
    assert worth_of(standing("z", **first), near, now) < worth_of(standing("a"), 0, now)


# -- stories ----------------------------------------------------------------------------------------------------------


def web(*, image: str = "x:1", cpu: str = "1") -> Obj:
    template = pod_template(cpu=cpu, labels={"app": "web"}, restartPolicy="Always")
    template["spec"]["containers"][0]["image"] = image
    return template


def deploy(world: ControllerWorld, replicas: int = 3, **spec: Any) -> Obj:
    wanted = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": web(), **spec}
    return world.create("Deployment", {"metadata": {"name": "web"}, "spec": wanted})


def sizes(world: ControllerWorld) -> dict[str, tuple[int, int]]:
    """Revision -> wanted and available pods."""
    return {
        one["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: (
            one["spec"]["replicas"],
            one["status"].get("availableReplicas", 0),
        )
        for one in world.all("ReplicaSet")
    }


def reasons(world: ControllerWorld, kind: str) -> list[str]:
    return [event["message"] for event in world.all("Event") if event["involvedObject"]["kind"] == kind]


@pytest.fixture
def roomy(world: ControllerWorld) -> ControllerWorld:
    world.ready_node("a", cpu="40", pods="100")
    return world


def test_a_deployment_gets_its_pods(roomy: ControllerWorld) -> None:
    deploy(roomy, 12)
    roomy.pass_s(10)
    [held] = roomy.all("ReplicaSet")
    name_hash = held["metadata"]["labels"]["pod-template-hash"]
    assert held["metadata"]["name"] == f"web-{name_hash}"
    assert held["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": name_hash}
    pods = roomy.pods(app="web")
    assert len(pods) == 12
    assert all(pod["status"]["phase"] == "Running" for pod in pods)
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods} == {held["metadata"]["uid"]}
    assert all(labels_of(pod)["pod-template-hash"] == name_hash for pod in pods)
    status = roomy.the("Deployment", "web")["status"]
    assert {field: count for field, count in status.items() if field != "conditions"} == {
        "observedGeneration": 1,
        "replicas": 12,
        "updatedReplicas": 12,
        "readyReplicas": 12,
        "availableReplicas": 12,
    }
    assert roomy.condition("Deployment", "web", "Available") == ("True", "MinimumReplicasAvailable")
    assert roomy.condition("Deployment", "web", "Progressing") == ("True", "NewReplicaSetAvailable")
    assert f"Scaled up replica set web-{name_hash} from 0 to 12" in reasons(roomy, "Deployment")


def test_a_cluster_at_rest_is_not_written_to(roomy: ControllerWorld) -> None:
    deploy(roomy)
    roomy.pass_s(60)
    for kind in ("Deployment", "ReplicaSet"):
        before = roomy.all(kind)
        roomy.pass_s(5000)
        assert roomy.all(kind) == before


def test_a_rolling_update_keeps_its_bounds(roomy: ControllerWorld) -> None:
    deploy(roomy, 8, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}})
    roomy.pass_s(10)
    roomy.change("Deployment", "web", template=web(image="x:2"))
    for _ in range(40):
        roomy.pass_s(0.5)
        held = sizes(roomy)
        assert sum(wanted for wanted, _ in held.values()) <= 10
        assert sum(available for _, available in held.values()) >= 7
    assert sizes(roomy) == {"1": (0, 0), "2": (8, 8)}
    assert {pod["spec"]["containers"][0]["image"] for pod in roomy.pods(app="web")} == {"x:2"}
    assert roomy.condition("Deployment", "web", "Progressing") == ("True", "NewReplicaSetAvailable")


def test_an_update_whose_pods_find_no_place_stops_and_says_so(world: ControllerWorld) -> None:
    world.ready_node("a", cpu="4")
    deploy(world, 4, progressDeadlineSeconds=60)
    world.pass_s(10)
    world.change("Deployment", "web", template=web(image="x:2", cpu="9"))
    world.pass_s(120)
    assert sizes(world) == {"1": (3, 3), "2": (2, 0)}
    assert world.condition("Deployment", "web", "Progressing") == ("False", "ProgressDeadlineExceeded")
    assert world.condition("Deployment", "web", "Available") == ("True", "MinimumReplicasAvailable")
    world.change("Deployment", "web", template=web(image="x:1"))  # back again: the first set is the new one
    world.pass_s(60)
    assert sizes(world) == {"3": (4, 4), "2": (0, 0)}
    assert world.condition("Deployment", "web", "Progressing") == ("True", "NewReplicaSetAvailable")


def test_recreate_starts_when_the_last_old_pod_is_gone(roomy: ControllerWorld) -> None:
    deploy(roomy, 3, strategy={"type": "Recreate"})
    roomy.pass_s(10)
    roomy.change("Deployment", "web", template=web(image="x:2"))
    for _ in range(60):
        roomy.pass_s(0.5)
        assert len({pod["spec"]["containers"][0]["image"] for pod in roomy.pods(app="web")}) <= 1
    assert sizes(roomy) == {"1": (0, 0), "2": (3, 3)}


def test_scaling_and_pausing(roomy: ControllerWorld) -> None:
    deploy(roomy, 3)
    roomy.pass_s(10)
    roomy.change("Deployment", "web", replicas=6)
    roomy.pass_s(10)
    assert sizes(roomy) == {"1": (6, 6)}
    roomy.change("Deployment", "web", paused=True, template=web(image="x:2"), replicas=2)
    roomy.pass_s(60)
    assert sizes(roomy) == {"1": (2, 2)}
    assert roomy.condition("Deployment", "web", "Progressing") == ("Unknown", "DeploymentPaused")
    roomy.change("Deployment", "web", paused=False)
    roomy.pass_s(60)
    assert sizes(roomy) == {"1": (0, 0), "2": (2, 2)}
    roomy.change("Deployment", "web", replicas=0)
    roomy.pass_s(60)
    assert not roomy.pods(app="web")


def test_history_is_kept_as_long_as_asked(roomy: ControllerWorld) -> None:
    deploy(roomy, 1, revisionHistoryLimit=2)
    for version in range(1, 6):
        roomy.change("Deployment", "web", template=web(image=f"x:{version}"))
        roomy.pass_s(60)
    assert sorted(sizes(roomy)) == ["3", "4", "5"]


def test_a_pod_that_is_lost_is_replaced(roomy: ControllerWorld) -> None:
    deploy(roomy, 3)
    roomy.pass_s(10)
    first = roomy.pods(app="web")[0]
    roomy.delete("Pod", first["metadata"]["name"])
    roomy.pass_s(60)
    names = {pod["metadata"]["name"] for pod in roomy.pods(app="web")}
    assert len(names) == 3
    assert first["metadata"]["name"] not in names


def test_ready_for_long_enough(roomy: ControllerWorld) -> None:
    deploy(roomy, 2, minReadySeconds=100)
    roomy.pass_s(50)
    assert roomy.the("Deployment", "web")["status"].get("availableReplicas", 0) == 0
    roomy.pass_s(60)
    assert roomy.the("Deployment", "web")["status"]["availableReplicas"] == 2


def test_pods_are_adopted_and_let_go_by_their_labels(roomy: ControllerWorld) -> None:
    roomy.pod("stray", labels={"app": "web"})
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": 2, "selector": selector, "template": web()}
    roomy.create("ReplicaSet", {"metadata": {"name": "web"}, "spec": spec})
    roomy.pass_s(10)
    assert len(roomy.pods(app="web")) == 2
    assert roomy.the("Pod", "stray")["metadata"]["ownerReferences"][0]["name"] == "web"
    roomy.set_labels("Pod", "stray", {"app": "other"})
    roomy.pass_s(10)
    assert len(roomy.pods(app="web")) == 2
    assert not roomy.the("Pod", "stray")["metadata"].get("ownerReferences")


def test_what_is_deleted_goes_with_its_pods(roomy: ControllerWorld) -> None:
    deploy(roomy)
    roomy.pass_s(10)
    roomy.delete("Deployment", "web")
    roomy.pass_s(60)
    assert not roomy.all("ReplicaSet")
    assert not roomy.all("Pod")


def test_orphans_are_found_again(roomy: ControllerWorld) -> None:
    deploy(roomy)
    roomy.pass_s(10)
    before = {pod["metadata"]["uid"] for pod in roomy.pods(app="web")}
    roomy.delete("Deployment", "web", propagation="Orphan")
    roomy.pass_s(10)
    assert len(roomy.all("ReplicaSet")) == 1
    deploy(roomy)
    roomy.pass_s(10)
    assert {pod["metadata"]["uid"] for pod in roomy.pods(app="web")} == before
    assert len(roomy.all("ReplicaSet")) == 1


def test_pods_that_are_refused_are_told_and_tried_again(world: ControllerWorld) -> None:
    template = web()
    template["spec"]["priorityClassName"] = "urgent"
    deploy(world, 2, template=template)
    world.pass_s(10)
    [held] = world.all("ReplicaSet")
    failure = condition_of(held, "ReplicaFailure")
    assert failure is not None
    assert failure["reason"] == "FailedCreate"
    assert "urgent" in failure["message"]
    assert world.condition("Deployment", "web", "ReplicaFailure") == ("True", "FailedCreate")
    assert any(text.startswith("Error creating: ") for text in reasons(world, "ReplicaSet"))
    world.create("PriorityClass", {"metadata": {"name": "urgent"}, "value": 7})
    world.pass_s(120)
    assert len(world.pods(app="web")) == 2
    assert world.condition("Deployment", "web", "ReplicaFailure") is None


def test_the_fuller_node_loses_the_pod(world: ControllerWorld) -> None:
    world.ready_node("a", cpu="3")
    deploy(world, 4)
    world.pass_s(10)
    world.ready_node("b", cpu="1")
    world.pass_s(10)
    world.change("Deployment", "web", replicas=3)
    world.pass_s(60)
    assert sorted(node_of(pod) for pod in world.pods(app="web")) == ["a", "a", "b"]
