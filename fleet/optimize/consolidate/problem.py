"""What is asked: machines that stand, blocks of pods that could move, what could be bought, what binds the plan.

Nothing here knows Kubernetes or a cloud. What may not move is not declared as a block: its pods are missing in the free
room, and its machine does not go (`may_go`). What may stand where arrives as names of kinds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.cost.lost import PAYBACK_S
from fleet.optimize.purchase.problem import InvalidProblem, Limit, MachineKind, distinct, whole

PER_POD_USD_H = 1.0
"""What moving one pod counts when nobody says what it costs: `docs/design/0008-repack.md` has the curve."""
PAYBACK_H = PAYBACK_S / 3600
"""The saving of this long has to pay for work that is lost."""
SPOT_TYPES = 15
"""Types that one spot machine in place of another must be able to come as (Karpenter's rule for spot to spot)."""


@dataclass(frozen=True, slots=True)
class PodClass:
    """Equal pods."""

    name: str
    requests: Mapping[str, int]
    """Resource -> what one pod takes, in the unit of the free room and the capacities."""
    kinds: frozenset[str]
    """Names of the kinds of machines it may stand on, of those that stand and of those that can be bought."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A machine that is there."""

    name: str
    kind: str
    price_usd_h: float
    free: Mapping[str, int]
    """What is left beside all of its pods; nothing where no pod may come."""
    pool: str = ""
    """Whose budget it counts against when it goes."""
    lane: str = ""
    """Its zone."""
    spot: bool = False
    may_go: bool = True


@dataclass(frozen=True, slots=True)
class Block:
    """Pods that are moved together, or of which each may be moved: a gang, a pod, the equal pods of a machine."""

    name: str
    seats: Mapping[str, Mapping[str, int]]
    """Machine -> class -> pods."""
    moving_usd: float | None = None
    """The work that is lost when all of it moves; None = `Rules.per_pod_usd_h` for each pod."""
    whole: bool = True
    """All its seats or none: else only the pods on machines that go move, at their share of the price."""
    one_lane: bool = False
    """A whole block that moves has to stand in one lane."""

    @property
    def pods(self) -> int:
        """How many it has."""
        return sum(sum(held.values()) for held in self.seats.values())

    @property
    def in_gangs(self) -> bool:
        """Whether its pods cannot be looked at machine by machine."""
        return self.whole and (len(self.seats) > 1 or self.keeps_lane)

    @property
    def keeps_lane(self) -> bool:
        """Whether it matters that its pods stand in one lane."""
        return self.whole and self.one_lane and self.pods > 1


@dataclass(frozen=True, slots=True)
class Buyable(MachineKind):
    """A way to buy machines, and what the launch may come to."""

    worst_usd_h: float | None = None
    """The dearest the launch can end at; None = its price."""
    spot: bool = False
    type: str = ""
    """The instance type, of which several kinds may be the layouts or zones; empty = the name."""

    @property
    def dearest_usd_h(self) -> float:
        """The price at worst."""
        return self.price_usd_h if self.worst_usd_h is None else self.worst_usd_h


@dataclass(frozen=True, slots=True)
class Rules:
    """What every plan keeps, and how moving is weighed against saving."""

    per_pod_usd_h: float = PER_POD_USD_H
    payback_h: float = PAYBACK_H
    spot_types: int = SPOT_TYPES
    most_bought: int | None = None
    """Machines that all of the plan may buy; None = no end."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Machines to be given back. Raises `InvalidProblem`."""

    resources: tuple[str, ...]
    classes: tuple[PodClass, ...]
    standing: tuple[Standing, ...]
    blocks: tuple[Block, ...] = ()
    kinds: tuple[Buyable, ...] = ()
    budgets: Mapping[str, int] = field(default_factory=dict)
    """Pool -> how many of its machines may go; a pool that is not named has no bound."""
    limits: tuple[Limit, ...] = ()
    """On what is bought."""
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        for what, names in (
            ("resource", self.resources),
            ("class", [it.name for it in self.classes]),
            ("machine", [it.name for it in self.standing]),
            ("block", [it.name for it in self.blocks]),
            ("kind", [it.name for it in self.kinds]),
        ):
            distinct(what, names)
        known = set(self.resources)
        for pods in self.classes:
            if unknown := pods.requests.keys() - known:
                raise InvalidProblem(f"class {pods.name} asks for {min(unknown)}, which is none of the resources")
            whole(f"class {pods.name}", pods.requests)
        for machine in self.standing:
            _priced(f"machine {machine.name}", machine.price_usd_h)
            whole(f"machine {machine.name}", machine.free)
        for kind in self.kinds:
            _priced(f"kind {kind.name}", kind.price_usd_h, kind.dearest_usd_h)
            whole(f"kind {kind.name}", kind.capacity)
        _priced("rules", self.rules.per_pod_usd_h)
        if not self.rules.payback_h > 0:
            raise InvalidProblem(f"rules: a payback of {self.rules.payback_h} hours makes no sense")
        self._check_blocks()

    def _check_blocks(self) -> None:
        machines = {it.name for it in self.standing}
        classes = {it.name for it in self.classes}
        for block in self.blocks:
            _priced(f"block {block.name}", block.moving_usd or 0.0)
            for machine, held in block.seats.items():
                if machine not in machines:
                    raise InvalidProblem(f"block {block.name} has a seat on {machine}, which is no machine")
                if unknown := held.keys() - classes:
                    raise InvalidProblem(f"block {block.name} has pods of {min(unknown)}, which is no class")
                whole(f"block {block.name}", held)

    def disruption_usd_h(self, block: Block, moved: int) -> float:
        """What it counts that so many pods of a block move."""
        if block.moving_usd is None:
            return self.rules.per_pod_usd_h * moved
        return block.moving_usd / self.rules.payback_h * moved / max(block.pods, 1)


def _priced(where: str, *prices: float) -> None:
    for price in prices:
        if not 0 <= price < float("inf"):
            raise InvalidProblem(f"{where}: a price of {price} USD makes no sense")
