"""Single pods gather for a moment before machines are bought for them: many little purchases become a good one.

Source: Karpenter's batching window (`BATCH_IDLE_DURATION`, `BATCH_MAX_DURATION`; reference 2.1). Gangs do not wait:
what they buy is theirs. Nor does who finds room on machines that are there.
"""

from collections.abc import Iterable
from typing import Final

from fleet.reasons import Reason, Refusal
from fleet.snapshot import Gang

IDLE_S: Final = 1.0
"""They are bought for when no other has come for this long,"""
MOST_S: Final = 10.0
"""and no later than this after the first of them came."""


def gathering(waiting: Iterable[Gang], now_s: float) -> frozenset[str]:
    """Uids of the single pods for which nothing is bought yet."""
    young = [gang for gang in waiting if sum(pods.count for pods in gang.pod_sets) == 1 and gang.created_at_s <= now_s]
    ages_s = {gang.uid: now_s - gang.created_at_s for gang in young}
    full = any(gang.reason == Reason.BATCHING and ages_s[gang.uid] >= MOST_S for gang in young)
    if full or not any(age_s < IDLE_S for age_s in ages_s.values()):
        return frozenset()
    return frozenset(uid for uid, age_s in ages_s.items() if age_s < MOST_S)


def put_off() -> Refusal:
    """What such a pod waits for."""
    return Refusal(
        Reason.BATCHING,
        f"a machine is bought for it with those for other single pods, when none has come for {IDLE_S:.0f} s, "
        f"{MOST_S:.0f} s after the first at the latest",
    )
