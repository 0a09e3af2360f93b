"""Which histories are drawn: a profile says what may go wrong in them, a seed which of that does, and when."""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

from agent.simulation.drawing import (
    CPU_TYPES,
    GPUS,
    ZONES,
    Docs,
    drawn_change,
    drawn_fleet,
    drawn_mistake,
    drawn_work,
    text_of,
)
from agent.simulation.history import DrawnHistory, HistoryEvent
from providers.sim.store import RELEASES

ACTIVE_S: Final = 1800.0
FORESEEN: Final = 0.08
"""The share of histories whose pushes are planned with foresight, which costs more than all else."""
Drawn = Iterator[HistoryEvent]


def drawn_history(seed: int, profile: str) -> DrawnHistory:
    """The history of a seed: the same for the same seed and profile, whatever was drawn before."""
    rng = Random(f"{profile}:{seed}")
    docs = drawn_fleet(rng)
    events = [HistoryEvent(0.0, "push", args={"text": text_of(docs)}), *_life(rng, docs), *PROFILES[profile](rng)]
    ordered = tuple(sorted(events, key=lambda event: event.at_s))
    agents = 2 if profile == "two-agents" else 1
    release = Random(f"release:{profile}:{seed}").choice(sorted(RELEASES))
    return DrawnHistory(seed, profile, ordered, ACTIVE_S, agents, foresees=rng.random() < FORESEEN, release=release)


def _at(rng: Random, begin_s: float = 1.0, end_s: float = ACTIVE_S) -> float:
    return round(rng.uniform(begin_s, end_s), 1)


def _event(rng: Random, kind: str, **args: Any) -> HistoryEvent:
    return HistoryEvent(_at(rng, 60.0), kind, round(rng.random(), 4), args)


def _early(rng: Random, kind: str, **args: Any) -> HistoryEvent:
    """Most machines are bought in the first minutes: half of what goes wrong does so then."""
    at_s = _at(rng, 20.0, 400.0) if rng.random() < 0.5 else _at(rng, 60.0)
    return HistoryEvent(at_s, kind, round(rng.random(), 4), args)


def _life(rng: Random, docs: Docs) -> Drawn:
    """Work comes and goes, is scaled, and the fleet is changed; as anywhere."""
    for number in range(rng.randint(3, 9)):
        at_s = _at(rng, 1.0, 60.0) if rng.random() < 0.5 else _at(rng, 1.0, ACTIVE_S * 0.8)
        yield HistoryEvent(at_s, "submit", args={"manifest": drawn_work(rng, docs, f"j{number}")})
    for _ in range(rng.choice((0, 1, 2, 3))):
        yield _event(rng, "delete_job")
    for _ in range(rng.choice((0, 0, 1))):
        yield _event(rng, "scale_job", pods=rng.randint(1, 4))
    for at_s in sorted(_at(rng, 120.0) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))):
        docs = drawn_change(rng, docs)
        yield HistoryEvent(at_s, "push", args={"text": text_of(docs)})
    if rng.random() < 0.2:
        yield HistoryEvent(_at(rng, 60.0), "push", args={"text": drawn_mistake(rng, docs)})


# -- what goes wrong beside -------------------------------------------------------------------------------------------


def _calm(rng: Random) -> Drawn:
    del rng
    yield from ()


def _faults(rng: Random) -> Drawn:
    for _ in range(rng.choice((1, 2, 4, 6, 8))):
        kind = rng.choice(sorted(DRAWN_FAULTS))
        yield _early(rng, kind, **DRAWN_FAULTS[kind](rng))


def _humans(rng: Random) -> Drawn:
    for _ in range(rng.choice((1, 2, 4, 6))):
        kind = rng.choice(sorted(_DRAWN_DEEDS))
        yield _early(rng, kind, **_DRAWN_DEEDS[kind](rng))


