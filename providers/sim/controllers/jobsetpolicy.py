"""When a JobSet is over, starts again or is still on its way, as values (`success_policy.go`, `failure_policy.go`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from providers.sim.controllers.jobpods import job_is_over
from providers.sim.controllers.jobsetjobs import Replicated, attempt_of, rjob_of
from providers.sim.controllers.objects import Obj, condition_of, key_of, status_of, with_condition

_RESTARTS = frozenset({"RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"})


@dataclass(frozen=True, slots=True)
class Children:
    """The jobs of the present attempt by how they stand, and those of attempts before."""

    active: list[Obj]
    succeeded: list[Obj]
    failed: list[Obj]
    outdated: list[Obj]

    @classmethod
    def of(cls, jobs: Iterable[Obj], attempt: int) -> "Children":
        """Sort the jobs a set controls."""
        children = cls([], [], [], [])
        buckets = {None: children.active, "Complete": children.succeeded, "Failed": children.failed}
        for job in jobs:
            (children.outdated if attempt_of(job) < attempt else buckets[job_is_over(job)]).append(job)
        return children

    @property
    def all(self) -> list[Obj]:
        """Every job that still has its name."""
        return [*self.active, *self.succeeded, *self.failed, *self.outdated]


def _conditions(jobset: Obj) -> list[Any]:
    return list(status_of(jobset).get("conditions") or ())


def _ended(jobset: Obj, kind: str, reason: str, message: str, now: float) -> Obj:
    return {
        "conditions": with_condition(_conditions(jobset), now, kind, "True", reason, message),
        "terminalState": kind,
    }


# Policies: a decided change of the status, or None


def failure_verdict(jobset: Obj, children: Children, now: float) -> Obj | None:
    """What a failed job does to the set: fail it, or start the next attempt (failure_policy.go)."""
    if not children.failed:
        return None
    first = min(
        children.failed, key=lambda job: ((condition_of(job, "Failed") or {})["lastTransitionTime"], key_of(job))
    )
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        return _ended(
            jobset,
            "Failed",
            "FailedJobs",
            f"jobset failed due to one or more job failures (first failed job: {first['metadata']['name']})",
            now,
        )
    status = status_of(jobset)
    action = _action(policy, first)
    counted = status.get("restartsCountTowardsMax") or 0
    if action == "FailJobSet":
        return _ended(
            jobset,
            "Failed",
            "FailJobSetFailurePolicyAction",
            f"failed job {first['metadata']['name']} matched FailJobSet",
            now,
        )
    if action == "RestartJobSet" and counted >= (policy.get("maxRestarts") or 0):
        return _ended(
            jobset,
            "Failed",
            "ReachedMaxRestarts",
            f"jobset failed due to reaching max number of restarts (first failed job: {first['metadata']['name']})",
            now,
        )
    return {
        "restarts": (status.get("restarts") or 0) + 1,
        "restartsCountTowardsMax": counted + (action == "RestartJobSet"),
    }


def _action(policy: Obj, failed: Obj) -> str:
    """The action of the first rule that matches the failed job."""
    reason = (condition_of(failed, "Failed") or {}).get("reason", "")
    for rule in policy.get("rules") or ():
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        if (not reasons or reason in reasons) and (not targets or rjob_of(failed) in targets):
            action = str(rule["action"])
            return action if action in _RESTARTS else "FailJobSet"
    return "RestartJobSet"


def success_verdict(jobset: Obj, children: Children, now: float) -> Obj | None:
    """Whether enough jobs succeeded (success_policy.go)."""
    policy = jobset["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs")
    counted = [job for job in children.succeeded if not targets or rjob_of(job) in targets]
    expected = sum(r.replicas for r in Replicated.all_of(jobset) if not targets or r.name in targets)
    enough = bool(counted) if policy.get("operator") == "Any" else len(counted) >= expected
    return _ended(jobset, "Completed", "AllJobsCompleted", "jobset completed successfully", now) if enough else None


def progress(jobset: Obj, now: float, *, suspended: bool, in_order: bool, waiting: bool) -> Obj:
    """The conditions of a set that is neither complete nor failed."""
    conditions = _conditions(jobset)
    if suspended:
        conditions = with_condition(conditions, now, "Suspended", "True", "SuspendedJobs", "jobset is suspended")
    elif condition_of(jobset, "Suspended") is not None:
        conditions = with_condition(conditions, now, "Suspended", "False", "ResumeJobs", "jobset is resumed")
    if in_order and not suspended:
        done = not waiting
        message = ("all replicated jobs have started", "in order startup policy is executing")[waiting]
        conditions = with_condition(
            conditions, now, "StartupPolicyInProgress", str(waiting), "InOrderStartupPolicyInProgress", message
        )
        conditions = with_condition(
            conditions, now, "StartupPolicyCompleted", str(done), "InOrderStartupPolicyCompleted", message
        )
    return {"conditions": conditions} if conditions else {}


# Counting


def _is_ready(job: Obj) -> bool:
    """Whether as many pods are ready or done as the job runs at a time."""
    spec, status = job["spec"], status_of(job)
    parallelism = spec.get("parallelism", 1)
    wanted = min(parallelism, spec["completions"]) if spec.get("completions") is not None else parallelism
    return bool((status.get("succeeded") or 0) + (status.get("ready") or 0) >= wanted) and not spec.get("suspend")


def has_started(replicated: Replicated, children: Children) -> bool:
    """Whether every job of it is ready, or over."""
    ready = [
        job for job in [*children.active, *children.succeeded, *children.failed] if rjob_of(job) == replicated.name
    ]
    return sum(1 for job in ready if job_is_over(job) or _is_ready(job)) >= replicated.replicas


def counts(replicated: Replicated, children: Children) -> Obj:
    """One entry of `status.replicatedJobsStatus`."""
    active = [job for job in children.active if rjob_of(job) == replicated.name]
    return {
        "name": replicated.name,
        "ready": sum(map(_is_ready, active)),
        "succeeded": sum(rjob_of(job) == replicated.name for job in children.succeeded),
        "failed": sum(rjob_of(job) == replicated.name for job in children.failed),
        "active": sum((status_of(job).get("active") or 0) > 0 for job in active),
        "suspended": sum(bool(job["spec"].get("suspend")) for job in active),
    }
