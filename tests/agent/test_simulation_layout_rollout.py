"""Layouts rolled out under load: machines are drained and cut by a budget, whatever goes wrong meanwhile."""

import random
from typing import Any

import pytest

from agent.demo.jobs import Manifest, job
from agent.simulation import Tempo
from fleet.plan import make_plan
from fleet.plan.render import to_text
from model.loader import load
from providers.sim.controllers.mig_manager import read_mig_fault
from providers.sim.store import StoreEvent
from tests.agent.scenes import P4DE, B, C, Scene, files, layout, pool, queue, team
from tests.agent.test_simulation_mig import CONFIG, SLICE, STATE

MACHINES = 3
WIDE = "nvidia.com/mig-2g.20gb"
LAYOUTS = {"thin": {"1g_10gb": 7}, "wide": {"1g_10gb": 5, "2g_20gb": 1}}
TEMPO = Tempo(foresees=False)


def fleet(layouts: str, **rollout: Any) -> dict[str, str]:
    """A pool of one of the layouts: `wide` has fewer of the slices that `thin` has, and a larger one."""
    return files(
        pool(
            "mig",
            (P4DE,),
            zones=[B, C],
            sharing={"mig": {"layouts": [layouts], "rollout": {"budget": 1, "deadline": "1h", **rollout}}},
            disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "2h"},
        ),
        layout(layouts, **LAYOUTS[layouts]),
        team(quotas={"mig": {SLICE: 400} | ({WIDE: 100} if layouts == "wide" else {})}),
        queue(flavors=("mig",)),
    )


def gang(number: int) -> Manifest:
    """A gang that fills a machine of the one layout, and most of one of the other."""
    return job(f"g{number}", "t", "normal", pods=40, requests={SLICE: "1"})


class Cuts:
    """Listens to the labels of nodes: pods that hold slices where another layout is asked for are written down."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.held: list[str] = []
        self.at_once = 0
        self._labels: dict[str, str] = {}
        self._deaf = scene.sim.store.subscribe(self._hear)

    def _hear(self, event: StoreEvent) -> None:
        if event.resource.kind != "Node" or event.object is None:
            return
        meta = event.object["metadata"]
        now, before = meta["labels"].get(CONFIG, ""), self._labels.get(meta["name"], "")
        self._labels[meta["name"]] = now
        ours = now.startswith(("thin-", "wide-")) and before.startswith(("thin-", "wide-"))
        if now != before and ours:
            self.held += [
                f"{pod['metadata']['name']} on {meta['name']}"
                for pod in self.scene.sim.objects("Pod")
                if pod["spec"].get("nodeName") == meta["name"] and pod["status"].get("phase") in {"Pending", "Running"}
            ]


def loaded(layouts: str = "thin") -> tuple[Scene, Cuts]:
    scene = Scene(fleet(layouts), tempo=TEMPO)
    for number in range(MACHINES):
        scene.sim.submit(gang(number))
    scene.until(lambda: all(scene.sim.running(f"g{number}") for number in range(MACHINES)), 900, "all run")
    assert scene.bought(P4DE) == MACHINES
    return scene, Cuts(scene)


def done(scene: Scene, layouts: str = "wide") -> bool:
    """Whether every machine has the layout, takes new work, and every gang runs."""
    nodes = scene.sim.objects("Node")
    cut = all(
        it["metadata"]["labels"].get(CONFIG, "").startswith(f"{layouts}-")
        and it["metadata"]["labels"].get(STATE) == "success"
        and not it["spec"].get("taints")
        for it in nodes
    )
    return bool(nodes) and cut and all(scene.sim.running(f"g{number}") for number in range(MACHINES))


def test_a_layout_is_rolled_out_under_load_one_machine_at_a_time() -> None:
    scene, cuts = loaded()
    scene.sim.push(fleet("wide"))
    most = 0

    def watched() -> bool:
        nonlocal most
        cutting = sum(it.recut_at_s > it.ready_at_s > 0 for it in scene.sim.claims().values())
        most = max(most, cutting)
        return done(scene)

    scene.until(watched, 1800, "it is rolled out")
    assert (most, cuts.held, scene.bought(P4DE)) == (1, [], MACHINES)
    reasons = {claim.disruption for claim in scene.sim.claims().values()}
    assert reasons == {None}


def test_the_plan_says_what_moves_and_what_is_lost() -> None:
    """And that is what happens."""
    scene, _ = loaded()
    scene.sim.advance(600)
    before, after = (load({name: text.encode() for name, text in fleet(it).items()}) for it in ("thin", "wide"))
    plan = make_plan(before, after, scene.sim.brain._snapshot(), base_revision="a", head_revision="b")
    line = next(it for it in to_text(plan).splitlines() if "re-cut" in it)
    assert "3 machines re-cut, 3 gangs move, at most " in line
    assert "USD of lost work, the last one in about" in line


@pytest.mark.slow
def test_failures_roll_it_back() -> None:
    """The layout of before is in force again, and machines that were cut already go back to it."""
    scene, _ = loaded()
    scene.sim.push(fleet("wide", failures=1))
    broken: list[str] = []

    def breaks() -> bool:
        cut = [it for it in scene.sim.objects("Node") if it["metadata"]["labels"].get(CONFIG, "").startswith("wide-")]
        if cut and not broken:
            name = next(it["metadata"]["name"] for it in cut)
            broken.append(name)
            scene.sim.mig_manager.cause(read_mig_fault({"node": name, "fail": 50}))
        return any(it["type"] == "LayoutRolledBack" for it in scene.sim.sync().get("conditions", []))

    scene.until(breaks, 3600, "it is rolled back")
    scene.until(lambda: done(scene, "thin"), 3600, "all are as before")


FAULTS: list[dict[str, object]] = [
    {"hang": True},
    {"fail": 1},
    {"forget": True},
    {"restart": True},
    {"relabel": "all-disabled"},
    {"relabel": "nobody-wrote-it"},
    {"reboot": "keeps"},
    {"reboot": "loses"},
]


def rolled_out_with_a_fault(seed: int) -> None:
    """One fault at any time on any machine, and perhaps a crash of the agent."""
    rng = random.Random(seed)
    scene, cuts = loaded()
    before = set(scene.sim.claims())
    scene.sim.push(fleet("wide"))
    scene.sim.advance(rng.uniform(0, 240))
    name = rng.choice(sorted(it["metadata"]["name"] for it in scene.sim.objects("Node")))
    trouble = rng.choice(FAULTS)
    scene.sim.mig_manager.cause(read_mig_fault({"node": name, **trouble}))
    if rng.random() < 0.3:
        scene.sim.crash()
        scene.sim.advance(rng.uniform(1, 60))
        scene.sim.restart()
    if "hang" in trouble:
        scene.sim.advance(rng.uniform(30, 400))
        scene.sim.mig_manager.cause(read_mig_fault({"node": name, "hang": False}))
    scene.until(lambda: done(scene), 5400, f"seed {seed}, {trouble}: it converges")
    assert cuts.held == [], f"seed {seed}, {trouble}"
    there = {name for name, claim in scene.sim.claims().items() if claim.disruption is None}
    assert before <= there, f"seed {seed}, {trouble}: {scene.story()}"
    # work that loses its node for minutes, as any node that fails, finds another machine
    assert scene.bought(P4DE) <= MACHINES + ("reboot" in trouble), f"seed {seed}, {trouble}: {scene.story()}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_it_converges_whatever_goes_wrong(seed: int) -> None:
    rolled_out_with_a_fault(seed)
