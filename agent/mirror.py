"""The mirror: what the brain knows of cluster and cloud, folded from events and cheap to turn into a snapshot."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from agent import views
from agent.tables import MirrorTable
from fleet.nodeclaims.gpu_faults import as_claims_say, with_gpu_faults
from fleet.nodeclaims.repair import Registrations
from fleet.offerings.allocatable import DiscoveredCapacity
from fleet.snapshot import (
    NOT_READ,
    CapacityPool,
    Catalog,
    Claim,
    DaemonOverhead,
    Gang,
    HardFence,
    Instance,
    InterruptionHistory,
    Job,
    LayoutRecord,
    LimitRange,
    Namespace,
    NamespaceQuota,
    Node,
    Outlook,
    Pod,
    PodBudget,
    PodPriority,
    PodVerdict,
    PublishedLayouts,
    Reservation,
    Resolutions,
    RolloutProgress,
    RuntimeClass,
    Snapshot,
    Terms,
)
from fleet.snapshot.device_claims import (
    AllocatedClaim,
    ClaimableDevices,
    ClaimTemplate,
    DeviceClass,
    PublishedDevices,
    cluster_devices,
    held_by_pods,
    nodes_with_devices,
)
from fleet.snapshot.devices import ClusterDevices, DeviceTaintRule
from fleet.snapshot.gpus import NO_USES, GpuFault, GpuHolders, MeasuredUse
from fleet.snapshot.numbered_pods import numbered_pods
from fleet.snapshot.pod_index import PodIndex
from fleet.snapshot.shared_claims import SharedClaims, pods_in_parts, shared_claims, waiting_with_claims
from fleet.snapshot.volumes import AttachLimits, PersistentVolume, StorageClass, VolumeClaim
from fleet.snapshot.works import PLAIN
from model.index import Index
from providers.kube.objects import KINDS
from providers.kube.objects.jobs import JobKind
from providers.kube.objects.paths import STATEFUL_SETS

LEARNS_EVERY_S = 60.0
UNLISTED_S = 60.0
"""EC2's listing may lag behind a launch by this much: a machine given back meanwhile is gone all the same."""
BOUGHT_MOST = 10_000


def job_table(kind: JobKind) -> str:
    """The name of a kind's table: two groups may have resources of one name."""
    return str(kind.path)


_STATEFUL = str(STATEFUL_SETS)


class _ClaimedDevices(NamedTuple):
    """A `_ClaimedDevices` is what pods may claim of devices, and what was given to whom."""

    devices: ClusterDevices
    claimable: ClaimableDevices
    shared: SharedClaims


class _WorkWithPods(NamedTuple):
    """A `_WorkWithPods` is all jobs by uid, and the pods of gangs and jobs as a snapshot has them."""

    jobs: Mapping[str, Job]
    gang_pods: Mapping[str, tuple[Pod, ...]]
    job_pods: Mapping[str, tuple[Pod, ...]]


