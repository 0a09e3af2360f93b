"""One look at a Job and its pods: what is counted, what is decided, and the status that says so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from providers.sim.controllers.jobbackoff import BackoffOptions, finished_at
from providers.sim.controllers.jobpods import JOB_TRACKING, JobWork, index_of, tries_of
from providers.sim.controllers.jobpolicy import enough, format_indexes, indexes
from providers.sim.controllers.objects import (
    Obj,
    being_deleted,
    condition_of,
    instant,
    is_active,
    is_terminal,
    is_true,
    node_of,
    stamp,
    status_of,
    with_condition,
)
from providers.sim.store import StoreForbidden

FINAL_CONDITION: Mapping[str, str] = {"FailureTarget": "Failed", "SuccessCriteriaMet": "Complete"}
"""What is decided first -> what stands in the end, when no pod is left."""
_COUNTERS = ("active", "succeeded", "failed")


@dataclass(slots=True)
class JobLook:
    """The pods of a job sorted by what became of them, and the status in the making.

    `succeeded` and `failed` are pods that ended and are not counted yet; `delayed` holds, for an index with a limit of
    its own, the last failed pod, which stays until its successor knows how often the index failed.
    """

    job: Obj
    work: JobWork
    pods: list[Obj]
    status: Obj
    active: list[Obj]
    active_count: int
    ready: int
    terminating: int
    succeeded: list[Obj]
    failed: list[Obj]
    done: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    delayed: dict[int, Obj] = field(default_factory=dict)
    target: str = ""
    reason: str = ""
    message: str = ""
    refused: StoreForbidden | None = None
    """Why the API server would not have a pod."""

    @classmethod
    def of(cls, job: Obj, pods: list[Obj], now: float) -> "JobLook":
        """Sort the pods."""
        work, status = JobWork.of(job), dict(status_of(job))
        active = [pod for pod in pods if is_active(pod)]
        uncounted = status.get("uncountedTerminatedPods") or {}
        known = {uid for end in ("succeeded", "failed") for uid in uncounted.get(end) or ()}
        fresh = [pod for pod in pods if _tracked(pod) and pod["metadata"]["uid"] not in known]
        fresh = [pod for pod in fresh if not work.indexed or work.has(index_of(pod))]
        if not work.suspended and not status.get("startTime"):
            status["startTime"] = stamp(now)
        look = cls(
            job=job,
            work=work,
            pods=pods,
            status=status,
            active=active,
            active_count=len(active),
            ready=sum(is_true(pod, "Ready") for pod in active),
            terminating=sum(being_deleted(pod) and not is_terminal(pod) for pod in pods),
            succeeded=[pod for pod in fresh if status_of(pod).get("phase") == "Succeeded"],
            failed=[pod for pod in fresh if work.is_failed(pod)],
        )
        look._index()
        return look

    def _index(self) -> None:
        work = self.work
        if not work.indexed:
            return
        self.done = indexes(self.status.get("completedIndexes"), work.completions)
        self.done |= {index_of(pod) for pod in self.succeeded}
        if work.per_index is None:
            return
        self.lost = indexes(self.status.get("failedIndexes"), work.completions)
        self.lost |= {index_of(pod) for pod in self.failed if work.index_is_failed(pod)}
        for pod in self.failed:
            index = index_of(pod)
            last = self.delayed.get(index)
            if index in self.done | self.lost or (last is not None and _order(last) > _order(pod)):
                continue
            self.delayed[index] = pod

    # Counting and deciding

    @property
    def succeeded_count(self) -> int:
        """Successes so far, the uncounted ones included; indexes where there are any."""
        if self.work.indexed:
            return len(self.done)
        noted = (self.status.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
        return (self.status.get("succeeded") or 0) + len(noted) + len(self.succeeded)

    @property
    def failed_count(self) -> int:
        """Failures so far, the uncounted ones included."""
        noted = (self.status.get("uncountedTerminatedPods") or {}).get("failed") or ()
        fresh = sum(self.work.ruling(pod).counts for pod in self.failed)
        return (self.status.get("failed") or 0) + len(noted) + fresh

    @property
    def deadline(self) -> float:
        """When the job will have been active too long."""
        started = self.status.get("startTime")
        if self.work.deadline_s is None or self.work.suspended or not started:
            return inf
        return instant(started) + self.work.deadline_s

    def decide(self, now: float) -> None:
        """Whether the job has to end, and why."""
        self._decided_before() or self._by_policy() or self._by_limits(now) or self._by_indexes()
        if not self.target and self.work.indexed:
            message = enough(self.work.successes, self.done, self.work.completions or 0)
            if message:
                self._ends("SuccessCriteriaMet", "SuccessPolicy", message)

    def _ends(self, target: str, reason: str, message: str) -> bool:
        self.target, self.reason, self.message = target, reason, message
        return True

    def _decided_before(self) -> bool:
        for target in ("SuccessCriteriaMet", "FailureTarget"):
            decided = condition_of(self.job, target)
            if decided is not None and decided["status"] == "True":
                return self._ends(target, decided.get("reason", ""), decided.get("message", ""))
        return False

    def _by_policy(self) -> bool:
        if self.work.failures is None:
            return False
        said = (self.work.ruling(pod).message for pod in self.pods if self.work.is_failed(pod))
        message = next(filter(None, said), "")
        return bool(message) and self._ends("FailureTarget", "PodFailurePolicy", message)

    def _by_limits(self, now: float) -> bool:
        if self.failed_count > self.work.backoff_limit or self._restarted_too_often():
            return self._ends("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if self.deadline <= now:
            return self._ends("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")
        return False

    def _by_indexes(self) -> bool:
        work = self.work
        if work.most_failed is not None and len(self.lost) > work.most_failed:
            text = "Job has exceeded the specified maximal number of failed indexes"
            return self._ends("FailureTarget", "MaxFailedIndexesExceeded", text)
        if self.lost and len(self.lost) + len(self.done) >= (work.completions or 0):
            return self._ends("FailureTarget", "FailedIndexes", "Job has failed indexes")
        return False

    def _restarted_too_often(self) -> bool:
        """Restarts in place count against the backoff limit, too (pastBackoffLimitOnFailure)."""
        if not self.work.restarts_in_place:
            return False
        living = [status_of(pod) for pod in self.pods if status_of(pod).get("phase") in ("Running", "Pending")]
        restarts = sum(
            container["restartCount"]
            for status in living
            for field_name in ("initContainerStatuses", "containerStatuses")
            for container in status.get(field_name) or ()
        )
        return bool(restarts >= max(1, self.work.backoff_limit))

    # Pods that come and go

    def places(self, missing: int) -> list[int | None]:
        """The next indexes that nobody works on, lowest first; None for each pod of a job without indexes."""
        if not self.work.indexed:
            return [None] * missing
        taken = self.done | self.lost | {index_of(pod) for pod in self.active}
        if self.work.replaces_only_failed:
            taken |= {index_of(pod) for pod in self.pods if being_deleted(pod) and not is_terminal(pod)}
        free = (index for index in range(self.work.completions or 0) if index not in taken)
        return [index for index, _ in zip(free, range(missing), strict=False)]

    def index_waits_until(self, index: int, backoff: BackoffOptions) -> float:
        """When a pod for this index may be made again, where each index has a limit of its own."""
        last = self.delayed.get(index)
        return -inf if last is None else backoff.over_at(tries_of(last) + 1, finished_at(last))

    def superfluous(self) -> list[Obj]:
        """Active pods of an index that another one works on or that is none of the job's."""
        if not self.work.indexed:
            return []
        kept: dict[int, Obj] = {}
        found = []
        for pod in sorted(self.active, key=worth_of):
            index = index_of(pod)
            if not self.work.has(index):
                found.append(pod)
                continue
            if index in kept:
                found.append(kept[index])
            kept[index] = pod
        return found

    def took(self, pods: Iterable[Obj]) -> None:
        """These active pods were deleted."""
        gone = list(pods)
        self.active = [pod for pod in self.active if pod not in gone]
        self.active_count -= len(gone)
        self.terminating += len(gone)
        self.ready -= sum(is_true(pod, "Ready") for pod in gone)

    def added(self, pod: Obj) -> None:
        """This pod was made."""
        self.active.append(pod)
        self.active_count += 1

    def turn(self, now: float) -> None:
        """After the pods are as they should be: the job is done, or suspended, or resumed."""
        if self.work.is_complete(self.succeeded_count, self.active_count):
            self._ends("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
            return
        conditions = list(self.status.get("conditions") or ())
        if self.work.suspended:
            conditions = with_condition(conditions, now, "Suspended", "True", "JobSuspended", "Job suspended")
            self.status.pop("startTime", None)
        elif condition_of(self.job, "Suspended") is not None:
            if is_true(self.job, "Suspended"):
                self.status["startTime"] = stamp(now)
            conditions = with_condition(conditions, now, "Suspended", "False", "JobResumed", "Job resumed")
        self._conditions(conditions)

    # The status

    def note(self, now: float) -> list[Obj]:
        """Write the present numbers and the pods to be counted into the status; returns those pods."""
        self.status |= {"active": self.active_count, "ready": self.ready, "terminating": self.terminating}
        uncounted = self.status.get("uncountedTerminatedPods") or {}
        noted = {end: list(uncounted.get(end) or ()) for end in ("succeeded", "failed")}
        counted = [pod for pod in self.pods if _tracked(pod) and self._is_over(pod)]
        for pod in counted:
            end, uid = self._end_of(pod), pod["metadata"]["uid"]
            if end and uid not in noted[end]:
                noted[end].append(uid)
        self.status["uncountedTerminatedPods"] = {end: uids for end, uids in noted.items() if uids}
        if self.work.indexed:
            self.status |= {"succeeded": len(self.done), "completedIndexes": format_indexes(self.done)}
            self.status |= {"failedIndexes": format_indexes(self.lost)} if self.work.per_index is not None else {}
        if self.target and not is_true(self.job, self.target):
            self._add(self.target, now)
        return counted

    def _is_over(self, pod: Obj) -> bool:
        """Whether the pod can be let go."""
        if being_deleted(self.job) or self.target or status_of(pod).get("phase") == "Succeeded":
            return True
        last = self.delayed.get(index_of(pod))
        waits = last is not None and last["metadata"]["uid"] == pod["metadata"]["uid"]
        return self.work.is_failed(pod) and not waits

    def _end_of(self, pod: Obj) -> str:
        """As what the pod is counted: indexes count successes themselves, and a failed job every pod as failed."""
        counts = not self.work.indexed or self.work.has(index_of(pod))
        if status_of(pod).get("phase") == "Succeeded":
            return "" if self.work.indexed else "succeeded"
        failed = self.work.is_failed(pod) or self.target == "FailureTarget"
        return "failed" if failed and counts and self.work.ruling(pod).counts else ""

    def changed(self) -> bool:
        """Whether the status says something new."""
        return self.written() != status_of(self.job)

    def count(self, counted: Iterable[Obj]) -> None:
        """The pods let go are counted."""
        gone = {pod["metadata"]["uid"] for pod in counted} | self._untracked()
        uncounted = self.status["uncountedTerminatedPods"]
        for end in ("succeeded", "failed"):
            self.status[end] = (self.status.get(end) or 0) + sum(uid in gone for uid in uncounted.get(end, ()))
        left = {end: [uid for uid in uids if uid not in gone] for end, uids in uncounted.items()}
        self.status["uncountedTerminatedPods"] = {end: uids for end, uids in left.items() if uids}

    def _untracked(self) -> set[str]:
        """Noted pods that are gone, or have lost their finalizer before."""
        held = {pod["metadata"]["uid"] for pod in self.pods if _tracked(pod)}
        noted = {uid for uids in self.status["uncountedTerminatedPods"].values() for uid in uids}
        return noted - held

    @property
    def finished(self) -> bool:
        """Whether the job is over for good."""
        return any(is_true(self.job, kind) for kind in FINAL_CONDITION.values())

    def finish(self, now: float) -> None:
        """The last condition, once everything is counted and no pod is on its way out."""
        if self.target and not self.status["uncountedTerminatedPods"] and not self.terminating:
            self._add(FINAL_CONDITION[self.target], now)
            if self.target == "SuccessCriteriaMet":
                self.status["completionTime"] = stamp(now)

    def _add(self, kind: str, now: float) -> None:
        held = self.status.get("conditions") or ()
        self._conditions(with_condition(held, now, kind, "True", self.reason, self.message))

    def _conditions(self, conditions: list[Obj]) -> None:
        if conditions:
            self.status["conditions"] = conditions

    def written(self) -> Obj:
        """The status as the API shows it: counters of zero and no indexes are left out."""
        left_out = {name for name in _COUNTERS if not self.status.get(name)}
        left_out |= set() if self.status.get("completedIndexes") else {"completedIndexes"}
        return {name: value for name, value in self.status.items() if name not in left_out}


def _tracked(pod: Obj) -> bool:
    return JOB_TRACKING in (pod["metadata"].get("finalizers") or ())


def _order(pod: Obj) -> tuple[int, float]:
    return tries_of(pod), finished_at(pod)


def worth_of(pod: Obj) -> tuple[bool, bool, bool, float, float, str]:
    """Sorts the pods whose loss costs least to the front (`ActivePods`): unbound, pending, unready, youngest."""
    ready = condition_of(pod, "Ready") or {}
    since = instant(ready["lastTransitionTime"]) if ready.get("lastTransitionTime") else inf
    return (
        bool(node_of(pod)),
        status_of(pod).get("phase") == "Running",
        is_true(pod, "Ready"),
        -since,
        -instant(pod["metadata"]["creationTimestamp"]),
        pod["metadata"]["name"],
    )
