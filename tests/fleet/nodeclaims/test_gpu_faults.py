"""Faults of GPUs: what each asks for by NVIDIA's catalogue, how long it is borne, and what the claim keeps of it."""

from dataclasses import replace

import pytest

from fleet.actions import SaveClaim
from fleet.nodeclaims import lifecycle
from fleet.nodeclaims.gpu_faults import FaultAction, action_for, as_claims_say, gpu_conditions, with_gpu_faults
from fleet.snapshot import Claim, MachineEvent, NodeCondition
from fleet.snapshot.claims import MOST_EVENTS
from fleet.snapshot.gpus import ComplaintKind, GpuComplaint, GpuFault
from model.index import Index
from tests.support.fleets import NOW, small_fleet
from tests.support.world import World

KIND = ComplaintKind


def xid(code: int, gpu: str = "GPU-1") -> GpuComplaint:
    return GpuComplaint(gpu, KIND.XID, code, "what the driver says")


@pytest.mark.parametrize(
    ("complaint", "action"),
    [
        pytest.param(xid(79), FaultAction.REPLACE, id="fallen off the bus: RESTART_BM"),
        pytest.param(xid(54), FaultAction.REPLACE, id="no power: CHECK_MECHANICALS"),
        pytest.param(xid(48), FaultAction.RESET, id="double bit ECC"),
        pytest.param(xid(64), FaultAction.RESET, id="remapping failed: RESET_GPU"),
        pytest.param(xid(95), FaultAction.RESET, id="uncontained: RESET_GPU"),
        pytest.param(xid(119), FaultAction.RESET, id="GSP: RESET_GPU"),
        pytest.param(xid(13), FaultAction.APPLICATION, id="graphics exception: RESTART_APP"),
        pytest.param(xid(31), FaultAction.APPLICATION, id="page fault: RESTART_APP"),
        pytest.param(xid(94), FaultAction.APPLICATION, id="contained: RESTART_APP"),
        pytest.param(xid(63), FaultAction.NOTED, id="remapping event: IGNORE"),
        pytest.param(xid(149), FaultAction.NOTED, id="NVLink 5: the number alone does not tell"),
        pytest.param(xid(998), FaultAction.NOTED, id="nobody knows it"),
        pytest.param(GpuComplaint("GPU-1", KIND.ROW_REMAP_FAILURE, 1), FaultAction.REPLACE, id="row remap failed"),
        pytest.param(GpuComplaint("GPU-1", KIND.ROW_REMAP_PENDING, 1), FaultAction.RESET, id="row remap pending"),
        pytest.param(GpuComplaint("GPU-1", KIND.UNCORRECTABLE_ECC, 3), FaultAction.RESET, id="ECC"),
        pytest.param(GpuComplaint("GPU-1", KIND.HEALTH, 20), FaultAction.RESET, id="DCGM"),
    ],
)
def test_what_a_fault_asks_for(complaint: GpuComplaint, action: FaultAction) -> None:
    assert action_for(complaint) is action


def test_the_earliest_fault_of_each_kind_is_the_condition() -> None:
    faults = [
        GpuFault(30.0, xid(79)),
        GpuFault(10.0, xid(46, "GPU-2")),
        GpuFault(20.0, xid(48)),
        GpuFault(1.0, xid(31)),
    ]
    assert gpu_conditions(faults) == {
        "GpuFailed": NodeCondition("True", 30.0, "GPU-1: XID 79 (what the driver says)"),
        "GpuNeedsReset": NodeCondition("True", 10.0, "GPU-2: XID 46 (what the driver says)"),
    }


# -- the machine ------------------------------------------------------------------------------------------------------


def world(machines: int = 6, **pool: object) -> World:
    made = World(small_fleet(**pool))
    for n in range(machines):
        made.machine(f"m{n}")
    return made


def faulty(made: World, name: str, *complaints: GpuComplaint, for_s: float) -> None:
    faults = {f"node-{name}": tuple(GpuFault(NOW - for_s, it) for it in complaints)}
    made.nodes.update(with_gpu_faults(Index(), dict(made.nodes), faults))


def saved(made: World) -> dict[str, Claim]:
    decided = lifecycle.decide(made.fleet, made.snapshot())
    return {action.claim.name: action.claim for action in decided if isinstance(action, SaveClaim)}


@pytest.mark.parametrize(
    ("complaint", "for_s", "goes"),
    [
        pytest.param(xid(79), 60, True, id="replaced after a minute"),
        pytest.param(xid(79), 59, False, id="not before"),
        pytest.param(xid(119), 600, True, id="a reset is waited for"),
        pytest.param(xid(119), 599, False, id="for ten minutes"),
        pytest.param(xid(31), 9999, False, id="the program's own fault"),
        pytest.param(xid(998), 9999, False, id="one that nobody knows"),
    ],
)
def test_a_machine_with_a_bad_gpu_is_replaced_and_says_why(complaint: GpuComplaint, for_s: float, goes: bool) -> None:
    made = world()
    faulty(made, "m0", complaint, for_s=for_s)
    claim = saved(made)["m0"]
    assert (claim.disruption is not None) is goes
    if claim.disruption is not None:
        assert claim.disruption.reason == "NodeFailures"
        assert claim.disruption.message.endswith(f"GPU-1: XID {complaint.code} (what the driver says)")
    words = f"GPU-1: XID {complaint.code} (what the driver says)"
    assert claim.history == (MachineEvent(NOW - for_s, "GpuFault", words),)


