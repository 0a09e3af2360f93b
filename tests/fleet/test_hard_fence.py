"""How much a hard fence lets pods of a namespace request, and what is written, left and taken away."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from fleet.actions import Action, KeepHardFence, LiftHardFence
from fleet.fence import DecisionFailed, told_apart
from fleet.hard_fence import decide, fences, unfenced, waiting_in_new_fences
from fleet.snapshot import HardFence, Hold, Snapshot
from model.fleet import Fleet
from model.loader import load
from tests.agent.scenes import CATALOG, G6, P4DE, layout, pool, queue, team
from tests.support.fleets import NOW, gang, job_of, plain_node

GPU, CPU = "nvidia.com/gpu", "cpu"
H100 = {"h100": {GPU: 32}}
POOLS = (pool(), pool("l4", (G6,)), pool("cpu", ("c6i.xlarge",)))


def declared(*docs: Any) -> Fleet:
    return load({"fleet.yaml": yaml.safe_dump_all([*POOLS, *docs]).encode()})


def fenced(quotas: Mapping[str, Any] | None = None, **spec: Any) -> Any:
    return team(quotas=H100 if quotas is None else quotas, **{"hardFence": True} | spec)


def world(**facts: Any) -> Snapshot:
    facts.setdefault("hard_fences", {})
    return Snapshot(NOW, catalog=CATALOG, namespaces={"t": {}, "other": {}}, **facts)


def cell(amount: int, **limits: Mapping[str, int]) -> Mapping[str, Any]:
    return {"guaranteed": {GPU: amount}, **limits}


PARENT = team("org", {}, namespaces=[])
SIBLING = team("u", H100, parent="org")
ROOM = team("org", {"h100": {GPU: 8}}, namespaces=[])

AMOUNTS = {
    "a team of its own has its guarantee": ((fenced(), queue()), {GPU: 32}),
    "what it may borrow": (
        (fenced({"h100": cell(16, borrowingLimit={GPU: 8})}, parent="org"), PARENT, SIBLING),
        {GPU: 24},
    ),
    "never more than there is in all": (
        (fenced({"h100": cell(16, borrowingLimit={GPU: 99})}, parent="org"), PARENT, SIBLING),
        {GPU: 48},
    ),
    "without a limit all there is": ((fenced({"h100": cell(16)}, parent="org"), PARENT, SIBLING, queue()), {GPU: 48}),
    "without what others keep for themselves": (
        (
            fenced({"h100": cell(16)}, parent="org"),
            PARENT,
            team("u", {"h100": cell(32, lendingLimit={GPU: 4})}, parent="org"),
        ),
        {GPU: 20},
    ),
    "what stands above it": ((fenced({"h100": cell(16)}, parent="org"), ROOM), {GPU: 24}),
    "a limit further up": (
        (
            fenced({"h100": cell(16)}, parent="mid"),
            team("mid", {"h100": cell(0, borrowingLimit={GPU: 2})}, namespaces=[], parent="org"),
            PARENT,
            SIBLING,
        ),
        {GPU: 18},
    ),
    "all flavors together": ((fenced({"h100": {GPU: 32}, "l4": {GPU: 4}}), queue(flavors=("h100", "l4"))), {GPU: 36}),
    "what it borrows of a flavor that it has no quota of": (
        (fenced(parent="org"), PARENT, team("u", {"l4": {GPU: 8}}, parent="org"), queue(flavors=("h100", "l4"))),
        {GPU: 40},
    ),
    "nothing at all": ((fenced({"h100": {GPU: 0}}), queue()), {GPU: 0}),
    "processors in thousandths": ((fenced({"h100": {GPU: 32, CPU: "1500m"}}), queue()), {GPU: 32, CPU: 1500}),
    "a flavor without such devices does not matter": (
        (fenced({"h100": {GPU: 32, CPU: 9}, "cpu": {CPU: 4}}), queue(flavors=("h100", "cpu"))),
        {GPU: 32, CPU: 13000},
    ),
    "what a flavor gives uncounted is left out": (
        (fenced({"h100": {GPU: 32}, "cpu": {CPU: 4}}), queue(flavors=("h100", "cpu"))),
        {GPU: 32},
    ),
    "devices that a flavor gives uncounted as well": ((fenced(), queue(flavors=("h100", "l4"))), {}),
    "no Queue counts pods": ((fenced({"h100": {GPU: 32, "pods": 10}}), queue()), {GPU: 32}),
    "no more than a quantity can be": (
        (fenced({"h100": {"memory": "8E", GPU: 1}, "l4": {"memory": "8E", GPU: 1}}), queue()),
        {GPU: 2, "memory": 2**63 - 1},
    ),
}


@pytest.mark.parametrize("name", AMOUNTS)
def test_the_most_that_a_team_may_use(name: str) -> None:
    docs, amounts = AMOUNTS[name]
    assert fences(declared(*docs), world())["t"] == amounts


def test_slices_are_devices_like_others() -> None:
    cut = pool("mig", (P4DE,), sharing={"mig": {"layouts": ["thin"]}}), layout("thin", **{"1g_10gb": 7})
    slots = {"nvidia.com/mig-1g.10gb": 14}
    fleet = declared(*cut, fenced({"mig": slots, **H100}), queue(flavors=("h100", "mig")))
    assert fences(fleet, world())["t"] == {**slots, GPU: 32}
    assert list(unfenced(fleet, world())) == []


def test_a_plan_says_what_a_fence_leaves_out() -> None:
    fleet = declared(fenced({"h100": {GPU: 32}, "cpu": {CPU: 4}}), queue(flavors=("h100", "cpu")))
    (words,) = unfenced(fleet, world())
    assert words.startswith("team/t: hardFence leaves cpu out: no quota counts it on flavor h100")


@pytest.mark.parametrize(
    ("before", "hold", "told"),
    [(False, Hold.PODS, True), (True, Hold.PODS, False), (False, Hold.SWITCH, False)],
)
def test_a_plan_says_that_pods_behind_the_gate_fill_a_new_fence(before: bool, hold: Hold, told: bool) -> None:
    job = replace(job_of(gang("g")), hold=hold)
    jobs = {"g": replace(job, ref=replace(job.ref, namespace="t"))}
    was, becomes = declared(fenced(hardFence=before), queue()), declared(fenced(), queue())
    words = list(waiting_in_new_fences(was, becomes, world(jobs=jobs)))
    assert [it.startswith("team/t: hardFence counts pods from their creation, and 1 job of") for it in words] == [
        True
    ] * told


def test_devices_of_nodes_count_that_nobody_sells() -> None:
    """A device plugin's, of which no catalogue knows."""
    fleet = declared(fenced({"h100": {"example.com/fpga": 2}}), queue(flavors=("h100", "l4")))
    assert fences(fleet, world())["t"] == {"example.com/fpga": 2}
    there = plain_node("n", {"example.com/fpga": 1}, {"muster.dev/node-pool": "l4"})
    assert fences(fleet, world(nodes={"n": there}))["t"] == {}


