"""Pods that ask something of other pods, of ports and of volumes: where they go, what is bought, what is refused."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.placement.plan import PlacementPlan
from fleet.placement.pod_filter import pod_filter
from fleet.placement.volume_filter import attaches
from fleet.reasons import Refusal
from fleet.snapshot import Pod, PodSet
from fleet.snapshot.constraints import (
    EphemeralClaim,
    PodAffinityTerm,
    PodConstraints,
    PodHostPort,
    PreferredNodes,
    PreferredPods,
    TopologySpreadConstraint,
)
from fleet.snapshot.volumes import PersistentVolume, StorageClass, VolumeClaim, Volumes
from model import labels
from model.kinds import RequirementTerm
from model.upstream.selectors import LabelSelectorRequirement
from tests.fleet.placement.test_place import PlacementRig, bought, rig
from tests.support.fleets import P5, P5S, A, B, FleetBuilder, amounts, foreign_pod, pod_set
from tests.support.world import World

HOST, ZONE = labels.HOSTNAME, labels.ZONE
Sel = tuple[LabelSelectorRequirement, ...]


def app(*values: str) -> Sel:
    return (LabelSelectorRequirement(key="app", operator="In", values=values),)


def term(key: str, *values: str, namespace: str = "ns") -> PodAffinityTerm:
    return PodAffinityTerm(key, app(*values), frozenset({namespace}))


def apart(key: str = HOST, *values: str, **more: Any) -> PodConstraints:
    return PodConstraints(anti_affinity=(term(key, *(values or ("x",)), **more),))


def together(key: str = ZONE, *values: str) -> PodConstraints:
    return PodConstraints(affinity=(term(key, *(values or ("x",))),))


def spread(key: str = ZONE, skew: int = 1, **more: Any) -> PodConstraints:
    return PodConstraints(spread=(TopologySpreadConstraint(key, skew, app("x"), **more),))


def pods(constraints: PodConstraints, count: int = 2, gpu: int = 1, name: str = "main", label: str = "x") -> PodSet:
    return pod_set(name, count, gpu, namespace="ns", labels=(("app", label),), constraints=constraints)


def world(*machines: tuple[str, str], **pool: Any) -> World:
    """Idle machines (name, zone) of a pool in both zones."""
    made = World(FleetBuilder().pool(**{"instanceTypes": [P5.name, P5S.name], **pool}).team().queue().build())
    for name, zone in machines:
        made.machine(name, zone=zone)
    return made


def other(name: str, node: str, requests: Mapping[str, int] | None = None, **more: Any) -> Pod:
    """A pod of no gang in the namespace of the pods to place."""
    return replace(foreign_pod(name, node, requests or {}), namespace="ns", **more)


def where(plan: PlacementPlan) -> list[tuple[str, int]]:
    return sorted((it.slot.claim if it.slot.node else "new", it.count) for it in plan.assignments)


def standing_rig(*machines: tuple[str, str], foreign: Mapping[str, Any] | None = None) -> PlacementRig:
    made = world(*machines)
    for node, more in (foreign or {}).items():
        made.stands(other(f"p-{node}", made.claims[node].node, **more))
    return rig(made, may_buy=False)


# -- on what stands ---------------------------------------------------------------------------------------------------


def test_pods_that_keep_apart_get_a_machine_each() -> None:
    plan = standing_rig(("m0", A), ("m1", A)).plan(pods(apart()))
    assert where(plan) == [("m0", 1), ("m1", 1)]


def test_pods_that_keep_apart_by_zone_get_a_zone_each() -> None:
    plan = standing_rig(("m0", A), ("m1", A), ("m2", B)).plan(pods(apart(ZONE)))
    assert where(plan) == [("m0", 1), ("m2", 1)]


def test_the_refusal_counts_the_nodes_by_reason() -> None:
    refusal = standing_rig(("m0", A)).refusal(pods(apart()))
    assert "1 pod of main has no place: 0/1 nodes are available" in refusal.message
    assert "1 didn't match pod anti-affinity rules" in refusal.message


def test_whoever_stands_keeps_others_away() -> None:
    """Symmetry: the pods to place ask nothing, one that stands does not want them."""
    made = standing_rig(("m0", A), ("m1", A), foreign={"m0": {"constraints": apart()}})
    assert where(made.plan(pods(PodConstraints(), count=1, label="y"))) == [("m0", 1)]
    assert where(made.plan(pods(PodConstraints(), count=1))) == [("m1", 1)]


def test_a_namespace_that_no_term_names_is_not_meant() -> None:
    made = standing_rig(("m0", A), foreign={"m0": {"constraints": apart(namespace="other")}})
    assert where(made.plan(pods(PodConstraints(), count=1))) == [("m0", 1)]


def test_company_is_looked_for_where_it_stands() -> None:
    made = standing_rig(("m0", A), ("m1", B), foreign={"m1": {"labels": (("app", "leader"),)}})
    assert where(made.plan(pods(together(ZONE, "leader")))) == [("m1", 2)]
    assert "didn't match pod affinity rules" in made.refusal(pods(together(ZONE, "nobody"))).message


def test_the_first_of_those_that_gather_begins_where_all_have_room() -> None:
    """Seven pods of a GPU fit in zone b alone once zone a is half full: beginning in a would strand them."""
    made = world(("m0", A), ("m1", B))
    made.stands(other("p", made.claims["m0"].node, amounts(4)))
    assert where(rig(made, may_buy=False).plan(pods(together(), count=7))) == [("m1", 7)]


def test_pods_are_spread_evenly_over_the_zones_that_have_nodes() -> None:
    plan = standing_rig(("m0", A), ("m1", B), ("m2", B)).plan(pods(spread(), count=4))
    zones = {"m0": A, "m1": B, "m2": B}
    assert sorted((zones[name], count) for name, count in where(plan)) == [(A, 2), (B, 2)]


def test_a_host_port_is_taken_once() -> None:
    ports = PodConstraints(host_ports=(PodHostPort(8080),))
    one = {"constraints": PodConstraints(host_ports=(PodHostPort(8080, ip="10.0.0.1"),))}
    made = standing_rig(("m0", A), ("m1", A), foreign={"m0": one})
    assert where(made.plan(pods(ports, count=1))) == [("m1", 1)]
    assert "didn't have free ports" in made.refusal(pods(ports, count=2)).message


def test_what_a_daemon_takes_counts() -> None:
    ports = PodConstraints(host_ports=(PodHostPort(9100),))
    made = standing_rig(("m0", A), ("m1", A), foreign={"m0": {"constraints": ports, "daemon": True}})
    assert where(made.plan(pods(ports, count=1))) == [("m1", 1)]


def test_pods_on_a_cordoned_node_still_count() -> None:
    made = world(("m0", A), ("m1", A), ("m2", B))
    made.stands(other("p", made.claims["m0"].node, labels=(("app", "x"),)))
    node = made.nodes[made.claims["m0"].node]
    made.nodes[node.name] = replace(node, unschedulable=True)
    assert where(rig(made, may_buy=False).plan(pods(apart(ZONE), count=1))) == [("m2", 1)]


def test_a_set_that_looks_for_another_of_its_gang_comes_after_it() -> None:
    """The workers are larger, so they would come first; their leader is not there yet then."""
    workers = pods(together(HOST, "leader"), count=1, gpu=4, name="workers", label="worker")
    leader = pods(PodConstraints(), count=1, gpu=1, name="leader", label="leader")
    plan = standing_rig(("m0", A), ("m1", A)).plan(workers, leader)
    assert len({it.slot.claim for it in plan.assignments}) == 1


# -- on what is bought ------------------------------------------------------------------------------------------------


def test_pods_that_keep_apart_are_bought_the_smallest_machine_each() -> None:
    assert bought(rig(world()).plan(pods(apart(), count=3))) == [(P5S.name, A, "on-demand", 3)]


def test_pods_spread_over_zones_are_bought_machines_in_each() -> None:
    """As Karpenter counts: every zone in which machines can be bought is a domain."""
    plan = rig(world(instanceTypes=[P5.name])).plan(pods(spread(), count=6))
    assert bought(plan) == [(P5.name, A, "on-demand", 1), (P5.name, B, "on-demand", 1)]
    assert sorted(it.count for it in plan.assignments) == [3, 3]


@pytest.mark.parametrize("selector", [None, app("others")])
def test_pods_whose_spread_does_not_count_them_are_bought_one_machine(selector: Sel | None) -> None:
    """kube-scheduler would give them one place, so that a second machine would stand idle."""
    asked = PodConstraints(spread=(TopologySpreadConstraint(ZONE, 1, selector),))
    assert bought(rig(world(instanceTypes=[P5.name])).plan(pods(asked, count=6))) == [(P5.name, A, "on-demand", 1)]


def test_pods_spread_over_hosts_are_bought_as_many_as_the_skew_asks() -> None:
    plan = rig(world(instanceTypes=[P5.name])).plan(pods(spread(HOST, 2), count=6))
    assert bought(plan) == [(P5.name, A, "on-demand", 3)]


@pytest.mark.parametrize(("key", "zones"), [(ZONE, [A, B, A, B]), (HOST, [A, A, A, A])])
def test_pods_that_come_one_by_one_do_not_pile_up_on_the_first_machine_bought(key: str, zones: list[str]) -> None:
    made = rig(world(instanceTypes=[P5.name]))
    slots = []
    for n in range(4):
        [assigned] = made.plan(pods(spread(key), count=1, name=f"s{n}")).assignments
        slots.append(assigned.slot)
        if assigned.slot.name.startswith("new/"):  # as a pass does with what it has decided to buy
            made.board.rename(assigned.slot, f"claim/{n}")
            made.board.share(assigned.slot)
    assert [slot.labels[ZONE] for slot in slots] == zones
    assert len(set(map(id, slots))) == (2 if key == ZONE else 4)


def test_pods_on_one_host_are_bought_one_machine_for_all() -> None:
    assert bought(rig(world()).plan(pods(together(HOST), count=4))) == [(P5.name, A, "on-demand", 1)]


def test_a_machine_is_bought_in_the_zone_of_the_company() -> None:
    made = world(("m0", B))
    made.stands(other("p", made.claims["m0"].node, amounts(4), labels=(("app", "leader"),)))
    plan = rig(made).plan(pods(together(ZONE, "leader"), count=1, gpu=8))
    assert [(zone, count) for _, zone, _, count in bought(plan)] == [(B, 1)]


def test_what_stands_is_used_before_anything_is_bought() -> None:
    plan = rig(world(("m0", A))).plan(pods(apart(), count=2))
    assert (where(plan), bought(plan)) == ([("m0", 1), ("new", 1)], [(P5S.name, A, "on-demand", 1)])


@pytest.mark.parametrize(
    ("standing", "count", "kept", "pieces"),
    [
        ([A, A], 6, {A: 2}, {A: 1, B: 3}),
        ([A, A, A], 6, {A: 3}, {B: 3}),
        ([A, B], 6, {A: 1, B: 1}, {A: 2, B: 2}),
        ([A] * 5, 6, {A: 3}, {B: 3}),
        ([], 6, {}, {A: 3, B: 3}),
    ],
)
def test_spread_pods_use_what_stands_as_soon_as_others_stand_elsewhere(
    standing: list[str], count: int, kept: dict[str, int], pieces: dict[str, int]
) -> None:
    """Of two free machines in zone a the second may be used once a pod is in zone b: none is bought in its place."""
    made = world(*((f"m{n}", zone) for n, zone in enumerate(standing)), instanceTypes=[P5S.name, P5.name])
    both = PodConstraints(anti_affinity=apart().anti_affinity, spread=spread().spread)
    plan = rig(made).plan(pods(both, count=count))
    there = Counter(it.slot.labels[ZONE] for it in plan.assignments if it.slot.node)
    assert (there, {zone: number for _, zone, _, number in bought(plan)}) == (Counter(kept), pieces)


def test_where_nothing_is_for_sale_what_stands_takes_more_as_others_do() -> None:
    """The pool sells in zone a alone; a machine stands in zone b."""
    made = world(("m0", B), instanceTypes=[P5.name])
    made.fleet = world(zones=[A], instanceTypes=[P5.name]).fleet
    plan = rig(made).plan(pods(spread(), count=6, gpu=2))
    assert sorted((it.slot.labels[ZONE], it.count) for it in plan.assignments) == [(A, 3), (B, 3)]
    assert bought(plan) == [(P5.name, A, "on-demand", 1)]


def test_an_attempt_that_was_undone_leaves_nothing_behind() -> None:
    """A set that keeps away from kinds of machines made all others tell these apart ever after."""
    made = rig(world(instanceTypes=[P5.name, P5S.name]))
    first = pods(PodConstraints(anti_affinity=apart().anti_affinity, spread=spread().spread), count=2, name="first")
    second = pods(apart(labels.INSTANCE_TYPE), count=1, name="second", label="y")
    rules = pod_filter(made.board.neighbours, first)
    mark = made.board.mark()
    made.plan(first, second)
    assert [it.namespace for it in made.board.neighbours.repelling()] == ["ns", "ns"]
    made.board.undo(mark)
    after = pod_filter(made.board.neighbours, first)
    assert rules is not None
    assert after is not None
    assert after.keys == rules.keys


# -- preferences ------------------------------------------------------------------------------------------------------


def test_pods_stand_where_they_would_like_to_of_what_is_free() -> None:
    wish = PodConstraints(preferred_nodes=(PreferredNodes(1, zone_is(B)[0]),))
    assert where(standing_rig(("m0", A), ("m1", B)).plan(pods(wish))) == [("m1", 2)]
    assert where(standing_rig(("m0", A), ("m1", A)).plan(pods(wish, count=1))) == [("m0", 1)]


def test_pods_stand_beside_or_far_from_others_as_they_like() -> None:
    def wish(weight: int) -> PodConstraints:
        return PodConstraints(preferred_pods=(PreferredPods(weight, term(HOST, "leader")),))

    leader = {"m1": {"labels": (("app", "leader"),)}}
    assert where(standing_rig(("m0", A), ("m1", B), foreign=leader).plan(pods(wish(10)))) == [("m1", 2)]
    assert where(standing_rig(("m0", A), ("m1", B), foreign=leader).plan(pods(wish(-10)))) == [("m0", 2)]


def test_pods_that_like_to_be_spread_are_where_there_is_room() -> None:
    plan = standing_rig(("m0", A), ("m1", B)).plan(pods(spread(HOST, hard=False), count=4))
    assert where(plan) == [("m0", 2), ("m1", 2)]


def test_of_purchases_of_equal_cost_the_one_that_pods_like_is_made() -> None:
    wish = PodConstraints(preferred_nodes=(PreferredNodes(1, zone_is(B)[0]),))
    assert bought(rig(world(instanceTypes=[P5.name])).plan(pods(wish))) == [(P5.name, B, "on-demand", 1)]


def test_a_preference_buys_nothing_where_there_is_room() -> None:
    wish = PodConstraints(preferred_nodes=(PreferredNodes(100, zone_is(B)[0]),), spread=spread(HOST, hard=False).spread)
    assert bought(rig(world(("m0", A))).plan(pods(wish, count=4))) == []


# -- volumes ----------------------------------------------------------------------------------------------------------


def zone_is(zone: str) -> tuple[tuple[RequirementTerm, ...], ...]:
    return ((RequirementTerm(key=ZONE, operator="In", values=(zone,)),),)


BOUND = Volumes(
    {"ns/data": VolumeClaim("ns", "data", "u", "gp3", "pv", bound=True)},
    {"pv": PersistentVolume("pv", reaches=zone_is(B), driver="ebs", handle="vol-1", claim="ns/data")},
)
MOUNTS = PodConstraints(claims=("data",))


def with_volumes(volumes: Volumes, *machines: tuple[str, str], may_buy: bool = True) -> PlacementRig:
    made = world(*machines, instanceTypes=[P5.name])
    made.volumes = volumes
    return rig(made, may_buy=may_buy)


def test_a_bound_volume_says_where_its_pods_run() -> None:
    assert where(with_volumes(BOUND, ("m0", A), ("m1", B)).plan(pods(MOUNTS))) == [("m1", 2)]
    assert bought(with_volumes(BOUND).plan(pods(MOUNTS))) == [(P5.name, B, "on-demand", 1)]


def waiting(**of_class: Any) -> Volumes:
    held = StorageClass("gp3", "ebs.csi.aws.com", waits=True, **of_class)
    return Volumes({"ns/data": VolumeClaim("ns", "data", storage_class="gp3")}, {}, {"gp3": held})


def test_a_volume_that_waits_is_made_where_its_class_may() -> None:
    assert bought(with_volumes(waiting(allowed=zone_is(B))).plan(pods(MOUNTS))) == [(P5.name, B, "on-demand", 1)]


def test_pods_that_share_a_volume_to_be_made_share_its_zone() -> None:
    plan = with_volumes(waiting(), ("m0", A), ("m1", B), may_buy=False).ask(pods(MOUNTS, count=9))
    assert isinstance(plan, Refusal)
    assert "zone of the pods that share it" in plan.message


def test_a_claim_that_comes_with_each_pod_gets_the_youngest_default_class() -> None:
    kinds = [
        StorageClass(name, "ebs.csi.aws.com", waits=True, allowed=zone_is(zone), default=True, created_at_s=at_s)
        for name, zone, at_s in (("a-old", A, 1.0), ("b-new", B, 2.0))
    ]
    volumes = Volumes({}, {}, {it.name: it for it in kinds})
    asked = PodConstraints(ephemeral=(EphemeralClaim("scratch", ""),))
    assert bought(with_volumes(volumes).plan(pods(asked))) == [(P5.name, B, "on-demand", 1)]


@pytest.mark.parametrize(
    ("volumes", "words"),
    [
        (Volumes(), 'persistentvolumeclaim "data" not found'),
        (
            Volumes(
                {"ns/data": VolumeClaim("ns", "data")}, {}, {"d": StorageClass("d", "p", waits=True, default=True)}
            ),
            "unbound immediate",
        ),
        (Volumes({"ns/data": VolumeClaim("ns", "data", storage_class="now")}), "unbound immediate"),
        (Volumes({"ns/data": VolumeClaim("ns", "data", volume="pv", bound=True)}), "non-existent pv"),
        (Volumes({"ns/data": VolumeClaim("ns", "data", volume="pv", lost=True)}), "non-existent persistentvolume"),
    ],
)
def test_a_volume_that_is_not_to_be_had_is_named(volumes: Volumes, words: str) -> None:
    assert words in with_volumes(volumes, ("m0", A)).refusal(pods(MOUNTS)).message


def numbered(*numbers: int) -> list[PodSet]:
    """The pods of a StatefulSet that makes a claim `data-web-N` for each."""
    asked = [PodConstraints(ephemeral=(EphemeralClaim("data", "gp3", f"data-web-{n}"),)) for n in numbers]
    return [pods(it, count=1, gpu=8, name=f"main-{n}") for n, it in zip(numbers, asked, strict=True)]


def test_claims_that_outlive_their_pods_say_where_these_go_once_they_have_a_volume() -> None:
    """The volume of the first is in zone B; what has none yet goes there, too."""
    made = waiting()
    volume = PersistentVolume("pv", reaches=zone_is(B))
    volumes = replace(made, claims={"ns/data-web-0": bound_claim("pv")}, volumes={"pv": volume})
    plan = with_volumes(volumes).plan(*numbered(0))
    assert bought(plan) == [(P5.name, B, "on-demand", 1)]
    plan = with_volumes(volumes).plan(*numbered(0, 1, 2))
    assert {zone for _, zone, _, _ in bought(plan)} == {B}


def bound_claim(name: str) -> VolumeClaim:
    return VolumeClaim("ns", "data-web-0", storage_class="gp3", volume=name, bound=True)


def test_claims_to_come_whose_volumes_are_made_at_once_are_refused() -> None:
    volumes = Volumes({}, {}, {"gp3": StorageClass("gp3", "ebs.csi.aws.com", waits=False)})
    assert "WaitForFirstConsumer" in with_volumes(volumes, ("m0", A)).refusal(*numbered(0)).message


def test_no_more_volumes_than_the_driver_attaches_to_a_node() -> None:
    claims = {f"ns/c{n}": VolumeClaim("ns", f"c{n}", "", "gp3", f"pv{n}", bound=True) for n in range(3)}
    held = {f"pv{n}": PersistentVolume(f"pv{n}", driver="ebs", handle=f"v{n}") for n in range(3)}
    made = world(("m0", A), instanceTypes=[P5.name])
    made.volumes = Volumes(claims, held, {}, {made.claims["m0"].node: {"ebs": 2}})
    sets = [pods(PodConstraints(claims=(f"c{n}",)), count=1, name=f"s{n}") for n in range(3)]
    assert "exceed max volume count" in rig(made, may_buy=False).refusal(*sets).message
    assert where(rig(made, may_buy=False).plan(*sets[:2])) == [("m0", 1), ("m0", 1)]


def attaching(most: int, *machines: tuple[str, str]) -> World:
    """A world in which machines attach so many volumes, those that stand and those to be bought."""
    made = world(*machines, instanceTypes=[P5.name])
    limits = {"ebs.csi.aws.com": most}
    made.volumes = replace(waiting(), limits={made.claims[name].node: limits for name, _ in machines})
    type_ = replace(P5, attach_limits=limits)
    offers = tuple(replace(it, instance_type=type_) if it.instance_type is P5 else it for it in made.catalog.offers)
    made.catalog = replace(made.catalog, types={**made.catalog.types, P5.name: type_}, offers=offers)
    return made


SCRATCH = PodConstraints(ephemeral=(EphemeralClaim("scratch", "gp3"),))


def test_a_volume_that_comes_with_each_pod_is_attached_for_each() -> None:
    """Of five pods two have their volumes attached to the machine that stands, the others to two more."""
    plan = rig(attaching(2, ("m0", A))).plan(pods(SCRATCH, count=5))
    assert (where(plan)[0], sum(count for _, _, _, count in bought(plan))) == (("m0", 2), 2)


@pytest.mark.parametrize("held", [0, 1, 2])
def test_volumes_of_equal_pods_that_stand_count_for_each(held: int) -> None:
    made = attaching(2, ("m0", A))
    for n in range(held):
        made.stands(other(f"p{n}", made.claims["m0"].node, constraints=SCRATCH))
    refusal = rig(made, may_buy=False).refusal(pods(SCRATCH, count=3 - held))
    assert "exceed max volume count" in refusal.message


@pytest.mark.parametrize(("count", "attached"), [(1, True), (2, True), (3, False)])
def test_a_machine_to_be_bought_attaches_the_volumes_of_all_its_pods(count: int, attached: bool) -> None:
    made = attaching(2)
    machine = made.catalog.types[P5.name]
    assert attaches(machine, rig(made).board.neighbours, [(pods(SCRATCH), count)]) is attached


PORT = PodConstraints(host_ports=(PodHostPort(80),))


@pytest.mark.parametrize(
    ("asked", "kept", "pieces"),
    [
        (SCRATCH, 3, {A: 1, B: 2}),
        (MOUNTS, 5, {B: 1}),
        (spread(HOST, 2), 2, {A: 2, B: 3}),
        (PORT, 1, {A: 4, B: 5}),
        (replace(SCRATCH, host_ports=PORT.host_ports), 1, {A: 4, B: 5}),
    ],
)
def test_spread_pods_fill_what_stands_up_to_what_bounds_a_machine(
    asked: PodConstraints, kept: int, pieces: dict[str, int]
) -> None:
    """A machine in zone a is for five of ten pods as soon as others stand in zone b, or for as many as a host takes.

    A machine attaches three volumes: one of each pod, or one that they share.
    """
    made = attaching(3, ("m0", A))
    made.volumes = replace(
        made.volumes,
        claims={"ns/data": VolumeClaim("ns", "data", storage_class="gp3", volume="pv", bound=True)},
        volumes={"pv": PersistentVolume("pv", driver="ebs.csi.aws.com", handle="v")},
    )
    plan = rig(made).plan(pods(replace(asked, spread=(*asked.spread, *spread().spread)), count=10))
    there = sum(it.count for it in plan.assignments if it.slot.node)
    assert (there, {zone: number for _, zone, _, number in bought(plan)}) == (kept, pieces)


def test_what_is_to_be_bought_attaches_what_its_type_does() -> None:
    """Two volumes go onto a machine of this type: three pods with one each are bought two machines."""
    made = attaching(2)
    asked = [PodConstraints(ephemeral=(EphemeralClaim("data", "gp3", f"data-web-{n}"),)) for n in range(3)]
    sets = [pods(it, count=1, name=f"main-{n}") for n, it in enumerate(asked)]
    assert sum(count for _, _, _, count in bought(rig(made).plan(*sets))) == 2
    assert sum(count for _, _, _, count in bought(rig(made).plan(*sets[:2]))) == 1


# -- a judge that is as plain as can be -------------------------------------------------------------------------------


def breaches(plan: PlacementPlan, sets: list[PodSet]) -> Iterator[str]:
    """What pods stand where they did not want to."""
    by_name = {it.name: it for it in sets}
    stood = [(by_name[it.pod_set], it.slot) for it in plan.assignments for _ in range(it.count)]

    def domain(slot: Any, key: str) -> object:
        return slot.labels.get(key, slot if key == HOST else None)

    def meant(asked: PodAffinityTerm, other: PodSet) -> bool:
        return all(it.matches(dict(other.labels)) for it in asked.selector or ())

    for (one, (pod, slot)), (two, (other, there)) in product(enumerate(stood), enumerate(stood)):
        for asked in pod.constraints.anti_affinity:
            same = domain(slot, asked.topology_key) == domain(there, asked.topology_key)
            if one != two and same and meant(asked, other):
                yield f"{pod.name} beside {other.name} in one {asked.topology_key}"
    for pod, slot in stood:
        for asked in pod.constraints.affinity:
            near = (other for other, at in stood if domain(at, asked.topology_key) == domain(slot, asked.topology_key))
            if not any(meant(asked, other) for other in near):
                yield f"{pod.name} has no company in its {asked.topology_key}"


KEYS = st.sampled_from([HOST, ZONE, labels.INSTANCE_TYPE])
LABEL = st.sampled_from(["x", "y"])


@st.composite
def constraints(draw: st.DrawFn) -> PodConstraints:
    near = [term(draw(KEYS), draw(LABEL))] if draw(st.booleans()) else []
    far = [term(draw(KEYS), draw(LABEL))] if draw(st.booleans()) else []
    ports = (PodHostPort(80),) if draw(st.integers(0, 5)) == 0 else ()
    return PodConstraints(affinity=tuple(near), anti_affinity=tuple(far), host_ports=ports)


@given(
    st.lists(st.tuples(constraints(), st.integers(1, 4), st.sampled_from([0, 1, 4]), LABEL), min_size=1, max_size=3),
    st.lists(st.sampled_from([A, B]), max_size=3),
    st.booleans(),
)
def test_whatever_is_planned_keeps_every_constraint(
    asked: list[tuple[PodConstraints, int, int, str]], machines: list[str], may_buy: bool
) -> None:
    made = rig(world(*((f"m{n}", zone) for n, zone in enumerate(machines))), may_buy=may_buy)
    sets = [pods(it, count, gpu, f"s{n}", label) for n, (it, count, gpu, label) in enumerate(asked)]
    found = made.ask(*sets)
    if isinstance(found, PlacementPlan):
        assert list(breaches(found, sets)) == []
