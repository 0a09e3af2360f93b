"""What consolidation has in mind: handed from one pass to the next, in memory only.

Nothing is bought or written for it, so an agent that starts anew has lost no more than the time it has waited.
"""

from dataclasses import dataclass, field

OfferingKey = tuple[str, str, str, str, str, int, str]
"""Names a way to buy a machine: pool, type, zone, capacity type, reservation, rank of the layout, layout."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Machines that should go together, and what should come first; looked at again before it is carried out."""

    claims: tuple[str, ...]
    """Names, sorted."""
    gangs: tuple[str, ...]
    """uids of all that stood on them, sorted."""
    bought: tuple[OfferingKey, ...]
    """One for each machine."""
    cost_usd_h: float
    """Of what is bought."""
    saving_usd_h: float
    message: str
    since_s: float
    """When it was proposed (epoch seconds)."""
    chosen: bool = False
    """Whether a plan for many machines has chosen what to buy, for all of the gangs; else the packer has."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What consolidation has in mind between passes: its proposals, and what it has looked at in vain so far."""

    proposals: tuple[Proposal, ...] = ()
    """In the order in which they are carried out; no machine is in two."""
    seen: tuple[object, ...] = field(default=(), repr=False)
    """The world that was looked at; compared as a whole, and mostly by identity."""
    seen_at_s: float = 0.0
    """Since when it looks like this (epoch seconds)."""
    sought: bool = False
    """Whether a plan for many machines was sought in that world."""
    rests_until_s: float = 0.0
    """Before then no plan for many is sought again (epoch seconds)."""
    tried: frozenset[str] = frozenset()
    """Claims tried one by one since."""
    done: bool = False
    """Whether that is all there were."""

    def of(self, claim: str) -> Proposal | None:
        """Returns the proposal that a claim is in; None when it is in none."""
        return next((it for it in self.proposals if claim in it.claims), None)


NOTHING = Outlook()
