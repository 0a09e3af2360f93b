"""What breaks in a simulated fleet: the cloud, the API server, watches, controllers, nodes, the agent, its clock."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from agent.simulation.history import HistoryEvent
from agent.simulation.operations import Effect, Operation, name_of, picked
from agent.simulation.seat import NAMESPACE
from agent.simulation.world import Simulation, at_once
from fleet.snapshot import CapacityPool, Instance
from providers.git.errors import RemoteUnreachable
from providers.sim.apiserver.faults import (
    WRITES,
    FaultRule,
    PriorityReject,
    Refusal,
    Refuse,
    WebhookDenies,
    WebhookFails,
)
from providers.sim.ec2.account import Ec2Error
from providers.sim.ec2.faults import Countdown
from providers.sim.ec2.limits import Quota
from providers.sim.ec2.market import PoolFilter

# -- the cloud --------------------------------------------------------------------------------------------------------


def _filter(event: HistoryEvent) -> PoolFilter:
    args = event.args
    return PoolFilter(args.get("capacity_type"), args.get("instance_type"), args.get("zone"))


def _shortage(sim: Simulation, event: HistoryEvent) -> Effect:
    short = _filter(event)
    sim.market.set_shortage(short)
    return Effect(undo=lambda: sim.market.set_shortage(short, on=False))


def _partial_fulfilment(sim: Simulation, event: HistoryEvent) -> Effect:
    """A pool hands out fewer than asked, though it promised all or none."""
    args, liars = event.args, _filter(event)
    pool = CapacityPool(args["capacity_type"], args["instance_type"], args["zone"])
    sim.market.set_capacity(pool, sim.market.in_use(pool) + args["machines"])
    sim.market.set_lying(liars)

    def undo() -> None:
        sim.market.set_capacity(pool, None)
        sim.market.set_lying(liars, on=False)

    return Effect(undo=undo)


def _vcpu_quota(sim: Simulation, event: HistoryEvent) -> Effect:
    quota = Quota.of(CapacityPool(event.args["capacity_type"], event.args["instance_type"], ""))
    sim.market.set_quota(quota, event.args["vcpus"])
    return Effect(undo=lambda: sim.market.set_quota(quota, None))


def _countdown(fault: Countdown) -> Operation:
    def strike(sim: Simulation, event: HistoryEvent) -> Effect:
        faults = sim.market.faults
        setattr(faults, fault, event.args["times"])
        faults.late_by_s = event.args.get("late_s", faults.late_by_s)
        faults.slow_boot_s = event.args.get("slow_s", faults.slow_boot_s)
        return Effect(undo=lambda: setattr(faults, fault, 0))

    return strike


def _on_machine(do: Callable[[Simulation, Instance], None], *, spot: bool = False) -> Operation:
    def strike(sim: Simulation, event: HistoryEvent) -> Effect | None:
        machine = picked([it for it in sim.machines() if it.capacity_type == "spot" or not spot], event.pick)
        if machine is None:
            return None
        try:
            do(sim, machine)
        except Ec2Error:
            return None  # not to be interrupted, or not listed yet
        return Effect((machine.id, machine.private_dns))

    return strike


def _new_image(sim: Simulation, event: HistoryEvent) -> Effect:
    """The image that templates name is another from now on: machines drift."""
    del event
    sim.cloud.publish_image()
    return Effect()


# -- the API server and its watches -----------------------------------------------------------------------------------


def _api_countdown(fault: str) -> Operation:
    def strike(sim: Simulation, event: HistoryEvent) -> Effect:
        setattr(sim.api_faults, fault, event.args["times"])
        return Effect(undo=lambda: setattr(sim.api_faults, fault, 0))

    return strike


_EFFECTS: Final[Mapping[str, Refusal]] = {
    "denies": WebhookDenies("guard.example.com", "closed today"),
    "fails": WebhookFails("guard.example.com"),
    "overloaded": PriorityReject(),
    "broken": Refuse(500),
}


def _refuses(sim: Simulation, event: HistoryEvent) -> Effect:
    """Writes of some resources are refused: by a webhook, by priority and fairness, by a broken etcd."""
    every = int(event.args.get("every", 1))
    resources = frozenset(event.args["resources"])
    rule = FaultRule(_EFFECTS[event.args["how"]], WRITES, resources, when=lambda count: count % every == 0)
    sim.api_rules.add(rule)
    return Effect(undo=lambda: sim.api_rules.remove(rule), hinders=every == 1)


def _late_refusals(sim: Simulation, event: HistoryEvent) -> Effect:
    """Actions are carried out late, and writes are refused then: the agent has gone on in the belief that they are."""
    rng, most_s = Random(event.pick), event.args["most_s"]
    rule = FaultRule(_EFFECTS[event.args["how"]], WRITES, frozenset(event.args["resources"]))
    sim.late_writes = lambda: rng.uniform(0.0, most_s)
    sim.api_rules.add(rule)

    def undo() -> None:
        sim.late_writes = at_once
        sim.api_rules.remove(rule)

    return Effect(undo=undo, hinders=True)


def _watch_stalls(sim: Simulation, event: HistoryEvent) -> Effect:
    """Nothing more is heard of some tables; afterwards the watch goes on, or begins anew with a list (410)."""
    tables = frozenset(event.args["tables"])
    sim.stalled_tables |= tables

    def undo() -> None:
        sim.stalled_tables -= tables
        if event.args["relist"]:
            sim.relist(tables)

    return Effect(undo=undo, hinders=True)


def _controller_lags(sim: Simulation, event: HistoryEvent) -> Effect:
    rng, most_s, name = Random(event.pick), event.args["most_s"], event.args["controller"]
    sim.world.kernel.lag(name, lambda: rng.uniform(0.0, most_s))
    return Effect(undo=lambda: sim.world.kernel.lag(name, None))


def _controller_stands(sim: Simulation, event: HistoryEvent) -> Effect:
    sim.world.kernel.stand_still(event.args["controller"], sim.now_s + event.args["for_s"])
    return Effect(undo=lambda: None, hinders=True)


# -- nodes ------------------------------------------------------------------------------------------------------------


def _on_node(do: Callable[[Simulation, str], None]) -> Operation:
    def strike(sim: Simulation, event: HistoryEvent) -> Effect | None:
        node = picked(sim.objects("Node"), event.pick)
        if node is None:
            return None
        name = name_of(node)
        do(sim, name)
        return Effect((name,), lambda: sim.health.heal(name))

    return strike


# -- the agent --------------------------------------------------------------------------------------------------------


def _crash(sim: Simulation, event: HistoryEvent) -> Effect:
    """The agent dies between two writes; its supervisor starts it again."""
    sim.crash_at(sim.writes + event.args["writes"], event.args["moment"])
    return Effect()


def _die_acting(sim: Simulation, event: HistoryEvent) -> Effect:
    """The agent dies with actions in flight, of which some happen all the same."""
    sim.crash(Random(event.pick))
    return Effect()


def _clock_steps(sim: Simulation, event: HistoryEvent) -> Effect:
    """The agent's time of day jumps; it stays so, or somebody sets it right."""
    step_s = float(event.args["step_s"])
    for seat in sim.seats[: event.args.get("seats", 1)]:
        seat.agent_clock.offset_s += step_s

    def undo() -> None:
        for seat in sim.seats[: event.args.get("seats", 1)]:
            seat.agent_clock.offset_s -= step_s

    return Effect(undo=undo if event.args.get("back") else None)


