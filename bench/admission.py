"""Admission: streams of jobs through the quota engine, and whole cycles (`decide`) over up to 10,000 machines.

Everything is CPU time of this process; nothing is drawn, so there is no seed. The cycles are the agent's own, on a
fleet and a snapshot: quota, places and the actions that come of it. `python -m bench.admission [--json FILE]` prints
JSON.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from bench import farm, streams
from bench.farm import GPUS
from fleet.actions import Action, SaveGang
from fleet.placement.topology import Topologies, TopologyFlavor, TopologyOptions, TopologyRequest
from fleet.replay.quota import Stream
from fleet.scheduling import cycle
from fleet.snapshot import Gang, GangState, Pin, PodSet, Snapshot
from model import labels
from model.fleet import Fleet
from model.index import Index
from providers.kube.memory import settle_heap

MACHINES, SINGLES = 500, 500 * GPUS
MANY = 10_000
REPEATS = 3
RECORDED = {"baseline": (streams.BASELINE, 1030, 5910), "large_scale": (streams.LARGE_SCALE, 69, 3000)}
"""What is played, with the cycles and evictions that Kueue's own scheduler takes for it."""
Numbers = dict[str, float]
T = TypeVar("T")


def run() -> Numbers:
    """Seconds (`*_s`) of whole streams and large decisions, milliseconds (`*_ms`) of small ones."""
    return {**_streams(), **_decisions(), **_growth(), **_placed()}


def _streams() -> Numbers:
    found: Numbers = {}
    for name, (spec, cycles, evictions) in RECORDED.items():
        began_s = time.process_time()
        stream, arrivals = Stream(spec.scheduler()), list(spec.arrivals())
        settle_heap()  # as the agent does once it has read its cluster
        histories = stream.play(arrivals)
        found[f"{name}_s"] = time.process_time() - began_s
        evicted = sum(len(history.evicted_ms) for history in histories.values())
        if (stream.cycles, evicted) != (cycles, evictions):
            raise RuntimeError(f"{name}: {stream.cycles} cycles, {evicted} evictions instead of {cycles}, {evictions}")
    return found


# -- decisions on 500 machines of 8 GPUs ------------------------------------------------------------------------------


