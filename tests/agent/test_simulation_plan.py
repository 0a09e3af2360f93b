"""What a plan says is what happens: each change is planned in a running world, pushed there, and the two compared.

The world has gangs that run and one that waits. Compared are machines (pool, type, zone, capacity type, layout), gangs
(state and reason) and the bill, once nothing changes any more.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from agent.demo.jobs import job
from agent.simulation import Tempo
from fleet.plan import make_plan
from fleet.plan.simulated_run import simulate
from fleet.snapshot import Claim, Gang, Snapshot
from model.loader import load
from tests.agent.scenes import G5, G6, P4DE, P5, A, B, C, Doc, Scene, doc, files, gpu_job, layout, pool, queue, team

OPEN = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "60s", "budgets": [{"nodes": "100%"}]}
SETTLES_S = 1800.0
GPU = "nvidia.com/gpu"
LIFTED = dict.fromkeys(
    ("maxPercentRemoved", "maxNodesAdded", "maxUsdPerHourAdded", "maxUsdPerHourExposed", "maxGangsEvicted"), "Unlimited"
)
Docs = dict[str, Doc]
Change = Callable[[Docs], None]


def fleet() -> Docs:
    slices = {"nvidia.com/mig-3g.40gb": 32, "nvidia.com/mig-1g.10gb": 56}
    return {
        "policy": doc("FleetPolicy", "p", guardRails=LIFTED),
        "h100": pool("h100", (P5,), zones=[A, B], disruption=OPEN, limits={"nodes": 6}),
        "g": pool(
            "g", (G5, G6), zones=[A, B], capacityTypes=["spot", "on-demand"], disruption=OPEN, limits={"nodes": 6}
        ),
        "mig": pool(
            "mig",
            (P4DE,),
            zones=[B, C],
            disruption=OPEN,
            sharing={"mig": {"layouts": ["thick", "thin"]}},
            limits={"nodes": 2},
        ),
        "thick": layout("thick", **{"3g_40gb": 2}),
        "thin": layout("thin", **{"1g_10gb": 7}),
        "t": team("t", {"h100": {GPU: 24}, "g": {GPU: 8}, "mig": slices}),
        "u": team("u", {"h100": {GPU: 8}, "g": {GPU: 8}}),
        "queue t": queue("t", ("h100", "g", "mig")),
        "queue u": queue("u", ("h100", "g")),
    }


def nameless() -> Doc:
    """A job that nobody runs before it has a queue."""
    made = gpu_job("n", gpus=1)
    made["metadata"]["labels"].pop("muster.dev/queue")
    return made


def running() -> Scene:
    scene = Scene(files(*fleet().values()), tempo=Tempo(tick_s=10.0, listing_s=30.0))
    scene.runs(gpu_job("a", pods=2))
    scene.runs(gpu_job("b"))
    scene.runs(gpu_job("c", gpus=4, pods=2, namespace="u"))
    scene.sim.submit(job("m", "t", "normal", pods=4, requests={"nvidia.com/mig-3g.40gb": "1"}))
    scene.until_running("m")
    scene.sim.submit(gpu_job("w", pods=4, namespace="u"))
    scene.sim.submit(nameless())
    scene.sim.advance(300)
    return scene


# -- changes ----------------------------------------------------------------------------------------------------------


def spec(name: str, **fields: Any) -> Change:
    """Set fields of a declaration; None takes one away."""

    def change(docs: Docs) -> None:
        found = docs[name]["spec"]
        found.update({key: value for key, value in fields.items() if value is not None})
        for key in [key for key, value in fields.items() if value is None]:
            found.pop(key, None)

    return change


def gone(*names: str) -> Change:
    """Take declarations away, and pools of that name out of teams and queues."""

    def change(docs: Docs) -> None:
        for name in names:
            docs.pop(name)
        for it in docs.values():
            if "flavors" in it["spec"]:
                it["spec"]["flavors"] = [flavor for flavor in it["spec"]["flavors"] if flavor not in names]
            if "quotas" in it["spec"]:
                it["spec"]["quotas"] = {
                    name: quota for name, quota in it["spec"]["quotas"].items() if name not in names
                }

    return change


def left_to(heir: str, *names: str) -> Change:
    """Take pools away, and keep their flavors and quotas for another: what runs stays counted."""

    def change(docs: Docs) -> None:
        for name in names:
            docs.pop(name)
            docs[f"flavor {name}"] = doc("Flavor", name, nodePools=[heir])

    return change


def both(*changes: Change) -> Change:
    def change(docs: Docs) -> None:
        for one in changes:
            one(docs)

    return change


def quota(name: str, flavor: str, **amounts: int) -> Change:
    def change(docs: Docs) -> None:
        docs[name]["spec"]["quotas"][flavor] = {"guaranteed": {key: str(value) for key, value in amounts.items()}}

    return change


def cut(name: str, *layouts: str) -> Change:
    """One more pool of cut GPUs."""
    sharing = {"mig": {"layouts": list(layouts)}}
    return lambda docs: docs.update(
        {name: pool(name, (P4DE,), zones=[B, C], disruption=OPEN, sharing=sharing, limits={"nodes": 1})}
    )


def thin_only(docs: Docs) -> None:
    """The quota of thick cuts stays, for another pool."""
    docs["mig"]["spec"]["sharing"] = {"mig": {"layouts": ["thin"]}}
    cut("mig2", "thick")(docs)
    docs["flavor mig"] = doc("Flavor", "mig", nodePools=["mig", "mig2"])


SERVES = spec("h100", serves=["Gangs", "Pods"])


def buffer(docs: Docs) -> None:
    """Room ahead for two pods of a whole machine."""
    container = {"name": "c", "resources": {"limits": {GPU: 8}}}
    docs["room"] = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "room", "namespace": "t"},
        "template": {"spec": {"containers": [container]}},
    }
    docs["buffer"] = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "ahead", "namespace": "t"},
        "spec": {"podTemplateRef": {"name": "room"}, "replicas": 2},
    }


LABELLED = {"template": {"labels": {"x": "y"}}}
WINDOW = [{"name": "w", "schedule": "* * * * *", "duration": "1h", "blocks": ["Disruption"]}]
CHANGES: Mapping[str, Change] = {
    "nothing": both(),
    "labels of the template": spec("h100", **LABELLED),
    "user data": spec("h100", template={"userData": "#!/bin/bash\necho hi"}),
    "a taint": spec("h100", template={"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    "another zone": spec("h100", zones=[C]),
    "one more zone": spec("h100", zones=[A, B, C]),
    "another capacity type": spec("h100", capacityTypes=["spot"]),
    "no spot any more": spec("g", capacityTypes=["on-demand"]),
    "on-demand first": spec("g", capacityTypes=["on-demand", "spot"]),
    "another instance type": spec("g", instanceTypes=[G6]),
    "an instance type that does not fit": spec("h100", instanceTypes=[G5]),
    "limits below what runs": spec("h100", limits={"nodes": 1}),
    "higher limits": spec("h100", limits={"nodes": 20}),
    "no budget, and labels": spec("h100", disruption={**OPEN, "budgets": [{"nodes": "0%"}]}, **LABELLED),
    "a budget of one, and labels": spec("h100", disruption={**OPEN, "budgets": [{"nodes": 1}]}, **LABELLED),
    "a freeze window, and labels": both(spec("policy", freezeWindows=WINDOW), spec("h100", **LABELLED)),
    "only empty machines are given back": spec("h100", disruption={**OPEN, "consolidationPolicy": "WhenEmpty"}),
    "nothing is given back": spec("h100", disruption={**OPEN, "consolidateAfter": "Never"}),
    "a pool goes": gone("g"),
    "a pool with gangs goes": left_to("g", "h100"),
    "a pool with cut GPUs goes": both(left_to("mig2", "mig"), cut("mig2", "thick", "thin")),
    "a layout that runs is not allowed any more": thin_only,
    "a fixed pool": spec("g", replicas=3, limits=None, capacityTypes=["on-demand"], disruption=None),
    "less quota": quota("t", "h100", **{GPU: 8}),
    "more quota": quota("u", "h100", **{GPU: 40}),
    "a queue is held": spec("queue t", stopPolicy="Hold"),
    "a queue is drained": spec("queue t", stopPolicy="HoldAndDrain"),
    "a queue goes": gone("queue u"),
    "a team goes": gone("queue u", "u"),
    "flavors in another order": spec("queue u", flavors=["g", "h100"]),
    "a weight": spec("h100", weight=10),
    "tags": spec("h100", template={"tags": {"owner": "x"}}),
    "annotations": spec("h100", template={"annotations": {"a": "b"}}),
    "one zone less": spec("h100", zones=[B]),
    "no zones at all": spec("g", zones=None),
    "a pool beside it": lambda docs: docs.update(more=pool("more", (P5,), zones=[C], disruption=OPEN)),
    "a pool beside it, for everybody": both(
        lambda docs: docs.update(more=pool("more", (P5,), zones=[C], disruption=OPEN)),
        quota("u", "more", **{GPU: 32}),
        spec("queue u", flavors=["more", "h100", "g"]),
    ),
    "a pool renamed": both(
        left_to("h100b", "h100"),
        lambda docs: docs.update(new=pool("h100b", (P5,), zones=[A, B], disruption=OPEN, limits={"nodes": 6})),
    ),
    "limits in money": spec("h100", limits={"usdPerHour": 60}),
    "limits of nothing": spec("g", limits={"nodes": 0}),
    "no limits": spec("h100", limits=None),
    "slower consolidation": spec("h100", disruption={**OPEN, "consolidateAfter": "20m"}),
    "balanced consolidation": spec("h100", disruption={**OPEN, "consolidationPolicy": "Balanced"}),
    "a budget for drift alone, and labels": spec(
        "h100", disruption={**OPEN, "budgets": [{"nodes": "0%", "reasons": ["Drifted"]}]}, **LABELLED
    ),
    "a fixed pool of none": spec("g", replicas=0, limits=None, capacityTypes=["on-demand"], disruption=None),
    "no quota for anybody": both(quota("t", "h100", **{GPU: 0}), quota("u", "h100", **{GPU: 0})),
    "a guarantee for the other team": both(quota("t", "h100", **{GPU: 0}), quota("u", "h100", **{GPU: 32})),
    "teams that lend to each other": both(
        lambda docs: docs.update(org=team("org", {}, namespaces=[])),
        lambda docs: docs["t"]["spec"].update(parent="org"),
        lambda docs: docs["u"]["spec"].update(parent="org"),
    ),
    "teams that lend, and less for one": both(
        lambda docs: docs.update(org=team("org", {}, namespaces=[])),
        lambda docs: docs["t"]["spec"].update(parent="org"),
        lambda docs: docs["u"]["spec"].update(parent="org"),
        quota("t", "h100", **{GPU: 0}),
        quota("u", "h100", **{GPU: 32}),
    ),
    "a default queue": spec("t", defaultQueue="t"),
    "jobs without a queue are held": spec("t", manageJobsWithoutQueueName=True),
    "its namespaces are fenced": spec("t", hardFence=True),
    "another namespace": lambda docs: docs["u"]["spec"].update(namespaces=["elsewhere"]),
    "a flavor less in a queue": spec("queue t", flavors=["g", "mig"]),
    "both queues drained": both(spec("queue t", stopPolicy="HoldAndDrain"), spec("queue u", stopPolicy="HoldAndDrain")),
    "layouts in another order": lambda docs: docs["mig"]["spec"].update(
        sharing={"mig": {"layouts": ["thin", "thick"]}}
    ),
    "time-slicing": spec("g", sharing={"timeSlicing": {"replicas": 4}}),
    "a price": lambda docs: docs.update(dear=doc("NodeOverlay", "dear", requirements=[], priceAdjustment="+50%")),
    "a capacity buffer": both(SERVES, buffer),
    "a capacity buffer, and labels": both(SERVES, buffer, spec("h100", **LABELLED)),
    "a capacity buffer that is too large": both(SERVES, buffer, lambda docs: docs["buffer"]["spec"].update(replicas=9)),
    "a capacity buffer that no pool serves": buffer,
    "a capacity buffer goes": both(SERVES, gone("buffer", "room")),
    "a capacity buffer shrinks": both(SERVES, buffer, lambda docs: docs["buffer"]["spec"].update(replicas=1)),
    "a buffered pool changes": both(SERVES, buffer, spec("h100", **LABELLED)),
    "another class of priority": lambda docs: docs.update(low=doc("PriorityClass", "low", value=1)),
    "a maintenance window that has passed, and labels": both(
        spec(
            "policy", freezeWindows=[{"name": "w", "schedule": "0 0 1 1 *", "duration": "1h", "blocks": ["Disruption"]}]
        ),
        spec("h100", **LABELLED),
    ),
    "everything at once": both(
        spec("h100", zones=[C], **LABELLED),
        spec("g", instanceTypes=[G6]),
        quota("u", "h100", **{GPU: 40}),
        spec("queue t", flavors=["g", "h100", "mig"]),
    ),
    "two at once": both(spec("h100", **LABELLED), spec("queue u", stopPolicy="HoldAndDrain")),
}


DRAINED = spec("queue u", stopPolicy="HoldAndDrain")
BUFFERED = both(SERVES, buffer)
BEFORE: Mapping[str, Change] = {
    "a queue goes": DRAINED,
    "a team goes": DRAINED,
    "a capacity buffer goes": BUFFERED,
    "a capacity buffer shrinks": BUFFERED,
    "a buffered pool changes": BUFFERED,
}
"""What is pushed, and comes to rest, before the change."""


class State(NamedTuple):
    machines: Counter[tuple[str, ...]]
    gangs: Mapping[str, tuple[str, str]]
    usd_h: float


def state(claims: Mapping[str, Claim], gangs: Mapping[str, Gang]) -> State:
    staying = [claim for claim in claims.values() if not claim.deleting]
    pools = ((claim.capacity_pool, claim) for claim in staying)
    return State(
        Counter((it.node_pool, pool.instance_type, pool.zone, pool.capacity_type, it.layout) for pool, it in pools),
        {gang.name: (str(gang.state), str(gang.reason)) for gang in gangs.values()},
        round(sum(claim.price_usd_h for claim in staying), 3),
    )


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_plan_says_is_what_happens(name: str) -> None:
    docs = deepcopy(fleet())
    scene = running()
    if name in BEFORE:
        BEFORE[name](docs)
        scene.sim.push(files(*docs.values()))
        scene.sim.advance(SETTLES_S)
    CHANGES[name](docs)
    pushed = files(*docs.values())
    head = load({path: text.encode() for path, text in pushed.items()})
    before: Snapshot = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset())
    base = scene.sim.brain.sync.fleet
    assert base is not None
    run = simulate(head, before)
    plan = make_plan(base, head, before, base_revision="base")
    scene.sim.push(pushed)
    scene.sim.advance(SETTLES_S)
    sync = scene.sim.sync()
    assert sync["appliedRevision"] == sync["observedRevision"], plan.refusals
    assert run.given_up_after_s is None
    happened = state(scene.sim.claims(), scene.sim.gangs())
    assert state(run.end.claims, run.end.gangs) == happened
    assert plan.then is not None
    assert plan.then.usd_h == pytest.approx(happened.usd_h, abs=0.01)
    if docs == fleet():
        assert plan.empty


def test_who_plans_a_push_beforehand_has_the_name_by_which_the_agent_applies_it() -> None:
    """An approval of the plan in the pull request is one of what the agent does, as long as the world stays so."""
    scene, docs = running(), fleet()
    CHANGES["labels of the template"](docs)
    pushed = files(*docs.values())
    head = load({path: text.encode() for path, text in pushed.items()})
    names = []
    for _ in range(2):
        base = scene.sim.brain.sync.fleet
        assert base is not None
        seen = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset())
        plan = make_plan(base, head, seen, base_revision="origin/main", head_revision="HEAD")
        assert plan.machines
        names.append(plan.plan_id)
        scene.sim.advance(200)
    assert names[0] == names[1]
    scene.sim.push(pushed)
    scene.sim.advance(30)
    sync = scene.sim.sync()
    assert sync["appliedRevision"] == sync["observedRevision"]
    assert (sync["appliedPlan"], sync["plan"]["id"]) == (names[0], names[0])
    scene.sim.push({"fleet.yaml": files(*[it for name, it in docs.items() if name[:6] == "policy"])["fleet.yaml"]})
    scene.sim.advance(30)
    refused = scene.sim.sync()
    assert refused["appliedRevision"] == sync["appliedRevision"] != refused["attemptedRevision"]
    assert refused["appliedPlan"] == names[0], "it stays that of the revision in force"
    assert refused["plan"]["id"] != names[0]


STRANDING: Mapping[str, Change] = {
    "a queue": gone("queue u"),
    "a team": gone("queue u", "u"),
    "a pool": gone("h100"),
    "a pool with cut GPUs": both(gone("mig"), gone("thick"), gone("thin")),
}


@pytest.mark.parametrize("name", STRANDING)
def test_what_would_leave_gangs_outside_any_quota_is_refused(name: str) -> None:
    """Everybody runs on as before."""
    docs = fleet()
    STRANDING[name](docs)
    scene = running()
    before = state(scene.sim.claims(), scene.sim.gangs())
    scene.sim.push(files(*docs.values()))
    scene.sim.advance(300)
    sync = scene.sim.sync()
    assert sync["history"][0]["outcome"] == "Refused"
    assert "running gangs outside any quota: " in sync["conditions"][0]["message"]
    assert state(scene.sim.claims(), scene.sim.gangs()) == before


def test_a_plan_says_that_machines_will_expire_and_that_it_never_ends() -> None:
    """Every minute anew: the gangs stopped are counted, and the rails hold, though no machine is given up."""
    docs = fleet()
    spec("h100", template={"expireAfter": "60s"})(docs)
    scene = running()
    before = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset())
    base, head = scene.sim.brain.sync.fleet, load({"f.yaml": files(*docs.values())["fleet.yaml"].encode()})
    assert base is not None
    plan = make_plan(base, head, before, base_revision="base")
    assert {gang.name for gang in plan.gangs if gang.stopped} == {"t/a", "t/b", "u/c"}
    assert any("does not come to rest" in warning for warning in plan.warnings)
    assert any("never comes to rest" in refusal for refusal in plan.refusals)
    assert make_plan(head, head, before, base_revision="base").refusals == (), "what is so already stops nothing else"
