"""Defines claims: each is the written intent to own one machine, and the record of what became of it."""

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple

from fleet.markets import CapacityPool
from fleet.snapshot.failures import DecisionFailure, WriteRefusal
from model.changed import changed
from model.kinds import NEVER, NodeTemplate, Taint
from model.mig.layouts import GpuCuts
from model.quantity import Resources

SAME_INSTANT_S: Final = 1e-3
"""Instants that differ by less count as equal, because stored ones are rounded."""


class ClaimState(StrEnum):
    """A `ClaimState` says how far a machine has come. Every claim ends in TERMINATING and then disappears."""

    PENDING = "Pending"
    """The claim is written; nothing is bought yet, or it is not known to be."""
    LAUNCHED = "Launched"
    REGISTERED = "Registered"
    READY = "Ready"
    """The node is ready, start-up taints are gone, and every extended resource owed is in its allocatable."""
    TERMINATING = "Terminating"


@dataclass(frozen=True, slots=True)
class Launch:
    """A `Launch` names the all-or-nothing purchase of a claim: all claims of a `group` succeed or none stays.

    A group is made of lots, one for each capacity pool it buys from; `size` counts the claims of the whole group.
    """

    group: str
    lot: int
    size: int


@dataclass(frozen=True, slots=True)
class NodeDisruption:
    """A `NodeDisruption` says why a machine is leaving and when its drain must be over (epoch seconds; inf = never)."""

    reason: str
    message: str
    at_s: float
    deadline_s: float = NEVER


class FormerCut(NamedTuple):
    """A `FormerCut` is how the GPUs of a machine were cut before idle ones were cut beside its work."""

    layout: str
    gpus: Resources
    """The GPU resources that it offered."""
    cuts: GpuCuts
    """As `Claim.gpu_cuts`."""


@dataclass(frozen=True, slots=True)
class CutOrder:
    """A `CutOrder` says why the GPUs of a machine are cut, or put right, while that is under way."""

    reason: str
    """`LayoutDrift`, `LayoutRollout`; empty = it was bought, or cut anew for a gang."""
    message: str
    since_s: float
    began_s: float = 0.0
    """When its label was first written for this (epoch seconds); 0 = not yet, as work has to leave before."""
    asked_at_s: float = 0.0
    """When its label was last written."""
    tries: int = 0
    """How often mig-manager was told once more."""
    former: str = ""
    """In a roll-out, the layout that it had."""
    before: FormerCut | None = None
    """Where only idle GPUs are cut and work on the others stays: how it was, which it is again if that fails."""


class MachineEvent(NamedTuple):
    """A `MachineEvent` is something that happened to a machine: a fault of a GPU, a condition of its node."""

    at_s: float
    what: str
    """In one word: `GpuFault`, `NodeNotReady`, `NodeReady`, or the type of a condition."""
    message: str


MOST_EVENTS: Final = 20
"""Of a machine's history; of more the latest stay."""

