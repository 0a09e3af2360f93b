"""Fences in virtual time, for the deciders about machines: one of them makes a decider fail, at random, for a while.

Each scene says what the sick one would have done and the sound ones do. Every gang runs meanwhile, and when the fault
ends the sick one does what the others did.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agent.demo.jobs import job
from fleet.disruption import emptiness, rollout
from fleet.nodeclaims import fixed, interruption, lifecycle
from fleet.nodeclaims.adoption_checks import AdoptionPass
from fleet.snapshot import CapacityPool, Claim, Instance, LaunchRequest
from model import labels
from model.kinds import NodePool
from providers.sim.ec2 import HeldReservation
from providers.sim.ec2.memory import MemoryCloud
from tests.agent.scenes import G5, P4DE, P5, A, B, C, Scene, files, gpu_job, layout, pool, queue, team

SEEDS = range(2)
MACHINES = 3
KEPT = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}


class SubjectFails(RuntimeError):
    """What a subject does to whoever looks at it."""


def names_of(it: object) -> set[str]:
    """By what a value may be known as the sick subject."""
    if isinstance(it, Claim):
        return {it.name, it.instance_id}
    if isinstance(it, Instance):
        return {it.id}
    return {it.name} if isinstance(it, NodePool) else set()


def fails_for(patch: pytest.MonkeyPatch, where: Any, name: str, about: str) -> None:
    """Make a function raise where one of its arguments is the sick subject."""
    sound = getattr(where, name)

    def looks(*given: Any, **more: Any) -> Any:
        if any(about in names_of(it) for it in (*given, *more.values())):
            raise SubjectFails(about)
        return sound(*given, **more)

    patch.setattr(where, name, looks)


@dataclass
class Trial:
    """One fault, and what it keeps from happening to the sick one only."""

    scene: Scene
    decider: str
    subjects: list[str]
    """Who may be the sick one."""
    fault: Callable[[pytest.MonkeyPatch, str], None]
    begin: Callable[[], object]
    """What gives the decider something to decide about all of them."""
    done: Callable[[], set[str]]
    """The subjects about which it was decided, and done."""
    kind: str = ""
    """Of the object that bears the condition; empty where the subject has no object of its own in the cluster."""


def ordinary(**spec: Any) -> list[dict[str, Any]]:
    """A pool whose machines stay, and a team that may use enough of them; and what `meanwhile` runs on."""
    disruption = {"disruption": KEPT | {"budgets": [{"nodes": "100%"}]}}
    return [pool(**disruption | spec), team(quotas={"h100": {"nvidia.com/gpu": 256}}), queue(), *others()]


def others() -> list[dict[str, Any]]:
    """A pool, a team and a queue that have nothing to do with the sick one."""
    quotas = {"g5": {"nvidia.com/gpu": 64}}
    return [pool("g5", (G5,)), team("u", quotas), queue("u", ("g5",))]


def claims(scene: Scene) -> list[str]:
    return sorted(scene.sim.claims())


def leaving(scene: Scene) -> set[str]:
    return {name for name, claim in scene.sim.claims().items() if claim.disruption is not None or claim.deleting}


def idle(scene: Scene, count: int = MACHINES) -> list[str]:
    """Machines that gangs have left."""
    for n in range(count):
        scene.sim.submit(gpu_job(f"gone-{n}", run_s=30))
    scene.until(lambda: all(scene.state(f"gone-{n}") == "Finished" for n in range(count)), 900)
    return claims(scene)


def running(scene: Scene, count: int = MACHINES) -> list[str]:
    """Machines with a gang each."""
    for n in range(count):
        scene.runs(gpu_job(f"early-{n}"))
    return claims(scene)


# -- one scene a decider ----------------------------------------------------------------------------------------------


def steps_of_claims(scene: Scene) -> Trial:
    """Machines are being bought: the claim of one of them is not taken any further."""
    scene.sim.push(files(*ordinary()))
    scene.sim.advance(1)
    for n in range(MACHINES):
        scene.sim.submit(gpu_job(f"early-{n}"))
    scene.until(lambda: len(scene.sim.claims()) == MACHINES, 60)

    def fault(patch: pytest.MonkeyPatch, sick: str) -> None:
        for state, step in lifecycle._STEPS.items():

            def looks(*given: Any, step: Any = step) -> Any:
                if given[-1].name == sick:
                    raise SubjectFails(sick)
                return step(*given)

            patch.setitem(lifecycle._STEPS, state, looks)  # type: ignore[arg-type]

    def ready() -> set[str]:
        return {name for name, claim in scene.sim.claims().items() if claim.state == "Ready"}

    return Trial(scene, "nodeclaims", claims(scene), fault, lambda: None, ready, "NodeClaim")


def adopted_machines(scene: Scene) -> Trial:
    """Machines of somebody else ask to be adopted."""
    scene.sim.push(files(*ordinary()))
    scene.sim.advance(1)
    where = CapacityPool("on-demand", P5, A)
    launched = [
        MemoryCloud.launch(scene.sim.cloud, LaunchRequest(f"x{n}", 1, where, "", {}, (), {})).instances[0]
        for n in range(MACHINES)
    ]
    scene.sim.advance(300)

    def ask() -> None:
        for instance in launched:
            scene.sim.cloud.account.tag(instance, {labels.ADOPT: "default/h100"})

    def adopted() -> set[str]:
        return {claim.instance_id for claim in scene.sim.claims().values()} & set(launched)

    return Trial(
        scene, "adoption", launched, lambda patch, sick: fails_for(patch, AdoptionPass, "judge", sick), ask, adopted
    )


def ending_blocks(scene: Scene) -> Trial:
    """The capacity block on which gangs run comes to its end, and there is nothing else to run on."""
    scene.sim.push(files(*ordinary(capacityTypes=["reserved"])))
    ends_s = scene.sim.now_s + 3600.0
    ours = {labels.CLUSTER: "default"}
    scene.sim.cloud.account.reserve(
        HeldReservation("cr", P5, A, MACHINES, tags=ours, kind="capacity-block", ends_s=ends_s)
    )
    scene.sim.advance(61)
    inside = running(scene)

    return Trial(
        scene,
        "capacity-blocks",
        inside,
        lambda patch, sick: fails_for(patch, interruption, "reservation_of", sick),
        lambda: scene.until(lambda: bool(leaving(scene)), 3600),
        lambda: leaving(scene) | (set(inside) - set(claims(scene))),
        "NodeClaim",
    )


def other_layouts(scene: Scene) -> Trial:
    """A pool's machines are to be cut otherwise."""

    profiles = {"thick": {"3g_40gb": 2}, "thin": {"1g_10gb": 7}}

    def fleet(chosen: str) -> dict[str, str]:
        cut = pool("mig", (P4DE,), zones=[B, C], disruption=KEPT, sharing={"mig": {"layouts": [chosen]}})
        quotas = {f"nvidia.com/mig-{name.replace('_', '.')}": 8 * count for name, count in profiles[chosen].items()}
        asked = team(quotas={"mig": {name: MACHINES * count for name, count in quotas.items()}})
        return files(cut, layout(chosen, **profiles[chosen]), asked, queue(flavors=("mig",)), *others())

    scene.sim.push(fleet("thick"))
    scene.sim.advance(1)
    for n in range(MACHINES):
        whole = {"nvidia.com/mig-3g.40gb": "16"}
        scene.sim.submit(job(f"cut-{n}", "t", "normal", pods=1, requests=whole, run_s=30))
    scene.until(lambda: all(scene.state(f"cut-{n}") == "Finished" for n in range(MACHINES)), 1800)

    def cut() -> set[str]:
        return {name for name, claim in scene.sim.claims().items() if claim.layout.startswith("thin")}

    return Trial(
        scene,
        "mig-layouts",
        claims(scene),
        lambda patch, sick: fails_for(patch, rollout, "_if_stale", sick),
        lambda: scene.sim.push(fleet("thin")),
        cut,
        "NodeClaim",
    )


