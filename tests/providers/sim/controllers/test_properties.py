"""Whatever users and faults do in whatever order: the invariants hold at rest, and everything comes to rest."""

from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from providers.sim.controllers.objects import being_deleted, is_active, is_terminal, is_true, node_of
from providers.sim.controllers.occupancy import allocatable_of, fits
from providers.sim.store import ApiError, StoreTooManyRequests
from providers.sim.store.podrequests import requests_of
from tests.providers.sim.controllers.world import ControllerWorld, pod_template

NODES = [f"n{i}" for i in range(3)]
NAMES = [f"w{i}" for i in range(3)]
small = st.integers(min_value=1, max_value=4)


class ClusterLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = ControllerWorld()
        for name in NODES[:2]:
            self.world.ready_node(name)

    @rule(
        name=st.sampled_from(NAMES),
        pods=small,
        width=small,
        indexed=st.booleans(),
        suspend=st.booleans(),
        run=st.sampled_from(["3", "20", ""]),
        fail=st.booleans(),
    )
    def create_job(self, name: str, pods: int, width: int, indexed: bool, suspend: bool, run: str, fail: bool) -> None:
        if self.world.get("Job", name) is None:
            notes = {**({"run-seconds": run} if run else {}), **({"fail": "1"} if fail else {})}
            mode = "Indexed" if indexed else "NonIndexed"
            self.world.job(
                name,
                completions=pods,
                parallelism=width,
                completionMode=mode,
                suspend=suspend,
                template=pod_template(notes=notes, labels={"app": name}),
            )

    @rule(name=st.sampled_from(NAMES), replicas=small, pods=small, suspend=st.booleans(), restarts=st.integers(0, 2))
    def create_jobset(self, name: str, replicas: int, pods: int, suspend: bool, restarts: int) -> None:
        if self.world.get("JobSet", name) is None:
            job = {
                "parallelism": pods,
                "completions": pods,
                "backoffLimit": 0,
                "template": pod_template(notes={"run-seconds": "9"}),
            }
            rows = [{"name": "r", "replicas": replicas, "template": {"spec": job}}]
            spec = {"replicatedJobs": rows, "suspend": suspend, "failurePolicy": {"maxRestarts": restarts}}
            self.world.create("JobSet", {"metadata": {"name": name}, "spec": spec})

    @rule(kind=st.sampled_from(["Job", "JobSet"]), name=st.sampled_from(NAMES), suspend=st.booleans())
    def suspend_or_resume(self, kind: str, name: str, suspend: bool) -> None:
        if self.world.get(kind, name) is not None:
            self.world.change(kind, name, suspend=suspend)

    @rule(
        kind=st.sampled_from(["Job", "JobSet"]),
        name=st.sampled_from(NAMES),
        how=st.sampled_from(["Background", "Foreground"]),
    )
    def delete_owner(self, kind: str, name: str, how: str) -> None:
        if self.world.get(kind, name) is not None:
            self.world.delete(kind, name, propagation=how)

    @rule(pick=st.integers(0, 50), how=st.sampled_from(["evict", "delete", "force"]))
    @precondition(lambda self: self.world.all("Pod"))
    def take_a_pod(self, pick: int, how: str) -> None:
        pods = self.world.all("Pod")
        name = pods[pick % len(pods)]["metadata"]["name"]
        try:
            if how == "evict":
                self.world.store.evict(name, "default")
            else:
                self.world.delete("Pod", name, grace_period_s=0 if how == "force" else None)
        except StoreTooManyRequests:
            pass

    @rule(
        name=st.sampled_from(NODES),
        act=st.sampled_from(["create", "delete", "cordon", "uncordon", "fail", "silence", "heal", "taint"]),
    )
    def touch_a_node(self, name: str, act: str) -> None:
        world, exists = self.world, self.world.get("Node", name) is not None
        if act == "create" and not exists:
            world.node(name)
        elif act in ("fail", "silence", "heal"):
            {
                "fail": world.sim.health.fail_node,
                "silence": world.sim.health.stop_heartbeats,
                "heal": world.sim.health.heal,
            }[act](name)
        elif exists:
            changes: dict[str, Any] = {"taint": {"taints": [{"key": "drain", "effect": "NoExecute"}]}}
            if act == "delete":
                world.delete("Node", name)
            else:
                world.change("Node", name, **changes.get(act, {"unschedulable": act == "cordon"}))

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 30.0, 400.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.world.pass_s(seconds)

    @rule(name=st.sampled_from(NAMES))
    def budget(self, name: str) -> None:
        if self.world.get("PodDisruptionBudget", name) is None:
            spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}}
            self.world.create("PodDisruptionBudget", {"metadata": {"name": name}, "spec": spec})

    @invariant()
    def at_rest_everything_fits(self) -> None:
        self.world.settle()  # raises Restless if the controllers undo each other's work
        self.world.check_invariants()

    @invariant()
    def at_rest_no_pod_waits_for_a_node_that_would_take_it(self) -> None:
        nodes = [n for n in self.world.all("Node") if is_true(n, "Ready") and not n["spec"].get("taints")]
        used: dict[str, Counter[str]] = {}
        for pod in self.world.all("Pod"):
            if node_of(pod) and not is_terminal(pod):
                used.setdefault(node_of(pod), Counter()).update(requests_of(pod))
        for pod in self.world.all("Pod"):
            if is_active(pod) and not node_of(pod):
                for node in nodes:
                    name = node["metadata"]["name"]
                    assert not fits(requests_of(pod), allocatable_of(node), used.get(name, {})), (pod, name)

    def teardown(self) -> None:
        """When everything is healed and deleted, nothing is left."""
        world = self.world
        for name in NODES:
            world.sim.health.heal(name)
        for name in NODES:
            if world.get("Node", name) is None:
                world.node(name)
        for node in world.all("Node"):
            world.change("Node", node["metadata"]["name"], unschedulable=False, taints=[])
        world.pass_s(5000)
        for job in world.all("Job"):  # nobody is forgotten: over, held back, or at work
            over = any(is_true(job, kind) for kind in ("Complete", "Failed"))
            assert over or job["spec"].get("suspend") or job["status"]["active"] > 0, job
            assert not being_deleted(job)
        for kind in ("JobSet", "Job"):
            for obj in world.all(kind):
                try:
                    world.delete(kind, obj["metadata"]["name"], propagation="Foreground")
                except ApiError:
                    continue
        world.pass_s(1000)
        leftover = [pod for pod in world.all("Pod") if is_active(pod) or not is_terminal(pod)]
        assert world.all("JobSet") == world.all("Job") == leftover == []
        assert world.all("Pod") == []


ClusterLife.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestClusterLife = ClusterLife.TestCase
