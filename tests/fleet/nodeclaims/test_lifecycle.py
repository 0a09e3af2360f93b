"""The life of a claim as a table, from intent to grave, and what belongs to nobody."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import (
    Action,
    CloseClaim,
    EvictPod,
    ForgetClaim,
    LaunchMachines,
    PatchNode,
    RemoveNode,
    SaveClaim,
    TerminateMachines,
)
from fleet.nodeclaims import lifecycle
from fleet.nodeclaims.launch import launch_token
from fleet.snapshot import Claim, ClaimState, CutOrder, GangState, Launch, NodeDisruption, Pin
from model import labels
from model.kinds import NEVER, Taint
from model.pools import pool_hash
from tests.support.fleets import (
    GPU,
    NOW,
    P5,
    A,
    FleetBuilder,
    amounts,
    claim_of,
    foreign_pod,
    gang,
    instance_of,
    offering,
    small_fleet,
)
from tests.support.world import World

PENDING, LAUNCHED, REGISTERED, READY, TERMINATING = ClaimState


def steps(world: World) -> list[Action]:
    return list(lifecycle.decide(world.fleet, world.snapshot()))


def intent(count: int = 1, *, age_s: float = 1.0, lots: int = 1, world: World | None = None) -> World:
    """`count` claims of one launch group for a gang that waits for them."""
    made = world or World(small_fleet())
    it = offering(made.fleet, made.catalog, "h100", P5.name, A, "on-demand")
    pins = []
    for n in range(count):
        launch = Launch("group", n % lots, count)
        made.claims[f"c{n}"] = claim_of(it, f"c{n}", gang="uid-g", created_at_s=made.now_s - age_s, launch=launch)
        pins.append(Pin("main", "", f"c{n}", 1))
    made.waits(gang("g", count=count))
    waiting = made.gang("g")
    made.gangs["uid-g"] = replace(waiting, state=GangState.RESERVED, pins=tuple(pins), flavors={"main": ("h100",)})
    return made


LEAVES = NodeDisruption("Empty", "idle", NOW - 5, NEVER)


def bought(stage: ClaimState, *, since_s: float = 10.0, **claim: Any) -> World:
    """One machine `m0` that has come this far, `since_s` ago, with its node as it should be."""
    world = World(small_fleet())
    at_s = NOW - since_s
    per_stage: dict[ClaimState, dict[str, Any]] = {
        LAUNCHED: {"registered_at_s": 0.0, "ready_at_s": 0.0, "node": "", "emptied_at_s": 0.0},
        REGISTERED: {"ready_at_s": 0.0, "emptied_at_s": 0.0},
        READY: {},
        TERMINATING: {"deleting": True, "disruption": LEAVES},
    }
    stamps = per_stage[stage]
    world.machine("m0", at_s=at_s, **{**stamps, **claim})
    if stage is LAUNCHED:
        world.nodes.clear()
    return world


Change = Callable[[World], object]


def node(**facts: Any) -> Change:
    return lambda world: world.nodes.__setitem__("node-m0", replace(world.nodes["node-m0"], **facts))


def tainted(*keys: str) -> Change:
    return node(taints=tuple(Taint(key=key, effect="NoSchedule") for key in keys))


def claim(**facts: Any) -> Change:
    return lambda world: world.claims.__setitem__("m0", replace(world.claims["m0"], **facts))


def both(*changes: Change) -> Change:
    def change(world: World) -> None:
        for one in changes:
            one(world)

    return change


def nothing(world: World) -> None:
    pass


def joined(world: World) -> None:
    other = bought(READY)
    world.nodes["node-m0"] = other.nodes["node-m0"]


def no_node(world: World) -> None:
    world.nodes.clear()


def instance_terminated(world: World) -> None:
    world.instances = {key: replace(it, state="terminated") for key, it in world.instances.items()}


def instance_ends(world: World) -> None:
    world.instances = {key: replace(it, state="shutting-down") for key, it in world.instances.items()}


def unlisted(world: World) -> None:
    world.instances.clear()


def held(world: World) -> None:
    world.runs(gang("g"), ("m0", 1))


def with_startup_taint(world: World) -> None:
    taint = {"key": "boot", "effect": "NoSchedule"}
    world.fleet = FleetBuilder().pool(template={"startupTaints": [taint]}).team().queue().build()
    tainted("boot")(world)


def allocatable(**change: int | None) -> Change:
    def apply(world: World) -> None:
        before = dict(world.nodes["node-m0"].allocatable)
        for name, amount in change.items():
            before.pop(GPU, None) if amount is None else before.update({GPU: amount})
            assert name == "gpu"
        node(allocatable=before)(world)

    return apply


def born_with(*keys: str) -> Change:
    return claim(startup_taints=tuple(Taint(key=key, effect="NoSchedule") for key in keys))


CASES: list[tuple[str, ClaimState, float, Change, list[Any]]] = [
    # launched
    ("waits for its node", LAUNCHED, 10, nothing, []),
    ("is adopted", LAUNCHED, 10, joined, [PatchNode, SaveClaim]),
    ("never joined", LAUNCHED, 899, nothing, []),
    ("never joined, 15 min", LAUNCHED, 900, nothing, ["RegistrationTimeout"]),
    ("ended before it joined", LAUNCHED, 10, instance_terminated, ["InstanceTerminated"]),
    ("not listed yet", LAUNCHED, 60, unlisted, []),
    ("not listed any more", LAUNCHED, 61, unlisted, ["InstanceTerminated"]),
    ("told to go", LAUNCHED, 10, claim(disruption=LEAVES), [CloseClaim]),
    # registered
    ("is ready", REGISTERED, 10, nothing, [SaveClaim]),
    ("still unregistered", REGISTERED, 10, tainted("muster.dev/unregistered"), [PatchNode]),
    ("node not ready", REGISTERED, 10, node(ready=False), []),
    ("start-up taint", REGISTERED, 10, with_startup_taint, []),
    ("start-up taint its pool has no more", REGISTERED, 10, both(tainted("boot"), born_with("boot")), []),
    ("start-up taint that came after it", REGISTERED, 10, both(with_startup_taint, born_with()), [SaveClaim]),
    ("ephemeral taint", REGISTERED, 10, tainted("node.kubernetes.io/not-ready"), []),
    ("readiness gate", REGISTERED, 10, tainted("readiness.k8s.io/network"), []),
    ("a taint of its own that stays", REGISTERED, 10, tainted("whatever"), [SaveClaim]),
    ("GPUs late", REGISTERED, 10, allocatable(gpu=None), []),
    ("GPUs too few", REGISTERED, 10, allocatable(gpu=7), []),
    ("GPUs never came", REGISTERED, 1800, allocatable(gpu=7), ["InitializationTimeout"]),
    ("its node vanished", REGISTERED, 10, no_node, ["InstanceTerminated"]),
    ("its instance ended", REGISTERED, 10, instance_terminated, ["InstanceTerminated"]),
    ("somebody deletes its node", REGISTERED, 10, node(deleting=True), ["Deleted"]),
    # ready
    ("stands idle", READY, 10, nothing, []),
    ("is idle from now on", READY, 10, claim(emptied_at_s=0.0), [SaveClaim]),
    ("is used", READY, 10, held, []),
    ("not idle any more", READY, 10, both(held, claim(emptied_at_s=NOW)), [SaveClaim]),
    ("told to go", READY, 10, claim(disruption=LEAVES), [CloseClaim]),
    ("not ready is the gangs' business", READY, 10, both(node(ready=False), claim(node_ready=False)), []),
    ("is not ready any more, and says so", READY, 10, node(ready=False), [SaveClaim]),
    ("is ready again, and says so", READY, 10, claim(node_ready=False), [SaveClaim]),
    ("its node vanished", READY, 10, no_node, ["InstanceTerminated"]),
    ("its instance ended", READY, 10, instance_terminated, ["InstanceTerminated"]),
    ("its instance ends", READY, 10, instance_ends, ["InstanceTerminated"]),
    ("somebody deletes its node", READY, 10, node(deleting=True), ["Deleted"]),
    ("registered by an agent that knew no finalizer", READY, 10, node(has_finalizer=False), [PatchNode]),
    ("unregistered after all", READY, 10, tainted("muster.dev/unregistered"), [PatchNode]),
    ("taint of a cut that is over", READY, 10, tainted("muster.dev/recutting"), [PatchNode]),
    # terminating: taint -> drain -> terminate -> remove the node -> forget
    ("tainted first", TERMINATING, 10, nothing, [PatchNode]),
    ("then given back", TERMINATING, 10, tainted("muster.dev/disrupted"), [TerminateMachines]),
    ("never joined", TERMINATING, 10, no_node, [TerminateMachines]),
    ("its instance still stands", TERMINATING, 10, instance_ends, []),
    ("then its node goes", TERMINATING, 10, instance_terminated, [RemoveNode]),
    (
        "others keep its node",
        TERMINATING,
        10,
        both(instance_terminated, node(deleting=True, has_finalizer=False)),
        [ForgetClaim],
    ),
    ("then it is forgotten", TERMINATING, 10, both(instance_terminated, no_node), [ForgetClaim]),
    (
        "never bought",
        TERMINATING,
        10,
        both(claim(instance_id="", node=""), no_node, unlisted),
        [ForgetClaim],
    ),
]


@pytest.mark.parametrize(
    ("stage", "since_s", "change", "expected"), [it[1:] for it in CASES], ids=[f"{it[1]}: {it[0]}" for it in CASES]
)
def test_the_next_step(stage: ClaimState, since_s: float, change: Change, expected: list[Any]) -> None:
    world = bought(stage, since_s=since_s)
    change(world)
    actions = steps(world)
    if expected and isinstance(expected[0], str):
        [action] = actions
        assert isinstance(action, SaveClaim)
        assert action.claim.disruption
        assert action.claim.disruption.reason == expected[0]
        world.apply(actions)
        assert [type(it) for it in steps(world)] == [CloseClaim], "written down first, then closed"
    else:
        assert [type(it) for it in actions] == expected
    subjects = {subject for it in actions for subject in it.subjects}
    world.busy = frozenset({"claim/m0", "node/node-m0", *subjects})
    assert steps(world) == [], "busy subjects are left alone"


def test_a_node_whose_registration_is_under_way_is_not_ready() -> None:
    """Its taint is believed to be gone as soon as its removal is asked for; the API may refuse that."""
    world = bought(REGISTERED, since_s=10)
    world.busy = frozenset({"node/node-m0"})
    assert steps(world) == []


def test_why_a_claim_goes_that_somebody_deleted_is_written_down_before_anything_else() -> None:
    world = bought(TERMINATING, disruption=None)
    [written] = steps(world)
    assert isinstance(written, SaveClaim)
    assert written.claim.disruption is not None
    assert (written.claim.disruption.reason, written.claim.disruption.message) == (
        "Deleted",
        "somebody deleted NodeClaim m0",
    )
    world.apply([written])
    assert [type(it) for it in steps(world)] == [PatchNode]


# -- intent -----------------------------------------------------------------------------------------------------------


def launch(world: World) -> list[LaunchMachines]:
    actions = steps(world)
    assert all(isinstance(it, LaunchMachines) for it in actions)
    return [it for it in actions if isinstance(it, LaunchMachines)]


def test_a_lot_is_launched_once_as_a_whole() -> None:
    world = intent(3)
    [it] = launch(world)
    assert it.claims == ("c0", "c1", "c2")
    request = it.request
    assert (request.count, request.node_pool, str(request.pool)) == (3, "h100", f"{P5.name}:on-demand:{A}")
    assert request.tags[labels.CLUSTER] == "default"
    assert request.tags["muster.dev/launch-group"] == "group"
    assert [taint.key for taint in request.taints] == ["muster.dev/unregistered"]
    assert labels.ZONE not in request.labels
    assert request.fabric_interfaces == 0


def test_each_capacity_pool_is_a_launch_of_its_own() -> None:
    assert sorted(it.claims for it in launch(intent(4, lots=2))) == [("c0", "c2"), ("c1", "c3")]


def test_the_same_claims_always_launch_under_the_same_token() -> None:
    world = intent(3)
    [first] = launch(world)
    world.now_s += 17
    [again] = launch(world)
    assert first.request.token == again.request.token
    claims = list(world.claims.values())
    assert launch_token(claims) == launch_token(claims[::-1])
    assert launch_token(claims) != launch_token(claims[:2])
    assert launch_token(claims) != launch_token([replace(claims[0], uid="other"), *claims[1:]])


@pytest.mark.parametrize(
    ("change", "age_s", "expected"),
    [
        pytest.param(lambda w: w.claims.pop("c2"), 29, [], id="incomplete, may still come"),
        pytest.param(lambda w: w.claims.pop("c2"), 30, ["NotNeeded"] * 2, id="incomplete"),
        pytest.param(lambda w: w.gangs.clear(), 29, [], id="nobody waits, or nobody is seen yet"),
        pytest.param(lambda w: w.gangs.clear(), 30, ["NotNeeded"] * 3, id="nobody waits"),
        pytest.param(
            lambda w: w.gangs.update({"uid-g": replace(w.gang("g"), state=GangState.PENDING, pins=())}),
            30,
            ["NotNeeded"] * 3,
            id="the gang has given up",
        ),
        pytest.param(
            lambda w: w.gangs.update({"uid-g": replace(w.gang("g"), pins=())}),
            30,
            ["NotNeeded"] * 3,
            id="it got others",
        ),
        pytest.param(
            lambda w: setattr(w, "fleet", FleetBuilder().pool("other").team().queue().build()),
            30,
            ["NotNeeded"] * 3,
            id="the pool is gone",
        ),
        pytest.param(
            lambda w: setattr(w, "catalog", replace(w.catalog, types={}, offers=())),
            30,
            ["NotNeeded"] * 3,
            id="the type is not sold any more",
        ),
        pytest.param(nothing, 300, ["LaunchTimeout"] * 3, id="the cloud never said"),
        pytest.param(lambda w: w.claims.update({"c1": replace(w.claims["c1"], uid="")}), 5, [], id="not written yet"),
        pytest.param(lambda w: setattr(w, "busy", frozenset({"claim/c2"})), 5, [], id="an answer is on its way"),
    ],
)
def test_when_an_intent_is_not_launched(change: Change, age_s: float, expected: list[str]) -> None:
    world = intent(3, age_s=age_s)
    change(world)
    actions = steps(world)
    reasons = [it.claim.disruption.reason for it in actions if isinstance(it, SaveClaim) and it.claim.disruption]
    assert reasons == expected
    assert len(actions) == len(expected)


def test_when_one_of_a_group_is_given_up_the_others_follow_at_once() -> None:
    world = intent(3, age_s=2)
    world.claims["c1"] = replace(world.claims["c1"], disruption=LEAVES)
    world.apply(steps(world))
    assert all(it.disruption for it in world.claims.values())
    world.apply(steps(world))
    assert all(it.deleting for it in world.claims.values())


def test_a_crash_after_half_of_the_answer_was_written_asks_again_for_the_whole_lot() -> None:
    world = intent(2)
    [first] = launch(world)
    world.claims["c0"] = replace(world.claims["c0"], instance_id="i-1", launched_at_s=NOW)
    [again] = [it for it in steps(world) if isinstance(it, LaunchMachines)]
    assert (again.claims, again.request.token) == (first.claims, first.request.token)


@pytest.mark.parametrize(("replaces", "stays"), [(("old",), True), (("gone",), False)])
def test_a_replacement_is_wanted_as_long_as_the_old_machine_is_there(replaces: tuple[str, ...], stays: bool) -> None:
    world = intent(1, age_s=60)
    world.gangs.clear()
    world.jobs.clear()
    world.machine("old")
    world.claims["c0"] = replace(world.claims["c0"], replaces=replaces)
    mine = [it for it in steps(world) if "claim/c0" in it.subjects]
    assert isinstance(mine[0], LaunchMachines) is stays


@pytest.mark.parametrize("replicas", [None, 1])
def test_a_machine_for_nobody_is_wanted_by_a_fixed_pool_only(replicas: int | None) -> None:
    world = intent(1, age_s=60, world=World(small_fleet(**({"replicas": replicas} if replicas else {}))))
    world.gangs.clear()
    world.claims["c0"] = replace(world.claims["c0"], gang="")
    assert isinstance(steps(world)[0], LaunchMachines) is bool(replicas)


def test_a_launch_carries_what_the_pool_says() -> None:
    template = {
        "labels": {"team": "x"},
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "boot", "effect": "NoSchedule"}],
        "tags": {"cost": "42"},
        "amis": [{"id": "ami-1"}],
        "subnets": [{"tags": {"net": "private"}}],
        "userData": "echo hi",
        "instanceProfile": "node",
    }
    world = intent(1, world=World(small_fleet(template=template, placement={"efa": True, "group": "pg"})))
    [it] = launch(world)
    request = it.request
    assert request.labels["team"] == "x"
    assert [taint.key for taint in request.taints] == ["gpu", "boot", "muster.dev/unregistered"]
    assert request.tags["cost"] == "42"
    assert request.template == world.fleet.node_pools["h100"].spec.template
    assert (request.arch, request.accelerator) == ("amd64", "nvidia")
    assert (request.placement_group, request.fabric_interfaces) == ("pg", 32)


def test_a_launch_has_the_start_up_taints_that_its_claims_were_written_with() -> None:
    """Whatever the machine is told at its start, it is waited for to lose."""
    world = intent(1, world=World(small_fleet(template={"startupTaints": [{"key": "new", "effect": "NoSchedule"}]})))
    world.claims["c0"] = replace(world.claims["c0"], startup_taints=(Taint(key="old", effect="NoSchedule"),))
    [it] = launch(world)
    assert [taint.key for taint in it.request.taints] == ["old", "muster.dev/unregistered"]


# -- being cut anew ---------------------------------------------------------------------------------------------------


def cutting(*, asked_s: float = 10.0) -> World:
    """`m0` was cut to `small` and has been asked to become `large`."""
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    world = World(builder.pool(sharing={"mig": {"layouts": ["small", "large"]}}).team().queue().build())
    world.machine("m0")
    large = offering(world.fleet, world.catalog, "h100", P5.name, A, "on-demand", _config(world, "large"))
    claim(layout=large.layout, resources=large.allocatable, recut_at_s=NOW - asked_s)(world)
    return world


def _config(world: World, name: str) -> str:
    from model.mig import config_name

    return config_name(world.fleet.mig_layouts[name])


def label_patched(world: World) -> None:
    world.apply([it for it in steps(world) if isinstance(it, PatchNode)])


def test_a_cut_is_asked_for_by_label_behind_a_taint() -> None:
    world = cutting()
    [save, patch] = steps(world)
    assert isinstance(save, SaveClaim)
    assert save.claim.cut
    assert (save.claim.cut.began_s, save.claim.cut.asked_at_s, save.claim.cut.tries) == (NOW, NOW, 0)
    assert isinstance(patch, PatchNode)
    assert patch.labels[labels.MIG_CONFIG] == world.claims["m0"].layout
    assert patch.labels[labels.MIG_LAYOUT] == "large"
    assert patch.remove_labels == (labels.MIG_CONFIG_STATE,)
    assert [taint.key for taint in patch.add_taints] == ["muster.dev/recutting"]


def test_a_machine_that_is_ready_for_the_first_time_is_not_being_cut_any_more() -> None:
    """Its first cut is asked for like any other; one that kept the order was looked at each second."""
    world = bought(REGISTERED)
    claim(cut=CutOrder("", "to be cut to small", NOW, began_s=NOW, asked_at_s=NOW))(world)
    [save] = steps(world)
    assert isinstance(save, SaveClaim)
    assert (save.claim.state, save.claim.cut) == (READY, None)


LARGE, SMALL = labels.MIG_RESOURCE_PREFIX + "3g.40gb", labels.MIG_RESOURCE_PREFIX + "1g.10gb"


@pytest.mark.parametrize(
    ("state", "gpus", "done"),
    [
        pytest.param("success", {SMALL: 56}, False, id="success still speaks of the old cut"),
        pytest.param("pending", {LARGE: 16}, False, id="not reported yet"),
        pytest.param("success", {LARGE: 16, SMALL: 56}, False, id="both at once"),
        pytest.param("success", {LARGE: 15}, False, id="one too few"),
        pytest.param("success", {LARGE: 17}, False, id="one too many"),
        pytest.param("success", {LARGE: 16, SMALL: 0}, True, id="leftovers of the old cut at zero"),
        pytest.param("success", {LARGE: 16}, True, id="done"),
    ],
)
def test_a_cut_is_done_when_allocatable_says_so(state: str, gpus: dict[str, int], done: bool) -> None:
    world = cutting()
    label_patched(world)
    shown = world.nodes["node-m0"]
    base = {name: amount for name, amount in shown.allocatable.items() if "nvidia" not in name}
    node(labels={**shown.labels, labels.MIG_CONFIG_STATE: state}, allocatable={**base, **gpus})(world)
    actions = steps(world)
    assert bool(actions) is done
    if done:
        [save] = actions
        assert isinstance(save, SaveClaim)
        assert save.claim.ready_at_s >= save.claim.recut_at_s
        world.apply(actions)
        [untaint] = [it for it in steps(world) if isinstance(it, PatchNode)]
        assert untaint.remove_taints == ("muster.dev/recutting",)


@pytest.mark.parametrize(("asked_s", "given_up"), [(1799, False), (1800, True)])
def test_a_cut_that_never_ends(asked_s: float, given_up: bool) -> None:
    world = cutting(asked_s=asked_s)
    label_patched(world)
    saved = [it for it in steps(world) if isinstance(it, SaveClaim) and it.claim.disruption]
    assert bool(saved) is given_up
    for save in saved:
        assert save.claim.disruption
        assert save.claim.disruption.reason == "LayoutFailed"
        assert "failed: allocatable shows 56" in save.claim.disruption.message


# -- leaving ----------------------------------------------------------------------------------------------------------


def test_a_machine_is_drained_before_it_is_given_back() -> None:
    world = bought(TERMINATING)
    tainted("muster.dev/disrupted")(world)
    world.stands(foreign_pod("a", "node-m0"), foreign_pod("logs", "node-m0", daemon=True))
    actions = steps(world)
    assert [(type(it), it.pod.name) for it in actions if isinstance(it, EvictPod)] == [(EvictPod, "a")]
    assert len(actions) == 1
    world.apply(actions)
    assert [type(it) for it in steps(world)] == [TerminateMachines]


def test_nobody_is_waited_for_past_the_deadline() -> None:
    world = bought(TERMINATING, disruption=replace(LEAVES, deadline_s=NOW))
    tainted("muster.dev/disrupted")(world)
    world.stands(foreign_pod("a", "node-m0"))
    assert [type(it) for it in steps(world)] == [TerminateMachines]


def test_from_told_to_forgotten() -> None:
    world = bought(READY, disruption=LEAVES)
    world.stands(foreign_pod("a", "node-m0"))
    seen = []
    for _ in range(10):
        actions = steps(world)
        seen += [type(it).__name__ for it in actions]
        world.apply(actions)
    assert seen == ["CloseClaim", "PatchNode", "EvictPod", "TerminateMachines", "RemoveNode", "ForgetClaim"]
    assert not world.claims
    assert not world.nodes


# -- what belongs to nobody -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age_s", "collected"), [(29, False), (30, True)])
def test_an_instance_without_a_claim(age_s: float, collected: bool) -> None:
    world = bought(READY, since_s=age_s)
    stray = instance_of(world.claims["m0"], id="i-stray", tags={labels.CLUSTER: "default"})
    world.instances["i-stray"] = stray
    actions = steps(world)
    assert [it.instance_ids for it in actions if isinstance(it, TerminateMachines)] == [("i-stray",)] * collected


def test_an_instance_whose_launch_is_still_being_answered_is_not_an_orphan() -> None:
    world = intent(2, age_s=40)
    world.instances["i-1"] = instance_of(
        world.claims["c0"], id="i-1", launched_at_s=NOW - 35, tags={"muster.dev/launch-group": "group"}
    )
    assert not [it for it in steps(world) if isinstance(it, TerminateMachines)]


def test_a_surplus_instance_of_a_group_that_is_complete_is_an_orphan() -> None:
    world = bought(READY, since_s=100)
    world.instances["i-2"] = instance_of(world.claims["m0"], id="i-2")
    assert [it.instance_ids for it in steps(world) if isinstance(it, TerminateMachines)] == [("i-2",)]


@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_what_is_gone_is_not_terminated_again(state: Any) -> None:
    world = bought(READY, since_s=100)
    world.instances["i-2"] = instance_of(world.claims["m0"], id="i-2", state=state)
    assert steps(world) == []


@pytest.mark.parametrize(("orphans", "others", "collected"), [(8, 0, 8), (9, 0, 0), (9, 9, 9), (9, 8, 0)])
def test_mass_orphans_are_left_to_an_operator(orphans: int, others: int, collected: int) -> None:
    world = World(small_fleet())
    for n in range(others):
        world.machine(f"m{n}")
    it = offering(world.fleet, world.catalog, "h100", P5.name, A, "on-demand")
    for n in range(orphans):
        gone = claim_of(it, f"x{n}", instance_id=f"i-x{n}", launched_at_s=NOW - 99)
        world.instances[f"i-x{n}"] = instance_of(gone)
    assert len([it for it in steps(world) if isinstance(it, TerminateMachines)]) == collected


@pytest.mark.parametrize(
    ("age_s", "instance", "collected"),
    [
        pytest.param(100, "gone", True, id="its machine is gone"),
        pytest.param(100, "unknown", True, id="its machine was never seen"),
        pytest.param(100, "running", False, id="its machine runs, and goes first"),
        pytest.param(29, "gone", False, id="too young"),
    ],
)
def test_a_node_without_a_claim(age_s: float, instance: str, collected: bool) -> None:
    world = bought(READY, since_s=age_s)
    world.claims.clear()
    if instance == "gone":
        instance_terminated(world)
    elif instance == "unknown":
        unlisted(world)
    assert any(isinstance(it, RemoveNode) for it in steps(world)) is collected


def test_a_node_that_was_never_ours_is_left_alone() -> None:
    world = bought(READY, since_s=100)
    world.claims.clear()
    unlisted(world)
    node(labels={labels.NODE_POOL: "h100"})(world)
    assert steps(world) == []


def test_states_follow_from_the_stamps() -> None:
    it = claim_of(offering(small_fleet(), World(small_fleet()).catalog, "h100", P5.name, A, "on-demand"), "c")
    stages = [{}, {"launched_at_s": 1.0}, {"registered_at_s": 2.0}, {"ready_at_s": 3.0}, {"deleting": True}]
    seen = []
    for facts in stages:
        it = replace(it, **facts)  # type: ignore[arg-type]
        seen.append(it.state)
    assert seen == list(ClaimState)


def test_the_first_reason_of_a_disruption_stays_and_only_an_earlier_deadline_changes_it() -> None:
    it: Claim = bought(READY).claims["m0"].with_disruption(LEAVES)
    later = it.with_disruption(NodeDisruption("Drifted", "x", NOW, NEVER))
    assert later is it
    sooner = it.with_disruption(NodeDisruption("Interrupted", "x", NOW, NOW + 60))
    assert (sooner.disruption and sooner.disruption.reason, sooner.disruption and sooner.disruption.deadline_s) == (
        "Empty",
        NOW + 60,
    )


def test_amounts_of_pods_are_not_promised_by_the_layout() -> None:
    """`owed` looks at devices only: CPUs and memory differ a little from one machine to the next."""
    world = bought(REGISTERED)
    shown = dict(world.nodes["node-m0"].allocatable)
    node(allocatable={**shown, "cpu": shown["cpu"] - 100, "memory": shown["memory"] - amounts()["memory"]})(world)
    assert [type(it) for it in steps(world)] == [SaveClaim]


# -- joining with an image that is told nothing ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "taints"),
    [("Custom", [("boot", "NoExecute"), ("gpu", "NoSchedule")]), ("AL2023", [])],
)
def test_what_an_image_of_ones_own_is_not_told_is_written_when_it_joins(
    family: str, taints: list[tuple[str, str]]
) -> None:
    template = {
        "labels": {"team": "x", "kubernetes.io/role-like": "y"},
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "boot", "effect": "NoExecute"}],
        "amis": [{"id": "ami-1"}],
        "amiFamily": family,
    }
    world = bought(LAUNCHED)
    world.fleet = small_fleet(template=template)
    world.claims["m0"] = replace(world.claims["m0"], pool_hash=pool_hash(world.fleet.node_pools["h100"]))
    world.nodes["node-m0"] = replace(bought(READY).nodes["node-m0"], labels={}, taints=())
    [patch] = [action for action in steps(world) if isinstance(action, PatchNode)]
    assert patch.labels.items() >= {"team": "x", "kubernetes.io/role-like": "y", labels.NODE_POOL: "h100"}.items()
    assert sorted((taint.key, taint.effect) for taint in patch.add_taints) == taints
    world.nodes["node-m0"] = replace(world.nodes["node-m0"], labels={"team": "theirs"})
    [patch] = [action for action in steps(world) if isinstance(action, PatchNode)]
    assert "team" not in patch.labels


def test_an_image_of_ones_own_gets_the_start_up_taints_that_its_claim_was_written_with() -> None:
    world = bought(LAUNCHED)
    joined(world)
    template = {"amis": [{"id": "ami-1"}], "amiFamily": "Custom"}
    world.fleet = small_fleet(template={**template, "startupTaints": [{"key": "new", "effect": "NoSchedule"}]})
    born_with("old")(world)
    (patch,) = [action for action in steps(world) if isinstance(action, PatchNode)]
    assert [taint.key for taint in patch.add_taints] == ["old"]


def test_a_node_gets_nothing_of_a_template_that_came_after_it() -> None:
    """It has the old template's labels from its kubelet; with the new ones, pods that select them would start there."""
    world = bought(LAUNCHED)
    joined(world)
    taint = {"key": "new", "value": "yes", "effect": "NoSchedule"}
    template = {"labels": {"rack": "new"}, "annotations": {"a": "new"}, "taints": [taint]}
    world.fleet = FleetBuilder().pool(template=template).team().queue().build()
    (patch,) = [action for action in steps(world) if isinstance(action, PatchNode)]
    assert "rack" not in patch.labels
    assert (patch.annotations, patch.add_taints) == ({}, ())
    assert patch.labels[labels.NODE_CLAIM] == "m0"
    world.claims["m0"] = replace(world.claims["m0"], pool_hash=pool_hash(world.fleet.node_pools["h100"]))
    (patch,) = [action for action in steps(world) if isinstance(action, PatchNode)]
    assert (patch.labels["rack"], patch.annotations) == ("new", {"a": "new"}), "what it was bought by, it gets"


def test_a_node_gets_the_labels_it_was_planned_with_and_keeps_its_own() -> None:
    """Kubelets say nothing of the facts of their type, which selectors of pods may ask for."""
    world = bought(LAUNCHED)
    joined(world)
    known = world.nodes["node-m0"]
    fact, own = labels.INSTANCE_GPU_NAME, labels.INSTANCE_FAMILY
    bare = {key: value for key, value in known.labels.items() if key != fact} | {own: "as-it-says"}
    world.nodes["node-m0"] = replace(known, labels=bare)
    (patch,) = [action for action in steps(world) if isinstance(action, PatchNode)]
    assert patch.labels[fact] == known.labels[fact]
    assert own not in patch.labels
