import pytest

from providers.sim.controllers.filters.bound_pods import BoundPod, BoundPods
from providers.sim.controllers.matching import selector_matches, selects, tolerates, untolerated
from providers.sim.controllers.occupancy import Occupancy
from providers.sim.controllers.scheduling import SchedulableNode
from providers.sim.store import StoreEvent
from providers.sim.store.podrequests import requests_of
from tests.providers.sim.controllers.world import ControllerWorld, Obj


def terms(*expressions: Obj) -> Obj:
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]} for expression in expressions]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expr(key: str, operator: str, *values: str) -> Obj:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        ({"nodeSelector": {"zone": "a", "disk": "ssd"}}, False),
        ({"affinity": terms(expr("zone", "In", "a", "b"))}, True),
        ({"affinity": terms(expr("zone", "NotIn", "a"))}, False),
        ({"affinity": terms(expr("absent", "NotIn", "a"))}, True),
        ({"affinity": terms(expr("zone", "Exists"))}, True),
        ({"affinity": terms(expr("zone", "DoesNotExist"))}, False),
        ({"affinity": terms(expr("gen", "Gt", "4"))}, True),
        ({"affinity": terms(expr("gen", "Gt", "5"))}, False),
        ({"affinity": terms(expr("gen", "Lt", "6"))}, True),
        ({"affinity": terms(expr("zone", "Gt", "1"))}, False),  # not a number
        ({"affinity": terms(expr("gen", "Gt", "1_0"))}, False),  # nor to Go
        ({"affinity": terms(expr("gen", "Lt", "9" * 19))}, False),  # beyond 64 bits
        ({"affinity": terms(expr("zone", "In", "b"), expr("gen", "In", "5"))}, True),  # terms are alternatives
        (
            {
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
                }
            },
            False,
        ),
        ({"nodeSelector": {"zone": "a"}, "affinity": terms(expr("zone", "In", "b"))}, False),  # both must hold
    ],
)
def test_selects(spec: Obj, fits: bool) -> None:
    assert selects(spec, {"zone": "a", "gen": "5"}, "n1") is fits


def test_selects_by_name() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    spec = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    }
    assert selects(spec, {}, "n1")
    assert not selects(spec, {}, "n2")


TAINT = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "ok"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "a100"}, True),
        ({"key": "gpu", "value": "h100"}, False),
        ({"key": "gpu"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
    ],
)
def test_tolerates(toleration: Obj, ok: bool) -> None:
    assert tolerates(toleration, TAINT) is ok
    found = untolerated({"tolerations": [toleration]}, [TAINT], frozenset({"NoSchedule"}))
    assert (found is None) is ok
    assert untolerated({}, [TAINT], frozenset({"NoExecute"})) is None


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [expr("a", "In", "1")]}, True),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [expr("b", "Exists")]}, False),
    ],
)
def test_selector_matches(selector: Obj | None, matches: bool) -> None:
    assert selector_matches(selector, {"a": "1"}) is matches


def container(requests: Obj | None = None, limits: Obj | None = None, **fields: str) -> Obj:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **fields}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"containers": [container({"cpu": "500m"}), container({"cpu": "1"})]}, {"cpu": 1500}),
        ({"containers": [container(limits={"nvidia.com/gpu": 2})]}, {"nvidia.com/gpu": 2}),
        ({"containers": [container({"cpu": "1"}, {"cpu": "2"})]}, {"cpu": 1000}),
        ({"containers": [container({"cpu": "1"})], "initContainers": [container({"cpu": "3"})]}, {"cpu": 3000}),
        (
            {
                "containers": [container({"cpu": "1"})],
                "initContainers": [container({"cpu": "1"}, restartPolicy="Always"), container({"cpu": "500m"})],
            },
            {"cpu": 2000},
        ),
        (
            {"containers": [container({"memory": "1Gi"})], "overhead": {"memory": "1Mi"}},
            {"memory": (1 << 30) + (1 << 20)},
        ),
        (  # what is asked for the whole pod takes the place of what its containers ask for
            {"containers": [container({"cpu": "4", "nvidia.com/gpu": "1"})], "resources": {"requests": {"cpu": "2"}}},
            {"cpu": 2000, "nvidia.com/gpu": 1},
        ),
        (  # a limit of the pod counts where no container asks
            {
                "containers": [container({"cpu": "1"})],
                "resources": {"limits": {"cpu": "3", "memory": "1Mi"}},
                "overhead": {"cpu": "250m"},
            },
            {"cpu": 1250, "memory": 1 << 20},
        ),
    ],
)
def test_requests(spec: Obj, wanted: Obj) -> None:
    assert requests_of({"spec": spec}) == {**wanted, "pods": 1}


