"""What the deciders ask for. An action is a value and idempotent: doing it twice, or after a crash, is harmless.

`subjects` names what an action touches; while it is under way the brain shows those subjects as busy in the snapshot,
and deciders leave them alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleet.snapshot import Claim, Gang, JobRef, LaunchRequest, Node, Outlook, Pod, PodSet, PodVerdict, Proposal
from fleet.snapshot.surroundings import HardFence
from model.changed import changed
from model.kinds import Taint, Toleration
from model.labels import DO_NOT_DISRUPT
from model.quantity import Resources


def gang_subject(uid: str) -> str:
    """Returns the subject that names a gang, as in `Snapshot.busy`."""
    return f"gang/{uid}"


def claim_subject(name: str) -> str:
    """Returns the subject that names a claim, as in `Snapshot.busy`."""
    return f"claim/{name}"


def node_subject(name: str) -> str:
    """Returns the subject that names a node, as in `Snapshot.busy`."""
    return f"node/{name}"


def instance_subject(instance_id: str) -> str:
    """Returns the subject that names an instance, as in `Snapshot.busy`."""
    return f"instance/{instance_id}"


def pod_subject(uid: str) -> str:
    """Returns the subject that names a pod, as in `Snapshot.busy`."""
    return f"pod/{uid}"


def pool_subject(name: str) -> str:
    """Returns the subject that names a node pool."""
    return f"pool/{name}"


def queue_subject(name: str) -> str:
    """Returns the subject that names a queue."""
    return f"queue/{name}"


def namespace_subject(name: str) -> str:
    """Returns the subject that names a namespace."""
    return f"namespace/{name}"


def revision_subject(revision: str) -> str:
    """Returns the subject that names a revision of the fleet repository."""
    return f"revision/{revision}"


@dataclass(frozen=True, slots=True)
class OpenGang:
    """Create the Workload object of a job that asks to be managed."""

    gang: Gang

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the gang."""
        return (gang_subject(self.gang.uid),)


@dataclass(frozen=True, slots=True)
class SaveGang:
    """Write what was decided for a gang into its Workload's status."""

    gang: Gang
    deactivates: bool = False
    """Also say in its specification that it is not active: only then, for that field is its user's."""
    respecifies: bool = False
    """Also write into its specification what its job asks for now; it holds nothing then."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the gang."""
        return (gang_subject(self.gang.uid),)


@dataclass(frozen=True, slots=True)
class CloseGang:
    """Delete the Workload of a job that no longer exists."""

    gang: Gang

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the gang."""
        return (gang_subject(self.gang.uid),)


@dataclass(frozen=True, slots=True)
class StartJob:
    """Unsuspend a job once: its pods start behind the gate `muster.dev/placement` and carry the added tolerations."""

    job: JobRef
    resource_version: str
    gang_uid: str
    workload: str
    tolerations: Mapping[str, tuple[Toleration, ...]] = field(default_factory=dict)
    """Pod set -> tolerations of its flavor."""
    pod_sets: tuple[PodSet, ...] = ()
    """What was admitted: fewer pods than the job asks for, where it can run with fewer."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the gang."""
        return (gang_subject(self.gang_uid),)


@dataclass(frozen=True, slots=True)
class StopJob:
    """Suspend a job: its controller ends the pods with their grace period. Our additions leave the template."""

    job: JobRef
    gang_uid: str

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the gang."""
        return (gang_subject(self.gang_uid),)


@dataclass(frozen=True, slots=True)
class Marks:
    """What a pod gets whose template could not carry it (`Hold.PODS`)."""

    workload: str
    pod_set: str
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleasePod:
    """Pin a gated pod to its node and take the gate away, in one write."""

    pod: Pod
    node: str
    hostname: str
    """Value of the node's label `kubernetes.io/hostname`."""
    marks: Marks | None = None
    """Take it into the gang by the same write."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the pod."""
        return (pod_subject(self.pod.uid),)


@dataclass(frozen=True, slots=True)
class EvictPod:
    """End a pod: by the eviction API (PDBs count), or by force when `force_grace_s` is given."""

    pod: Pod
    force_grace_s: int | None = None

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the pod."""
        return (pod_subject(self.pod.uid),)


@dataclass(frozen=True, slots=True)
class PurchaseTally:
    """What a purchase costs, and what it could have cost."""

    cost_usd_h: float
    bound_usd_h: float
    """No purchase for the same pods costs less."""
    one_kind_usd_h: float
    """With one kind of machine for each pod set of each gang."""
    karpenter_usd_h: float
    """In Karpenter's order; infinite where that finds no machines within the limits."""
    beside_usd_h: float = 0.0
    """What the machines cost beside their prices by the FleetPolicy: it steers the choice; no other figure has it."""

    @property
    def gap(self) -> float:
        """Returns how far the cost is above the bound, as a part of the bound; 0 where there is none."""
        return max(0.0, self.cost_usd_h / self.bound_usd_h - 1.0) if self.bound_usd_h else 0.0


@dataclass(frozen=True, slots=True)
class OpenClaims:
    """Write the intent to own machines: one NodeClaim each, before any money is spent or a machine is adopted."""

    claims: tuple[Claim, ...]
    tally: PurchaseTally | None = None
    """Of the whole purchase these claims are part of; with one of its parts only."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the claims and the gang they are for."""
        gangs = sorted({claim.gang for claim in self.claims if claim.gang})
        return (*(claim_subject(claim.name) for claim in self.claims), *(gang_subject(uid) for uid in gangs))


