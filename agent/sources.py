"""Sources are threads that only listen and enqueue. What they hear is judged by the brain alone."""

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog

from agent.inbox import (
    Event,
    InstancesListed,
    Noticed,
    Observed,
    Priced,
    Pushed,
    ReservationsListed,
    RevisionLost,
    SourceTrouble,
    SourceWell,
    TrustJudged,
)
from agent.mirror import job_table
from agent.timetable import Timetable
from fleet.snapshot import NoticeKind
from providers.clock import Clock
from providers.git.errors import RevisionNotFound, SourceError
from providers.git.source import GitSource
from providers.kube.objects import (
    DECODERS,
    HARD_FENCE,
    KINDS,
    decode_allocated_claim,
    decode_claim,
    decode_claim_template,
    decode_csi_node,
    decode_daemonset,
    decode_device_class,
    decode_device_slice,
    decode_device_taint_rule,
    decode_hard_fence,
    decode_limit_range,
    decode_namespace,
    decode_namespace_quota,
    decode_node,
    decode_persistent_volume,
    decode_pod,
    decode_pod_budget,
    decode_pod_group,
    decode_pod_priority,
    decode_runtime_class,
    decode_storage_class,
    decode_volume_claim,
    decode_workload,
)
from providers.kube.objects.paths import (
    CSI_NODES,
    DAEMON_SETS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    LIMIT_RANGES,
    NAMESPACES,
    NODE_CLAIMS,
    NODES,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    WORKLOADS,
)
from providers.kube.reading import Watched
from providers.kube.reflector import Reflector
from providers.kube.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from providers.kube.transport import KubeTransport
from providers.ports import Cloud, CloudError, Health, Notices

log = structlog.get_logger(__name__)

Enqueue = Callable[[Event], None]
Count = Callable[[str, str], None]
"""Counts a failure: of which source, and of what kind (`crash`, `watch`, `undecodable`)."""

WATCHED: dict[str, Watched[Any]] = {
    "nodes": Watched(NODES, decode_node, lambda node: node.name),
    "pods": Watched(PODS, decode_pod, lambda pod: pod.key),
    **{
        job_table(kind): Watched(kind.path, DECODERS[kind.group_kind], lambda job: job.ref.uid, optional=kind.optional)
        for kind in KINDS
    },
    "terms": Watched(POD_GROUPS, decode_pod_group, lambda terms: terms.key, optional=True),
    "gangs": Watched(WORKLOADS, decode_workload, lambda gang: f"{gang.namespace}/{gang.workload}"),
    "claims": Watched(NODE_CLAIMS, decode_claim, lambda claim: claim.name),
    "daemonsets": Watched(DAEMON_SETS, decode_daemonset, lambda daemon: daemon.name),
    "namespaces": Watched(NAMESPACES, decode_namespace, lambda namespace: namespace.name),
    "pod_budgets": Watched(POD_DISRUPTION_BUDGETS, decode_pod_budget, lambda budget: budget.key),
    "hard_fences": Watched(
        RESOURCE_QUOTAS,
        decode_hard_fence,
        lambda fence: fence.namespace,
        field_selector=f"metadata.name={HARD_FENCE}",
    ),
    "namespace_quotas": Watched(RESOURCE_QUOTAS, decode_namespace_quota, lambda quota: quota.key),
    "pod_priorities": Watched(PRIORITY_CLASSES, decode_pod_priority, lambda priority: priority.name),
    "runtime_classes": Watched(RUNTIME_CLASSES, decode_runtime_class, lambda runtime: runtime.name),
    "limit_ranges": Watched(LIMIT_RANGES, decode_limit_range, lambda limits: limits.key),
    "volume_claims": Watched(VOLUME_CLAIMS, decode_volume_claim, lambda claim: claim.key),
    "persistent_volumes": Watched(PERSISTENT_VOLUMES, decode_persistent_volume, lambda volume: volume.name),
    "storage_classes": Watched(STORAGE_CLASSES, decode_storage_class, lambda storage: storage.name),
    "attach_limits": Watched(CSI_NODES, decode_csi_node, lambda limits: limits.node),
    "device_classes": Watched(DEVICE_CLASSES, decode_device_class, lambda found: found.name, optional=True),
    "device_slices": Watched(RESOURCE_SLICES, decode_device_slice, lambda found: found.name, optional=True),
    "device_claims": Watched(RESOURCE_CLAIMS, decode_allocated_claim, lambda found: found.key, optional=True),
    "device_taint_rules": Watched(DEVICE_TAINT_RULES, decode_device_taint_rule, lambda it: it.name, optional=True),
    "claim_templates": Watched(RESOURCE_CLAIM_TEMPLATES, decode_claim_template, lambda it: it.key, optional=True),
}
"""Table of the mirror -> what is reflected into it."""


