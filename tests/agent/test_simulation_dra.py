"""Pods that claim devices (Dynamic Resource Allocation) get quota, machines and their devices, end to end."""

import random
from pathlib import Path
from typing import Any

import pytest

from agent.demo.jobs import Manifest, job
from agent.ledger_settings import LedgerSettings
from fleet.cost.machine_use import NOBODY
from fleet.cost.records import HOUR_S
from fleet.snapshot import Pin
from providers.sim.controllers.dra.nvidia_driver import read_dra_fault
from tests.agent.scenes import G6, P5, Doc, Scene, doc, files, gpu_job, layout, pool, queue, team
from tests.agent.test_simulation_ledger import SLOW, charged, records, usd, whole_hours

Obj = dict[str, Any]
TYPE = "device.attributes['gpu.nvidia.com']"


def template(name: str, *requests: Obj, constraints: list[Obj] | None = None, namespace: str = "t") -> Obj:
    devices = {"requests": list(requests), **({"constraints": constraints} if constraints else {})}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": devices}},
    }


def exactly(name: str, device_class: str = "gpu.nvidia.com", count: int = 1, cel: str = "") -> Obj:
    asked: Obj = {"deviceClassName": device_class, "count": count}
    if cel:
        asked["selectors"] = [{"cel": {"expression": cel}}]
    return {"name": name, "exactly": asked}


def every(name: str, device_class: str = "gpu.nvidia.com") -> Obj:
    return {"name": name, "exactly": {"deviceClassName": device_class, "allocationMode": "All"}}


def either(name: str, *ways: Obj) -> Obj:
    return {"name": name, "firstAvailable": [{"name": f"w{n}", **it["exactly"]} for n, it in enumerate(ways)]}


def slice_of(name: str, profile: str) -> Obj:
    return exactly(name, "mig.nvidia.com", cel=f"{TYPE}.profile == '{profile}'")


def claiming(name: str, claim: str, *, pods: int = 1, **more: Any) -> Manifest:
    """A Job of `pods` pods, each with a claim of its own made by a template."""
    manifest = job(name, "t", "normal", pods=pods, requests={"cpu": "1"}, **more)
    spec = manifest["spec"]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return manifest


def dra(*docs: Doc, quota: dict[str, int] | None = None, **spec: Any) -> dict[str, str]:
    shared = {"sharing": {"dra": {}}} | spec
    return files(pool(**shared), team(quotas={"h100": quota or {"nvidia.com/gpu": 32}}), queue(), *docs)


def devices(scene: Scene) -> dict[str, list[str]]:
    """Pod -> the devices that its claims were given."""
    store = scene.sim.store
    found: dict[str, list[str]] = {}
    for claim in store.list(store.resource("resourceclaims", "resource.k8s.io")):
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        for user in claim.get("status", {}).get("reservedFor", []):
            found.setdefault(user["name"], []).extend(it["device"] for it in results)
    return {pod: sorted(names) for pod, names in sorted(found.items())}


def test_a_job_that_claims_one_gpu_runs() -> None:
    scene = Scene(dra())
    scene.sim.submit(template("one", exactly("gpu")))
    scene.runs(claiming("a", "one"))
    assert list(devices(scene).values()) == [["gpu-0"]]
    assert scene.bought() == 1
    scene.settle()


def test_a_gang_of_four_whole_machines_by_claims() -> None:
    scene = Scene(dra())
    scene.sim.submit(template("eight", exactly("gpus", count=8)))
    scene.runs(claiming("a", "eight", pods=4))
    given = devices(scene)
    assert len(given) == 4
    assert all(names == [f"gpu-{n}" for n in range(8)] for names in given.values())
    assert (scene.bought(), len(scene.nodes_of("a"))) == (4, 4)
    scene.settle()


def test_claims_of_one_gpu_share_machines_and_the_machine_goes_when_they_have_ended() -> None:
    scene = Scene(dra())
    scene.sim.submit(template("one", exactly("gpu")))
    scene.runs(claiming("a", "one", pods=5, run_s=300))
    scene.runs(claiming("b", "one", pods=3, run_s=300))
    assert scene.bought() == 1
    assert sorted(name for names in devices(scene).values() for name in names) == [f"gpu-{n}" for n in range(8)]
    scene.until(lambda: not scene.sim.machines(), 1200, "the machine is given back")
    scene.settle()


