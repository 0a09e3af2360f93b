"""Packing on a board of 500 nodes x 8 GPUs: 4,000 pods one by one, and gangs of 512."""

import statistics
import time
from collections.abc import Callable

from fleet.offerings.offerings import Offerings
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.free_capacity import assign, free_capacity
from fleet.placement.place import place_gang
from fleet.placement.plan import Need, PlacementPlan
from fleet.snapshot import Catalog, PodSet
from model import labels
from model.fleet import Fleet

GPU, RACK = "nvidia.com/gpu", "topology/rack"
NODES, ROUNDS = 500, 20


def run() -> dict[str, float]:
    """Seconds for 4,000 single pods, ms for a gang: seated on a board, and provided for by the whole search."""
    return measure()


def measure() -> dict[str, float]:
    """The numbers."""
    gang = PodSet("main", 512, {GPU: 1})
    return {
        "fill_4000_s": _fill(),
        "gang_512_first_ms": _gang(_board(), gang, rounds=1),
        "gang_512_ms": _gang(_board(), gang, rounds=ROUNDS),
        "provide_512_ms": _provided(gang),
        "provide_one_rack_ms": _provided(PodSet("main", 128, {GPU: 1}, required_topology=RACK)),
    }


def _board() -> ClusterState:
    free = {GPU: 8, "cpu": 192_000, "pods": 110}
    names = [f"n{number:04}" for number in range(NODES)]
    board = ClusterState()
    for number, name in enumerate(names):
        found = {labels.HOSTNAME: name, RACK: f"r{number // 20}", "kind": "gpu"}
        board.add(NodeSlot(name, name, "", found, (), dict(free)))
    return board


def _fill() -> float:
    board, one = _board(), PodSet("main", 1, {GPU: 1})
    everywhere = free_capacity(board, "everywhere", one.requests).among()

    def fill() -> None:
        for _ in range(8 * NODES):
            if not assign(board, everywhere, one, 1):
                raise RuntimeError("the board is full too early")

    return _ms(fill) / 1000


def _gang(board: ClusterState, gang: PodSet, rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        mark = board.mark()
        taken.append(
            _ms(lambda: assign(board, free_capacity(board, "everywhere", gang.requests).among(), gang, gang.count))
        )
        board.undo(mark)
    return statistics.median(taken)


def _provided(gang: PodSet) -> float:
    board, taken = _board(), []
    supply = BuyableCapacity(Offerings(Fleet(), Catalog()), {}, {}, may_buy=False)
    need = Need(gang, (), {"kind": "gpu"}, ())
    for number in range(ROUNDS):
        mark = board.mark()
        began_s = time.perf_counter()
        found = place_gang(board, supply, f"gang-{number}", [need])
        taken.append(1000 * (time.perf_counter() - began_s))
        if not isinstance(found, PlacementPlan):
            raise TypeError(f"no place: {found}")
        board.undo(mark)
    return statistics.median(taken)


def _ms(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began_s)


if __name__ == "__main__":
    for label, value in run().items():
        print(f"{label:44} {value:12,.3f}")