def reflectors(
    transport: KubeTransport, enqueue: Enqueue, clock: Clock, rng: random.Random, count: Count
) -> list[Reflector[Any]]:
    """One reflector for each table, not started yet; `count` hears of watches that fail and objects not understood."""

    def made(table: str, watched: Watched[Any]) -> Reflector[Any]:
        """The reflector of one table; its random numbers are its own, and follow from `rng`."""

        def trouble(error: Exception, gap_s: float) -> None:
            count(table, "watch")
            log.warning("watch_trouble", table=table, error=str(error), next_try_s=round(gap_s, 1))

        return Reflector(
            transport,
            replace(watched, on_undecodable=lambda _found: count(table, "undecodable")),
            lambda batch: enqueue(Observed(table, batch)),
            clock=clock,
            rng=random.Random(rng.random()),
            on_trouble=trouble,
        )

    return [made(table, watched) for table, watched in WATCHED.items()]


class SourceThread:
    """A thread that repeats `listen` until stopped. `listen` returns the pause until the next.

    The timetable ends the pause, or whoever pokes. What it raises is logged and counted, and it is called again. It is
    no job of the timetable: it waits for others, for minutes sometimes, and must not keep the process alive.
    """

    def __init__(
        self, name: str, listen: Callable[[], float], stop: threading.Event, count: Count, timetable: Timetable
    ) -> None:
        self._listen = listen
        self._stop = stop
        self._count = count
        self._timetable = timetable
        self._poked = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.name = name

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def poke(self) -> None:
        """Listen now."""
        self._poked.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the end, once `stop` is set."""
        self._poked.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                pause_s = self._listen()
            except Exception:
                self._count(self.name, "crash")
                log.exception("source_crashed", source=self.name)
                pause_s = 5.0
            if pause_s > 0:
                self._timetable.at(self.name, pause_s, self.poke)
                self._poked.wait()
                self._timetable.cancel(self.name)
            self._poked.clear()


def git_listener(source: GitSource, enqueue: Enqueue, wanted: str = "") -> Callable[[], float]:
    """Polls the repository; an unreachable one is reported and tried again later and later.

    `wanted` is the revision that was in force before this process: after each poll it is looked for in what was
    fetched, or in the cache where nothing could be, and verified, until it is found or known to be gone.
    """
    restoring, ill, standing = wanted, False, source.standing()

    def restored() -> RevisionLost | None:
        """Hands on what was in force; or says why it cannot be so again."""
        nonlocal restoring
        try:
            found = source.restore(restoring)
        except SourceError as error:
            return RevisionLost(restoring, "" if isinstance(error, RevisionNotFound) else str(error))
        enqueue(Pushed(found.revision, found.files, found.verified_signer, restored=True, author=found.author))
        restoring = ""
        return None

    def judged() -> None:
        """Tells when the signers of the revision in force are other than they were."""
        nonlocal standing
        now = source.standing()
        if now != standing:
            standing = now
            enqueue(TrustJudged(now.revision, now.signer, now.distrust))

    def listen() -> float:
        """Hand on what one poll brings, or what troubles it; seconds until the next, as the source wants them."""
        nonlocal ill
        try:
            snapshot = source.poll()
        except SourceError as error:
            ill = True
            lost = restored() if restoring else None
            if lost is not None and lost.why:
                enqueue(lost)
            enqueue(SourceTrouble(f"{type(error).__name__}: {error}", transient=error.transient))
            judged()
            return source.next_poll_s
        if ill:
            ill = False
            enqueue(SourceWell())
        if snapshot is not None:  # before what is restored: that is not to be acted on where something newer is known
            seen = Pushed(snapshot.revision, snapshot.files, snapshot.verified_signer, lineage=snapshot.lineage)
            enqueue(replace(seen, confirms=snapshot.confirms, author=snapshot.author))
        if restoring and (lost := restored()) is not None:
            enqueue(lost)
        judged()
        return source.next_poll_s

    return listen


def instances_listener(cloud: Cloud, enqueue: Enqueue, clock: Clock, interval_s: float) -> Callable[[], float]:
    """Lists the cluster's instances."""

    def listen() -> float:
        at_s = clock.now()
        try:
            enqueue(InstancesListed(tuple(cloud.instances()), at_s))
        except CloudError as error:
            log.warning("listing_failed", error=str(error))
        return interval_s

    return listen