def test_three_slices_of_one_gpu() -> None:
    cut = layout("cut", "h100-80gb", **{"1g_10gb": 7})
    fleet = dra(cut, quota={"nvidia.com/mig-1g.10gb": 56}, sharing={"dra": {}, "mig": {"layouts": ["cut"]}})
    scene = Scene(fleet)
    same = [{"matchAttribute": "gpu.nvidia.com/parentUUID", "requests": ["a", "b", "c"]}]
    scene.sim.submit(template("three", *(slice_of(name, "1g.10gb") for name in "abc"), constraints=same))
    scene.runs(claiming("j", "three", pods=17), 1500)
    given = list(devices(scene).values())
    assert len(given) == 17
    assert all(len(names) == 3 and len({name.split("-mig")[0] for name in names}) == 1 for names in given)
    assert scene.bought() == 2, "two of three slices on each of eight GPUs, and the seventeenth elsewhere"
    scene.settle()


def test_two_slices_of_two_gpus() -> None:
    cut = layout("cut", "h100-80gb", **{"3g_40gb": 2})
    fleet = dra(cut, quota={"nvidia.com/mig-3g.40gb": 32}, sharing={"dra": {}, "mig": {"layouts": ["cut"]}})
    scene = Scene(fleet)
    apart = [{"distinctAttribute": "gpu.nvidia.com/parentUUID", "requests": ["a", "b"]}]
    scene.sim.submit(template("two", *(slice_of(name, "3g.40gb") for name in "ab"), constraints=apart))
    scene.runs(claiming("j", "two", pods=8), 1500)
    given = list(devices(scene).values())
    assert len(given) == 8
    assert all(len({name.split("-mig")[0] for name in names}) == 2 for names in given)
    assert scene.bought() == 1
    scene.settle()


def test_of_alternatives_the_first_that_can_be_had() -> None:
    scene = Scene(dra())
    ways = [
        {
            "name": kind,
            "deviceClassName": "gpu.nvidia.com",
            "selectors": [{"cel": {"expression": f"{TYPE}.productName.lowerAscii().contains('{kind}')"}}],
        }
        for kind in ("b200", "h100")
    ]
    scene.sim.submit(template("either", {"name": "gpu", "firstAvailable": ways}))
    scene.runs(claiming("a", "either", pods=2))
    assert sorted(devices(scene).values()) == [["gpu-0"], ["gpu-1"]]
    scene.settle()


def test_slices_cut_as_they_are_claimed() -> None:
    scene = Scene(dra(quota={"muster.dev/gpu-equivalent": 8}, sharing={"dra": {"dynamicMig": True}}))
    for name, profile in (("big", "3g.40gb"), ("small", "1g.10gb")):
        scene.sim.submit(template(name, slice_of("s", profile)))
    scene.sim.submit(template("whole", exactly("gpu")))
    scene.runs(claiming("s", "small", pods=4))
    scene.runs(claiming("b", "big", pods=8))
    scene.runs(claiming("w", "whole", pods=3))
    assert scene.bought() == 1
    scene.settle()


def test_a_claim_that_nobody_can_serve_names_its_request() -> None:
    scene = Scene(dra())
    scene.sim.submit(template("none", exactly("odd", cel=f"{TYPE}.productName == 'NVIDIA T1000'")))
    scene.sim.submit(claiming("a", "none"))
    scene.sim.advance(120)
    gang = scene.sim.gang("a")
    assert gang is not None
    assert "request odd of claim gpu" in gang.message
    assert scene.bought() == 0
    scene.settle()


