"""What failed launches teach, for how long; and how equal launches share a call."""

import pytest

from bench.reference.karpenter.buy import MachineType, ReferenceOffering
from bench.reference.karpenter.launch.batches import dealt, merged
from bench.reference.karpenter.launch.shortages import REMEMBERED_S, Shortages, Tried
from fleet.snapshot import CapacityPool, Reach
from model.requirements import Requirements

SUBNETS = {"a": ["s1", "s2"], "b": ["s3"]}
TRIED = Tried(CapacityPool("spot", "m", "a"), "s1", "r")
OFFERS = {
    "m spot a": ("m", ReferenceOffering("spot", "a", 1.0)),
    "m spot b": ("m", ReferenceOffering("spot", "b", 1.0)),
    "n spot a": ("n", ReferenceOffering("spot", "a", 1.0)),
    "m on-demand a": ("m", ReferenceOffering("on-demand", "a", 1.0)),
    "m reserved a": ("m", ReferenceOffering("reserved", "a", 0.0, reservation_id="r")),
}


@pytest.mark.parametrize(
    ("reach", "short"),
    [
        (Reach.NOTHING, set()),
        (Reach.POOL, {"m spot a"}),
        (Reach.CAPACITY_TYPE, {"m spot a", "m spot b", "n spot a"}),
        (Reach.SUBNET, set()),
        (Reach.RESERVATION, {"m reserved a"}),
    ],
)
def test_reach(reach: Reach, short: set[str]) -> None:
    known = Shortages().learned(TRIED, reach, 100.0)
    assert {
        name for name, (machine, offer) in OFFERS.items() if known.cover(machine, offer, 101.0, SUBNETS[offer.zone])
    } == short


def test_a_zone_is_out_when_all_its_subnets_are() -> None:
    known = Shortages()
    for subnet in SUBNETS["a"]:
        known = known.learned(Tried(TRIED.pool, subnet), Reach.SUBNET, 0.0)
    short = {name for name, (machine, offer) in OFFERS.items() if known.cover(machine, offer, 1.0, SUBNETS[offer.zone])}
    assert short == {"m spot a", "n spot a", "m on-demand a"}


def test_shortages_are_forgotten() -> None:
    known = Shortages().learned(TRIED, Reach.POOL, 0.0)
    assert known.current(REMEMBERED_S - 1) == known
    assert known.current(REMEMBERED_S) == Shortages()
    assert not known.cover(*OFFERS["m spot a"], REMEMBERED_S)


def test_what_is_short_is_not_available() -> None:
    machine = MachineType("m", Requirements(), {}, {}, (OFFERS["m spot a"][1], OFFERS["m on-demand a"][1]))
    (spared,) = Shortages().learned(TRIED, Reach.POOL, 0.0).spare([machine], 1.0, {})
    assert [offer.available for offer in spared.offerings] == [False, True]


def test_equal_launches_are_one_call() -> None:
    calls = merged([("a", "x"), ("b", "y"), ("c", "x")])
    assert [(call.request, call.callers) for call in calls] == [("x", ("a", "c")), ("y", ("b",))]


@pytest.mark.parametrize("instances", [[], ["i-1"], ["i-1", "i-2"]])
def test_each_gets_one_machine_as_long_as_there_are_any(instances: list[str]) -> None:
    (call,) = merged([("a", "x"), ("b", "x")])
    shares = dealt(call, instances, ["short"])
    assert [share.instance for share in shares] == [*instances, "", ""][:2]
    assert all(share.failures == ("short",) for share in shares)