def test_nothing_is_kept_of_nodes_that_nobody_is_on() -> None:
    occupancy, bound = Occupancy(), BoundPods()
    ports = [{"containerPort": 80, "hostPort": 80}]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    spec = {"containers": [container({"cpu": "1"}) | {"ports": ports}], "volumes": volumes}
    pod = {"metadata": {"name": "p", "namespace": "default", "labels": {"a": "1"}}, "spec": spec}
    for node in ("one", "two"):
        occupancy.hold(node, node, requests_of(pod))
        bound.put(node, BoundPod.of(pod, node))
    assert list(bound.selected({"matchLabels": {"a": "1"}}))
    for node in ("one", "two"):
        assert occupancy.release(node)
        bound.drop(node)
    assert not any(vars(occupancy).values())
    assert not any(vars(bound).values())


@pytest.mark.parametrize(
    ("ready", "spec", "taints"),
    [
        ("True", {}, []),
        ("True", {"unschedulable": True}, ["unschedulable"]),
        ("False", {}, ["not-ready"]),
        ("Unknown", {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]}, ["unreachable"]),
        (None, {"unschedulable": True}, ["not-ready", "unschedulable"]),
    ],
)
def test_what_is_unready_or_cordoned_counts_as_tainted(ready: str | None, spec: Obj, taints: list[str]) -> None:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    view = SchedulableNode.of({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}})
    assert [taint["key"].rpartition("/")[2] for taint in view.taints] == taints