def _clocks(rng: Random) -> Drawn:
    """The agent's clock is wrong from the beginning, steps, or stands still, at times while machines boot slowly."""
    if rng.random() < 0.5:
        skew_s = rng.choice((-600.0, -30.0, -5.0, 5.0, 30.0, 600.0))
        yield HistoryEvent(0.0, "clock_steps", args={"step_s": skew_s})
    for _ in range(rng.choice((1, 1, 2))):
        step_s = rng.choice((-3600.0, -90.0, -90.0, -20.0, 20.0, 90.0, 3600.0))
        args = {"step_s": step_s, "back": rng.random() < 0.5, "for_s": _long(rng)}
        at_s = _at(rng, 20.0, 400.0) if rng.random() < 0.6 else _at(rng)  # most machines are bought in the beginning
        yield HistoryEvent(at_s, "clock_steps", args=args)
    if rng.random() < 0.4:
        yield _event(rng, "clock_freezes", for_s=_short(rng))
    for kind in ("slow_boots", "never_boots"):
        if rng.random() < 0.3:
            yield _event(rng, kind, **DRAWN_FAULTS[kind](rng))


def _two_agents(rng: Random) -> Drawn:
    """Two candidates of one lease: the leader is suspended, cut off, killed or deposed, and may run on."""
    for _ in range(rng.choice((1, 2, 3, 4))):
        kind = rng.choice(("suspend", "suspend", "crash", "die_acting", "lease_deleted", "api_refuses", "clock_steps"))
        yield _event(rng, kind, **_AMONG_AGENTS[kind](rng))


Draw = Callable[[Random], dict[str, Any]]


def _pool(rng: Random) -> dict[str, Any]:
    return {
        "instance_type": rng.choice((*sorted(GPUS), *CPU_TYPES)),
        "zone": rng.choice(ZONES),
        "capacity_type": rng.choice(("spot", "on-demand")),
    }


def _some_pools(rng: Random) -> dict[str, Any]:
    """One pool, or all of a type, a zone, or there are."""
    kept = {name: value for name, value in _pool(rng).items() if rng.random() < 0.6}
    return {**kept, "for_s": _long(rng)}


def _long(rng: Random) -> float:
    return rng.choice((60.0, 300.0, 900.0, 1800.0))


def _short(rng: Random) -> float:
    return rng.choice((10.0, 45.0, 120.0, 300.0))


def _times(*choices: int, **more: Any) -> Draw:
    return lambda rng: {"times": rng.choice(choices), "for_s": 600.0, **more}


_TABLES: Final = ("nodes", "pods", "gangs", "claims", "jobs.batch")
_REFUSED: Final = ("pods", "jobs.batch", "workloads.muster.dev", "nodeclaims.muster.dev", "nodes", "configmaps")
_CONTROLLERS: Final = ("job", "scheduler", "kubelet", "node-lifecycle", "jobset", "device-plugin", "registration")

DRAWN_FAULTS: Final[Mapping[str, Draw]] = {
    "shortage": _some_pools,
    "partial_fulfilment": lambda rng: {**_pool(rng), "machines": rng.randint(0, 2), "for_s": _long(rng)},
    "vcpu_quota": lambda rng: {**_pool(rng), "vcpus": rng.choice((0, 96, 192, 400)), "for_s": _long(rng)},
    "ec2_lost_answers": _times(1, 2, 5),
    "ec2_throttled": _times(1, 5, 20),
    "ec2_dropped": _times(1, 5, 20),
    "slow_boots": lambda rng: {"times": rng.choice((1, 2)), "slow_s": rng.choice((120.0, 600.0)), "for_s": 900.0},
    "never_boots": _times(1, 1, 2),
    "late_listings": _times(1, 3),
    "duplicate_messages": _times(1, 5),
    "late_messages": lambda rng: {"times": rng.choice((1, 3)), "late_s": rng.choice((30.0, 180.0)), "for_s": 900.0},
    "interrupt": lambda _: {},
    "rebalance": lambda _: {},
    "machine_dies": lambda _: {},
    "api_conflicts": _times(1, 3, 10),
    "api_throttled": _times(1, 3, 10),
    "api_errors": _times(1, 3, 10),
    "api_lost_answers": _times(1, 3, 10),
    "api_refuses": lambda rng: {
        "resources": rng.sample(_REFUSED, rng.choice((1, 1, 2))),
        "how": rng.choice(("denies", "fails", "overloaded", "broken")),
        "every": rng.choice((1, 1, 2, 3)),
        "for_s": _short(rng),
    },
    "api_refuses_late": lambda rng: {
        "resources": rng.sample(_REFUSED, rng.choice((1, 2, 6))),
        "how": rng.choice(("fails", "overloaded", "broken")),
        "most_s": rng.choice((1.0, 10.0)),
        "for_s": rng.choice((5.0, 10.0, 45.0, 120.0)),
    },
    "watch_stalls": lambda rng: {
        "tables": rng.sample(_TABLES, rng.choice((1, 2, 5))),
        "relist": rng.random() < 0.5,
        "for_s": rng.choice((5.0, 20.0, 60.0)),
    },
    "controller_lags": lambda rng: {
        "controller": rng.choice(_CONTROLLERS),
        "most_s": rng.choice((2.0, 10.0)),
        "for_s": _long(rng),
    },
    "controller_stands": lambda rng: {"controller": rng.choice(_CONTROLLERS), "for_s": rng.choice((30.0, 120.0))},
    "node_dies": lambda _: {"for_s": 1e6},
    "kubelet_silent": lambda rng: {"for_s": rng.choice((30.0, 120.0, 600.0))},
    "node_unready": lambda rng: {"for_s": rng.choice((30.0, 120.0, 600.0))},
    "crash": lambda rng: {"writes": rng.randint(1, 40), "moment": rng.choice(("before", "after"))},
    "die_acting": lambda _: {},
    "git_trouble": lambda rng: {"for_s": _long(rng)},
}
"""Faults -> what is drawn of them."""