@pytest.mark.parametrize(("faulty_ones", "goes"), [(1, 1), (2, 2), (3, 0)])
def test_where_a_fifth_of_a_pool_has_faults_it_is_not_the_machines(faulty_ones: int, goes: int) -> None:
    made = world(10)
    for n in range(faulty_ones):
        faulty(made, f"m{n}", xid(79), for_s=300)
    assert sum(it.disruption is not None for it in saved(made).values()) == goes


def test_a_pool_says_itself_what_it_bears() -> None:
    made = world(repair=[{"condition": "GpuNeedsReset", "statuses": ["True"], "after": "1h"}])
    faulty(made, "m0", xid(79), xid(119), for_s=600)
    assert saved(made)["m0"].disruption is None
    faulty(made, "m0", xid(119), for_s=3600)
    assert saved(made)["m0"].disruption is not None


def test_a_claim_says_what_its_gpus_need_until_they_do_not() -> None:
    made = world()
    faulty(made, "m0", xid(119), for_s=10)
    made.claims["m0"] = saved(made)["m0"]
    assert [(it.what, it.message) for it in made.claims["m0"].gpu_conditions] == [
        ("GpuNeedsReset", "GPU-1: XID 119 (what the driver says)")
    ]
    assert saved(made) == {}, "nothing is written again"
    node = made.nodes["node-m0"]
    made.nodes["node-m0"] = replace(node, conditions={}, gpu_faults=())
    after = saved(made)["m0"]
    assert after.gpu_conditions == ()
    assert len(after.history) == 1, "what happened stays"


def test_who_has_read_no_exporter_goes_by_what_claims_say() -> None:
    made = world()
    faulty(made, "m0", xid(119), for_s=10)
    made.claims["m0"] = saved(made)["m0"]
    plain = {name: replace(it, conditions={}, gpu_faults=()) for name, it in made.nodes.items()}
    told = as_claims_say(Index(), plain, made.claims)
    assert told["node-m0"].conditions["GpuNeedsReset"].since_s == NOW - 10
    assert told["node-m1"] is plain["node-m1"]
    none: dict[str, Claim] = {}
    assert as_claims_say(Index(), plain, none) is plain


def test_nodes_without_faults_are_the_nodes_that_they_were() -> None:
    made = world(2)
    nodes = dict(made.nodes)
    assert with_gpu_faults(Index(), nodes, {}) is nodes
    assert with_gpu_faults(Index(), nodes, {"gone": (GpuFault(1.0, xid(79)),)}) is nodes


# -- its history ------------------------------------------------------------------------------------------------------


def test_a_history_tells_of_conditions_and_of_silence_once() -> None:
    made = world()
    node = made.nodes["node-m0"]
    bad = {"KernelDeadlock": NodeCondition("True", NOW - 100, "task blocked"), "Else": NodeCondition("True", NOW)}
    made.nodes["node-m0"] = replace(node, conditions=bad)
    made.claims["m0"] = saved(made)["m0"]
    made.nodes["node-m0"] = replace(node, conditions=bad, ready=False, ready_changed_at_s=NOW - 5)
    made.claims["m0"] = saved(made)["m0"]
    made.nodes["node-m0"] = replace(node, conditions=bad, ready_changed_at_s=NOW - 1)
    made.claims["m0"] = saved(made)["m0"]
    assert [(it.at_s - NOW, it.what, it.message) for it in made.claims["m0"].history] == [
        (-100, "KernelDeadlock", "True: task blocked"),
        (-5, "NodeNotReady", "node node-m0"),
        (-1, "NodeReady", "node node-m0"),
    ]
    assert saved(made) == {}


def test_a_fault_found_anew_after_a_restart_is_told_once_a_day() -> None:
    made = world()
    event = MachineEvent(NOW - 3600, "GpuFault", "GPU-1: XID 31 (what the driver says)")
    made.claims["m0"] = replace(made.claims["m0"], history=(event,))
    faulty(made, "m0", xid(31), for_s=0)
    assert saved(made) == {}
    made.claims["m0"] = replace(made.claims["m0"], history=(event._replace(at_s=NOW - 25 * 3600),))
    assert len(saved(made)["m0"].history) == 2


def test_a_history_keeps_the_latest() -> None:
    made = world(1)
    claim = made.claims["m0"].remembering(*(MachineEvent(float(it), "x", str(it)) for it in range(MOST_EVENTS + 5)))
    assert [it.message for it in claim.history] == [str(it) for it in range(5, MOST_EVENTS + 5)]
    assert claim.remembering() is claim
