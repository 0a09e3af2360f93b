"""Machines whose image, subnet or security groups are not what their pool would get now."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import disruption as disrupt
from fleet.actions import SaveClaim
from fleet.catalog import ImageKind
from fleet.disruption.outcomes import DisruptionOutcome
from fleet.explain.verdicts import verdicts
from fleet.nodeclaims.drift import drifted_claims
from fleet.nodeclaims.drift_facts import NO_DRIFT, provider_drift
from fleet.snapshot import Instance, Resolutions, Resolved
from model.pools import pool_hash
from tests.support.disruption import drift_of
from tests.support.fleets import NOW, FleetBuilder, gang, small_fleet
from tests.support.world import World

GPU, ARM = ImageKind("amd64", "nvidia"), ImageKind("arm64")
SUBNETS = {"subnet-a": ("sg-1", "sg-2"), "subnet-b": ("sg-1", "sg-2")}
NOW_IS = Resolved({GPU: "ami-1", ARM: "ami-2"}, SUBNETS)
MACHINE = Instance(
    "i-1",
    "p5.48xlarge",
    "us-east-1a",
    "on-demand",
    "running",
    launched_at_s=1.0,
    tags={},
    image="ami-1",
    subnet="subnet-a",
    security_groups=("sg-1", "sg-2"),
)


def groups(*ids: str) -> Resolved:
    return replace(NOW_IS, subnets=dict.fromkeys(SUBNETS, ids))


DIFFERENCES: list[tuple[str, ImageKind | None, dict[str, Any], Resolved, str, str]] = [
    ("as it should be", GPU, {}, NOW_IS, "", ""),
    (
        "another image was published",
        GPU,
        {"image": "ami-0"},
        NOW_IS,
        "AMIDrift",
        "its image is ami-0, node pool p now gets ami-1",
    ),
    (
        "the image of another kind of machine",
        ARM,
        {},
        NOW_IS,
        "AMIDrift",
        "its image is ami-1, node pool p now gets ami-2",
    ),
    ("no image is found for its kind", ImageKind("arm64", "aws"), {"image": "ami-0"}, NOW_IS, "", ""),
    ("of a type nobody knows", None, {"image": "ami-0"}, NOW_IS, "", ""),
    ("its image is not told", GPU, {"image": ""}, NOW_IS, "", ""),
    (
        "its subnet is not selected",
        GPU,
        {"subnet": "subnet-z"},
        NOW_IS,
        "SubnetDrift",
        "its subnet is subnet-z, node pool p now selects subnet-a, subnet-b",
    ),
    ("any subnet selected will do", GPU, {"subnet": "subnet-b"}, NOW_IS, "", ""),
    ("no subnet is found", GPU, {"subnet": "subnet-z"}, replace(NOW_IS, subnets={}), "", ""),
    ("its subnet is not told", GPU, {"subnet": "", "security_groups": ()}, NOW_IS, "", ""),
    (
        "of many subnets the first few",
        GPU,
        {"subnet": "subnet-z"},
        replace(NOW_IS, subnets={f"subnet-{n}": () for n in range(5)}),
        "SubnetDrift",
        "its subnet is subnet-z, node pool p now selects subnet-0, subnet-1, subnet-2 and 2 more",
    ),
    (
        "a group too few",
        GPU,
        {},
        groups("sg-1", "sg-2", "sg-3"),
        "SecurityGroupDrift",
        "its security groups are sg-1, sg-2, node pool p now selects sg-1, sg-2, sg-3",
    ),
    (
        "a group too many",
        GPU,
        {},
        groups("sg-1"),
        "SecurityGroupDrift",
        "its security groups are sg-1, sg-2, node pool p now selects sg-1",
    ),
    ("in whatever order", GPU, {"security_groups": ("sg-2", "sg-1")}, NOW_IS, "", ""),
    ("no group is found", GPU, {}, groups(), "", ""),
    ("its groups are not told", GPU, {"security_groups": ()}, NOW_IS, "", ""),
    (
        "groups go by the VPC of its subnet",
        GPU,
        {},
        replace(NOW_IS, subnets={"subnet-a": ("sg-1", "sg-2"), "subnet-other": ("sg-9",)}),
        "",
        "",
    ),
    (
        "the image first",
        GPU,
        {"image": "ami-0", "subnet": "subnet-z"},
        groups("sg-9"),
        "AMIDrift",
        "its image is ami-0, node pool p now gets ami-1",
    ),
    ("nothing is known", GPU, {"image": "ami-0", "subnet": "subnet-z"}, Resolved(), "", ""),
]


@pytest.mark.parametrize(
    ("kind", "facts", "now", "reason", "words"), [it[1:] for it in DIFFERENCES], ids=[it[0] for it in DIFFERENCES]
)
def test_differences(kind: ImageKind | None, facts: dict[str, Any], now: Resolved, reason: str, words: str) -> None:
    assert provider_drift("p", kind, replace(MACHINE, **facts), now) == (reason, words)


IDS = st.sampled_from(["", "a", "b", "c"])
SETS = st.lists(st.sampled_from(["s", "t", "u"]), unique=True).map(lambda found: tuple(sorted(found)))


@given(image=IDS, subnet=IDS, found=SETS, others=st.dictionaries(IDS.filter(bool), SETS))
def test_who_was_born_with_what_is_selected_now_does_not_differ(
    image: str, subnet: str, found: tuple[str, ...], others: dict[str, tuple[str, ...]]
) -> None:
    machine = replace(MACHINE, image=image, subnet=subnet, security_groups=found)
    selected = {**others, subnet: found} if subnet else others
    assert provider_drift("p", GPU, machine, Resolved({GPU: image} if image else {}, selected)) == NO_DRIFT


# -- in a fleet -------------------------------------------------------------------------------------------------------

ANY: dict[str, Any] = {"disruption": {"budgets": [{"nodes": "100%"}]}}
WHY = "its image is ami-0, node pool h100 now gets ami-1"


def old(count: int = 1, *, read_s: float = NOW - 10, **pool: Any) -> World:
    """Idle machines of a pool whose image has been replaced since."""
    world = World(small_fleet(**{**ANY, **pool}))
    for n in range(count):
        world.machine(f"m{n}", emptied_at_s=NOW - 1)
    for name, machine in world.instances.items():
        born: dict[str, Any] = {"image": "ami-0", "subnet": "subnet-a", "security_groups": ("sg-1", "sg-2")}
        world.instances[name] = replace(machine, **born)
    world.resolved = Resolutions(read_s, {pool_hash(world.fleet.node_pools["h100"]): NOW_IS})
    return world


def leaving(world: World) -> list[str]:
    actions = disrupt.decide(world.fleet, world.snapshot())
    return sorted(it.claim.name for it in actions if isinstance(it, SaveClaim) and it.claim.disruption)


def as_instance(**facts: Any) -> Callable[[World], object]:
    return lambda world: world.instances.update({"i-m0": replace(world.instances["i-m0"], **facts)})


def other_hash(world: World) -> None:
    world.resolved = Resolutions(NOW, {"v2-another": NOW_IS})


def adopted(world: World) -> None:
    world.claims["m0"] = replace(world.claims["m0"], adopts="i-m0", pool_hash="")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(lambda world: None, WHY, id="another image"),
        pytest.param(as_instance(image="ami-1"), "", id="the image of now"),
        pytest.param(other_hash, "", id="only another template is known"),
        pytest.param(lambda world: setattr(world, "resolved", Resolutions()), "", id="never read"),
        pytest.param(lambda world: world.instances.clear(), "", id="not listed"),
        pytest.param(as_instance(state="shutting-down"), "", id="gone"),
        pytest.param(adopted, "", id="adopted: it was born otherwise"),
    ],
)
def test_drift(change: Callable[[World], object], why: str) -> None:
    world = old()
    change(world)
    snapshot = world.snapshot()
    assert drift_of(world.fleet, snapshot, world.claims["m0"]).words == why
    assert dict(drifted_claims(world.fleet, snapshot)) == ({"m0": why} if why else {})
    assert leaving(world) == (["m0"] if why else [])


@pytest.mark.parametrize(("launched_s", "drifts"), [(-1.0, True), (0.0, False), (1.0, False)])
def test_what_was_launched_after_the_reading_is_not_judged_by_it(launched_s: float, drifts: bool) -> None:
    """It may have got what was published in between; its elders beside it are judged all the same."""
    world = old(2, read_s=NOW - 600)
    world.claims["m0"] = replace(world.claims["m0"], launched_at_s=NOW - 600 + launched_s)
    found = drifted_claims(world.fleet, world.snapshot())
    assert sorted(found) == (["m0", "m1"] if drifts else ["m1"])


def test_a_template_that_has_changed_comes_first() -> None:
    world = old()
    world.fleet = FleetBuilder().pool(**ANY, template={"labels": {"a": "b"}}).team().queue().build()
    world.resolved = Resolutions(NOW, {pool_hash(world.fleet.node_pools["h100"]): NOW_IS})
    assert (
        drift_of(world.fleet, world.snapshot(), world.claims["m0"]).words
        == "the template of node pool h100 has changed"
    )


def test_a_new_image_for_all_goes_by_the_budget() -> None:
    assert leaving(old(10, disruption={"budgets": [{"nodes": 3}]})) == ["m0", "m1", "m2"]
    assert leaving(old(10, disruption={"budgets": [{"nodes": 0, "reasons": ["Drifted"]}]})) == []


def test_under_a_gang_the_replacement_comes_first() -> None:
    world = old()
    world.runs(gang("g"), ("m0", 1))
    actions = disrupt.decide(world.fleet, world.snapshot())
    assert [type(action).__name__ for action in actions] == ["OpenClaims"]
    (verdict,) = (it for it in verdicts(world.fleet, world.snapshot(), world.claims["m0"]) if it.method == "drift")
    assert (verdict.outcome, verdict.message) == (DisruptionOutcome.GOES, f"{WHY}; 1 machine bought first")