FOR_PODS: Final = "Pods"
"""Stands in `Claim.also_for` for pods of no gang."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A `Claim` is one machine, from the written intent to buy it until it is gone (CRD `NodeClaim`).

    Only a new MIG layout changes `layout` and `resources`, and only the end of its reservation `capacity_pool` and
    prices.
    """

    name: str
    uid: str
    node_pool: str
    pool_hash: str
    """Hash of the pool's template at purchase; if the pool's differs now, the machine has drifted. Empty = adopted, not
    judged."""
    capacity_pool: CapacityPool
    price_usd_h: float
    launch: Launch
    created_at_s: float
    gang: str = ""
    """uid of the gang it was bought for; empty for a replacement or a machine of a fixed pool."""
    purpose: str = ""
    """Why it was bought, in words."""
    replaces: tuple[str, ...] = ()
    """Claims that may go once this one is ready."""
    also_for: tuple[str, ...] = ()
    """uids of the gangs on the machines it replaces, which move to this one; `Pods` where pods of no gang do, too."""
    adopts: str = ""
    """Id of the running instance it takes over; nothing is bought, and the claim is `LAUNCHED` from the start."""
    resources: Resources = field(default_factory=dict)
    """Allocatable that was planned with; the node is ready only once it has the extended resources among them."""
    layout: str = ""
    """Name of the MIG configuration it has or is getting; empty = MIG off."""
    gpu_cuts: GpuCuts = ()
    """How each of its GPUs is cut where they follow different layouts (its layout is then `mixed-...`); else empty."""
    startup_taints: tuple[Taint, ...] | None = None
    """Taints that it starts with and that somebody takes away when it is set up, by its pool as it was then; None where
    an older agent wrote the claim and did not say."""
    instance_id: str = ""
    node: str = ""
    launched_at_s: float = 0.0
    registered_at_s: float = 0.0
    ready_at_s: float = 0.0
    emptied_at_s: float = 0.0
    """When the last gang left it or it became ready (epoch seconds); consolidation waits from then."""
    recut_at_s: float = 0.0
    """When the present MIG layout was asked for (epoch seconds); later than `ready_at_s`: it is not in effect yet."""
    cut: CutOrder | None = None
    """Why its GPUs are being cut, or put right."""
    advised_at_s: float = 0.0
    """When the cloud first advised to move away (a rebalance recommendation); 0 = never."""
    node_ready: bool = True
    """Whether its node was ready when the claim's condition last said so; the node itself is asked for all else."""
    deleting: bool = False
    disruption: NodeDisruption | None = None
    refused: WriteRefusal | None = None
    """Which write about it the API keeps refusing, as its condition says; the agent's brain alone writes it."""
    failure: DecisionFailure | None = None
    """Why nothing can be decided about it at present, as its condition says; the agent's brain alone writes it."""
    list_usd_h: float | None = None
    """USD an hour charged to its users where that differs from its price: a reserved machine adds next to nothing to
    the bill, and is charged all the same."""

    gpu_conditions: tuple[MachineEvent, ...] = ()
    """What faults of its GPUs stand for now (`GpuFailed`, `GpuNeedsReset`), as its conditions say."""
    history: tuple[MachineEvent, ...] = ()
    """What happened to its machine beside its own life, the earliest first; the latest `MOST_EVENTS`."""

    @property
    def gangs(self) -> frozenset[str]:
        """Returns the uids of all gangs it was bought for: the one whose purchase it is part of, and further ones."""
        return frozenset({self.gang, *self.also_for}) - {""}

    def differs_but_in_use(self, other: "Claim") -> bool:
        """Returns whether more is another than since when the machine is empty."""
        return _all_but_use(self) != _all_but_use(other)

    def startup_taints_by(self, template: NodeTemplate) -> tuple[Taint, ...]:
        """Returns the taints that its node is waited for to lose: for an older claim by its pool's template now.

        Source: Karpenter keeps them in `NodeClaim.spec.startupTaints`.
        """
        return template.startup_taints if self.startup_taints is None else self.startup_taints

    @property
    def charged_usd_h(self) -> float:
        """Returns the price (USD an hour) that the machine's users are charged."""
        return self.price_usd_h if self.list_usd_h is None else self.list_usd_h

    @property
    def state(self) -> ClaimState:
        """Returns how far the machine has come: derived, so that it cannot contradict the facts."""
        if self.deleting:
            return ClaimState.TERMINATING
        if self.ready_at_s:  # asked of every machine, often
            return ClaimState.READY
        if self.registered_at_s:
            return ClaimState.REGISTERED
        return ClaimState.LAUNCHED if self.launched_at_s else ClaimState.PENDING

    def remembering(self, *events: MachineEvent) -> "Claim":
        """Returns a copy whose history has these events as well."""
        return changed(self, history=(*self.history, *events)[-MOST_EVENTS:]) if events else self

    def with_disruption(self, disruption: NodeDisruption) -> "Claim":
        """Returns a copy that is leaving. The first reason stays; only an earlier deadline still changes it."""
        if self.disruption is None:
            return changed(self, disruption=disruption)
        if self.disruption.deadline_s <= disruption.deadline_s + SAME_INSTANT_S:
            return self
        return replace(self, disruption=replace(self.disruption, deadline_s=disruption.deadline_s))


_all_but_use: Final = attrgetter(*[it.name for it in fields(Claim) if it.name != "emptied_at_s"])
