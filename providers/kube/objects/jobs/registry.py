"""Every kind of work, and how to read one."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from msgspec import Raw

from fleet.snapshot import Hold, Job, JobRef
from providers.kube.objects.jobs.batch import BatchJob, JobSet
from providers.kube.objects.jobs.kind import GroupKind, JobKind
from providers.kube.objects.jobs.kubeflow import REPLICA_JOBS
from providers.kube.objects.jobs.leader_worker import LeaderWorkerSet
from providers.kube.objects.jobs.ray import RayCluster, RayJob
from providers.kube.objects.jobs.reading import read_job
from providers.kube.objects.jobs.stateful_set import StatefulSet
from providers.kube.objects.jobs.trainer import TrainJob
from providers.kube.objects.jobs.volcano import VolcanoJob

KINDS: Final[tuple[JobKind, ...]] = (
    BatchJob(),
    JobSet(),
    *REPLICA_JOBS,
    RayCluster(),
    RayJob(),
    TrainJob(),
    LeaderWorkerSet(),
    VolcanoJob(),
    StatefulSet(),
)
BY_GROUP_KIND: Final[Mapping[GroupKind, JobKind]] = {kind.group_kind: kind for kind in KINDS}
HELD_BY_POD: Final = frozenset(kind.group_kind for kind in KINDS if kind.hold is Hold.PODS)


def kind_of(job: JobRef) -> JobKind:
    """The kind of a job; KeyError for one that is not in the table (a plain group of pods has no object)."""
    return BY_GROUP_KIND[job.api_version.rpartition("/")[0], job.kind]


def decoder(kind: JobKind) -> Callable[[bytes | Raw], Job]:
    """Returns the function that reads an object of that kind."""
    parents = frozenset(owner.group_kind for owner in KINDS if kind.group_kind in owner.owns)
    return partial(read_job, kind, parents)


DECODERS: Final = {kind.group_kind: decoder(kind) for kind in KINDS}
