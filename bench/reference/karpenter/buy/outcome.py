"""What was decided: claims to buy, seats on nodes that stand, and who waits for what."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from model.quantity import Resources
from model.requirements import Requirements


class Why(StrEnum):
    """Why a pod has no place, by what to do about it."""

    NO_POOL = "NoPool"
    """No pool can buy anything at all."""
    TAINTS = "Taints"
    REQUIREMENTS = "Requirements"
    TOPOLOGY = "Topology"
    NO_MACHINE = "NoMachine"
    """No machine type meets requirements, size and offering at once."""
    MIN_VALUES = "MinValues"
    LIMITS = "Limits"
    RESERVATIONS = "Reservations"
    """Others of this solve hold the reservations: the next one will tell."""


@dataclass(frozen=True, slots=True)
class Option:
    """A machine type a claim may become, at its cheapest offering."""

    machine: str
    price_usd_h: float
    zone: str
    capacity_type: str


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """A machine to buy: any of `options`, cheapest first."""

    name: str
    template: str
    requirements: Requirements
    requests: Resources
    """Of its pods and of the daemons every option will have."""
    options: tuple[Option, ...]
    pods: tuple[str, ...]
    """In the order they were placed by class, then name."""
    reservations: tuple[str, ...] = ()
    """Reservations it holds; it must be launched into one of them."""

    @property
    def price_usd_h(self) -> float:
        """What the cheapest option costs an hour."""
        return self.options[0].price_usd_h


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Pods of one class that found no place."""

    pods: tuple[str, ...]
    why: Why
    message: str


@dataclass(frozen=True, slots=True)
class SchedulingResults:
    """The decision. `seats`: node -> pods to come onto it."""

    claims: tuple[PlannedClaim, ...]
    seats: Mapping[str, tuple[str, ...]]
    unplaced: tuple[Unplaced, ...]

    @property
    def cost_usd_h(self) -> float:
        """What all claims cost an hour if each gets its cheapest option."""
        return sum(claim.price_usd_h for claim in self.claims)
