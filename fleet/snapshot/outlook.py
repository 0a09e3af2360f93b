"""Holds what disruption hands from one pass to the next.

What consolidation has in mind is in memory only: nothing is bought or written for it, so an agent that starts anew has
lost no more than the time it has waited. What a roll-out stopped at is kept in the status of the FleetSync.
"""

from dataclasses import dataclass, field

OfferingKey = tuple[str, str, str, str, str, int, str, bool]
"""Identifies an offering: pool, type, zone, capacity type, reservation, rank of the layout, layout, fabric on request.
"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A `Proposal` names machines to consolidate and what to buy first; it is checked again before it is acted on."""

    claims: tuple[str, ...]
    """Names of the machines' claims, sorted."""
    gangs: tuple[str, ...]
    """uids of the gangs on these machines, sorted."""
    bought: tuple[OfferingKey, ...]
    """What is bought instead, one entry for each machine."""
    cost_usd_h: float
    """Price of what is bought, in USD an hour."""
    saving_usd_h: float
    message: str
    since_s: float
    """When it was proposed (epoch seconds)."""
    chosen: bool = False
    """Whether the plan for many machines chose what to buy for all gangs together; else placement did, gang by gang."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """An `Outlook` is what consolidation remembers between passes: its proposals, and what it has tried in vain."""

    proposals: tuple[Proposal, ...] = ()
    """In the order in which they are carried out; no machine is in two."""
    seen: tuple[object, ...] = field(default=(), repr=False)
    """The state that was last looked at; compared as a whole, and mostly by identity."""
    seen_at_s: float = 0.0
    """Since when the state is the same, or since it was last looked at one by one again (epoch seconds)."""
    sought: bool = False
    """Whether a plan for many machines was searched in that state."""
    rests_until_s: float = 0.0
    """No plan for many machines is searched before this instant (epoch seconds)."""
    tried: frozenset[str] = frozenset()
    """Claims that were tried one by one in that state."""
    done: bool = False
    """Whether every claim was tried."""

    def of(self, claim: str) -> Proposal | None:
        """Returns the proposal that a claim is in; None when it is in none."""
        return next((it for it in self.proposals if claim in it.claims), None)


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """A `RolloutProgress` is what is remembered of a roll-out pool by pool, in the status of the FleetSync."""

    templates: str
    """Hash of what the pools declare; another one is another roll-out."""
    began_s: float
    """When they declared it first (epoch seconds)."""
    pool: str = ""
    """Where a machine failed, so that nothing more is replaced; empty while it goes on."""
    failure: str = ""

    @property
    def paused(self) -> bool:
        """Returns whether nothing more is replaced."""
        return bool(self.pool)


@dataclass(frozen=True, slots=True, order=True)
class CutFailure:
    """A `CutFailure` is a machine whose GPUs could not be cut: when it was given up (epoch seconds), and why."""

    at_s: float
    claim: str
    message: str


@dataclass(frozen=True, slots=True)
class LayoutRecord:
    """A `LayoutRecord` is what is remembered of a pool's layouts, in the status of the FleetSync."""

    pool: str
    declared: tuple[str, ...]
    """Names of the configurations that it declares; others are another record."""
    content: str
    """The first of them, as text."""
    since_s: float
    """When it declared them first (epoch seconds)."""
    failures: tuple[CutFailure, ...] = ()
    """Those of the last hours, the oldest first."""
    proven: bool = False
    """Whether a machine has been cut so since."""
    former: str = ""
    """The last layout before that a machine was cut to, as text; empty = there is none."""
    rolled_back: bool = False
    """Whether it is in force again, as machines could not be cut to the new one."""


NOTHING = Outlook()
