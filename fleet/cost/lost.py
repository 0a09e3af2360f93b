"""What interrupting a gang costs: the machines' time since its last checkpoint, in USD."""

from typing import Final

from fleet.snapshot import Gang, Snapshot

PAYBACK_S: Final = 4 * 3600.0
"""The saving of this long must pay for the work that is lost: the one number by which saving is traded for disruption,
in consolidation, the way back to what a pool prefers, and the plan for many machines (`docs/kinds/node-pool.md`)."""


def lost_since_s(gang: Gang, now_s: float) -> float:
    """From when on work is lost: the last checkpoint, or the start.

    A checkpoint in the future counts as now (skewed clock). With only an interval known, half of it is lost on average.
    """
    if gang.last_checkpoint_s is not None:
        return max(gang.admitted_at_s, min(gang.last_checkpoint_s, now_s))
    if gang.checkpoint_interval_s is not None:
        return max(gang.admitted_at_s, now_s - gang.checkpoint_interval_s / 2)
    return gang.admitted_at_s


def lost_work_usd(gang: Gang, snapshot: Snapshot) -> float:
    """USD of machine time that an interruption now would waste."""
    if not gang.admitted_at_s:
        return 0.0
    hours = max(0.0, snapshot.now_s - lost_since_s(gang, snapshot.now_s)) / 3600
    machines = {pin.claim for pin in gang.pins if pin.claim in snapshot.claims}
    return hours * sum(snapshot.claims[name].charged_usd_h for name in machines)
