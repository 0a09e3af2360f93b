"""Labels, annotations, gates and finalizers that only the objects on the wire carry; the rest is `model.labels`."""

from typing import Final

from model import labels
from providers.kube import resources

GROUP: Final = resources.GROUP
API_VERSION: Final = "muster.dev/v1alpha1"
KUEUE: Final = "kueue.x-k8s.io"


def either(name: str) -> tuple[str, str]:
    """Our label or annotation of that name, and Kueue's that means the same; ours is looked at first."""
    return f"{GROUP}/{name}", f"{KUEUE}/{name}"


WORKLOAD: Final = labels.WORKLOAD
POD_SET: Final = labels.POD_SET
JOB_UID: Final = "muster.dev/job-uid"
"""On Workloads: the uid of the job, for selectors."""

PLACEMENT_GATE: Final = "muster.dev/placement"
"""Scheduling gate behind which a gang's pods start."""
TERMINATION_FINALIZER: Final = "muster.dev/termination"
"""On NodeClaims: gone only when the machine is."""

ADDITIONS: Final = "muster.dev/template-additions"
"""On jobs: JSON, pod set -> tolerations that were appended to its template, so that they can be taken away again."""
ASKED: Final = "muster.dev/asked"
"""On jobs: JSON, pointer -> the value its user asked for in a field that we have lowered."""
REVISION: Final = "muster.dev/revision"
"""On mirrored declarations: the revision they come from."""
LAST_CHECKPOINT: Final = "muster.dev/last-checkpoint-time"
VOLCANO_LAST_CHECKPOINT: Final = "volcano.sh/last-checkpoint-time"
CHECKPOINT_INTERVAL: Final = "muster.dev/checkpoint-interval"
EXPECTED_RUN: Final = "muster.dev/expected-run-time"
MAX_RUN: Final = "muster.dev/max-run-time"
KUEUE_MAX_RUN: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""A label, a whole number of seconds."""
SLA_WAITING: Final = ("muster.dev/sla-waiting-time", "sla-waiting-time")
"""Ours, and Volcano's."""
PRIORITY_BOOST: Final = either("priority-boost")
OWN_DO_NOT_DISRUPT: Final = "muster.dev/do-not-disrupt"
"""On jobs: `"true"` keeps consolidation, drift and expiry away while the gang runs; preemption is not voluntary."""
ON_NODE_FAILURE: Final = "muster.dev/on-node-failure"
"""On jobs: `Replace` or `Evict`."""
MIN_PARALLELISM: Final = either("job-min-parallelism")
"""On a batch/v1 Job: fewest pods it may be admitted with."""
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
MIRROR: Final = "kubernetes.io/config.mirror"
"""On the API's image of a static pod of a node."""

GROUP_NAME: Final = either("pod-group-name")
"""Label of the pods of a plain group."""
VOLCANO_TASK: Final = "volcano.sh/task-spec"
"""On a Volcano job's pods, as label and annotation: the name of their task."""
VOLCANO_GROUP: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations of a pod: the name of its PodGroup."""
GROUP_TOTAL: Final = either("pod-group-total-count")
"""Annotation: how many pods the group has."""
EQUAL_COMPLETIONS: Final = either("job-completions-equal-parallelism")
"""On a batch/v1 Job, `"true"`: admitted with fewer pods it also completes with as many."""

MAIN_POD_SET: Final = "main"
"""The one pod set of a batch/v1 Job."""
