"""Devices are allocated as kube-scheduler does it: the first that match, with the way back, and counters shared."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.offerings.device_templates import machine_devices
from fleet.placement.device_allocator import DeviceAllocator, DevicesInUse
from fleet.snapshot.devices import DeviceAsk, DeviceClaim, MachineDevices, MatchAttribute, RequestedDevices
from model.fleet import Fleet
from model.index import Index
from model.kinds import NodePool, Taint, Toleration
from model.mig import Impossible, feasible, mig_models
from providers.aws.catalog import package_catalog

G, GPU = "gpu.nvidia.com", "nvidia.com/gpu"
A = f"device.attributes['{G}']"
OF_DRIVER = f"device.driver == '{G}'"
"""As classes say it first: a machine has a channel of another driver as well, of which selectors would fail."""
TYPES = package_catalog("us-east-1").catalog.types
H100 = mig_models()["h100-80gb"]
PARENT = f"{G}/parentUUID"


def machine(*, dynamic: bool, kind: str = "p5.48xlarge", shares: str | int | None = None) -> MachineDevices:
    spec = {"sharing": {"dra": {"dynamicMig": dynamic, "consumableShares": shares}}}
    document = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": spec}
    pool = NodePool.model_validate(document)
    found = machine_devices(Index(), Fleet(node_pools={"p": pool}), pool, TYPES[kind], "")
    assert found is not None
    return found


WHOLE, CUT = machine(dynamic=False), machine(dynamic=True)
BY_MEMORY, BY_TWO, UNLIMITED = (machine(dynamic=False, shares=it) for it in ("memory", 2, "unlimited"))
CUT_BY_TWO = machine(dynamic=True, shares=2)


def gpu(count: int = 1, cel: str = "", name: str = "g") -> RequestedDevices:
    selectors = (OF_DRIVER, f"{A}.type == 'gpu'", *([cel] if cel else ()))
    return RequestedDevices(name, (DeviceAsk(name, "gpu.nvidia.com", selectors, count),))


def parts(request: RequestedDevices, **amounts: int) -> RequestedDevices:
    """The request for so much memory (GiB), or so many shares, of each device."""
    units = {"memory": 2**30, "shares": 1}
    capacity = tuple((name, Fraction(amount * units.get(name, 1))) for name, amount in amounts.items())
    return request._replace(asks=tuple(replace(it, capacity=capacity) for it in request.asks))


def bearing(request: RequestedDevices, *tolerations: Toleration) -> RequestedDevices:
    return request._replace(asks=tuple(replace(it, tolerations=tolerations) for it in request.asks))


def every(request: RequestedDevices, count: int = 0) -> RequestedDevices:
    return request._replace(asks=tuple(replace(it, count=count, every=True) for it in request.asks))


def marked(taints: Mapping[str, Taint]) -> MachineDevices:
    """The whole GPUs, some of them with a taint."""
    devices = (replace(it, taints=(taints[it.name],) if it.name in taints else ()) for it in WHOLE.devices)
    return MachineDevices(tuple(devices))


XID, KEPT = Taint(key="xid", value="79", effect="NoExecute"), Taint(key="team", value="a", effect="NoSchedule")
MARKED = marked({"gpu-0": XID, "gpu-3": KEPT})


def cut(profile: str, name: str = "m") -> RequestedDevices:
    selectors = (OF_DRIVER, f"{A}.type == 'mig'", f"{A}.profile == '{profile}'")
    return RequestedDevices(name, (DeviceAsk(name, "mig.nvidia.com", selectors),))


def claim(*requests: RequestedDevices, match: str = "", apart: str = "") -> tuple[DeviceClaim, ...]:
    rules = (MatchAttribute(match or apart, distinct=bool(apart)),) if match or apart else ()
    return (DeviceClaim("c", requests, rules),)


@pytest.mark.parametrize(
    ("devices", "claims", "pods"),
    [
        (WHOLE, claim(gpu()), 8),
        (WHOLE, claim(gpu(3)), 2),
        (WHOLE, claim(gpu(2), gpu(2, name="h")), 2),
        (WHOLE, claim(gpu(cel=f"{A}.uuid == 'GPU-5'")), 1),
        (WHOLE, claim(gpu(cel=f"{A}.productName.contains('A100')")), 0),
        (WHOLE, claim(gpu(cel=f"{A}.driverVersion == '1'")), 0),
        (WHOLE, claim(cut("1g.10gb")), 0),
        (WHOLE, claim(gpu(2), match=f"{G}/uuid"), 0),
        (CUT, claim(gpu()), 8),
        (CUT, claim(cut("1g.10gb")), 56),
        (CUT, claim(cut("3g.40gb")), 16),
        (CUT, claim(cut("4g.40gb"), cut("3g.40gb", "n"), match=PARENT), 8),
        (CUT, claim(cut("4g.40gb"), cut("4g.40gb", "n"), match=PARENT), 0),
        (CUT, claim(cut("4g.40gb"), cut("4g.40gb", "n")), 4),
        (CUT, claim(cut("3g.40gb"), cut("3g.40gb", "n"), apart=PARENT), 8),
        (CUT, claim(*(cut("1g.10gb", f"r{n}") for n in range(9)), apart=PARENT), 0),
        (CUT, claim(gpu(), cut("7g.80gb")), 4),
        (CUT, claim(cut("1g.10gb+me")), 8),
        (WHOLE, claim(every(gpu())), 1),
        (WHOLE, claim(every(gpu(), 8)), 1),
        (WHOLE, claim(every(gpu(), 4)), 0),
        (WHOLE, claim(every(gpu(cel=f"{A}.uuid < 'GPU-3'"), 3), gpu(2, name="h")), 1),
        (WHOLE, claim(gpu(name="h"), every(gpu())), 0),
        (WHOLE, claim(every(cut("1g.10gb"))), 0),
        (CUT, claim(every(gpu()), cut("1g.10gb")), 0),
        (CUT, claim(every(cut("7g.80gb"))), 1),
        (CUT, claim(every(cut("3g.40gb"))), 1),
        (CUT, claim(every(cut("4g.40gb")), cut("4g.40gb")), 0),
        (MARKED, claim(every(gpu())), 0),
        (MARKED, claim(every(bearing(gpu(), Toleration(operator="Exists")), 8)), 1),
        (MARKED, claim(gpu()), 6),
        (MARKED, claim(gpu(cel=f"{A}.uuid == 'GPU-0'")), 0),
        (MARKED, claim(bearing(gpu(), Toleration(key="team", value="a"))), 7),
        (MARKED, claim(bearing(gpu(), Toleration(key="team", value="b"))), 6),
        (MARKED, claim(bearing(gpu(), Toleration(key="xid", operator="Exists", effect="NoSchedule"))), 6),
        (MARKED, claim(bearing(gpu(8), Toleration(operator="Exists"))), 1),
        (MARKED, claim(gpu(6), bearing(gpu(2, name="h"), Toleration(operator="Exists"))), 1),
        (WHOLE, claim(parts(gpu(), memory=20)), 8),
        (WHOLE, claim(parts(gpu(), memory=81)), 0),
        (WHOLE, claim(parts(gpu(), shares=1)), 0),
        (BY_MEMORY, claim(gpu()), 8),
        (BY_MEMORY, claim(parts(gpu(), memory=20)), 24),
        (BY_MEMORY, claim(parts(gpu(), memory=41)), 8),
        (BY_MEMORY, claim(parts(gpu(), memory=75)), 8),
        (BY_MEMORY, claim(parts(gpu(), memory=76)), 0),
        (BY_MEMORY, claim(parts(gpu(2), memory=30)), 8),
        (BY_MEMORY, claim(parts(gpu(2), memory=41)), 4),
        (BY_MEMORY, claim(parts(gpu(2), memory=20), apart=f"{G}/uuid"), 12),
        (BY_MEMORY, claim(parts(gpu(), memory=30), parts(gpu(name="h"), memory=45), match=f"{G}/uuid"), 8),
        (BY_MEMORY, claim(parts(gpu(), memory=31), parts(gpu(name="h"), memory=50), match=f"{G}/uuid"), 0),
        (BY_MEMORY, claim(every(parts(gpu(), memory=37))), 2),
        (BY_TWO, claim(gpu()), 16),
        (BY_TWO, claim(parts(gpu(), shares=2)), 8),
        (BY_TWO, claim(parts(gpu(), shares=3)), 0),
        (BY_TWO, claim(parts(gpu(), memory=41)), 8),
        (BY_TWO, claim(gpu(16)), 1),
        (UNLIMITED, claim(gpu()), 100),
        (UNLIMITED, claim(parts(gpu(), memory=70)), 8),
        (CUT_BY_TWO, claim(cut("1g.10gb")), 100),
        (CUT_BY_TWO, claim(gpu(), cut("7g.80gb")), 8),
    ],
)
def test_how_many_pods_a_machine_holds(devices: MachineDevices, claims: tuple[DeviceClaim, ...], pods: int) -> None:
    assert DeviceAllocator().pods_on(devices, claims, 100) == pods


def test_the_first_alternative_that_can_be_had_is_taken() -> None:
    ways = tuple(DeviceAsk(f"g/{n}", "c", (OF_DRIVER, f"{A}.type == 'gpu'", f"{A}.uuid == 'GPU-{n}'")) for n in (3, 1))
    use, allocator = DevicesInUse(WHOLE), DeviceAllocator()
    either = claim(RequestedDevices("g", ways))
    assert allocator.allocate(use, either)
    assert {name for _, _, name in use.taken} == {"gpu-3"}
    assert allocator.allocate(use, either)
    assert not allocator.allocate(use, either)
    assert {name for _, _, name in use.taken} == {"gpu-3", "gpu-1"}


def test_a_refusal_leaves_everything_as_it_was() -> None:
    use, allocator = DevicesInUse(CUT), DeviceAllocator()
    assert allocator.allocate(use, claim(cut("3g.40gb")))
    before = set(use.taken), {key: count for key, count in use.counted.items() if count}
    assert not allocator.allocate(use, claim(gpu(8)))
    assert (use.taken, {key: count for key, count in use.counted.items() if count}) == before


def test_it_comes_back_to_devices_that_it_could_have_taken_otherwise() -> None:
    use = DevicesInUse(WHOLE)
    picky = claim(gpu(7), gpu(name="h", cel=f"{A}.uuid == 'GPU-0'"))
    assert DeviceAllocator().allocate(use, picky)


@given(st.lists(st.sampled_from(sorted(H100.profiles)), max_size=8))
def test_slices_of_one_gpu_are_allocated_only_where_they_fit_together(profiles: list[str]) -> None:
    """The counters are the geometry: whatever is allocated on one GPU can be cut."""
    one = MachineDevices(tuple(it for it in CUT.devices if it.name.startswith("gpu-0")), CUT.counters)
    use, allocator = DevicesInUse(one), DeviceAllocator()
    got = [profile for profile in profiles if allocator.allocate(use, claim(cut(profile)))]
    counts = {profile: got.count(profile) for profile in got}
    assert not isinstance(feasible(H100, counts), Impossible)
    assert all(len({it.name for it in pair}) == 2 for pair in combinations([one.by_id[it] for it in use.taken], 2))


@given(st.dictionaries(st.sampled_from(sorted(H100.profiles)), st.integers(1, 7), max_size=3))
def test_what_fits_on_one_gpu_is_allocated_as_one_claim(counts: dict[str, int]) -> None:
    one = MachineDevices(tuple(it for it in CUT.devices if it.name.startswith("gpu-0")), CUT.counters)
    wanted = [cut(profile, f"{profile}-{n}") for profile, count in counts.items() for n in range(count)]
    fits = not isinstance(feasible(H100, counts), Impossible)
    if fits:
        assert DeviceAllocator().allocate(DevicesInUse(one), claim(*wanted))
    elif len(wanted) < 8:
        assert not DeviceAllocator().allocate(DevicesInUse(one), claim(*wanted))


@pytest.mark.parametrize(
    ("devices", "claims", "plain"),
    [
        (WHOLE, claim(gpu(2)), True),
        (WHOLE, claim(gpu(2), gpu(name="h")), True),
        (WHOLE, claim(gpu(cel=f"{A}.uuid == 'GPU-5'")), False),
        (WHOLE, claim(gpu(2), match=f"{G}/productName"), False),
        (CUT, claim(gpu(2)), False),
        (WHOLE, claim(parts(gpu(), memory=20)), False),
        (BY_TWO, claim(gpu()), False),
    ],
)
def test_when_amounts_say_all_that_claims_ask(
    devices: MachineDevices, claims: tuple[DeviceClaim, ...], plain: bool
) -> None:
    def counted(request: RequestedDevices) -> RequestedDevices:
        return request._replace(asks=tuple(replace(ask, resource=GPU) for ask in request.asks))

    asked = tuple(it._replace(requests=tuple(map(counted, it.requests))) for it in claims)
    assert DeviceAllocator().by_amounts(devices, asked) is plain