def test_ordinary_pods_that_claim_are_bought_for() -> None:
    scene = Scene(dra(serves=["Gangs", "Pods"]))
    scene.sim.submit(template("one", exactly("gpu")))
    manifest = claiming("a", "one")
    pod = manifest["spec"]["template"]
    scene.sim.submit({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lone", "namespace": "t"}, **pod})
    scene.until(lambda: "lone" in devices(scene), 900, "the pod has its GPU")
    assert scene.bought() == 1
    scene.runs(claiming("b", "one", pods=7))
    assert scene.bought() == 1
    scene.runs(claiming("c", "one"))
    assert scene.bought() == 2
    scene.settle()


def test_ordinary_pods_that_share_a_claim_stand_on_one_machine_and_count_once() -> None:
    """As in the driver's demo of two pods on one GPU; a third comes later, and the claim is that of a Deployment's."""
    scene = Scene(dra(serves=["Gangs", "Pods"], instanceTypes=[G6, P5]))
    claim = template("one", exactly("gpu"))
    claim |= {"kind": "ResourceClaim", "spec": claim["spec"]["spec"]}
    scene.sim.submit(claim)

    def share(name: str, named: str = "one") -> None:
        spec = claiming(name, "")["spec"]["template"]["spec"]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": named}]
        meta = {"name": name, "namespace": "t"}
        scene.sim.submit({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    def nodes() -> dict[str, str]:
        pods = scene.sim.objects("Pod")
        return {it["metadata"]["name"]: it["spec"].get("nodeName", "") for it in pods}

    share("a")
    share("b")
    scene.until(lambda: set(devices(scene)) == {"a", "b"}, 900, "both have their GPU")
    share("c")
    scene.until(lambda: set(devices(scene)) == {"a", "b", "c"}, 120, "so has the third")
    assert set(map(tuple, devices(scene).values())) == {("gpu-0",)}
    assert len(set(nodes().values())) == 1
    scene.sim.submit(template("three", exactly("gpus", count=3)))
    scene.runs(claiming("rest", "three"))
    assert scene.bought() == 1, "the other three GPUs of the machine are free"
    share("d", "nobodys")
    scene.sim.advance(60)
    assert scene.bought() == 1
    assert nodes()["d"] == ""
    scene.settle()


def test_pods_that_name_gpus_and_pods_that_claim_them_have_machines_of_their_own() -> None:
    both = [pool("plain"), doc("Flavor", "h100", nodePools=["claims", "plain"])]
    shared = pool("claims", sharing={"dra": {}})
    scene = Scene(files(shared, *both, team(quotas={"h100": {"nvidia.com/gpu": 32}}), queue()))
    scene.sim.submit(template("one", exactly("gpu")))
    scene.runs(gpu_job("named", gpus=1))
    scene.runs(claiming("claimed", "one"))
    pools = {
        name: scene.sim.claims()[pin.claim].node_pool for name in ("named", "claimed") for pin in pins(scene, name)
    }
    assert pools == {"named": "plain", "claimed": "claims"}
    scene.settle()


def pins(scene: Scene, name: str) -> tuple[Pin, ...]:
    gang = scene.sim.gang(name)
    assert gang is not None
    return gang.pins


def test_a_change_is_planned_while_pods_claim() -> None:
    """The plan follows gangs that claim as it follows others: it buys for them what the agent buys then."""
    scene = Scene(dra(limits={"nodes": 1}))
    scene.sim.submit(template("eight", exactly("gpus", count=8)))
    scene.runs(claiming("a", "eight"))
    scene.sim.submit(claiming("b", "eight"))
    scene.sim.advance(60)
    assert scene.state("b") == "Pending"
    scene.sim.push(dra(limits={"nodes": 2}))
    scene.until_running("b")
    assert scene.bought() == 2
    scene.settle()


def test_the_bill_counts_claimed_devices_as_gpus(tmp_path: Path) -> None:
    settings = LedgerSettings(path=tmp_path / "ledger.db")
    scene = Scene(dra(), ledger=settings, tempo=SLOW)
    scene.sim.submit(template("four", exactly("gpus", count=4)))
    scene.runs(claiming("a", "four"))
    scene.runs(claiming("b", "four"))
    end_s = whole_hours(scene, settings)
    found = records(settings)
    assert usd(found) == pytest.approx(charged(scene, end_s), rel=0.001)
    last = {it.name: it for it in found if it.hour_s == end_s - HOUR_S and it.subject not in NOBODY}
    assert {it.devices for it in last.values()} == {"4 nvidia.com/gpu"}
    idle = sum(it.cost_micro_usd for it in found if it.name == "(idle)")
    both = sum(it.cost_micro_usd for it in last.values())
    assert last["a"].cost_micro_usd == pytest.approx(both / 2, rel=0.1), "each has half of the machine"
    assert idle < both / 10, "and nothing of it is idle but while the second comes"


def all_got_their_devices(scene: Scene, names: list[str]) -> None:
    """Whichever of them have started run with all pods, and were not started in vain before; most have started."""
    for name in names:
        gang = scene.sim.gang(name)
        if gang is not None and gang.state == "Admitted":
            assert gang.pods_ready, f"{name} has started and its pods are not all ready: {scene.story()}"
            assert gang.timeouts == 0, f"{name} was started in vain once: its pods did not get their devices"
    assert sum(gang.state in {"Admitted", "Finished"} for gang in scene.sim.gangs().values()) >= 5
    scene.settle(settled=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_placed_is_allocated(seed: int) -> None:
    """Each gang that the agent starts gets its devices of the simulated scheduler, whoever runs beside it."""
    rng = random.Random(seed)
    dynamic = bool(seed % 2)
    cut = layout("cut", "h100-80gb", **{"1g_10gb": 2, "2g_20gb": 1, "3g_40gb": 1})
    sharing = {"dra": {"dynamicMig": True}} if dynamic else {"dra": {}, "mig": {"layouts": ["cut"]}}
    scene = Scene(dra(cut, quota={"muster.dev/gpu-equivalent": 32}, sharing=sharing, limits={"nodes": 4}), tempo=SLOW)
    same = [{"matchAttribute": "gpu.nvidia.com/parentUUID"}]
    profiles = ["1g.10gb", "2g.20gb", "3g.40gb", *(["4g.40gb", "1g.20gb"] if dynamic else [])]
    names = []
    for number in range(9):
        wanted = [slice_of(f"r{n}", rng.choice(profiles)) for n in range(rng.randint(1, 3))]
        if dynamic and rng.random() < 0.2:
            wanted = [exactly("g", count=rng.randint(1, 3))]
        constraints = same if len(wanted) > 1 and rng.random() < 0.5 else None
        if dynamic and rng.random() < 0.3:
            wanted, constraints = [either("e", exactly("g", count=rng.randint(1, 2)), *wanted)], None
        if dynamic and rng.random() < 0.1:
            wanted, constraints = [every("e")], None
        scene.sim.submit(template(f"c{number}", *wanted, constraints=constraints))
        run_s = rng.choice([None, 60.0, 300.0])
        scene.sim.submit(claiming(f"j{number}", f"c{number}", pods=rng.randint(1, 6), run_s=run_s))
        names.append(f"j{number}")
        scene.sim.advance(rng.choice([0, 30, 200]))
    scene.sim.advance(900)
    all_got_their_devices(scene, names)


def test_why_nobody_can_serve_a_claim_is_told_of_the_flavor_that_has_devices() -> None:
    """Of flavors whose pools offer no devices there is nothing to be said, though they come first and have quota."""
    plain = pool("plain")
    quotas = {"plain": {"nvidia.com/gpu": 8}, "h100": {"nvidia.com/gpu": 8}}
    scene = Scene(files(plain, pool(sharing={"dra": {}}), team(quotas=quotas), queue(flavors=("plain", "h100"))))
    scene.sim.submit(template("t4", exactly("gpu", cel=f"{TYPE}.productName == 'Tesla T4'")))
    scene.sim.submit(claiming("a", "t4"))
    scene.sim.advance(60)
    (gang,) = scene.sim.objects("Workload")
    assert gang["status"]["state"] == "Pending"
    assert "request gpu" in gang["status"]["message"], gang["status"]["message"]


def test_gangs_that_claim_whole_gpus_are_bought_for_together() -> None:
    """Four gangs of two GPUs, of one pass, share one machine of eight, though each by itself would buy a small one."""
    scene = Scene(dra(instanceTypes=[P5, G6]), tempo=SLOW)
    half = exactly("gpus", count=2, cel=f"{TYPE}.type == 'gpu'")
    scene.sim.submit(template("two", half))
    for name in "abcdefgh":
        scene.sim.submit(claiming(name, "two"))
    scene.until(lambda: all(scene.sim.running(name) for name in "abcdefgh"), 900, "all run")
    assert scene.bought() == 4, "four machines of four L4s, cheaper than two of eight H100s"
    (first, *_) = scene.sim.claims().values()
    assert first.purpose.count(" x main of") == 2, first.purpose
    scene.settle()


def bearing(request: Obj, **toleration: str) -> Obj:
    request["exactly"]["tolerations"] = [{"operator": "Exists", **toleration}]
    return request


def make_unhealthy(scene: Scene, node: str, device: str) -> None:
    driver = scene.sim.world.dra_driver
    assert driver is not None
    driver.cause(read_dra_fault({"node": node, "taint": device}))
    scene.sim.advance(30)


def test_devices_with_taints_are_for_claims_that_tolerate_them() -> None:
    """Three of the four GPUs of a machine are left; for who bears the taint all are there."""
    scene = Scene(dra(instanceTypes=[G6], limits={"nodes": 1}))
    scene.sim.submit(template("one", exactly("gpu")))
    scene.sim.submit(template("any", bearing(exactly("gpu"), key="gpu.nvidia.com/unhealthy")))
    scene.sim.submit(template("other", bearing(exactly("gpu"), key="another")))
    scene.runs(claiming("a", "one"))
    [node] = scene.nodes_of("a")
    make_unhealthy(scene, node, "gpu-3")
    scene.runs(claiming("b", "one", pods=2))
    for name, claim in (("c", "one"), ("d", "other")):
        scene.sim.submit(claiming(name, claim))
        scene.sim.advance(60)
        assert scene.state(name) == "Pending", name
    scene.runs(claiming("e", "any"))
    assert sorted(names for names in devices(scene).values()) == [["gpu-0"], ["gpu-1"], ["gpu-2"], ["gpu-3"]]
    make_unhealthy(scene, node, "")
    scene.settle(settled=False)
    assert scene.state("c") == "Pending"


def test_all_devices_of_a_machine_are_counted_where_all_machines_have_as_many() -> None:
    scene = Scene(dra(quota={"nvidia.com/gpu": 17}, serves=["Gangs", "Pods"]))
    scene.sim.submit(template("all", every("gpus")))
    scene.sim.submit(template("one", exactly("gpu")))
    scene.runs(claiming("a", "all", pods=2))
    assert [len(names) for names in devices(scene).values()] == [8, 8]
    scene.sim.submit(claiming("b", "all"))
    scene.sim.advance(60)
    assert scene.state("b") == "Pending", "there is quota for one GPU"
    scene.runs(claiming("c", "one"))
    assert scene.bought() == 3, "nobody stands on a machine all of whose GPUs are taken"
    pod = claiming("lone", "all")["spec"]["template"]
    scene.sim.submit({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lone", "namespace": "t"}, **pod})
    scene.until(lambda: "lone" in devices(scene), 900, "an ordinary pod gets a machine of its own")
    assert scene.bought() == 4
    scene.settle()


def test_all_devices_of_machines_that_differ_are_refused_unless_the_pods_select_some() -> None:
    scene = Scene(dra(instanceTypes=[G6, P5]))
    scene.sim.submit(template("all", every("gpus")))
    scene.sim.submit(claiming("a", "all"))
    scene.sim.advance(60)
    gang = scene.sim.gang("a")
    assert gang is not None
    assert "request gpus of claim gpu, allocationMode" in gang.message
    assert "have 4 or 8 of them" in gang.message
    manifest = claiming("b", "all")
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {"node.kubernetes.io/instance-type": G6}
    scene.runs(manifest)
    assert [len(names) for names in devices(scene).values()] == [4]
    assert scene.bought(G6) == 1
    scene.sim.submit(template("none", every("odd") | {"exactly": every("odd")["exactly"] | selecting("false")}))
    scene.sim.submit(claiming("c", "none"))
    scene.sim.advance(60)
    assert (nobody := scene.sim.gang("c")) is not None
    assert "request odd of claim gpu asks: all of gpu.nvidia.com" in nobody.message
    scene.settle()


def selecting(cel: str) -> Obj:
    return {"selectors": [{"cel": {"expression": cel}}]}


def test_alternatives_of_several_resources_are_charged_each_and_placed_by_the_one_that_is_there() -> None:
    """A whole GPU, or a half of one: the eighth and later pods get halves of the last GPU, and then another machine."""
    fleet = dra(quota={"muster.dev/gpu-equivalent": 14}, sharing={"dra": {"dynamicMig": True}})
    scene = Scene(fleet)
    scene.sim.submit(template("half", slice_of("m", "3g.40gb")))
    scene.sim.submit(template("any", either("g", exactly("g"), slice_of("m", "3g.40gb"))))
    scene.runs(claiming("h", "half"), 900)
    scene.runs(claiming("a", "any", pods=7), 900)
    gang = scene.sim.gang("a")
    assert gang is not None
    [pods] = gang.pod_sets
    assert {name: amount for name, amount in pods.requests.items() if name.startswith("nvidia")} == {
        "nvidia.com/gpu": 1,
        "nvidia.com/mig-3g.40gb": 1,
    }
    scene.runs(claiming("b", "any"), 900)
    assert scene.bought() == 1, "the other half of the first GPU"
    assert sorted(len(name.split("mig")) for names in devices(scene).values() for name in names) == [1] * 7 + [2] * 2
    scene.runs(claiming("c", "any"), 900)
    assert scene.bought() == 2
    scene.sim.submit(claiming("d", "any"))
    scene.sim.advance(120)
    assert scene.state("d") == "Pending", "each is charged a GPU and a half, which is 3/7 of one"
    scene.settle()
