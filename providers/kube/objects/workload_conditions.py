"""What a Workload's conditions say about a gang, in Kueue's vocabulary (`workload_types.go`), and its short figures."""

from collections.abc import Sequence
from typing import Final

from fleet.gangs.idle_gpus import idle_words
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from providers.kube.objects.conditions import Condition, Finding, failure_findings, find, refusal_findings

QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
POD_READY: Final = "PodsReady"
EVICTED: Final = "Evicted"
REQUEUED: Final = "Requeued"
FINISHED: Final = "Finished"
GPUS_IDLE: Final = "GpusIdle"

_RECOVERY: Final = frozenset({"Started", "Recovered", "WaitForRecovery"})
"""Reasons of an earlier PodsReady after which a gang that is not ready has lost pods rather than never had them."""


def workload_findings(gang: Gang, now_s: float, previous: Sequence[Condition]) -> tuple[Finding, ...]:
    """The conditions that apply: Evicted and Requeued only to a gang that was evicted, Finished only at the end."""
    findings = [_quota_reserved(gang), _admitted(gang), _pods_ready(gang, find(previous, POD_READY))]
    if gang.eviction is not None:
        findings.append(_evicted(gang))
        if gang.state is not GangState.EVICTING:
            findings.append(_requeued(gang, now_s))
    if gang.idle is not None:
        findings.append(Finding(GPUS_IDLE, True, Reason.IDLE_GPUS, f"It {idle_words(gang.idle)}"))
    if gang.state is GangState.FINISHED:
        findings.append(Finding(FINISHED, True, gang.reason, gang.message))
    return (*findings, *failure_findings(gang.failure), *refusal_findings(gang.refused))


def _quota_reserved(gang: Gang) -> Finding:
    if gang.holds_capacity or (gang.state is GangState.FINISHED and gang.quota_reserved_at_s):
        flavors = ", ".join(f"{name}: {' and '.join(given)}" for name, given in sorted(gang.flavors.items()))
        return Finding(QUOTA_RESERVED, True, QUOTA_RESERVED, f"Quota reserved in {flavors}" if flavors else "")
    return Finding(QUOTA_RESERVED, False, gang.reason, gang.message)


def _admitted(gang: Gang) -> Finding:
    if gang.state is GangState.ADMITTED:
        return Finding(ADMITTED, True, ADMITTED, gang.message)
    if gang.state in {GangState.EVICTING, GangState.FINISHED} and gang.admitted_at_s:
        return Finding(ADMITTED, True, ADMITTED, "")
    if gang.state is GangState.RESERVED:
        return Finding(ADMITTED, False, gang.reason, gang.message)
    return Finding(ADMITTED, False, "NoReservation", "No quota is reserved for it")


def _pods_ready(gang: Gang, before: Condition | None) -> Finding:
    recovering = before is not None and before.reason in _RECOVERY and gang.state is GangState.ADMITTED
    if gang.pods_ready:
        again = recovering and before is not None and before.reason != "Started"
        return Finding(POD_READY, True, "Recovered" if again else "Started", "All pods are ready")
    return Finding(POD_READY, False, "WaitForRecovery" if recovering else "WaitForStart", "Not all pods are ready")


def _evicted(gang: Gang) -> Finding:
    """True from the eviction until quota is reserved again, as Kueue has it."""
    eviction = gang.eviction
    if eviction is None or gang.state not in {GangState.EVICTING, GangState.PENDING}:
        return Finding(EVICTED, False, QUOTA_RESERVED, f"Evicted before: {eviction.message}" if eviction else "")
    return Finding(EVICTED, True, eviction.reason, eviction.message)


def _requeued(gang: Gang, now_s: float) -> Finding:
    if gang.state is GangState.PENDING and gang.requeue_at_s > now_s:
        return Finding(REQUEUED, False, Reason.BACK_OFF, "Pauses after its eviction before it is considered again")
    return Finding(REQUEUED, True, "BackoffFinished", "Back in its queue")


def gpus_of(gang: Gang) -> str:
    """All GPUs a gang asks for, for people: `16`, or with parts `8 + 14x1g.10gb`, `4xshared`; empty without any."""
    total: dict[str, int] = {}
    for pod_set in gang.pod_sets:
        for name, amount in pod_set.requests.items():
            total[name] = total.get(name, 0) + amount * pod_set.count
    slices = sorted(
        (name.removeprefix(MIG_RESOURCE_PREFIX), n) for name, n in total.items() if name.startswith(MIG_RESOURCE_PREFIX)
    )
    slices.append(("shared", total.get(SHARED_GPU_RESOURCE, 0)))
    whole = [str(total[GPU_RESOURCE])] if total.get(GPU_RESOURCE) else []
    return " + ".join([*whole, *(f"{n}x{profile}" for profile, n in slices if n)])