RESERVATIONS_EVERY_S = 60.0


def reservations_listener(cloud: Cloud, enqueue: Enqueue, clock: Clock, interval_s: float) -> Callable[[], float]:
    """Lists capacity reservations; an account that may not is told of once, and counts as having none.

    Nothing is decided before the first answer, so that no machine is bought beside one that is reserved.
    """
    heard, told = False, False

    def listen() -> float:
        """List them once; seconds until the next time, few while nothing has been answered yet."""
        nonlocal heard, told
        at_s = clock.now()
        try:
            enqueue(ReservationsListed(tuple(cloud.reservations()), at_s))
            heard, told = True, False
        except CloudError as error:
            if error.transient or not told:
                log.warning("reservations_not_listed", error=str(error))
            if not error.transient:
                heard = told = True
                enqueue(ReservationsListed((), at_s))
        return interval_s if heard else min(5.0, interval_s)

    return listen


def catalog_listener(cloud: Cloud, enqueue: Enqueue, interval_s: float) -> Callable[[], float]:
    """Reads types, zones and prices: what is known at once, then what the cloud says."""
    known = False

    def listen() -> float:
        """Hand on what is known, the first time, and after that what the cloud says; seconds until the next time."""
        nonlocal known
        if not known:
            known = True
            enqueue(Priced(cloud.catalog()))
            return 0.0
        try:
            enqueue(Priced(cloud.refresh()))
        except CloudError as error:
            log.warning("refresh_failed", error=str(error))
        return interval_s

    return listen


def notices_listener(notices: Notices, enqueue: Enqueue) -> Callable[[], float]:
    """Long-polls the interruption queue."""

    def listen() -> float:
        try:
            heard = notices.receive(20.0)
        except CloudError as error:
            log.warning("queue_failed", error=str(error))
            return 5.0
        if heard:
            enqueue(Noticed(tuple(heard)))
        return 0.0

    return listen


HEALTH_EVERY_S = 60.0


def health_listener(
    health: Health, enqueue: Enqueue, count: Callable[[NoticeKind], None], *, act: bool
) -> Callable[[], float]:
    """Asks for machines that fail the cloud's checks. Each is counted once; with `act` the brain hears of it."""
    known: set[str] = set()

    def listen() -> float:
        """Ask once and count what was not there the last time; seconds until the next time."""
        nonlocal known
        try:
            unwell = health.poll()
        except CloudError as error:
            log.warning("health_failed", error=str(error))
            return HEALTH_EVERY_S
        for notice in unwell:
            if notice.id not in known:
                count(notice.kind)
        known = {notice.id for notice in unwell}
        if unwell and act:
            enqueue(Noticed(tuple(unwell)))
        return HEALTH_EVERY_S

    return listen