# -- what is written ---------------------------------------------------------------------------------------------------

FENCE = HardFence("t", "uid", {GPU: 32}, ours=True)
OF_OTHERS = HardFence("t", "uid")
ELSEWHERE = replace(FENCE, namespace="x")
OFF = team()
DECISIONS: Mapping[str, tuple[Any, Mapping[str, HardFence], list[Action]]] = {
    "none yet": (fenced(), {}, [KeepHardFence("t", {GPU: 32}, takes_back=False)]),
    "as declared": (fenced(), {"t": FENCE}, []),
    "with bounds of others": (fenced(), {"t": replace(FENCE, shared=True)}, []),
    "changed by hand": (fenced(), {"t": replace(FENCE, hard={})}, [KeepHardFence("t", {GPU: 32}, takes_back=True)]),
    "declared otherwise": (
        fenced({"h100": {GPU: 8}}),
        {"t": FENCE},
        [KeepHardFence("t", {GPU: 8}, takes_back=True)],
    ),
    "a resource less": (
        fenced(),
        {"t": replace(FENCE, hard={GPU: 32, CPU: 1})},
        [KeepHardFence("t", {GPU: 32}, takes_back=True)],
    ),
    "somebody else's": (fenced(), {"t": OF_OTHERS}, [KeepHardFence("t", {GPU: 32}, takes_back=False)]),
    "not declared any more": (OFF, {"t": FENCE}, [LiftHardFence(FENCE)]),
    "not declared, somebody else's": (OFF, {"t": OF_OTHERS}, []),
    "of a namespace that is no team's": (OFF, {"x": ELSEWHERE}, [LiftHardFence(ELSEWHERE)]),
    "of a namespace that is there no more": (fenced(namespaces=["gone"]), {}, []),
    "nothing to bound": (fenced({"h100": {"pods": 1}}), {"t": FENCE}, [LiftHardFence(FENCE)]),
    "each namespace gets the whole": (
        fenced(namespaces=["t", "other"]),
        {},
        [KeepHardFence(name, {GPU: 32}, takes_back=False) for name in ("other", "t")],
    ),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_what_is_done_about_a_namespace(name: str) -> None:
    said, known, actions = DECISIONS[name]
    assert list(decide(declared(said, queue()), world(hard_fences=known))) == actions


def test_nothing_is_done_where_nobody_writes_or_a_write_is_under_way() -> None:
    fleet = declared(fenced(), queue())
    assert list(decide(fleet, world(hard_fences=None))) == []
    assert list(decide(fleet, world(busy=frozenset({"namespace/t"})))) == []
    assert list(decide(fleet, world(set_aside=frozenset({"namespace/t"})))) == []


def test_a_namespace_that_cannot_be_decided_about_stops_no_other() -> None:
    class Broken(HardFence):
        @property
        def hard(self) -> Any:  # type: ignore[override]
            raise ValueError("broken")

    broken = object.__new__(Broken)
    object.__setattr__(broken, "ours", True)
    fleet = declared(fenced(namespaces=["other", "t"]), queue())
    actions, failed = told_apart(decide(fleet, world(hard_fences={"other": broken})))
    assert actions == [KeepHardFence("t", {GPU: 32}, takes_back=False)]
    assert [(it.subject, str(it.error)) for it in failed] == [("namespace/other", "broken")]
    assert isinstance(failed[0], DecisionFailed)