def _clock_freezes(sim: Simulation, event: HistoryEvent) -> Effect:
    """The agent's time of day stands still, and goes on with the right time."""
    del event
    clock = sim.seats[0].agent_clock
    clock.freeze()
    return Effect(undo=clock.thaw, hinders=True)


def _suspend(sim: Simulation, event: HistoryEvent) -> Effect | None:
    """The process of the agent that leads stands still for a while (SIGSTOP), and goes on as if nothing had been."""
    leading = next((seat for seat in sim.seats if seat.acts and seat.leading()), None)
    if leading is None:
        return None
    leading.suspend(sim.now_s + event.args["for_s"], in_flight=event.args["in_flight"])
    return Effect((leading.name,), undo=lambda: None)


def _lease_deleted(sim: Simulation, event: HistoryEvent) -> Effect | None:
    lease = picked(sim.objects("Lease", NAMESPACE), event.pick)
    if lease is None:
        return None
    sim.delete(lease)
    return Effect((name_of(lease),))


def _git_trouble(sim: Simulation, event: HistoryEvent) -> Effect:
    del event
    sim.commits.trouble = RemoteUnreachable("the repository does not answer")
    return Effect(undo=lambda: setattr(sim.commits, "trouble", None))


FAULTS: Final[Mapping[str, Operation]] = {
    "shortage": _shortage,
    "partial_fulfilment": _partial_fulfilment,
    "vcpu_quota": _vcpu_quota,
    "ec2_lost_answers": _countdown("lost_answers"),
    "ec2_throttled": _countdown("throttled_calls"),
    "ec2_dropped": _countdown("dropped_calls"),
    "slow_boots": _countdown("slow_boots"),
    "never_boots": _countdown("never_boots"),
    "late_listings": _countdown("late_listings"),
    "duplicate_messages": _countdown("duplicate_messages"),
    "late_messages": _countdown("late_messages"),
    "new_image": _new_image,
    "interrupt": _on_machine(lambda sim, it: sim.cloud.interrupt(it.id), spot=True),
    "rebalance": _on_machine(lambda sim, it: sim.cloud.rebalance(it.id), spot=True),
    "machine_dies": _on_machine(lambda sim, it: sim.cloud.kill(it.id)),
    "api_conflicts": _api_countdown("conflicts"),
    "api_throttled": _api_countdown("throttled"),
    "api_errors": _api_countdown("errors"),
    "api_lost_answers": _api_countdown("lost_answers"),
    "api_refuses": _refuses,
    "api_refuses_late": _late_refusals,
    "watch_stalls": _watch_stalls,
    "controller_lags": _controller_lags,
    "controller_stands": _controller_stands,
    "node_dies": _on_node(lambda sim, name: sim.health.fail_node(name)),
    "kubelet_silent": _on_node(lambda sim, name: sim.health.stop_heartbeats(name)),
    "node_unready": _on_node(lambda sim, name: sim.health.make_unready(name)),
    "crash": _crash,
    "die_acting": _die_acting,
    "git_trouble": _git_trouble,
    "clock_steps": _clock_steps,
    "clock_freezes": _clock_freezes,
    "suspend": _suspend,
    "lease_deleted": _lease_deleted,
}
"""What breaks, by name."""
