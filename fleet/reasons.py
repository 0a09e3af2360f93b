"""The vocabulary of reasons: machine-readable codes that workloads, claims and events carry (docs/reasons.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from model.plain_text import plain


class Reason(StrEnum):
    """Why something is as it is. Codes are an interface: they are added, never renamed."""

    # a gang waits
    QUEUED = "Queued"
    QUEUE_NOT_FOUND = "QueueNotFound"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    PRIORITY_NOT_FOUND = "PriorityClassNotFound"
    PRIORITY_NOT_ALLOWED = "PriorityClassNotAllowed"
    QUEUE_STOPPED = "QueueStopped"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    BACK_OFF = "BackOff"
    DEACTIVATED = "Deactivated"
    """Its Workload says `active: false`."""
    BEHIND_HEAD = "BehindHead"
    """A StrictFIFO queue whose head cannot run yet."""
    UNSUPPORTED = "UnsupportedConstraint"
    """Its pods ask something about their places that is not honoured."""
    RUNTIME_CLASS_NOT_FOUND = "RuntimeClassNotFound"
    PODS_FORBIDDEN = "PodsForbidden"
    """The API server would refuse its pods for their amounts: a LimitRange, or requests above limits."""
    RESOURCE_QUOTA = "ResourceQuotaExceeded"
    TOO_MANY_PODS = "TooManyPods"
    """Asks for more pods than a cluster runs."""
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    """Asks more than it could ever get, even with everybody else idle."""
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_PREEMPTED = "WaitingForPreemptedWorkloads"
    NO_OFFER = "NoMatchingOffer"
    """No machine that may be bought can hold a pod of it."""
    POOL_LIMIT = "PoolLimitReached"
    NO_CAPACITY = "InsufficientCapacity"
    """The cloud has none of the machines it could use, for now."""
    TOPOLOGY = "TopologyPlacementFailed"
    WRITE_REFUSED = "WriteRefused"
    """The API keeps refusing what it needs to start; nothing is bought for it."""
    NOT_BOUND = "NotBound"
    """There seems to be room for a pod of no gang, and kube-scheduler does not bind it."""
    BATCHING = "Batching"
    """A single pod that gathers with others before machines are bought."""
    # a gang moves
    BUYING = "Buying"
    RECUTTING = "Recutting"
    WAITING_FOR_CHECKS = "WaitingForAdmissionChecks"
    """Its machines are ready; somebody else has not agreed yet."""
    ADMITTED = "Admitted"
    RUNNING = "PodsReady"
    NOT_READY = "PodsNotReady"
    """Some pods are gone or not ready any more; it leaves as a whole unless they come back in time."""
    REPLACING = "NodeReplacement"
    """It has lost a node, and only its pods there get another place."""
    MACHINE_LOST = "MachineLost"
    FINISHED = "Finished"
    """Not written any more; Workloads of earlier versions have it."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    # a gang is evicted
    MADE_ROOM = "MadeRoom"
    """It moves elsewhere so that another gang finds a place where it stood."""
    PREEMPTED = "InClusterQueue"
    """By a gang of higher priority in its own queue (Kueue's word)."""
    RECLAIMED = "InCohortReclamation"
    """A team takes back its guarantee."""
    RECLAIMED_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    FAIR_SHARING = "InCohortFairSharing"
    """Its queue has the larger dominant share of what is borrowed."""
    PLACE_TAKEN = "PlaceTaken"
    """Pods of no gang came to its place before its own did."""
    QUEUE_DRAINED = "ClusterQueueStopped"
    NODE_FAILURE = "NodeFailures"
    TEMPLATE_CHANGED = "TemplateChanged"
    """The template of its StatefulSet asks for something else than the gang was admitted with."""
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    """Not all pods were ready in time, at the start or after a loss (Kueue's word)."""
    REQUEUING_LIMIT = "RequeuingLimitExceeded"
    """As often as its queue allows; it is deactivated (Kueue's word)."""
    MAX_RUN_TIME = "MaximumExecutionTimeExceeded"
    """It has run as long as it may, and is deactivated (Kueue's word)."""
    IDLE_GPUS = "IdleGPUs"
    """It has done nothing with its GPUs for longer than its queue bears; it is deactivated."""
    CHECK_RETRY = "AdmissionCheck"
    """An admission check wants it to try again later (Kueue's word)."""
    CHECK_REJECTED = "AdmissionCheckRejected"
    """An admission check has rejected it; it is deactivated."""
    INTERRUPTED = "Interrupted"
    # a machine leaves
    EMPTY = "Empty"
    UNDERUTILIZED = "Underutilized"
    DRIFTED = "Drifted"
    EXPIRED = "Expired"
    BLOCK_ENDS = "CapacityBlockEnds"
    """The cloud is about to terminate the machines of its capacity block."""
    REBALANCED = "RebalanceRecommended"
    """The cloud expects to take it soon, and its pool moves away before."""
    PREFERRED = "PreferredCapacity"
    """Its pool prefers another capacity type, which can be had again."""
    POOL_REMOVED = "NodePoolRemoved"
    SCALED_DOWN = "ScaledDown"
    LAUNCH_FAILED = "InsufficientCapacityError"
    LAUNCH_REFUSED = "LaunchRefused"
    """The cloud does not launch what its pool declares, and will not: an image, a role or a group that there is not."""
    LAUNCH_TIMEOUT = "LaunchTimeout"
    REGISTRATION_TIMEOUT = "RegistrationTimeout"
    INITIALIZATION_TIMEOUT = "InitializationTimeout"
    INSTANCE_GONE = "InstanceTerminated"
    DELETED = "Deleted"
    """Somebody deleted its Node or its NodeClaim."""
    LAYOUT_DRIFT = "LayoutDrift"
    """Its GPUs are cut otherwise than its claim says, and could not be put right."""
    LAYOUT_ROLLOUT = "LayoutRollout"
    """Its pool takes over another layout."""
    LAYOUT_FAILED = "LayoutFailed"
    """Its GPUs could not be cut."""
    ORPHANED = "GarbageCollected"
    NOT_NEEDED = "NotNeeded"
    """Its gang went away before it was used."""
    ADOPTION_WITHDRAWN = "AdoptionWithdrawn"
    """Nobody asks for its adoption any more; it is left as it was."""
    # a machine is not adopted
    ADOPTION_TAG = "AdoptionTagInvalid"
    MANAGED_ELSEWHERE = "ManagedElsewhere"
    POOL_NOT_FOUND = "NodePoolNotFound"
    NOT_JOINED = "NodeNotJoined"
    NODE_NOT_READY = "NodeNotReady"
    """Or it lacks what machines of its pool offer."""
    NOT_OF_POOL = "RequirementsNotMet"
    NOT_TAGGED = "TagsNotWritten"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something cannot be had now, and when to look again (epoch seconds; 0 = when something changes)."""

    reason: Reason
    message: str
    retry_at_s: float = 0.0

    def __post_init__(self) -> None:
        """The message is plain here already, so that what the cluster shows of it compares equal to it."""
        object.__setattr__(self, "message", plain(self.message))


_SHOWN: Final = 3  # names in a sentence


def some_of(names: Sequence[str]) -> str:
    """Lists names in a sentence: of many the first few."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