class Mirror:
    """Holds a table for each kind of object watched, and what the cloud lists. Only the brain's thread uses it."""

    gpu_holders: Mapping[str, GpuHolders] = MappingProxyType({})
    """Node -> who holds which of its GPUs, where an exporter tells."""

    def __init__(self, cluster: str) -> None:
        self.cluster, self.index, self.pod_index = cluster, Index(), PodIndex()
        self.nodes: MirrorTable[Node] = MirrorTable()
        self.pods: MirrorTable[Pod] = MirrorTable(self.pod_index.change)
        self.works: dict[str, MirrorTable[Job]] = {job_table(kind): MirrorTable() for kind in KINDS}
        """A table for each kind of work."""
        self.terms: MirrorTable[Terms] = MirrorTable()
        self.gangs: MirrorTable[Gang] = MirrorTable()
        """By `namespace/workload`."""
        self.claims: MirrorTable[Claim] = MirrorTable()
        self.daemonsets: MirrorTable[DaemonOverhead] = MirrorTable()
        self.namespaces: MirrorTable[Namespace] = MirrorTable()
        self.pod_budgets: MirrorTable[PodBudget] = MirrorTable()
        self.hard_fences: MirrorTable[HardFence] = MirrorTable()
        """By namespace."""
        self.namespace_quotas: MirrorTable[NamespaceQuota] = MirrorTable()
        self.pod_priorities: MirrorTable[PodPriority] = MirrorTable()
        self.runtime_classes: MirrorTable[RuntimeClass] = MirrorTable()
        self.limit_ranges: MirrorTable[LimitRange] = MirrorTable()
        self.volume_claims: MirrorTable[VolumeClaim] = MirrorTable()
        self.persistent_volumes: MirrorTable[PersistentVolume] = MirrorTable()
        self.storage_classes: MirrorTable[StorageClass] = MirrorTable()
        self.attach_limits: MirrorTable[AttachLimits] = MirrorTable()
        self.device_classes: MirrorTable[DeviceClass] = MirrorTable()
        self.device_slices: MirrorTable[PublishedDevices] = MirrorTable()
        self.device_claims: MirrorTable[AllocatedClaim] = MirrorTable()
        self.device_taint_rules: MirrorTable[DeviceTaintRule] = MirrorTable()
        self.claim_templates: MirrorTable[ClaimTemplate] = MirrorTable()
        self.instances: dict[str, Instance] = {}
        self.instances_at_s = self.reservations_at_s = self._learned_at_s = 0.0
        self._unlisted: dict[str, Instance] = {}
        """Given back before any listing has shown them; only id, state and the instant are known."""
        self.bought: frozenset[str] = frozenset()
        """Ids of machines bought by this process; the last `BOUGHT_MOST` of them."""
        self._bought: deque[str] = deque(maxlen=BOUGHT_MOST)
        self.reservations: Mapping[str, Reservation] = {}
        self.resolved: Resolutions = NOT_READ
        self.catalog, self.layouts = Catalog(), PublishedLayouts()
        self.shortages: dict[CapacityPool, float] = {}
        self.outlook, self.experience = Outlook(), DiscoveredCapacity()
        self.pod_verdicts: Mapping[str, PodVerdict] = {}
        self.spent_usd: Mapping[str, float] = {}
        self.local_usage: Mapping[str, Mapping[str, float]] = {}
        self.interruptions: Mapping[CapacityPool, InterruptionHistory] = {}
        self.registrations: Registrations = {}
        self.gpu_uses: Mapping[str, tuple[MeasuredUse, ...]] = NO_USES
        self.gpu_faults: Mapping[str, tuple[GpuFault, ...]] | None = None
        """By node; None = no exporter has been read, and what claims say of their GPUs counts."""
        self.rollout: RolloutProgress | None = None
        self.layout_records: Mapping[str, LayoutRecord] = {}
        self._tables_synced = False

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once."""
        listed = self.instances_at_s and self.reservations_at_s and self.catalog.offers
        if not self._tables_synced:  # a table that was listed once stays so
            self._tables_synced = all(table.synced for table in self._tables())
        return self._tables_synced and bool(listed)

    def _tables(self) -> tuple[MirrorTable[Any], ...]:
        return (
            self.nodes,
            self.pods,
            *self.works.values(),
            self.terms,
            self.gangs,
            self.claims,
            self.daemonsets,
            self.namespaces,
            self.pod_budgets,
            self.hard_fences,
            self.namespace_quotas,
            self.pod_priorities,
            self.runtime_classes,
            self.limit_ranges,
            self.volume_claims,
            self.persistent_volumes,
            self.storage_classes,
            self.attach_limits,
            self.device_classes,
            self.device_slices,
            self.device_claims,
            self.device_taint_rules,
            self.claim_templates,
        )

    def table(self, name: str) -> MirrorTable[Any]:
        """The table of that name."""
        found: MirrorTable[Any] = self.works[name] if name in self.works else getattr(self, name)
        return found

    def still_asks(self, gang: Gang) -> bool:
        """Returns whether the job of a gang is there, as far as is known, and stays; groups of pods always may."""
        found = (table.current.get(f"{gang.job.namespace}/{gang.job.name}") for table in self.works.values())
        jobs = [job for job in found if job is not None and job.ref.uid == gang.uid]
        return gang.job.kind in PLAIN or any(not job.deleting for job in jobs)

    def expire(self, now_s: float) -> None:
        """Drops assumptions and shortages that are too old, and learns what the machines there are have to offer."""
        for table in self._tables():
            table.expire(now_s)
        if any(until <= now_s for until in self.shortages.values()):
            self.shortages = {pool: until for pool, until in self.shortages.items() if until > now_s}
        if now_s - self._learned_at_s >= LEARNS_EVERY_S:
            self._learned_at_s = now_s
            self.experience.learn(self.claims.view, self.nodes.view, now_s)

    def list_instances(self, instances: Sequence[Instance], at_s: float) -> None:
        """A full listing of the cloud, begun at `at_s`. What was given back meanwhile stays given back."""
        given_back = {i.id for i in self.instances.values() if i.gone}
        listed = {
            found.id: replace(found, state="shutting-down") if found.id in given_back and not found.gone else found
            for found in instances
        }
        listed = {i: it for i, it in self._unlisted.items() if at_s < it.launched_at_s + UNLISTED_S} | listed
        self._unlisted = {i: it for i, it in self._unlisted.items() if listed.get(i) is it}
        if listed != self.instances:
            self.instances = listed
        self.instances_at_s = at_s

    def list_reservations(self, reservations: Sequence[Reservation], at_s: float) -> None:
        """A full listing of the capacity reservations, begun at `at_s`."""
        listed = {found.id: found for found in reservations}
        if listed != self.reservations:
            self.reservations = listed
        self.reservations_at_s = at_s

    def give_back(self, instance_ids: Sequence[str], now_s: float) -> None:
        """Takes terminated machines for gone from now on, whatever an older listing says, or does not say yet."""
        for instance_id in instance_ids:
            known = self.instances.get(instance_id)
            if known is None:
                known = self._unlisted[instance_id] = Instance(
                    instance_id, "", "", "on-demand", "shutting-down", now_s, {}
                )
            self.instances = {**self.instances, instance_id: replace(known, state="shutting-down")}

    def note_bought(self, instance_ids: Sequence[str]) -> None:
        """Remembers that this process has bought these machines."""
        if instance_ids:
            self._bought.extend(instance_ids)
            self.bought = frozenset(self._bought)

    def resolve(self, resolved: Resolutions) -> None:
        """Folds a reading of names in. One that says what is known already, of the same machines, changes nothing.

        Of machines launched since the last reading began that one says nothing, so that a new one counts.
        """
        known = self.resolved
        launched = any(claim.launched_at_s >= known.at_s for claim in self.claims.current.values())
        if known is NOT_READ or launched or resolved.found != known.found:
            self.resolved = resolved

    def tagged(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """A machine carries these tags from now on; the next listing says the same."""
        if (known := self.instances.get(instance_id)) is not None:
            self.instances = {**self.instances, instance_id: replace(known, tags={**known.tags, **tags})}

    def snapshot(self, now_s: float, busy: frozenset[str]) -> Snapshot:
        """Returns what is believed at present, as a snapshot for the deciders. Valid until the next event is folded."""
        claimed = self._claimed_devices()
        work = self._work_with_pods(claimed)
        return Snapshot(
            now_s=now_s,
            cluster=self.cluster,
            nodes=self._nodes(claimed.devices),
            foreign_use=self.pod_index.foreign_use,
            gang_pods=work.gang_pods,
            job_pods=work.job_pods,
            node_pods=self.pod_index.node_pods,
            daemon_pods=self.pod_index.daemon_pods,
            repelling_pods=self.pod_index.repelling_pods,
            ordinary_pods=self.pod_index.ordinary_pods,
            waiting_pods=waiting_with_claims(
                self.index, self.pod_index.waiting_pods, claimed.claimable, claimed.shared, work.jobs
            ),
            pod_verdicts=self.pod_verdicts,
            jobs=work.jobs,
            gangs=views.gangs_joined(self.index, self.gangs.view, work.jobs),
            claims=self.claims.view,
            instances=self.instances,
            bought=self.bought,
            instances_at_s=self.instances_at_s,
            catalog=self.catalog,
            measured=self.experience.view,
            reservations=self.reservations,
            reservations_at_s=self.reservations_at_s,
            resolved=self.resolved,
            shortages=self.shortages,
            outlook=self.outlook,
            daemon_overheads=views.daemon_overheads(self.index, self.daemonsets.view),
            namespaces=views.namespace_labels(self.index, self.namespaces.view),
            pod_priorities=views.priority_values(self.index, self.pod_priorities.view),
            meek_pod_priorities=views.meek_priorities(self.index, self.pod_priorities.view),
            runtime_classes=self.runtime_classes.view,
            gpu_uses=self.gpu_uses,
            gpu_holders=self.gpu_holders,
            volumes=views.volumes_seen(
                self.index,
                self.volume_claims.view,
                self.persistent_volumes.view,
                self.storage_classes.view,
                self.attach_limits.view,
            ),
            devices=claimed.devices,
            pod_budgets=self.pod_budgets.view,
            hard_fences=self.hard_fences.view,
            namespace_quotas=views.quotas_of_pods(self.index, self.namespace_quotas.view, self.pod_priorities.view),
            layouts=self.layouts,
            spent_usd=self.spent_usd,
            local_usage=self.local_usage,
            interruptions=self.interruptions,
            registrations=self.registrations,
            rollout=self.rollout,
            layout_records=self.layout_records,
            busy=busy,
            index=self.index,
        )

    def _claimed_devices(self) -> _ClaimedDevices:
        """What pods claim of devices, once all pods that were heard of are told what they hold."""
        devices = cluster_devices(
            self.index, self.device_slices.view, self.device_claims.view, self.device_taint_rules.view
        )
        claimable = views.claimable_devices(self.index, self.claim_templates.view, self.device_classes.view)
        self.pod_index.claim(held_by_pods(self.index, devices), self.pods.current, claimable)
        self.pod_index.settle()
        shared = shared_claims(self.index, self.device_claims.view, devices, self.pods.current, self.nodes.view)
        return _ClaimedDevices(devices, claimable, shared)

    def _work_with_pods(self, claimed: _ClaimedDevices) -> _WorkWithPods:
        """Jobs of all kinds by uid, and their pods; where pods share claims, told apart by what they share."""
        tables = {name: table.view for name, table in self.works.items()}
        numbered = numbered_pods(self.index, tables[_STATEFUL], self.pod_index.job_pods, self.gangs.view)
        tables[_STATEFUL] = numbered.jobs
        runtimes, limits = self.runtime_classes.view, views.limit_ranges(self.index, self.limit_ranges.view)
        _, claimable, shared = claimed
        jobs = views.all_works(
            self.index, numbered.job_pods, self.terms.view, runtimes, limits, claimable, shared, *tables.values()
        )
        gang_pods, job_pods = self.pod_index.gang_pods, numbered.job_pods
        if shared:
            gang_pods = pods_in_parts(self.index, gang_pods, self.gangs.view)
            job_pods = pods_in_parts(self.index, job_pods, jobs)
        return _WorkWithPods(jobs, gang_pods, job_pods)

    def _nodes(self, devices: ClusterDevices) -> Mapping[str, Node]:
        """The nodes with their devices, and what exporters, or where none is read claims, have against their GPUs."""
        nodes, faults = nodes_with_devices(self.index, self.nodes.view, devices), self.gpu_faults
        if faults is None:
            return as_claims_say(self.index, nodes, self.claims.view)
        return with_gpu_faults(self.index, nodes, faults) if faults else nodes
