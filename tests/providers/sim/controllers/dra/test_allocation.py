"""Which devices claims get: the rules of structured allocation, on slices written by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from model.mig.geometry import MigModel, MigPlacement, feasible, mig_models
from providers.clock import VirtualClock
from providers.sim.controllers.dra.allocator import ClaimAllocation, TooManySteps
from providers.sim.controllers.dra.devices import announced
from providers.sim.controllers.dra.inventory import DeviceInventory
from providers.sim.controllers.dra.requests import AllocationError, ClassMissing
from providers.sim.controllers.gpus import PhysicalGpu
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.scheduling import SchedulableNode
from providers.sim.machines import NodeShape
from providers.sim.store import Store
from tests.providers.sim.controllers.dra.claim_world import CATALOGUE, exactly
from tests.providers.sim.controllers.world import Obj

NODE = SchedulableNode("n1", {"zone": "a"}, (), {})
DRIVER = "dev.example.com"


class Devices:
    """A store with slices of one driver and claims, and what the scheduler finds for them."""

    def __init__(self, *devices: Obj, driver: str = DRIVER, counters: Sequence[Obj] = (), **spec: Any) -> None:
        self.store = Store(VirtualClock())
        self.cluster = MirroredCluster(self.store)
        self.inventory = DeviceInventory(self.cluster)
        self.add("DeviceClass", {"metadata": {"name": "any"}, "spec": {}})
        parts = [{"sharedCounters": list(counters)}] if counters else []
        parts += [{"devices": list(devices[i : i + 64])} for i in range(0, len(devices), 64)]
        for i, part in enumerate(parts):
            self.slice(f"s{i}", driver=driver, of=len(parts), **part, **spec)

    def add(self, kind: str, obj: Obj) -> Obj:
        resource = self.store.resource(kind, "resource.k8s.io")
        made = self.store.create(resource, obj, namespace="default" if resource.namespaced else "")
        self.cluster.sync()
        return made

    def slice(self, name: str, *, driver: str = DRIVER, of: int = 1, generation: int = 1, **spec: Any) -> None:
        pool = {"name": "n1", "generation": generation, "resourceSliceCount": of}
        where = {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": "n1"}
        self.add(
            "ResourceSlice", {"metadata": {"name": name}, "spec": {"driver": driver, "pool": pool, **where, **spec}}
        )

    def claim(self, name: str, *requests: Obj, **devices: Any) -> Obj:
        spec = {"devices": {"requests": list(requests), **devices}}
        return self.add("ResourceClaim", {"metadata": {"name": name}, "spec": spec})

    def allocate(self, *claims: Obj, node: SchedulableNode = NODE) -> list[Obj] | None:
        return ClaimAllocation(self.inventory, claims, node).allocate()

    def ask(self, *requests: Obj, **devices: Any) -> list[str] | None:
        """The devices for one new claim, which is not written down."""
        found = self.allocate(self.claim(f"c{len(self.inventory.claims)}", *requests, **devices))
        return None if found is None else names(found[0])

    def take(self, *requests: Obj, **devices: Any) -> list[str] | None:
        """The devices for one new claim, which has them from now on."""
        claim = self.claim(f"c{len(self.inventory.claims)}", *requests, **devices)
        found = self.allocate(claim)
        if found is None:
            return None
        resource = self.store.resource("ResourceClaim", "resource.k8s.io")
        status = {"allocation": found[0]}
        self.store.update(resource, {**claim, "status": status}, namespace="default", subresource="status")
        self.cluster.sync()
        return names(found[0])


def names(allocation: Obj) -> list[str]:
    return [it["device"] for it in allocation["devices"]["results"]]


def device(name: str, *, capacity: Mapping[str, str] | None = None, **attributes: Any) -> Obj:
    kinds = {bool: "bool", int: "int", str: "string"}
    told = {key: {kinds[type(value)]: value} for key, value in attributes.items()}
    held = {"capacity": {key: {"value": value} for key, value in capacity.items()}} if capacity else {}
    return {"name": name, **({"attributes": told} if told else {}), **held}


def any_of(name: str = "r", *expressions: str, **wanted: Any) -> Obj:
    return exactly(name, "any", *expressions, **wanted)


def of(text: str) -> str:
    return f"device.attributes['{DRIVER}'].{text}"


# -- requests ------------------------------------------------------------------------------------------------------


def test_the_first_in_the_list_is_taken() -> None:
    devices = Devices(device("b"), device("a"), device("c"))
    assert [devices.take(any_of()) for _ in range(4)] == [["b"], ["a"], ["c"], None]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("kind == 'x'", ["b"]),
        ("size > 1", ["b"]),
        ("size >= 1", ["a"]),
        ("kind in ['z']", None),
        ("fast", ["a"]),
    ],
)
def test_selectors(expression: str, found: list[str] | None) -> None:
    devices = Devices(device("a", kind="y", size=1, fast=True), device("b", kind="x", size=2, fast=False))
    assert devices.ask(any_of("r", of(expression))) == found


def test_class_and_request_must_both_select() -> None:
    devices = Devices(device("a", kind="x", size=1), device("b", kind="y", size=2))
    devices.add(
        "DeviceClass", {"metadata": {"name": "x"}, "spec": {"selectors": [{"cel": {"expression": of("kind == 'x'")}}]}}
    )
    assert devices.ask(exactly("r", "x")) == ["a"]
    assert devices.ask(exactly("r", "x", of("size == 2"))) is None


def test_a_class_that_is_not_there() -> None:
    with pytest.raises(ClassMissing, match="request r: device class nope does not exist"):
        Devices(device("a")).ask(exactly("r", "nope"))


def test_an_attribute_that_is_not_there_stops_the_search() -> None:
    """The words of kube-scheduler's own tests."""
    with pytest.raises(AllocationError) as failed:
        Devices(device("a")).ask(any_of("r", of("nope == 1")))
    assert str(failed.value) == "claim default/c0: selector #0: CEL runtime error: no such key: nope"


