"""Quota of GPU-equivalents: slices of every shape are counted as their part of a GPU, borrowed and taken back."""

from typing import Any

from agent.demo.jobs import Manifest, job
from agent.simulation import Tempo
from tests.agent.scenes import P4DE, B, C, Scene, files, layout, pool, queue, team
from tests.agent.test_simulation_mig import SLICE

BIG = "nvidia.com/mig-3g.40gb"
EQUIVALENT = "muster.dev/gpu-equivalent"


def fleet(**limits: Any) -> dict[str, str]:
    """Two teams of one parent, each with eight GPUs in any shape; machines are cut into sevenths or halves."""
    preempting = {"preemption": {"reclaim": "Any"}}
    return files(
        pool("mig", (P4DE,), zones=[B, C], sharing={"mig": {"layouts": ["thin", "half"]}}, limits=limits),
        layout("thin", **{"1g_10gb": 7}),
        layout("half", **{"3g_40gb": 2}),
        team("all", quotas={}, namespaces=[]),
        team("a", quotas={"mig": {EQUIVALENT: 8}}, parent="all"),
        team("b", quotas={"mig": {EQUIVALENT: 8}}, parent="all"),
        queue("a", flavors=("mig",), **preempting),
        queue("b", flavors=("mig",), **preempting),
    )


def slices(name: str, namespace: str, resource: str, pods: int) -> Manifest:
    return job(name, namespace, "normal", pods=pods, requests={resource: "1"})


def test_slices_of_every_shape_are_one_quota() -> None:
    """112 sevenths are 16 GPUs: those of the other team are borrowed; not one slice more."""
    scene = Scene(fleet(nodes=4), tempo=Tempo(foresees=False))
    for number in range(4):
        scene.sim.submit(slices(f"a{number}", "a", SLICE, 28))
    scene.until(lambda: all(scene.sim.running(f"a{n}") for n in range(4)), 900, "112 sevenths run")
    scene.sim.submit(slices("more", "a", SLICE, 1))
    scene.sim.advance(60)
    gang = scene.sim.gang("more")
    assert gang is not None
    assert EQUIVALENT in gang.message


def test_what_is_taken_back_is_cut_anew() -> None:
    """The other team takes back GPUs in another shape: the machine of whom is evicted for it is cut anew."""
    scene = Scene(fleet(nodes=2), tempo=Tempo(foresees=False))
    for number in range(2):
        scene.sim.submit(slices(f"a{number}", "a", SLICE, 47))
    scene.until(lambda: all(scene.sim.running(f"a{n}") for n in range(2)), 900, "94 sevenths run")
    scene.sim.submit(slices("b", "b", BIG, 16))
    scene.until_running("b", 900)
    assert scene.bought(P4DE) == 2
    assert sum(scene.sim.running(f"a{n}") for n in range(2)) == 1