def _decisions() -> Numbers:
    """KAI's scale tests. `b` runs 4,000 gangs of one GPU everywhere, `a` wants its guarantee back."""
    full, half = list(farm.singles("b", MACHINES)), SINGLES // 2
    waiting = [farm.gang(f"b-{number:05}", "b") for number in range(SINGLES)]
    small = [farm.gang(f"a-{number:05}", "a") for number in range(SINGLES)]
    ten, large = farm.gang("ten", "a", 10, 8), farm.gang("large", "a", MACHINES // 2, 8)
    spread = list(farm.singles("b", MACHINES, spread=True))
    all_b, split = farm.fleet(a=0, b=SINGLES), farm.fleet(a=half, b=SINGLES - half)
    admitted, waits, evicting = GangState.ADMITTED, GangState.PENDING, GangState.EVICTING
    return {
        "fill_4000_s": _s(all_b, waiting, {("b", admitted): SINGLES}),
        "gang_512_ms": 1000 * _s(all_b, [farm.gang("gang", "b", 512, 1)], {("b", admitted): 1}),
        "reclaim_250x8_s": _s(split, [*full, large], {("b", evicting): half, ("a", waits): 1}),
        "reclaim_250x8_spread_s": _s(farm.fleet(a=SINGLES, b=0), [*spread, large], {("a", waits): 1}),
        "unschedulable_quota_ms": 1000 * _s(farm.fleet(a=79, b=SINGLES - 79), [*full, ten], {("a", waits): 1}),
        "unschedulable_machines_ms": 1000 * _s(farm.fleet(a=80, b=SINGLES - 79), [*full, ten], {("a", waits): 1}),
        "reclaim_4000_one_by_one_s": _s(
            farm.fleet(a=SINGLES, b=0), [*full, *small], {("b", evicting): SINGLES, ("a", waits): SINGLES}
        ),
    }


def _s(fleet: Fleet, gangs: Iterable[Gang], expected: Mapping[tuple[str, GangState], int]) -> float:
    """Seconds of one decision, the fastest of some of one engine on equal snapshots; it has to come out as expected."""
    held, index = list(gangs), Index()
    taken = []
    for _ in range(REPEATS):
        seen = farm.snapshot(MACHINES, held, index)
        seconds, actions = _timed(partial(cycle.decide, fleet, seen))
        taken.append(seconds)
        found = _outcome(actions)
        if any(found[key] != count for key, count in expected.items()):
            raise RuntimeError(f"expected {expected}, got {found}")
    return min(taken)


def _outcome(actions: Iterable[Action]) -> Counter[tuple[str, GangState]]:
    """(queue, state) -> gangs that were saved so."""
    return Counter((action.gang.queue, action.gang.state) for action in actions if isinstance(action, SaveGang))


# -- 10,000 machines --------------------------------------------------------------------------------------------------


def _growth() -> Numbers:
    """The same decision, a gang of 64 pods x 8 GPUs, beside 0, 40,000 and 80,000 pods; and nothing to decide."""
    fleet = farm.fleet(a=GPUS * MANY, b=0)
    found: Numbers = {}
    nodes = farm.nodes(MANY)
    for pods in (0, 40_000, 80_000):
        crowd = _crowd(pods)
        busy = Snapshot(farm.NOW_S, nodes=nodes, gangs=_by_uid([*crowd, farm.gang("next", "a", 64, 8)]))
        found[f"cycle_beside_{pods}_pods_ms"] = _steady_ms(partial(cycle.decide, fleet, busy))
    found["cycle_growth"] = found["cycle_beside_80000_pods_ms"] / found["cycle_beside_0_pods_ms"]
    idle = Snapshot(farm.NOW_S, nodes=nodes, gangs=_by_uid(crowd))
    found["idle_cycle_ms"] = _steady_ms(partial(cycle.decide, fleet, idle))
    return found


def _by_uid(gangs: Iterable[Gang]) -> dict[str, Gang]:
    return {gang.uid: gang for gang in gangs}


def _crowd(pods: int) -> list[Gang]:
    """Running gangs of up to 512 pods with one GPU each, on 64 machines; the last ones of all stay free."""
    gangs = []
    for number in range(min(pods, (MANY - 64) * GPUS) // 512):
        pins = [Pin("main", f"n{machine:05}", "", GPUS) for machine in range(64 * number, 64 * (number + 1))]
        gangs.append(farm.gang(f"crowd-{number:05}", "a", 512, 1, on=pins))
    return gangs


def _placed() -> Numbers:
    """A gang of 512 GPUs in one block of 1,000 machines, each search after a change as in a cycle."""
    flavor = TopologyFlavor("dgx", (farm.BLOCK, farm.RACK, labels.HOSTNAME))
    world = Topologies(farm.nodes(MANY).values(), {}, [flavor], TopologyOptions())
    gang = [TopologyRequest(PodSet("main", 512, {farm.GPU: 1}, required_topology=farm.BLOCK), flavor.name)]
    other = world.find([TopologyRequest(PodSet("other", 64, {farm.GPU: 8}, required_topology=farm.BLOCK), flavor.name)])
    taken = []
    for _ in range(30):
        world.take(other.assignments[0])
        seconds, found = _timed(partial(world.find, gang))
        world.give(other.assignments[0])
        taken.append(1000 * seconds)
        if found.refusal is not None:
            raise RuntimeError(f"no place: {found.refusal}")
    return {"placed_512_in_a_block_ms": statistics.median(taken)}


def _steady_ms(work: Callable[[], object]) -> float:
    """The median of some calls, after one that fills what is kept from pass to pass."""
    work()
    return 1000 * statistics.median(_timed(work)[0] for _ in range(5))


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began_s = time.process_time()
    found = work()
    return time.process_time() - began_s, found


def main() -> None:
    """Print the numbers with what they were measured on."""
    parser = argparse.ArgumentParser(prog="python -m bench.admission", description="Admission's numbers, as JSON.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write them to a file")
    arguments = parser.parse_args()
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "muster": version("muster"),
        "load_5_min": round(os.getloadavg()[1], 2),
        "seeds": [],
    }
    numbers = {name: round(value, 3) for name, value in run().items()}
    text = json.dumps({"machine": machine, "admission": numbers}, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
