"""How a session decides: one frozen value, every rule of it a conjunction."""

from dataclasses import dataclass
from enum import StrEnum


class SessionStage(StrEnum):
    """What is tried, in the order of `Policy.stages`."""

    ENQUEUE = "enqueue"
    ALLOCATE = "allocate"
    BACKFILL = "backfill"
    CONSOLIDATE = "consolidate"
    RECLAIM = "reclaim"
    PREEMPT = "preempt"
    STALE = "stale"


class Rank(StrEnum):
    """What orders the gangs of one queue; age, then name, always comes last."""

    PRIORITY = "priority"
    UNREADY = "unready"
    """Those below their minimum first."""
    SHARE = "share"
    """The smallest dominant share first."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The defaults are what a fleet with quotas and fair shares wants."""

    stages: tuple[SessionStage, ...] = (
        SessionStage.ALLOCATE,
        SessionStage.CONSOLIDATE,
        SessionStage.RECLAIM,
        SessionStage.PREEMPT,
        SessionStage.CONSOLIDATE,
        SessionStage.STALE,
    )
    ranks: tuple[Rank, ...] = (Rank.PRIORITY, Rank.UNREADY)
    keep_cores: bool = False
    """Whether a gang that stands is never broken: only surplus may be evicted."""
    surplus_evicts: bool = True
    """Whether others are evicted for pods beyond the minimum too."""
    preempts: bool = True
    """Whether work of the same queue may be evicted at all."""
    lower_priority_only: bool = True
    """Whether only gangs of a strictly lower priority may be preempted."""
    smaller_share_only: bool = False
    """Whether a gang may only preempt one whose dominant share stays above its own."""
    moves: bool = True
    """Whether a victim may get another node instead."""
    backfill_only: bool = False
    """Whether pods that ask for nothing wait for the backfill stage."""
    most_moves: int = 16
    """Most gangs considered for moving when making room without evicting."""
    spread_gpus: bool = False
    """Whether parts of a GPU go to the emptiest shared GPU rather than to the fullest."""
