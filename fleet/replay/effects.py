"""What actions make of a `ClusterModel`: one function an action, with no rule of its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from fleet.actions import (
    Action,
    Announce,
    CloseClaim,
    CloseGang,
    Consider,
    EvictPod,
    ForgetClaim,
    KeepHardFence,
    LaunchMachines,
    LiftHardFence,
    NominatePods,
    OpenClaims,
    OpenGang,
    PatchNode,
    PublishLayouts,
    ReleasePod,
    RemoveNode,
    SaveClaim,
    SaveGang,
    StartJob,
    StopJob,
    TagMachine,
    TerminateMachines,
)
from fleet.gangs.lost_machines import boot_s
from fleet.nodeclaims.launch_outcome import settle
from fleet.replay.cluster_model import RECUT_S, TERMINATION_S, ClusterModel
from fleet.replay.model_objects import machine_of
from fleet.snapshot import Instance, LaunchError, LaunchFailure, LaunchOutcome, Pod
from model import labels
from model.changed import changed


def carry_out(model: ClusterModel, action: Action) -> None:
    """Makes the model what the action makes of the world. An action that is not in the table is a KeyError."""
    _EFFECTS[type(action)](model, action)


def _save_gang(model: ClusterModel, action: OpenGang | SaveGang) -> None:
    gang = action.gang
    model.put_gang(gang.uid, gang.joined(model.jobs.get(gang.uid)))
    if gang.pods_ready:
        model.finishes(gang)


def _start_job(model: ClusterModel, action: StartJob) -> None:
    job, gang = model.jobs.get(action.gang_uid), model.gangs.get(action.gang_uid)
    if job is None or gang is None:
        return
    model.jobs.put(action.gang_uid, changed(job, suspended=False))
    model.starts(gang)


def _stop_job(model: ClusterModel, action: StopJob) -> None:
    job, gang = model.jobs.get(action.gang_uid), model.gangs.get(action.gang_uid)
    unmarked = model.pods_made_by(action.gang_uid)  # of a job that was started without admission
    if job is not None:
        stopped = changed(job, suspended=True)
        model.jobs.put(action.gang_uid, replace(stopped, active_pods=0, ready_pods=0) if unmarked else stopped)
    for pod in (*(model.pods_of(gang) if gang is not None else ()), *unmarked):
        _told_to_go(model, pod, None)


def _release_pod(model: ClusterModel, action: ReleasePod) -> None:
    pod = model.pod(action.pod.key)
    if pod is None:
        return
    released = replace(pod, gated=False, pinned_host=action.hostname)
    if action.marks is not None:
        released = replace(released, workload=action.marks.workload)
    model.released(released)


def _nominate_pods(model: ClusterModel, action: NominatePods) -> None:
    """kube-scheduler binds the pods that there is room for on nodes that are there."""
    model.pod_verdicts = action.verdicts
    for pod in list(model.waiting_pods.values()):
        verdict = action.verdicts.get(pod.uid)
        if verdict is not None and verdict.node:
            model.binds(pod.key, verdict.node)


def _evict_pod(model: ClusterModel, action: EvictPod) -> None:
    pod = model.pod(action.pod.key)
    if pod is not None:
        _told_to_go(model, pod, action.force_grace_s)


def _told_to_go(model: ClusterModel, pod: Pod, grace_s: float | None) -> None:
    ending = pod.told_to_end(model.now_s, grace_s)
    if ending != pod:
        model.put_pod(pod.key, ending)
        model.ends(pod.key, ending.deletion_at_s)


def _open_claims(model: ClusterModel, action: OpenClaims) -> None:
    for claim in action.claims:
        if model.claims.get(claim.name) is None:
            model.claims.put(claim.name, changed(claim, uid=f"uid-{claim.name}"))
            model.note_bought(claim.name)


def _save_claim(model: ClusterModel, action: SaveClaim) -> None:
    known, saved = model.claims.get(action.claim.name), action.claim
    if known is None:
        return
    if (saved.uid, saved.deleting) != (known.uid, known.deleting):
        saved = replace(saved, uid=known.uid, deleting=known.deleting)
    model.claims.put(saved.name, saved)


def _close_claim(model: ClusterModel, action: CloseClaim) -> None:
    known = model.claims.get(action.claim.name)
    if known is not None:
        model.claims.put(known.name, changed(known, deleting=True))


def _launch(model: ClusterModel, action: LaunchMachines) -> None:
    snapshot = model.snapshot()
    lot = [snapshot.claims[name] for name in action.claims if name in snapshot.claims]
    outcome = _outcome(model, action)
    kinds = dict.fromkeys((claim.node_pool, claim.capacity_pool.instance_type) for claim in lot)
    boots_s = {kind: boot_s(snapshot, *kind) for kind in kinds}
    for claim, instance in zip(lot, outcome.instances, strict=False):
        wait_s = boots_s[claim.node_pool, claim.capacity_pool.instance_type]
        model.joins(claim.name, model.now_s + wait_s)
        model.instances.put(instance, machine_of(claim, instance, model.now_s, dict(action.request.tags)))
    settlement = settle(outcome, lot, snapshot)
    model.shortages = {**model.shortages, **settlement.shortages}
    for following in settlement.actions:
        carry_out(model, following)


def _outcome(model: ClusterModel, action: LaunchMachines) -> LaunchOutcome:
    if model.is_short(action.request.pool):
        failure = LaunchFailure(LaunchError.SHORTAGE, "InsufficientInstanceCapacity", "a shortage is known")
        return LaunchOutcome((), (failure,))
    return LaunchOutcome(tuple(model.new_instance_id() for _ in action.claims))


def _terminate(model: ClusterModel, action: TerminateMachines) -> None:
    for instance_id in action.instance_ids:
        unlisted = Instance(instance_id, "", "", "on-demand", "shutting-down", model.now_s, {})
        known = model.instances.get(instance_id) or unlisted
        model.instances.put(instance_id, changed(known, state="shutting-down"))
        model.ended(instance_id, model.now_s + TERMINATION_S)
        node = model.node_of(instance_id)
        for pod in model.pods_on(node.name) if node else ():
            model.ends(pod.key, model.now_s)


def _tag(model: ClusterModel, action: TagMachine) -> None:
    known = model.instances.get(action.instance_id)
    if known is not None:
        model.instances.put(known.id, changed(known, tags={**known.tags, **action.tags}))


def _patch_node(model: ClusterModel, action: PatchNode) -> None:
    node = model.nodes.get(action.node)
    if node is None:
        return
    model.put_node(node.name, action.applied_to(node))
    if action.labels.get(labels.DEVICE_PLUGIN_CONFIG, "") not in {"", node.labels.get(labels.DEVICE_PLUGIN_CONFIG)}:
        model.shares(node.name)
    if action.labels.get(labels.MIG_CONFIG, "") not in {"", node.labels.get(labels.MIG_CONFIG)}:
        model.recuts(node.name, model.now_s + RECUT_S)


def _nothing(_model: ClusterModel, _action: Action) -> None:
    """For people, or for the node's own software, which is part of what happens by itself."""


_EFFECTS: Mapping[type, Callable[[ClusterModel, Any], None]] = MappingProxyType(
    {
        OpenGang: _save_gang,
        SaveGang: _save_gang,
        CloseGang: lambda model, action: model.put_gang(action.gang.uid, None),
        StartJob: _start_job,
        StopJob: _stop_job,
        ReleasePod: _release_pod,
        EvictPod: _evict_pod,
        OpenClaims: _open_claims,
        SaveClaim: _save_claim,
        CloseClaim: _close_claim,
        ForgetClaim: lambda model, action: model.claims.put(action.claim.name, None),
        LaunchMachines: _launch,
        TagMachine: _tag,
        TerminateMachines: _terminate,
        PatchNode: _patch_node,
        RemoveNode: lambda model, action: model.put_node(action.node, None),
        PublishLayouts: _nothing,
        KeepHardFence: _nothing,
        LiftHardFence: _nothing,
        Announce: _nothing,
        Consider: lambda model, action: setattr(model, "outlook", action.outlook),
        NominatePods: _nominate_pods,
    }
)
