"""Of pods that share a claim one asks for the devices, and the others keep near it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.snapshot import Gang, Job, Node, Pod, PodSet
from fleet.snapshot.affinity import near_each_other
from fleet.snapshot.device_claims import (
    NO_CLAIMS,
    AllocatedClaim,
    ClaimableDevices,
    ClaimTemplate,
    DeviceClass,
    PublishedDevices,
    cluster_devices,
    pods_with_claims,
)
from fleet.snapshot.devices import AllocatedDevice, Device, DeviceAsk, RequestedDevices
from fleet.snapshot.gangs import ClaimRef, JobResult, workload_name
from fleet.snapshot.shared_claims import (
    SharedClaim,
    jobs_that_share,
    pods_in_parts,
    shared_claims,
    waiting_with_claims,
    whole_sets,
)
from fleet.snapshot.sub_groups import SubGroup
from model.index import Index
from tests.support.fleets import foreign_pod, job_of
from tests.support.fleets import gang as gang_of

G = "gpu.nvidia.com"
KNOWN = ClaimableDevices({}, {G: DeviceClass(G)})
ONE, TWO = (ClaimRef(f"spec.resourceClaims[{n}]", "c", "", f"claim-{n}") for n in range(2))
ASKS = ClaimTemplate("n", "claim-0", (RequestedDevices("r", (DeviceAsk("r", G, count=2),)),), root="spec")
FREE = {"n/claim-0": SharedClaim(ASKS)}


def pods(name: str, count: int, *refs: ClaimRef, **more: Any) -> PodSet:
    return PodSet(name, count, {"cpu": 1000}, namespace="n", resource_claims=refs or (ONE,), **more)


# -- pods of no gang --------------------------------------------------------------------------------------------------

SHARED = [
    pytest.param((ONE,), {}, {}, ["no ResourceClaim claim-0 in namespace n that pods may share"], id="no such claim"),
    pytest.param((ONE, TWO), FREE, {}, ["one claim that several"] * 2, id="two"),
    pytest.param((ONE,), FREE, {"nvidia.com/gpu": 2, "cpu": 3000}, [], id="ok"),
]


@pytest.mark.parametrize(("refs", "shared", "asked", "words"), SHARED)
def test_of_ordinary_pods_that_share_a_claim_the_first_asks_for_all(
    refs: tuple[ClaimRef, ...], shared: Mapping[str, SharedClaim], asked: dict[str, int], words: list[str]
) -> None:
    shape = pods("", 1, *refs)
    waiting = {key: replace(foreign_pod(key, ""), namespace="n", shape=shape) for key in ("n/a", "n/b", "n/c")}
    found = waiting_with_claims(Index(), waiting, KNOWN, shared, {})
    assert found.keys() == ({"n/a"} if asked else waiting.keys())
    for pod in found.values():
        assert pod.shape is not None
        assert [each for it, each in zip(pod.shape.unsupported, words, strict=True) if each in it.words] == words
        assert pod.requests.items() >= asked.items()


def test_ordinary_pods_wait_while_a_gang_asks_for_their_claim() -> None:
    waiting = {"n/a": replace(foreign_pod("a", ""), namespace="n", shape=pods("", 1))}
    gangs = {"uid-g": job("g", pods("main", 2))}
    assert waiting_with_claims(Index(), waiting, KNOWN, FREE, gangs) == {}
    [held] = waiting_with_claims(Index(), waiting, KNOWN, HELD, gangs).values()
    assert held.shape is not None
    assert held.shape.node_selector == {"kubernetes.io/hostname": "n1"}


@pytest.mark.parametrize("refs", [(ONE, TWO), (ClaimRef("spec.resourceClaims[0]", "c", ""),)])
def test_more_than_one_shared_claim_is_refused_with_its_path(refs: tuple[ClaimRef, ...]) -> None:
    told = pods_with_claims(pods("main", 2, *refs), NO_CLAIMS).unsupported
    assert [it.path for it in told] == [f"{ref.path}.resourceClaimName" for ref in refs]


# -- gangs ------------------------------------------------------------------------------------------------------------


def job(name: str, *pod_sets: PodSet, at_s: float = 0.0, **more: Any) -> Job:
    made = job_of(gang_of(name, *pod_sets, namespace="n"))
    return replace(made, created_at_s=at_s, **more)


def joined(it: Job, shared: Mapping[str, SharedClaim] = FREE, *others: Job) -> Job:
    jobs = {each.ref.uid: each for each in (it, *others)}
    return jobs_that_share(Index(), jobs, KNOWN, shared)[it.ref.uid]


def asked(found: Job) -> dict[str, tuple[int, int]]:
    """Pod set -> pods, and GPUs of each."""
    return {it.name: (it.count, it.requests.get("nvidia.com/gpu", 0)) for it in found.pod_sets}


@pytest.mark.parametrize(
    ("sets", "counted"),
    [
        ([pods("main", 1)], {"main": (1, 2)}),
        ([pods("main", 4)], {"main-claim": (1, 2), "main": (3, 0)}),
        ([pods("a", 4), pods("b", 1), pods("c", 1)], {"a": (4, 0), "b": (1, 2), "c": (1, 0)}),
        ([pods("a", 0), pods("b", 2), pods("c", 3)], {"a": (0, 0), "b-claim": (1, 2), "b": (1, 0), "c": (3, 0)}),
        ([pods("a", 2), pods("a-claim", 2)], {"a-claim-claim": (1, 2), "a": (1, 0), "a-claim": (2, 0)}),
    ],
)
def test_one_pod_asks_and_the_others_keep_near_it(sets: list[PodSet], counted: dict[str, tuple[int, int]]) -> None:
    found = joined(job("g", *sets))
    assert asked(found) == counted
    assert all(near_each_other(it) for it in found.pod_sets if it.count)
    assert [it.constraints.devices[0].shared for it in found.pod_sets if it.constraints.devices] == ["claim-0"]
    assert [(it.name, it.count) for it in whole_sets(found.pod_sets)] == [(it.name, it.count) for it in sets]


def test_pods_that_share_nothing_are_as_they_were() -> None:
    alone = PodSet("alone", 2, {"cpu": 1000}, namespace="n")
    assert joined(job("g", pods("main", 1), alone)).pod_sets[1] == alone


HELD = {"n/claim-0": SharedClaim(ASKS, "n1", "n/somebody")}


@pytest.mark.parametrize(
    ("more", "shared", "words"),
    [
        ({}, {}, "there is no ResourceClaim claim-0 in namespace n"),
        ({"min_count": 1}, FREE, "start together"),
        ({"core": 1}, FREE, "start together"),
        ({}, {"n/claim-0": SharedClaim(ASKS._replace(requests=(RequestedDevices("r", (DeviceAsk("r", "x"),)),)))}, "x"),
    ],
)
def test_what_is_not_honoured_is_refused(more: dict[str, Any], shared: Mapping[str, SharedClaim], words: str) -> None:
    [found] = joined(job("g", pods("main", 3, **more)), shared).pod_sets
    [told] = found.unsupported
    assert told.path.startswith("spec.resourceClaims[0]")
    assert words in told.words
    assert (found.requests, found.constraints.devices) == ({"cpu": 1000}, ())


def test_a_gang_of_which_a_part_may_start_is_refused() -> None:
    [found] = joined(job("g", pods("main", 3), choice=SubGroup("g", together=2))).pod_sets
    assert "start together" in found.unsupported[0].words


def test_where_others_have_the_devices_all_go_there_and_ask_for_none() -> None:
    [found] = joined(job("g", pods("main", 3)), HELD).pod_sets
    assert found.node_selector == {"kubernetes.io/hostname": "n1"}
    assert (found.count, found.requests, found.unsupported) == (3, {"cpu": 1000}, ())


def test_a_gang_asks_the_same_once_its_pods_have_the_devices() -> None:
    made = job("g", pods("main", 3))
    mine = {"n/claim-0": SharedClaim(ASKS, "n1", f"n/{workload_name(made.ref)}")}
    nobodys = {"n/claim-0": SharedClaim(ASKS, "n1")}
    assert joined(made, mine) == joined(made, nobodys) == joined(made)


def test_of_several_gangs_the_oldest_asks_unless_another_has_the_devices() -> None:
    old, new = job("old", pods("main", 2)), job("new", pods("main", 2), at_s=1.0)
    assert not joined(old, FREE, new).pod_sets[0].unsupported
    assert "not before job n/old" in joined(new, FREE, old).pod_sets[0].unsupported[0].words
    assert not joined(new, FREE, replace(old, result=JobResult.SUCCEEDED)).pod_sets[0].unsupported
    mine = {"n/claim-0": SharedClaim(ASKS, "", f"n/{workload_name(new.ref)}")}
    assert not joined(new, mine, old).pod_sets[0].unsupported
    assert joined(old, mine, new).pod_sets[0].unsupported


@pytest.mark.parametrize(
    ("left", "kept"),
    [(4, {"main": 3, "main-claim": 1}), (2, {"main": 1, "main-claim": 1}), (0, {"main": 0, "main-claim": 0})],
)
def test_what_a_job_says_of_a_pod_set_is_said_of_both_parts(left: int, kept: dict[str, int]) -> None:
    found = joined(job("g", pods("main", 4), remaining={"main": left}, restarts={"main": 5}))
    assert found.remaining == kept
    assert found.restarts == {"main": 5, "main-claim": 5}


# -- what is observed -------------------------------------------------------------------------------------------------


def test_a_claim_is_where_its_devices_are_and_of_the_gang_of_its_first_pod() -> None:
    index, gpu = Index(), Device(G, "n1", "gpu-0", {f"{G}/type": "gpu"})
    slices = {"s": PublishedDevices("s", "n1", G, "n1", 1, 1, (gpu,))}
    claims = {
        "n/a": AllocatedClaim("n", "a", "pod", (AllocatedDevice(gpu.id),), ASKS),
        "n/b": AllocatedClaim("n", "b", "gone", (), ASKS),
        "n/c": AllocatedClaim("n", "c", "lone", (), ASKS),
        "n/made-for-one": AllocatedClaim("n", "made-for-one", "pod", (AllocatedDevice(gpu.id),)),
    }
    lone = replace(foreign_pod("lone", ""), namespace="n")
    known = {"n/pod": replace(lone, name="pod", workload="w"), "n/lone": lone}
    devices = cluster_devices(index, slices, claims)
    nodes = {
        "n1": Node(
            "n1",
            "u",
            "",
            {"kubernetes.io/hostname": "host-1"},
            (),
            {},
            ready=True,
            unschedulable=False,
            created_at_s=0.0,
        )
    }
    assert shared_claims(index, claims, devices, known, {}).get("n/a") == SharedClaim(ASKS, "n1", "n/w")
    assert shared_claims(index, claims, devices, known, nodes) == {
        "n/a": SharedClaim(ASKS, "host-1", "n/w"),
        "n/b": SharedClaim(ASKS),
        "n/c": SharedClaim(ASKS, "", "n/lone"),
    }


def test_one_pod_that_has_not_ended_is_the_one_that_asks() -> None:
    found = joined(job("g", pods("main", 3), pods("other", 2)))
    gang: Gang = replace(gang_of("g", *found.pod_sets), namespace="n")
    there = (("main", "Succeeded"), ("main", "Running"), ("other", "Running"), ("main", "Running"))
    made: tuple[Pod, ...] = tuple(
        replace(foreign_pod(f"p{n}", ""), pod_set=name, phase=phase) for n, (name, phase) in enumerate(there)
    )
    [(_, seen)] = pods_in_parts(Index(), {"k": made}, {"k": gang}).items()
    assert [it.pod_set for it in seen] == ["main", "main-claim", "other", "main"]
    whole = {"k": made}
    assert pods_in_parts(Index(), whole, {}) is whole
