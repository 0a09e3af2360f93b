"""What stood in the way of a purchase, for the sentence that says so."""

from dataclasses import dataclass, field

from fleet.offerings.offerings import Offering
from fleet.reasons import Reason, Refusal
from fleet.snapshot import PodSet


@dataclass(slots=True)
class Hurdles:
    """What was seen while looking for machines for `missing` pods in a zone."""

    pod_set: PodSet
    missing: int
    zone: str
    seen: int = 0
    inflexible: set[str] = field(default_factory=set)
    over_limit: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    """Placement groups whose machines stand in another zone."""
    used_up: set[str] = field(default_factory=set)
    """Reservations with fewer machines left than are needed."""
    too_short: set[str] = field(default_factory=set)
    """Capacity blocks that end before the pods would."""
    pools_short: list[str] = field(default_factory=list)
    short_until_s: float = 0.0

    def short(self, offering: Offering, until_s: float) -> None:
        """Note an offering that the cloud is short of until then (epoch seconds)."""
        self.pools_short.append(str(offering.offer.pool_key))
        self.short_until_s = until_s if not self.short_until_s else min(self.short_until_s, until_s)

    def refusal(self) -> Refusal:
        """The nearest miss: what only time or a limit stands against is told before what can never be."""
        what = f"{self.missing} more pods of {self.pod_set.name}"
        for stood, reason, before, after in (
            (self.pools_short, Reason.NO_CAPACITY, f"no machine for {what}: the cloud is short of", ""),
            (self.over_limit, Reason.POOL_LIMIT, f"{what} need machines beyond the limits of", ""),
            (self.bound, Reason.POOL_LIMIT, f"{what} would stand outside of the cluster placement group", ""),
            (self.used_up, Reason.NO_CAPACITY, f"no machine for {what}: too few are left in", ""),
            (self.too_short, Reason.NO_CAPACITY, f"no machine for {what}: they would run past the end of", ""),
            (self.inflexible, Reason.NO_OFFER, "too few kinds of machines left for minValues of", f" to buy {what}"),
        ):
            if stood:
                return Refusal(reason, f"{before} {', '.join(sorted(stood)[:4])}{after}", self.short_until_s)
        if self.seen:
            return Refusal(
                Reason.NO_OFFER, f"no machine its pools may buy in {self.zone} holds one pod of {self.pod_set.name}"
            )
        return Refusal(
            Reason.NO_OFFER,
            f"its pools may buy no machine in {self.zone} that {self.pod_set.name} selects and tolerates",
        )