@dataclass(frozen=True, slots=True)
class SaveClaim:
    """Write what became of a claim into its status."""

    claim: Claim

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the claim."""
        return (claim_subject(self.claim.name),)


@dataclass(frozen=True, slots=True)
class CloseClaim:
    """Delete a NodeClaim; its finalizer keeps it until the machine is gone."""

    claim: Claim

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the claim."""
        return (claim_subject(self.claim.name),)


@dataclass(frozen=True, slots=True)
class ForgetClaim:
    """Take the finalizer away: the machine is gone (or never was)."""

    claim: Claim

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the claim."""
        return (claim_subject(self.claim.name),)


@dataclass(frozen=True, slots=True)
class LaunchMachines:
    """Buy the machines of one lot, all or nothing; the outcome comes back as an event."""

    request: LaunchRequest
    claims: tuple[str, ...]
    """Names of the lot's claims, sorted; the n-th instance id (sorted) becomes the n-th claim's machine."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the claims."""
        return tuple(claim_subject(name) for name in self.claims)


@dataclass(frozen=True, slots=True)
class TagMachine:
    """Write tags on a machine, touching no others."""

    instance_id: str
    tags: Mapping[str, str]

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the instance."""
        return (instance_subject(self.instance_id),)


@dataclass(frozen=True, slots=True)
class TerminateMachines:
    """Give machines back."""

    instance_ids: tuple[str, ...]
    reason: str

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the instances."""
        return tuple(instance_subject(instance_id) for instance_id in self.instance_ids)


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Change labels, annotations and taints of a node, touching no others."""

    node: str
    labels: Mapping[str, str] = field(default_factory=dict)
    add_taints: tuple[Taint, ...] = ()
    remove_taints: tuple[str, ...] = ()
    """Keys of taints to take away."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    remove_labels: tuple[str, ...] = ()
    """Keys of labels to take away."""
    add_finalizer: bool = False
    """Whether it gets the finalizer that keeps it until its machine is drained and gone."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the node."""
        return (node_subject(self.node),)

    def applied_to(self, node: Node) -> Node:
        """Returns the node as the action will have changed it."""
        added = {taint.key for taint in self.add_taints}
        kept = tuple(taint for taint in node.taints if taint.key not in added | set(self.remove_taints))
        spared = self.annotations.get(DO_NOT_DISRUPT, node.do_not_disrupt)
        labels = {key: value for key, value in node.labels.items() if key not in self.remove_labels}
        taints = (*kept, *self.add_taints)
        held = node.has_finalizer or self.add_finalizer
        marked = {**labels, **self.labels}
        return changed(node, labels=marked, taints=taints, do_not_disrupt=spared, has_finalizer=held)


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Delete the Node object of a machine that is gone, and take its finalizer away."""

    node: str

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the node."""
        return (node_subject(self.node),)


@dataclass(frozen=True, slots=True)
class PublishLayouts:
    """Write the configurations of mig-manager and of the device plugin (a ConfigMap each), where there are any."""

    config: str
    """Of mig-parted: YAML text; empty = no layouts are declared."""
    carried: frozenset[str] = frozenset()
    """Configurations that are not declared but that nodes still carry: of these, those that are there stay."""
    sharing: Mapping[str, str] = field(default_factory=dict)
    """Of the device plugin: name -> YAML text."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the configuration."""
        return ("layouts",)


@dataclass(frozen=True, slots=True)
class KeepHardFence:
    """Write the ResourceQuota of a namespace: our bounds, touching no others."""

    namespace: str
    hard: Resources
    """Resource -> the most that pods may request of it in all."""
    takes_back: bool
    """Whether bounds of ours that somebody has changed are ours again; else they are left and the write is refused."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the namespace."""
        return (namespace_subject(self.namespace),)


@dataclass(frozen=True, slots=True)
class LiftHardFence:
    """Delete the ResourceQuota of a namespace, or take our bounds out of one that others have written into."""

    fence: HardFence

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns the namespace."""
        return (namespace_subject(self.fence.namespace),)


@dataclass(frozen=True, slots=True)
class Announce:
    """A Kubernetes event on an object, for people."""

    about: JobRef
    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns nothing: an event never makes anything wait."""
        return ()


@dataclass(frozen=True, slots=True)
class NominatePods:
    """What was found for the waiting pods of no gang: remembered and handed in with the next snapshot, and told."""

    verdicts: Mapping[str, PodVerdict]
    """uid -> what was found; all of them."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns nothing: kube-scheduler places such pods, nobody here does."""
        return ()


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A proposal that is not carried out."""

    proposal: Proposal
    why: str


@dataclass(frozen=True, slots=True)
class Consider:
    """What consolidation has in mind from now on: remembered and handed in with the next snapshot, nothing is done."""

    outlook: Outlook
    withdrawn: tuple[Withdrawal, ...] = ()

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns nothing: whatever else happens to the machines comes first."""
        return ()


Action = (
    OpenGang
    | SaveGang
    | CloseGang
    | StartJob
    | StopJob
    | ReleasePod
    | EvictPod
    | OpenClaims
    | SaveClaim
    | CloseClaim
    | ForgetClaim
    | LaunchMachines
    | TagMachine
    | TerminateMachines
    | PatchNode
    | RemoveNode
    | PublishLayouts
    | KeepHardFence
    | LiftHardFence
    | Announce
    | NominatePods
    | Consider
)

NEEDED_TO_START = (SaveGang, StartJob, ReleasePod, PublishLayouts)
"""Writes without which a gang does not start: while they are refused, what is bought for it bills for nothing."""
