"""Claims: the written intent to own one machine, and what became of it."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from fleet.snapshot.failures import DecisionFailure
from fleet.snapshot.machines import CapacityPool
from model.kinds import NEVER
from model.quantity import Resources

SAME_INSTANT_S: Final = 1e-3
"""Instants that differ by less are one: what is written down is rounded, and must not look like news afterwards."""


class ClaimState(StrEnum):
    """How far a machine has come. Every claim ends in TERMINATING and then disappears."""

    PENDING = "Pending"
    """Intent written, nothing bought yet (or not known)."""
    LAUNCHED = "Launched"
    REGISTERED = "Registered"
    READY = "Ready"
    """Node ready, start-up taints gone, every owed resource in allocatable."""
    TERMINATING = "Terminating"


@dataclass(frozen=True, slots=True)
class Launch:
    """The all-or-nothing purchase a claim belongs to. All claims of a `group` succeed or none stays.

    A group is made of lots, one for each capacity pool it buys from; `size` counts the claims of the whole group.
    """

    group: str
    lot: int
    size: int


@dataclass(frozen=True, slots=True)
class NodeDisruption:
    """Why a machine is leaving and until when its pods may take (epoch seconds; inf = no deadline)."""

    reason: str
    message: str
    at_s: float
    deadline_s: float = NEVER


@dataclass(frozen=True, slots=True)
class Claim:
    """One machine, from the written intent to buy it until it is gone (CRD `NodeClaim`).

    Only a re-cut changes `layout` and `resources`, and only the end of its reservation `capacity_pool` and prices.
    """

    name: str
    uid: str
    node_pool: str
    pool_hash: str
    """Hash of the pool's template at purchase; a different one now means drift. Empty = not known: it was adopted."""
    capacity_pool: CapacityPool
    price_usd_h: float
    launch: Launch
    created_at_s: float
    gang: str = ""
    """uid of the gang it was bought for; empty for a replacement or a fixed pool."""
    purpose: str = ""
    """Why it was bought, in words."""
    replaces: tuple[str, ...] = ()
    """Claims that may go once this one is ready."""
    also_for: tuple[str, ...] = ()
    """uids of further gangs that stand on those and come to this one."""
    adopts: str = ""
    """Id of the running instance it takes over: nothing is bought for it, and it is `LAUNCHED` from the first."""
    resources: Resources = field(default_factory=dict)
    """Allocatable that was planned with; extended resources in it are owed before the node counts as ready."""
    layout: str = ""
    """MIG configuration name it is, or is being, cut to; empty = MIG off."""
    instance_id: str = ""
    node: str = ""
    launched_at_s: float = 0.0
    registered_at_s: float = 0.0
    ready_at_s: float = 0.0
    emptied_at_s: float = 0.0
    """When the last gang left it (or it became ready); start of the quiet time."""
    recut_at_s: float = 0.0
    """When the present layout was asked for; later than `ready_at_s` means a re-cut is under way."""
    advised_at_s: float = 0.0
    """When the cloud first advised to move away (a rebalance recommendation); 0 = never."""
    deleting: bool = False
    disruption: NodeDisruption | None = None
    failure: DecisionFailure | None = None
    """Why nothing can be decided about it at present, as its condition says; the agent's brain alone writes it."""
    list_usd_h: float | None = None
    """What whoever uses it is charged an hour, where that is not its price: a reserved machine adds next to nothing to
    the bill, and is not free for that."""

    @property
    def gangs(self) -> frozenset[str]:
        """Returns the uids of all gangs it was bought for: the one whose purchase it is part of, and further ones."""
        return frozenset({self.gang, *self.also_for}) - {""}

    @property
    def charged_usd_h(self) -> float:
        """Returns the price (USD an hour) that the machine's users are charged."""
        return self.price_usd_h if self.list_usd_h is None else self.list_usd_h

    @property
    def state(self) -> ClaimState:
        """Returns how far the machine has come: derived, so that it cannot contradict the facts."""
        if self.deleting:
            return ClaimState.TERMINATING
        for stamp, state in (
            (self.ready_at_s, ClaimState.READY),
            (self.registered_at_s, ClaimState.REGISTERED),
            (self.launched_at_s, ClaimState.LAUNCHED),
        ):
            if stamp:
                return state
        return ClaimState.PENDING

    def with_disruption(self, disruption: NodeDisruption) -> "Claim":
        """Returns a copy that is leaving. The first reason stays; only an earlier deadline still changes it."""
        if self.disruption is None:
            return replace(self, disruption=disruption)
        if self.disruption.deadline_s <= disruption.deadline_s + SAME_INSTANT_S:
            return self
        return replace(self, disruption=replace(self.disruption, deadline_s=disruption.deadline_s))