def test_an_expression_that_is_never_asked_does_no_harm() -> None:
    assert Devices(device("a", size=1), device("b")).ask(any_of("r", of("size == 1"))) == ["a"]


def test_counts() -> None:
    devices = Devices(*(device(f"d{n}") for n in range(3)))
    assert devices.ask(any_of(count=2)) == ["d0", "d1"]
    assert devices.ask(any_of(count=4)) is None
    assert devices.ask(any_of("a", count=2), any_of("b")) == ["d0", "d1", "d2"]
    assert devices.ask(any_of("a", count=2), any_of("b", count=2)) is None


def test_all_devices() -> None:
    devices = Devices(device("a", kind="x"), device("b", kind="y"), device("c", kind="x"))
    everything = any_of("r", of("kind == 'x'"), allocationMode="All")
    assert devices.ask(everything) == ["a", "c"]
    assert devices.ask(any_of("r", of("kind == 'z'"), allocationMode="All")) is None  # at least one
    assert devices.take(any_of("r")) == ["a"]
    assert devices.ask(everything) is None  # one of them is in use


def test_wishes_in_their_order() -> None:
    devices = Devices(device("large", size=4), device("small", size=1))
    wishes = {
        "name": "r",
        "firstAvailable": [
            {"name": "large", "deviceClassName": "any", "selectors": [{"cel": {"expression": of("size >= 4")}}]},
            {"name": "two", "deviceClassName": "any", "count": 2},
            {"name": "small", "deviceClassName": "any"},
        ],
    }
    first = devices.allocate(devices.claim("a", wishes))
    assert first is not None
    assert first[0]["devices"]["results"][0]["request"] == "r/large"
    assert devices.take(wishes) == ["large"]
    second = devices.allocate(devices.claim("b", wishes))
    assert second is not None
    assert [(it["request"], it["device"]) for it in second[0]["devices"]["results"]] == [("r/small", "small")]


def test_a_wish_gives_way_where_the_rest_would_not_fit() -> None:
    """The whole claim is searched: the first wish alone fits, but not with the other request."""
    devices = Devices(device("a", size=1), device("b", size=2))
    wishes = {
        "name": "r",
        "firstAvailable": [{"name": n, "deviceClassName": "any", "count": c} for n, c in (("two", 2), ("one", 1))],
    }
    assert devices.ask(wishes, any_of("other")) == ["a", "b"]


def test_the_last_choice_is_taken_back() -> None:
    """The first request could have either, the second only the first of the list."""
    devices = Devices(device("a", kind="x"), device("b", kind="y"))
    assert devices.ask(any_of("either"), any_of("x", of("kind == 'x'"))) == ["b", "a"]


def test_several_claims_of_one_pod() -> None:
    devices = Devices(device("a", kind="x"), device("b", kind="y"))
    found = devices.allocate(devices.claim("one", any_of()), devices.claim("two", any_of("r", of("kind == 'x'"))))
    assert found is not None
    assert [names(it) for it in found] == [["b"], ["a"]]


# -- constraints -----------------------------------------------------------------------------------------------------

PARENTS = [device(f"d{n}", parent=parent, size=size) for n, (parent, size) in enumerate([("p", 1), ("q", 2), ("q", 1)])]