def fixed_pools(scene: Scene) -> Trial:
    """Fixed pools are declared, and have to be filled."""
    names = [f"fixed-{n}" for n in range(MACHINES)]

    def full() -> set[str]:
        found = [claim.node_pool for claim in scene.sim.claims().values() if claim.state == "Ready"]
        return {name for name in names if found.count(name) == 2}

    def declare() -> None:
        scene.sim.push(files(*ordinary(), *(pool(name, replicas=2) for name in names)))

    scene.sim.push(files(*ordinary()))
    scene.sim.advance(1)
    return Trial(scene, "fixed-pools", names, lambda patch, sick: fails_for(patch, fixed, "_buy", sick), declare, full)


def idle_machines(scene: Scene) -> Trial:
    """Machines without work are given back as soon as the pool allows it."""
    scene.sim.push(files(*ordinary()))
    scene.sim.advance(1)
    inside = idle(scene)
    give_back = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "60s", "budgets": [{"nodes": "100%"}]}
    return Trial(
        scene,
        "disruption",
        inside,
        lambda patch, sick: fails_for(patch, emptiness, "spared", sick),
        lambda: scene.sim.push(files(*ordinary(disruption=give_back))),
        lambda: leaving(scene) | (set(inside) - set(claims(scene))),
        "NodeClaim",
    )


