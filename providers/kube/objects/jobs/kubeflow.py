"""The jobs of Kubeflow's training operator and MPI operator: a map of replica types, a pod set each.

Sources: training-operator `pkg/apis/kubeflow.org/v1`, mpi-operator `pkg/apis/kubeflow/v2beta1` (defaults, run policy).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fleet.snapshot import ANY_NUMBER
from providers.kube.objects.jobs.kind import Counts, GroupKind, JobKind, JobOutcome, ended, number
from providers.kube.objects.jobs.templates import Role
from providers.kube.objects.json_patch import pointer
from providers.kube.objects.paths import JAX_JOBS, MPI_JOBS, PADDLE_JOBS, PYTORCH_JOBS, TF_JOBS, XGBOOST_JOBS
from providers.kube.objects.shapes import JsonObject, dig
from providers.kube.resources import ResourcePath

_GROUP: Final = "training.kubeflow.org"
_RESTARTING: Final = frozenset({"Always", "OnFailure", "ExitCode"})


@dataclass(frozen=True)
class ReplicaJob(JobKind):
    """A job whose replica types are entries of one map, held by `spec.runPolicy.suspend`.

    `order` lists the types by what the others wait for, with the replicas of one that says nothing.
    """

    path: ResourcePath
    kind: str
    replicas: str
    order: tuple[tuple[str, int], ...]
    owns: frozenset[GroupKind] = field(default=frozenset())
    switch: tuple[str, ...] = ("spec", "runPolicy", "suspend")
    late = frozenset({_GROUP, "batch.kubernetes.io", "controller-uid", "job-name"})

    def stamped(self, raw: JsonObject, role: Role) -> Mapping[str, str]:
        """Returns the labels that name job and replica type (`pkg/apis/kubeflow.org/v1`, common labels)."""
        kind = "job-role" if self.owns else "replica-type"
        return {f"{_GROUP}/job-name": raw["metadata"]["name"], f"{_GROUP}/{kind}": role.name}

    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns the replica types that are there, in the given order, then any others by name."""
        specs = raw["spec"].get(self.replicas) or {}
        defaults = dict(self.order)
        names = [name for name, _ in self.order if name in specs] + sorted(specs.keys() - defaults.keys())
        return [
            Role(
                name.lower(),
                number(specs[name].get("replicas"), defaults.get(name, 1)),
                pointer("spec", self.replicas, name, "template"),
                specs[name]["template"],
            )
            for name in names
        ]

    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Reads the conditions Succeeded and Failed."""
        return ended(raw, "Succeeded")

    def counts(self, raw: JsonObject) -> Counts:
        """Counts active replicas; whether they are ready only the pods can tell."""
        statuses = (dig(raw, "status", "replicaStatuses") or {}).values()
        return Counts(active=sum((one or {}).get("active") or 0 for one in statuses))

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Allows `backoffLimit` pods where every type restarts; none of an MPIJob: its launcher ends with a worker."""
        specs = raw["spec"].get(self.replicas) or {}
        if self.owns or any(one.get("restartPolicy") not in _RESTARTING for one in specs.values()):
            return {}
        left = number(dig(raw, "spec", "runPolicy", "backoffLimit"), ANY_NUMBER)
        return {name.lower(): left for name in specs} if left > 0 else {}


REPLICA_JOBS = (
    ReplicaJob(PYTORCH_JOBS, "PyTorchJob", "pytorchReplicaSpecs", (("Master", 1), ("Worker", 1))),
    ReplicaJob(
        TF_JOBS, "TFJob", "tfReplicaSpecs", (("Chief", 1), ("Master", 1), ("PS", 1), ("Worker", 1), ("Evaluator", 1))
    ),
    ReplicaJob(XGBOOST_JOBS, "XGBoostJob", "xgbReplicaSpecs", (("Master", 1), ("Worker", 1))),
    ReplicaJob(PADDLE_JOBS, "PaddleJob", "paddleReplicaSpecs", (("Master", 1), ("Worker", 1))),
    ReplicaJob(JAX_JOBS, "JAXJob", "jaxReplicaSpecs", (("Worker", 1),)),
    ReplicaJob(
        MPI_JOBS, "MPIJob", "mpiReplicaSpecs", (("Launcher", 1), ("Worker", 0)), owns=frozenset({("batch", "Job")})
    ),
)