class TestPlacing:
    def test_fills_the_fullest_node_first(self, world: ControllerWorld) -> None:
        for name in ("a", "b", "c"):
            world.node(name)
        world.pass_s(6)
        world.pod("seed", nodeSelector={}, nodeName="b")
        world.pass_s(2)
        for i in range(3):
            world.pod(f"p{i}")
        world.pass_s(2)
        assert {p["spec"]["nodeName"] for p in world.all("Pod")} == {"b"}
        world.pod("next")
        world.pass_s(2)
        assert world.the("Pod", "next")["spec"]["nodeName"] == "a"  # among equals, the first by name

    def test_order_is_priority_then_arrival(self, world: ControllerWorld) -> None:
        world.node("n", cpu="2")
        world.create("PriorityClass", {"metadata": {"name": "high"}, "value": 1000})
        for name, priority in (("first", ""), ("second", ""), ("urgent", "high")):
            world.pod(name, **({"priorityClassName": priority} if priority else {}))
        world.pass_s(10)
        assert [p["metadata"]["name"] for p in world.all("Pod") if p["spec"].get("nodeName")] == ["first", "urgent"]

    def test_waits_for_readiness(self, world: ControllerWorld) -> None:
        world.node("n")
        world.pod("p")
        world.pass_s(4)
        assert "nodeName" not in world.the("Pod", "p")["spec"]
        world.pass_s(4)
        assert world.the("Pod", "p")["spec"]["nodeName"] == "n"

    @pytest.mark.parametrize(
        ("node", "pod", "reason", "helped"),
        [
            ({"cpu": "1"}, {"cpu": "2"}, "1 Insufficient cpu", "1 Preemption is not helpful for scheduling"),
            ({"cpu": "4", "pods": "0"}, {}, "1 Too many pods", "1 No preemption victims found for incoming pod"),
            (
                {},
                {"nodeSelector": {"a": "b"}},
                "1 node(s) didn't match Pod's node affinity/selector",
                "1 Preemption is not helpful for scheduling",
            ),
            (
                {"taints": [TAINT]},
                {},
                "1 node(s) had untolerated taint(s)",
                "1 Preemption is not helpful for scheduling",
            ),
        ],
    )
    def test_says_why_not(self, world: ControllerWorld, node: Obj, pod: Obj, reason: str, helped: str) -> None:
        world.ready_node("n", **node)
        world.pod("p", **pod)
        world.pass_s(2)
        (said,) = [c for c in world.the("Pod", "p")["status"]["conditions"] if c["type"] == "PodScheduled"]
        assert (said["status"], said["reason"]) == ("False", "Unschedulable")
        none = "0/1 nodes are available:"
        assert said["message"] == f"{none} {reason}. no new claims to deallocate, preemption: {none} {helped}."

    def test_a_pod_that_never_preempts_says_so(self, world: ControllerWorld) -> None:
        world.create("PriorityClass", {"metadata": {"name": "calm"}, "value": 1, "preemptionPolicy": "Never"})
        world.ready_node("n", cpu="1")
        world.pod("p", cpu="2", priorityClassName="calm")
        world.pass_s(2)
        message = world.the("Pod", "p")["status"]["conditions"][0]["message"]
        assert message.endswith("preemption: not eligible due to preemptionPolicy=Never.")

    def test_says_when_there_is_no_node(self, world: ControllerWorld) -> None:
        world.pod("p")
        world.pass_s(1)
        assert world.the("Pod", "p")["status"]["conditions"][0]["message"] == "no nodes available to schedule pods"

    def test_a_parked_pod_gets_what_becomes_free(self, world: ControllerWorld) -> None:
        world.ready_node("n", cpu="1")
        world.pod("a", notes={"run-seconds": "30"})
        world.pod("b")
        world.pass_s(5)
        assert "nodeName" not in world.the("Pod", "b")["spec"]
        world.pass_s(30)
        assert world.the("Pod", "b")["spec"]["nodeName"] == "n"

    def test_a_cordoned_node_takes_nothing_until_uncordoned(self, world: ControllerWorld) -> None:
        world.ready_node("n")
        world.change("Node", "n", unschedulable=True)
        world.pod("p")
        world.pass_s(2)
        assert "unschedulable" in world.the("Node", "n")["spec"]["taints"][0]["key"]
        assert "were unschedulable" in world.the("Pod", "p")["status"]["conditions"][0]["message"]
        world.change("Node", "n", unschedulable=False)
        world.pass_s(2)
        assert "taints" not in world.the("Node", "n")["spec"]
        assert world.the("Pod", "p")["spec"]["nodeName"] == "n"

    def test_gated_pods_wait_for_their_gate(self, world: ControllerWorld) -> None:
        world.ready_node("n1")
        world.ready_node("n2", labels={"slot": "7"})
        world.pod("p", schedulingGates=[{"name": "muster.dev/placement"}])
        world.pass_s(5)
        assert world.condition("Pod", "p", "PodScheduled") == ("False", "SchedulingGated")
        held = world.the("Pod", "p")
        world.change(
            "Pod", "p", schedulingGates=[], nodeSelector={**(held["spec"].get("nodeSelector") or {}), "slot": "7"}
        )
        world.pass_s(5)
        assert world.the("Pod", "p")["spec"]["nodeName"] == "n2"

    def test_another_scheduler_is_not_us(self, world: ControllerWorld) -> None:
        world.ready_node("n")
        world.pod("p", schedulerName="volcano")
        world.pass_s(5)
        assert "nodeName" not in world.the("Pod", "p")["spec"]

    def test_room_that_appears_during_a_pass_is_not_missed(self, world: ControllerWorld) -> None:
        """While the pass is at the second of two equal pods, somebody takes away what was in their way."""
        world.ready_node("n", cpu="2")
        world.pod("blocker", cpu="2")
        world.pass_s(2)
        for name in ("a", "b"):
            world.pod(name)
        room: list[str] = []

        def make_room(event: StoreEvent) -> None:
            if event.object["metadata"]["name"] == "a" and not room:
                room.append("made")
                world.delete("Pod", "blocker", grace_period_s=0)

        world.store.subscribe(make_room, resource=world.store.resource("Pod"))
        world.settle()
        assert room
        assert [world.the("Pod", name)["spec"].get("nodeName") for name in ("a", "b")] == ["n", "n"]
