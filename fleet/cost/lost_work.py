"""What a running gang would lose if it were evicted now."""

from fleet.mig.layouts import gpu_part
from fleet.snapshot import Gang


def lost_work_s(gang: Gang, now_s: float) -> float:
    """Device seconds since its last checkpoint, as far as the job says when that was.

    A job states the time of its last checkpoint (`muster.dev/last-checkpoint-time`), or how often it makes one
    (`muster.dev/checkpoint-interval`, counted from its start). Nobody can lose more than the time it has run. A job
    that says nothing counts as losing nothing: staying silent never protects it.
    """
    if not gang.admitted_at_s:
        return 0.0
    ran_s = max(0.0, now_s - gang.admitted_at_s)
    since_s = 0.0
    if gang.last_checkpoint_s is not None:
        since_s = max(0.0, now_s - gang.last_checkpoint_s)
    elif gang.checkpoint_interval_s:
        since_s = ran_s % gang.checkpoint_interval_s
    lost_s = min(since_s, ran_s)
    return lost_s * devices(gang) if lost_s else 0.0


def devices(gang: Gang) -> int:
    """GPUs or slices of GPUs it holds; at least one, so that work without GPUs is not free."""
    return max(1, sum(sum(gpu_part(pods.requests).values()) * pods.count for pods in gang.pod_sets))