def interrupted_machines(scene: Scene) -> Trial:
    """Spot machines are told to go, all at once; they have twenty minutes."""
    scene.sim.push(files(*ordinary(capacityTypes=["spot"])))
    scene.sim.advance(1)
    running(scene)
    owner = {claim.instance_id: name for name, claim in scene.sim.claims().items()}

    def interrupt() -> None:
        for instance in owner:
            scene.sim.cloud.interrupt(instance, 1200.0)

    def told() -> set[str]:
        gone = leaving(scene) | (set(owner.values()) - set(claims(scene)))
        return {instance for instance, name in owner.items() if name in gone}

    return Trial(
        scene,
        "interruption",
        sorted(owner),
        lambda patch, sick: fails_for(patch, interruption, "_marked", sick),
        interrupt,
        told,
    )


SCENES = [
    interrupted_machines,
    steps_of_claims,
    adopted_machines,
    ending_blocks,
    other_layouts,
    fixed_pools,
    idle_machines,
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("made", SCENES, ids=lambda it: it.__name__)
def test_one_sick_machine_stops_nobody_else(
    made: Callable[[Scene], Trial], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = made(Scene())
    scene, sick = trial.scene, random.Random(seed).choice(trial.subjects)
    sound = set(trial.subjects) - {sick}
    with monkeypatch.context() as patch:
        trial.fault(patch, sick)
        scene.sim.submit(gpu_job("meanwhile", pods=2, gpus=4, namespace="u"))
        trial.begin()
        scene.until(lambda: sound <= trial.done(), 900, "all others are decided")
        (found,) = [it for it in scene.sim.brain.failures if it.decider == trial.decider]
        assert (found.subject.partition("/")[2], found.failure.error) == (sick, "SubjectFails")
        assert trial.done() & set(trial.subjects) == sound
        if trial.kind:
            assert told(scene, trial.kind, sick)
        scene.until_running("meanwhile")
        assert trial.decider in next(iter(told(scene, "FleetSync", scene.sim.cluster_name)))["message"]
    scene.until(lambda: sick in trial.done(), 900, "the sick one has recovered")
    scene.until(lambda: not scene.sim.brain.failures, 400)
    scene.sim.advance(5)
    assert not list(told(scene, "FleetSync", scene.sim.cluster_name))
    assert scene.sim.running("meanwhile")


def told(scene: Scene, kind: str, name: str) -> Iterator[dict[str, Any]]:
    """The condition DecisionFailed of an object, if it has one."""
    found = scene.sim.object(kind, name) or {}
    conditions = found.get("status", {}).get("conditions", [])
    return (it for it in conditions if it["type"] == "DecisionFailed")
