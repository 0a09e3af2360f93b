"""Ordinary pods that take the quota of a queue: machines are bought within it, and gangs see what the pods take."""

from fleet.plan import make_plan
from fleet.plan.simulated_run import simulate
from model.loader import load
from tests.agent.scenes import P5, Doc, Scene, files, gpu_job, pool, queue, team
from tests.agent.test_simulation_ordinary_pods import plain, pods, running
from tests.agent.test_simulation_plan import state

GPU = "nvidia.com/gpu"
QUICK = {"consolidateAfter": "60s", "budgets": [{"nodes": "100%"}]}


def fleet(gpus: int, **of_team: object) -> list[Doc]:
    """A team with so many GPUs, which its ordinary pods share with its gangs."""
    quotas = {"h100": {GPU: gpus}}
    served = pool(serves=["Gangs", "Pods"], disruption=QUICK)
    return [served, team("t", quotas, **{"ordinaryPodsQueue": "t"} | of_team), queue()]


def told(scene: Scene, name: str) -> str:
    """What the events on a pod say last."""
    events = (it for it in scene.sim.objects("Event") if it["involvedObject"]["name"] == name)
    ours = [it["message"] for it in events if it["source"]["component"] == "muster"]
    return ours[-1] if ours else ""


def used(scene: Scene) -> int:
    """GPUs that the Queue's status shows as used."""
    found = scene.sim.object("Queue", "t")
    assert found is not None
    return sum(int(it["used"]) for it in found["status"].get("usage", ()) if it["resource"] == GPU)


def test_machines_are_bought_within_the_quota_and_the_rest_is_told_why() -> None:
    scene = Scene(files(*fleet(gpus=8)))
    for n in range(3):
        scene.sim.submit(plain(f"p{n}", gpus=4))
    scene.until(lambda: running(scene) == 2)
    scene.sim.advance(60)
    assert scene.bought(P5) == 1
    (left,) = (name for name, pod in pods(scene).items() if not pod["spec"].get("nodeName"))
    assert f"needs 4 more {GPU} of h100: asks 4, 0 available" in told(scene, left)
    assert used(scene) == 8
    first = min(name for name in pods(scene) if name != left)
    scene.sim.delete(plain(first))
    scene.until(lambda: pods(scene)[left]["status"]["phase"] == "Running", 60, "the pod takes what became free")


def test_a_gang_waits_for_what_ordinary_pods_take() -> None:
    scene = Scene(files(*fleet(gpus=8)))
    scene.sim.submit(plain("p", gpus=4))
    scene.until(lambda: running(scene) == 1)
    scene.sim.submit(gpu_job("g"))
    scene.sim.advance(120)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.reason, scene.bought()) == ("WaitingForQuota", 1)
    assert "asks 8, 4 available" in gang.message
    scene.sim.delete(plain("p"))
    scene.until_running("g")
    scene.settle(300)


def test_a_gang_has_its_quota_before_pods_that_wait_beside_it() -> None:
    scene = Scene(files(*fleet(gpus=8)))
    scene.sim.submit(plain("p", gpus=1))
    scene.sim.submit(gpu_job("g"))
    scene.until_running("g")
    scene.sim.advance(60)
    assert (scene.bought(), running(scene)) == (1, 1), "only the gang's pod runs"
    assert "0 available" in told(scene, "p")


def test_pods_of_other_namespaces_take_none() -> None:
    scene = Scene(files(*fleet(gpus=0), team("free", {}, namespaces=["free"])))
    free = plain("free", gpus=8)
    free["metadata"]["namespace"] = "free"
    scene.sim.submit(free)
    scene.until(lambda: running(scene) == 1)
    scene.sim.submit(plain("t", gpus=8))
    scene.sim.advance(60)
    assert pods(scene)["t"]["status"]["phase"] == "Pending"
    assert (scene.bought(), used(scene)) == (1, 0)


def test_what_kube_scheduler_binds_without_quota_is_charged() -> None:
    scene = Scene(files(*fleet(gpus=0), team("free", {}, namespaces=["free"])))
    free = plain("free", gpus=1)
    free["metadata"]["namespace"] = "free"
    scene.sim.submit(free)
    scene.until(lambda: running(scene) == 1)
    scene.sim.submit(plain("t", gpus=2))
    scene.until(lambda: running(scene) == 2, 60, "it finds room beside the other")
    scene.sim.advance(5)
    assert (scene.bought(), used(scene)) == (1, 2)


def test_a_plan_says_what_the_quota_lets_be_bought() -> None:
    scene = Scene(files(*fleet(gpus=0)))
    for n in range(4):
        scene.sim.submit(plain(f"p{n}", gpus=8))
    scene.sim.advance(60)
    assert scene.bought() == 0
    pushed = files(*fleet(gpus=16))
    head = load({path: text.encode() for path, text in pushed.items()})
    seen, base = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset()), scene.sim.brain.sync.fleet
    assert base is not None
    end = simulate(head, seen).end
    plan = make_plan(base, head, seen, base_revision="base")
    scene.sim.push(pushed)
    scene.sim.advance(900)
    assert state(end.claims, end.gangs) == state(scene.sim.claims(), scene.sim.gangs())
    assert plan.then is not None
    assert (scene.bought(), running(scene), plan.then.gpus) == (2, 2, {"h100": 16})
