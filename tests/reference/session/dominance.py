"""The order of queues in a tree of dominant shares (H-DRF); it limits nothing."""

from collections.abc import Mapping, Sequence

from tests.reference.session.floor import PODS
from tests.reference.session.ledger import Claim, Vector, named, plain
from tests.reference.session.values import ACTIVE, PodState, Squad, crews_of
from tests.reference.session.weighted import ShareQueue
from tests.reference.shares.hdrf import HdrfNode, path_key, refresh


class DominanceLedger:
    """Every squad is a leaf below its queue's place in the tree."""

    def __init__(self, queues: Sequence[ShareQueue], resources: Sequence[str], squads: Sequence[Squad]) -> None:
        self.resources = tuple(resources)
        self.queues = {queue.name: queue for queue in queues}
        self.parents = dict.fromkeys(self.queues, "")
        self._capacity: dict[str, float] = {}
        self._root = HdrfNode("")
        self._leaves: dict[str, HdrfNode] = {}
        self._stale = True
        for squad in squads:
            if squad.queue in self.queues:
                self._leaves[squad.name] = leaf = self._grow(self.queues[squad.queue], squad.name)
                leaf.demand = _demand(squad)

    def _grow(self, queue: ShareQueue, leaf: str) -> HdrfNode:
        node = self._root
        for name, weight in (*zip(queue.path, queue.weights, strict=True), (leaf, 1.0)):
            below = next((child for child in node.children if child.name == name), None)
            if below is None:
                below = HdrfNode(name, max(1.0, weight))
                node.children.append(below)
            node = below
        return node

    def vector(self, requests: Mapping[str, float]) -> Vector:
        """Every resource for itself."""
        return plain(self.resources, requests)

    def open(self, total: Vector, wanted: Mapping[str, Vector], reserved: Mapping[str, Vector]) -> None:
        """Note what shares are parts of."""
        self._capacity = {name: amount for name, amount in zip(self.resources, total, strict=True) if amount}

    def charge(self, squad: Squad, amounts: Vector, count: int) -> None:
        """Note it at the squad's leaf."""
        leaf = self._leaves.get(squad.name)
        if leaf is not None:
            for name, amount in named(self.resources, amounts).items():
                leaf.used[name] = leaf.used.get(name, 0.0) + amount * count
            self._stale = True

    def takes_turns(self, queue: str) -> bool:
        """Always."""
        return True

    def may_start(self, squad: Squad, amounts: Vector) -> bool:
        """Always."""
        return True

    def may_claim(self, squad: Squad, amounts: Vector) -> bool:
        """Always."""
        return True

    def may_queue(self, squad: Squad) -> bool:
        """Always."""
        return True

    def grace_s(self, queue: str, claimant: str) -> float:
        """None."""
        return 0.0

    def worth_trying(self, squad: Squad, amounts: Vector, queue: str) -> bool:
        """Always."""
        return True

    def claim(self, squad: Squad, amounts: Vector) -> Claim:
        """Whatever is offered."""
        return _DominanceTab

    def nearness(self, one: str, other: str) -> int:
        """All the same: the order of victims is that of the queues."""
        return 0

    def turn(self, queue: str, amounts: Vector | None, relief: Vector | None = None) -> tuple[float, ...]:
        """Level by level: blocked last, then the smaller share per weight."""
        if self._stale:
            refresh(self._root, self._capacity)
            self._stale = False
        return tuple(value for pair in path_key(self._root, self.queues[queue].path) for value in pair)


def _demand(squad: Squad) -> dict[str, float]:
    """All it runs and waits for."""
    found: dict[str, float] = {}
    for crew in crews_of(squad.root):
        for pod in crew.pods:
            if pod.state in ACTIVE or pod.state is PodState.PENDING:
                for name, amount in (*pod.template.requests.items(), (PODS, 1)):
                    found[name] = found.get(name, 0.0) + amount
    return found


class _DominanceTab:
    def offer(self, queue: str, loss: Vector) -> bool:
        """Always."""
        return True

    def closes(self) -> bool:
        """Always."""
        return True