@pytest.mark.parametrize(
    ("constraint", "found"),
    [
        ({"matchAttribute": f"{DRIVER}/parent"}, ["d1", "d2"]),
        ({"matchAttribute": f"{DRIVER}/parent", "requests": ["a", "b"]}, ["d1", "d2"]),
        ({"matchAttribute": f"{DRIVER}/parent", "requests": ["a"]}, ["d0", "d1"]),
        ({"distinctAttribute": f"{DRIVER}/parent"}, ["d0", "d1"]),
        ({"distinctAttribute": f"{DRIVER}/size"}, ["d0", "d1"]),
        ({"matchAttribute": f"{DRIVER}/size"}, ["d0", "d2"]),
        ({"matchAttribute": f"{DRIVER}/nope"}, None),
        ({"matchAttribute": "other.example.com/parent"}, None),
    ],
)
def test_constraints(constraint: Obj, found: list[str] | None) -> None:
    assert Devices(*PARENTS).ask(any_of("a"), any_of("b"), constraints=[constraint]) == found


def test_constraints_hold_within_a_request() -> None:
    constraint = {"matchAttribute": f"{DRIVER}/parent"}
    assert Devices(*PARENTS).ask(any_of("a", count=2), constraints=[constraint]) == ["d1", "d2"]
    assert Devices(*PARENTS).ask(any_of("a", count=3), constraints=[constraint]) is None


# -- counters, shares, taints ----------------------------------------------------------------------------------------


def consuming(name: str, **counters: str) -> Obj:
    held = {key: {"value": value} for key, value in counters.items()}
    return {"name": name, "consumesCounters": [{"counterSet": "set", "counters": held}]}


def test_shared_counters() -> None:
    counters = [{"name": "set", "counters": {"memory": {"value": "8Gi"}}}]
    parts = [consuming("whole", memory="8Gi"), *(consuming(f"half-{n}", memory="4Gi") for n in (0, 1))]
    devices = Devices(*parts, counters=counters)
    half = any_of("r", "device.driver == 'dev.example.com'")
    assert devices.ask(any_of(count=2)) == ["half-0", "half-1"]  # the whole one leaves nothing for a second
    assert devices.take(half) == ["whole"]
    assert devices.ask(half) is None


def shareable(name: str, policy: Obj | None = None) -> Obj:
    memory = {"value": "10Gi", **({"requestPolicy": policy} if policy else {})}
    return {"name": name, "allowMultipleAllocations": True, "capacity": {"memory": memory}}


def of_memory(amount: str) -> Obj:
    return any_of("r", capacity={"requests": {"memory": amount}})


def test_one_device_for_several_claims() -> None:
    policy = {"default": "10Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    devices = Devices(shareable("d", policy))
    assert [devices.take(of_memory(it)) for it in ("4Gi", "5500Mi", "1Gi")] == [["d"], ["d"], None]
    claims = {it["metadata"]["name"]: it["status"] for it in devices.inventory.claims if "status" in it}
    consumed = [it["allocation"]["devices"]["results"][0]["consumedCapacity"] for it in claims.values()]
    assert consumed == [{"memory": "4Gi"}, {"memory": "6Gi"}]  # rounded up to the step


def test_without_a_policy_claims_take_what_they_ask_for_and_else_all() -> None:
    devices = Devices(shareable("d"))
    assert [devices.take(it) for it in (of_memory("4Gi"), of_memory("6Gi"), of_memory("1"))] == [["d"], ["d"], None]
    assert Devices(shareable("d")).take(any_of(count=2)) is None


@pytest.mark.parametrize(
    ("policy", "asked", "found"),
    [
        (None, None, ["d"]),
        (None, "11Gi", None),
        ({"default": "1Gi", "validValues": ["1Gi", "4Gi"]}, "2Gi", ["d"]),
        ({"default": "1Gi", "validValues": ["1Gi", "4Gi"]}, "5Gi", None),
        ({"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi"}}, "5Gi", None),
    ],
)
def test_policies_of_a_capacity(policy: Obj | None, asked: str | None, found: list[str] | None) -> None:
    assert Devices(shareable("d", policy)).ask(of_memory(asked) if asked else any_of()) == found


def test_a_capacity_that_a_device_must_have() -> None:
    devices = Devices(device("small", capacity={"memory": "4Gi"}), device("large", capacity={"memory": "8Gi"}))
    assert devices.ask(of_memory("5Gi")) == ["large"]
    assert devices.ask(any_of("r", capacity={"requests": {"nope": "1"}})) is None


def test_taints() -> None:
    tainted = {**device("t"), "taints": [{"key": "broken", "value": "yes", "effect": "NoSchedule"}]}
    told = {**device("u"), "taints": [{"key": "seen", "effect": "None"}]}
    devices = Devices(tainted, told)
    assert devices.ask(any_of()) == ["u"]
    assert devices.ask(any_of(tolerations=[{"key": "broken", "operator": "Exists"}])) == ["t"]
    assert devices.ask(any_of(tolerations=[{"key": "broken", "value": "no"}])) == ["u"]