_PATCHES_OF_JOBS: Final = (
    {"spec": {"suspend": True}},
    {"spec": {"suspend": False}},
    {"metadata": {"labels": {"muster.dev/priority-class": "high"}}},
    {"metadata": {"labels": {"muster.dev/queue": "nowhere"}}},
    {"metadata": {"annotations": {"muster.dev/do-not-disrupt": "true"}}},
)
_PATCHES_OF_NODES: Final[tuple[dict[str, Any], ...]] = (
    {"metadata": {"labels": {"muster.dev/node-claim": None}}},
    {"metadata": {"labels": {"rack": "r9"}}},
    {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "5m"}}},
    {"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}},
    {"metadata": {"finalizers": []}},
)
_PATCHES_OF_CLAIMS: Final[tuple[dict[str, Any], ...]] = (
    {"metadata": {"labels": {"rack": "r9"}}},
    {"metadata": {"finalizers": []}},
    {"spec": {"usdPerHour": 0.5}},
)
_DRAWN_DEEDS: Final[Mapping[str, Draw]] = {
    "drain": lambda rng: {"for_s": _long(rng)},
    "cordon": lambda rng: {"for_s": _long(rng)},
    "delete_node": lambda _: {},
    "delete_claim": lambda _: {},
    "delete_workload": lambda _: {},
    "delete_pod": lambda _: {},
    "delete_job": lambda _: {},
    "edit_job": lambda rng: {"patch": rng.choice(_PATCHES_OF_JOBS)},
    "edit_node": lambda rng: {"patch": rng.choice(_PATCHES_OF_NODES)},
    "edit_claim": lambda rng: {"patch": rng.choice(_PATCHES_OF_CLAIMS)},
    "edit_workload": lambda rng: {"for_s": _long(rng)},
    "terminate_machine": lambda _: {},
}
"""What people do beside work and pushes -> what is drawn of it."""

_AMONG_AGENTS: Final[Mapping[str, Draw]] = {
    "suspend": lambda rng: {"for_s": rng.choice((10.0, 24.0, 40.0, 60.0, 300.0)), "in_flight": rng.random() < 0.5},
    "crash": DRAWN_FAULTS["crash"],
    "die_acting": DRAWN_FAULTS["die_acting"],
    "lease_deleted": lambda _: {},
    "api_refuses": lambda rng: {
        "resources": ["leases.coordination.k8s.io"],
        "how": "broken",
        "every": 1,
        "for_s": rng.choice((8.0, 20.0, 60.0)),
    },
    "clock_steps": lambda rng: {"step_s": rng.choice((-20.0, -5.0, 5.0, 20.0)), "for_s": 300.0, "back": True},
}
"""What befalls a leader -> what is drawn of it."""

PROFILES: Final[Mapping[str, Callable[[Random], Drawn]]] = {
    "calm": _calm,
    "faults": _faults,
    "clocks": _clocks,
    "two-agents": _two_agents,
    "humans": _humans,
}
"""Name -> what happens beside the work and the pushes."""
