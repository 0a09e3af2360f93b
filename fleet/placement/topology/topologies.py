"""The topologies of all flavors over the hosts they share: finding places for gangs, taking them, giving them back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from fleet.placement.topology import standing
from fleet.placement.topology.ground import Ground
from fleet.placement.topology.ledger import IntArray, Ledger
from fleet.placement.topology.search import Search
from fleet.placement.topology.values import Ask, Options, Outcome, Placement, TopologyFlavor
from fleet.snapshot import Node
from model.quantity import Resources


class Topologies:
    """What-if state: `take` and `give` change it and undo each other exactly; `find` leaves it as it was.

    Usage lives on hosts, so that flavors which share hosts see each other's pods. A flavor whose topology ends above
    hosts cannot say which host its pods are on: only it sees them.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        foreign_use: Mapping[str, Resources],
        flavors: Iterable[TopologyFlavor],
        options: Options | None = None,
    ) -> None:
        """`foreign_use`: node -> what pods that are not placed here take on it, `pods` included."""
        ordered = sorted(nodes, key=lambda node: node.name)
        taken = [foreign_use.get(node.name, {}) for node in ordered]
        self._hosts = Ledger([node.allocatable for node in ordered], taken)
        self._row_of = {node.name: row for row, node in enumerate(ordered)}
        self._grounds = {
            flavor.name: Ground(flavor, ordered, self._hosts, taken, options or Options())
            for flavor in sorted(flavors, key=lambda flavor: flavor.name)
        }

    def levels(self, flavor: str) -> tuple[str, ...]:
        """The levels of a flavor, coarse to fine; KeyError when it has no topology."""
        return self._grounds[flavor].tree.levels

    # -- what-if ------------------------------------------------------------------------------------------------------

    def take(self, placement: Placement) -> None:
        """Let the pods of a placement use their domains. Domains that are gone are passed over."""
        self._charge(placement, 1, base=False)

    def give(self, placement: Placement) -> None:
        """Undo `take`."""
        self._charge(placement, -1, base=False)

    def stand(self, node: str, used: Resources) -> None:
        """Say all that gangs take on a node, whatever was said before. Only topologies that end in hosts see it."""
        row = self._row_of[node]
        self._hosts.set_used(row, used)

    def fits(self, placements: Iterable[Placement]) -> bool:
        """Whether there is still room for all of these together, just where they are."""
        placements = tuple(placements)
        if any(standing.gone(self._grounds[placement.flavor], placement) for placement in placements):
            return False
        needed: dict[tuple[int, int, int], tuple[Ledger, int]] = {}
        for ledger, rows, counts, requests in (it for placement in placements for it in self._charges(placement)):
            for column, amount in ledger.need(requests).columns:
                for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                    slot = (id(ledger), column, row)
                    needed[slot] = (ledger, needed.get(slot, (ledger, 0))[1] + amount * count)
        return all(
            total <= ledger.base[column, row] - ledger.used[column, row]
            for (_, column, row), (ledger, total) in needed.items()
        )

    def _charge(self, placement: Placement, sign: int, *, base: bool) -> None:
        """`base`: as pods of nobody, which `find(empty=True)` sees too."""
        for ledger, rows, counts, requests in self._charges(placement):
            ledger.charge(ledger.base if base else ledger.used, rows, requests, counts * (-sign if base else sign))

    def _charges(self, placement: Placement) -> Iterator[tuple[Ledger, IntArray, IntArray, Resources]]:
        """Rows and pods in every ledger that counts them: the flavor's own, and the sums over hosts of coarser ones."""
        ground = self._grounds[placement.flavor]
        rows, counts = ground.rows_of(placement)
        yield ground.ledger, rows, counts, placement.requests
        for other in self._grounds.values() if ground.tree.on_hosts else ():
            if not other.tree.on_hosts:
                leaves = other.leaf_of_host[rows]
                inside = leaves >= 0
                yield other.ledger, leaves[inside], counts[inside], placement.requests

    def find(self, asks: Sequence[Ask], *, empty: bool = False) -> Outcome:
        """Places for the pod sets in order, each seeing what those before it took; stops at the first refusal.

        `empty`: as if no gang took anything (pods of nobody stay). KeyError for a flavor without topology.
        """
        return Search(self._grounds, partial(self._charge, base=True), empty=empty).find(asks)