# -- pools -------------------------------------------------------------------------------------------------------------


def test_an_older_generation_counts_for_nothing() -> None:
    devices = Devices(device("old"))
    devices.slice("s9", generation=2, devices=[device("new")])
    assert devices.ask(any_of()) == ["new"]


def test_nothing_is_taken_from_a_pool_that_is_being_written() -> None:
    devices = Devices()
    devices.slice("s0", of=2, devices=[device("a")])
    assert devices.ask(any_of()) is None
    with pytest.raises(
        AllocationError, match=r"asks for all devices, but resource pool dev.example.com/n1 is currently"
    ):
        devices.ask(any_of(allocationMode="All"))
    devices.slice("s1", of=2, devices=[device("b")])
    assert devices.ask(any_of()) == ["a"]


@pytest.mark.parametrize(
    ("spec", "node", "found", "selector"),
    [
        (
            {"nodeName": "n1"},
            NODE,
            ["d"],
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ),
        ({"allNodes": True}, SchedulableNode("n2", {}, (), {}), ["d"], None),
        (
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
                }
            },
            SchedulableNode("n2", {"zone": "a"}, (), {}),
            ["d"],
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
        ),
    ],
)
def test_where_devices_can_be_used(spec: Obj, node: SchedulableNode, found: list[str], selector: Obj | None) -> None:
    devices = Devices(device("d"), **spec)
    allocated = devices.allocate(devices.claim("c", any_of()), node=node)
    assert allocated is not None
    assert names(allocated[0]) == found
    assert allocated[0].get("nodeSelector") == (None if selector is None else {"nodeSelectorTerms": [selector]})
    elsewhere = devices.allocate(devices.claim("d", any_of()), node=SchedulableNode("n3", {"zone": "b"}, (), {}))
    assert (elsewhere is None) == ("allNodes" not in spec)


def test_a_search_that_takes_too_long_is_given_up() -> None:
    """Thirteen requests, each a little different, of devices that twelve at most have in common."""
    devices = Devices(*(device(f"d{n}", parent=f"p{n % 5}", size=n) for n in range(60)))
    wanted = [any_of(f"r{n}", of(f"size != {100 + n}")) for n in range(13)]
    with pytest.raises(TooManySteps):
        devices.ask(*wanted, constraints=[{"matchAttribute": f"{DRIVER}/parent"}])


# -- partitions --------------------------------------------------------------------------------------------------------


def _shape(model: MigModel) -> NodeShape:
    known = {it.gpu_model: it for name in ("p5.48xlarge", "g7e.48xlarge", "p5en.48xlarge") if (it := CATALOGUE(name))}
    held = known.get(model.id)
    attributes = held.mig_attributes if held is not None else {}
    amounts = {"cpu": "1"}
    return NodeShape(
        amounts, amounts, gpu_model=model.id, gpu_count=1, compute_capability=(9, 0), mig_attributes=attributes
    )


def _some_counts(model: MigModel) -> list[dict[str, int]]:
    """One profile as often as can be and once more, and pairs of profiles."""
    profiles = list(model.profiles)
    found = [{name: n} for name in profiles for n in (model.profiles[name].most, model.profiles[name].most + 1)]
    found += [{a: n, b: 1} for i, a in enumerate(profiles) for b in profiles[i + 1 :] for n in (1, 2, 3)]
    return found


@pytest.mark.parametrize(
    "model", ["h100-80gb", "h200-141gb", "b200-180gb", "gb200-186gb", "rtx-pro-6000-blackwell-96gb"]
)
def test_counters_admit_what_the_geometry_admits(model: str) -> None:
    """Partitionable devices are the same cut: the scheduler finds places exactly where there is a layout."""
    gpu = mig_models()[model]
    found = announced("m", _shape(gpu), [PhysicalGpu()], dynamic=True)
    devices = Devices(*found.devices[0], driver="gpu.nvidia.com", counters=found.counters)
    for number, counts in enumerate(_some_counts(gpu)):
        requests = [
            any_of(f"r{i}-{n}", _is(name)) for i, (name, count) in enumerate(counts.items()) for n in range(count)
        ]
        allocated = devices.allocate(devices.claim(f"x{number}", *requests))
        assert (allocated is not None) == isinstance(feasible(gpu, counts), MigPlacement), counts


def _is(profile: str) -> str:
    attributes = "device.attributes['gpu.nvidia.com']"
    return f"{attributes}.type == 'mig' && {attributes}.profile == '{profile}'"
