"""What was paid for reserved machines whether they are used or not: fees at once and by the hour, over their term.

A machine that runs in a reservation costs its part of the fees. What no machine takes of them is told as well, for
every hour of the term, so that the hours' parts are the fees, to the micro-USD, whatever was seen of the machines.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fleet.cost.allocation import MICRO, split
from fleet.cost.machine_use import RESERVED, Commitment
from fleet.cost.records import LedgerRecord


class PaidTime(NamedTuple):
    """A `PaidTime` is a time within a term, `[begin_s, end_s)` in epoch seconds."""

    begin_s: float
    end_s: float

    @classmethod
    def of_time(cls, it: Commitment, begin_s: float, end_s: float) -> "PaidTime":
        """Returns the part of a time that is within a commitment's term; it may be empty."""
        begin_s = max(begin_s, it.begin_s)
        return cls(begin_s, max(begin_s, min(end_s, it.end_s)))


def fee_micro_usd(it: Commitment, time: PaidTime) -> int:
    """Returns what is paid for a part of the term; parts that follow on each other sum up exactly."""
    return _paid_until(it, time.end_s) - _paid_until(it, time.begin_s)


def _paid_until(it: Commitment, at_s: float) -> int:
    lasted_s = min(max(at_s, it.begin_s), it.end_s) - it.begin_s
    return round(MICRO * lasted_s * (it.upfront_usd / (it.end_s - it.begin_s) + it.machines * it.usd_h / 3600))


def with_fees(
    cluster: str, records: Iterable[LedgerRecord], commitments: Sequence[Commitment], begin_s: float, end_s: float
) -> Sequence[LedgerRecord]:
    """Returns the records of a time, an hour or a part of one, with the fees of that time in them.

    Of a reservation they are the fee: what its machines have not taken is `RESERVED`, and where they took more, as
    more of them ran than were paid for, each has its part.
    """
    found = list(records)
    for it in commitments:
        time = PaidTime.of_time(it, begin_s, end_s)
        own = [n for n, record in enumerate(found) if record.reservation == it.reservation]
        fee, taken = fee_micro_usd(it, time), sum(found[n].cost_micro_usd for n in own)
        if time.end_s <= time.begin_s or fee == taken:
            continue
        if own and fee - taken <= len(own):  # rounded off, or too many
            costs = split(fee, [found[n].cost_micro_usd for n in own])
            for n, cost in zip(own, costs, strict=True):
                found[n] = replace(found[n], cost_micro_usd=cost)
        else:
            found.append(_unused(cluster, it, begin_s, time, fee - taken))
    return found


def _unused(cluster: str, it: Commitment, hour_s: float, time: PaidTime, micro_usd: int) -> LedgerRecord:
    held_s = time.end_s - time.begin_s
    return LedgerRecord(
        cluster,
        it.reservation,
        hour_s,
        RESERVED,
        team="",
        borrowed=False,
        name=RESERVED,
        namespace="",
        queue="",
        user="",
        node_pool="",
        instance_type=it.instance_type,
        zone=it.zone,
        capacity_type="reserved",
        reservation=it.reservation,
        gpu="",
        devices="",
        held_s=round(held_s, 3),
        gpu_s=0.0,
        cost_micro_usd=micro_usd,
        lost_s=0.0,
        lost_micro_usd=0,
        usd_h=round(micro_usd / MICRO * 3600 / held_s, 6),
        price_source=it.source,
        priced_at_s=it.begin_s,
    )
