"""A plan as a value: what a revision causes, and why it may not."""

from dataclasses import dataclass

from fleet.actions import PurchaseTally
from fleet.plan.changes import PlannedChange
from fleet.plan.consequences import GangImpact, HourlyBill, PeakBill
from fleet.plan.exposure import Exposure
from fleet.plan.guards import RevisionTally
from fleet.plan.quotas import Overcommitment, QuotaChange
from fleet.policy.checks import Denial


@dataclass(frozen=True, slots=True)
class WithoutRevision:
    """What happens as well if the revision does not come into force."""

    machines: tuple[PlannedChange, ...] = ()
    gangs: tuple[GangImpact, ...] = ()
    """Gangs that are stopped."""
    bill: HourlyBill | None = None
    """Once nothing changes any more; None without a world."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a revision allows from now on, whatever the cluster asks for at present."""

    exposed_before: Exposure | None = None
    """What the pools may cost at most; None where no prices are known."""
    exposed_after: Exposure | None = None
    quotas: tuple[QuotaChange, ...] = ()
    overcommitted: tuple[Overcommitment, ...] = ()
    """Where the revision guarantees more than the limits of its pools let them hold."""

    @property
    def exposed(self) -> tuple[Exposure, Exposure] | None:
        """Returns what limits let be spent before and after; None where no prices are known."""
        before, after = self.exposed_before, self.exposed_after
        return (before, after) if before is not None and after is not None else None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a revision causes, and why it may not: the difference of two runs of the deciders, under base and head.

    `plan_id` is a hash of base, head and consequences: same id, same plan. Without a world only declarations are
    compared, and what is not known is None.
    """

    plan_id: str
    base_revision: str
    head_revision: str
    observed_at_s: float
    declared: tuple[PlannedChange, ...]
    machines: tuple[PlannedChange, ...]
    """What becomes of machines because of the revision."""
    gangs: tuple[GangImpact, ...]
    """Gangs that fare otherwise because of the revision."""
    without: WithoutRevision
    now: HourlyBill | None
    then: HourlyBill | None
    """Once nothing changes any more, or at the horizon."""
    peak: PeakBill | None
    """The most there is on the way."""
    allowed: Allowed
    refusals: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """What is declared and does not hold, or not as one would think."""
    region: str = ""
    """Of the prices; empty where none are known."""
    price_source: str = ""
    held: str = ""
    """What keeps the revision from coming into force for now, and until when."""
    purchase: PurchaseTally | None = None
    """What waiting gangs would buy, and how near that is to the least possible."""
    tally: RevisionTally | None = None
    """What it causes, in numbers; None without a world."""
    rollout: tuple[str, ...] = ()
    """Node pools that take over what changes about them one after the other, in their order."""
    denials: tuple[Denial, ...] = ()
    """Checks that do not hold, and that owners may agree to all the same."""

    @property
    def empty(self) -> bool:
        """Returns whether no declaration and no machine would change."""
        return not self.declared and not self.machines and not self.gangs

    def counts(self) -> dict[str, int]:
        """Returns Terraform's three numbers by verb: a replacement counts as one to create and one to delete.

        What is held does not happen, and is not counted.
        """
        verbs = [change.verb for change in (*self.declared, *self.machines) if not change.when.held]
        replaced = verbs.count("replace")
        return {
            "create": verbs.count("create") + replaced,
            "update": verbs.count("update"),
            "delete": verbs.count("delete") + replaced,
        }
