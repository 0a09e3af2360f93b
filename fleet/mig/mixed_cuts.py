"""Cutting idle GPUs of a machine beside the work on its others.

`nvidia-mig-parted apply` walks the GPUs one by one and leaves each alone whose instances are those that its entry wants
(`cmd/nvidia-mig-parted/apply/config.go`), so a configuration by device groups cuts others under nobody's feet. Which
these are is told by dcgm-exporter alone: the API does not say which GPU a pod has. MIG mode changes on no GPU, as that
is a reset, which boards with NVSwitch make of several GPUs at once.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from fleet.catalog import InstanceType
from fleet.mig.layouts import gpu_part, pool_layouts, with_gpus
from fleet.reasons import Reason
from fleet.snapshot import Claim, CutOrder, FormerCut, MachineEvent, Node, Snapshot
from model.fleet import Fleet
from model.kinds import MigLayout, NodePool
from model.mig.geometry import models_for_instance_gpu
from model.mig.layouts import GpuCuts, LayoutMismatch, config_name, gpu_cuts, layout_resources, mixed_layout
from model.quantity import Resources

FRESH_S: Final = 120.0
"""An exporter that was asked longer ago than this says nothing of who holds a GPU now."""
TOLD_WITHIN_S: Final = 300.0
"""So long a cordoned machine waits for the exporter to say once more that its GPUs are idle; then it stays as it is."""
AGAIN_AFTER_S: Final = 3600.0
"""A machine on which this has failed is left alone for so long."""
FAILED: Final = "RecutFailed"
"""What its history calls that."""


class MixedCut(NamedTuple):
    """A `MixedCut` gives some GPUs of a machine another layout, and leaves the others as they are."""

    layout: str
    """Name of the configuration."""
    gpus: Resources
    cuts: GpuCuts


def idle_gpus(snapshot: Snapshot, node: Node, since_s: float) -> frozenset[int] | None:
    """Returns the GPUs that no pod holds, by index; None where nobody has said so since then, or not of all pods.

    Whoever is bound to the machine and not running yet is nowhere in the readings, and an exporter may leave out what
    it cannot read: unless it tells of as many GPUs and slices of each pod as that asks for, nothing is known.
    """
    told = snapshot.gpu_holders.get(node.name)
    if told is None or told.at_s < max(since_s, snapshot.now_s - FRESH_S):
        return None
    asked = ((pod.key, sum(gpu_part(pod.requests).values())) for pod in snapshot.node_pods.get(node.name, ()))
    if any(devices != told.devices.get(pod, 0) for pod, devices in asked):
        return None
    return frozenset(index for index, pods in enumerate(told.pods) if not pods)


def mixed_cuts(
    fleet: Fleet, snapshot: Snapshot, pool: NodePool, claim: Claim, node: Node, machine: InstanceType
) -> Iterator[MixedCut]:
    """Yields how idle GPUs of a busy machine could be cut after another layout of its pool: one of them, and all.

    None where the pool does not want it, nobody tells which GPUs are idle, or it has failed there lately.
    """
    idle = _to_cut(snapshot, pool, claim, node, machine)
    if not idle:
        return
    allowed = pool_layouts(fleet, pool)
    present = claim.gpu_cuts or _cuts_after(allowed.get(claim.layout), machine)
    for name, layout in allowed.items():
        for model, target in _cuts(layout, machine):
            if name != claim.layout and len(present) == len(target) == machine.gpu_count:
                yield from _one_and_all(present, target, idle, model)


def _to_cut(
    snapshot: Snapshot, pool: NodePool, claim: Claim, node: Node, machine: InstanceType
) -> frozenset[int] | None:
    """Returns the idle GPUs beside busy ones; none where they are not to be cut, or are not known."""
    mig = pool.spec.sharing.mig
    if mig is None or not mig.recut_idle_gpus or _failed_lately(snapshot, claim):
        return None
    idle = idle_gpus(snapshot, node, claim.ready_at_s)
    return idle if idle and len(idle) < machine.gpu_count else None


def _one_and_all(present: GpuCuts, target: GpuCuts, idle: frozenset[int], model: str) -> Iterator[MixedCut]:
    """Yields the cuts of one of the idle GPUs and of all; nothing where none of them would change."""
    changing = [it for it in sorted(idle) if _is_another_cut(present[it], target[it])]
    for count in {1, len(changing)} if changing else ():
        yield _mixed(present, target, changing[:count], model)


def _failed_lately(snapshot: Snapshot, claim: Claim) -> bool:
    return any(it.what == FAILED and it.at_s > snapshot.now_s - AGAIN_AFTER_S for it in claim.history)


def _cuts(layout: MigLayout | None, machine: InstanceType) -> Iterator[tuple[str, GpuCuts]]:
    """Yields the GPU model of a layout that a machine has, and how its GPUs are cut; nothing where it does not fit."""
    for model in models_for_instance_gpu(machine.gpu_name, machine.gpu_memory_mib):
        if layout is not None and layout.spec.models.get(model.id):
            with suppress(LayoutMismatch):
                yield model.id, gpu_cuts(layout, model.id, machine.gpu_count)
                break


def _cuts_after(layout: MigLayout | None, machine: InstanceType) -> GpuCuts:
    """Returns how a layout cuts the GPUs of a machine; empty where it does not fit."""
    return next((cuts for _, cuts in _cuts(layout, machine)), ())


def _is_another_cut(present: Mapping[str, int], target: Mapping[str, int]) -> bool:
    return bool(present) and bool(target) and present != target


def _mixed(present: GpuCuts, target: GpuCuts, changing: list[int], model: str) -> MixedCut:
    cuts = tuple(target[index] if index in changing else profiles for index, profiles in enumerate(present))
    layout = mixed_layout(cuts, model)
    return MixedCut(config_name(layout), layout_resources(layout, model, len(cuts)), cuts)


def mixed_layout_of(claim: Claim, machine: InstanceType | None) -> MigLayout | None:
    """Returns the layout of a machine whose GPUs are cut after different ones; None for others."""
    if not claim.gpu_cuts or machine is None:
        return None
    models = models_for_instance_gpu(machine.gpu_name, machine.gpu_memory_mib)
    layouts = (mixed_layout(claim.gpu_cuts, model.id) for model in models)
    return next((it for it in layouts if config_name(it) == claim.layout), None)


def follows(claim: Claim, machine: InstanceType | None, allowed: Mapping[str, MigLayout]) -> bool:
    """Returns whether a machine is cut after a layout of its pool, or each of its GPUs after one of them."""
    if claim.layout in allowed or not claim.gpu_cuts or machine is None:
        return claim.layout in allowed
    each = [cuts for layout in allowed.values() if (cuts := _cuts_after(layout, machine))]
    return all(any(it[index] == profiles for it in each) for index, profiles in enumerate(claim.gpu_cuts))


# -- the order, and back ----------------------------------------------------------------------------------------------


def beside_work(claim: Claim, cuts: GpuCuts, now_s: float) -> CutOrder | None:
    """Returns the order by which only idle GPUs are cut; None where the whole machine is (`cuts` is empty)."""
    if not cuts:
        return None
    before = FormerCut(claim.layout, gpu_part(claim.resources), claim.gpu_cuts)
    return CutOrder(Reason.RECUTTING, "idle GPUs are cut beside the work on the others", now_s, before=before)


def changed_gpus(claim: Claim, machine: InstanceType | None, allowed: Mapping[str, MigLayout]) -> frozenset[int]:
    """Returns the GPUs that an order beside work cuts anew; all of them where how they were is not known."""
    before = claim.cut.before if claim.cut is not None else None
    every = frozenset(range(len(claim.gpu_cuts)))
    if before is None or machine is None:
        return every
    old = before.cuts or _cuts_after(allowed.get(before.layout), machine)
    return frozenset(it for it in every if it >= len(old) or old[it] != claim.gpu_cuts[it])


def as_before(claim: Claim, now_s: float, why: str) -> Claim:
    """Returns the claim as it was before an order beside work; where a label was written for it, to be put right.

    That concerns the same GPUs, which nobody holds: the order says what was tried, so that no work has to leave for it.
    """
    order = claim.cut
    if order is None or order.before is None:
        return claim
    before, tried = order.before, FormerCut(claim.layout, gpu_part(claim.resources), claim.gpu_cuts)
    resources = with_gpus(claim.resources, before.gpus)
    claim = replace(claim, layout=before.layout, gpu_cuts=before.cuts, resources=resources)
    if not order.began_s:
        return replace(claim, recut_at_s=claim.ready_at_s, cut=None)
    told = CutOrder(Reason.LAYOUT_DRIFT, f"idle GPUs could not be cut beside its work: {why}", now_s, before=tried)
    return replace(claim, recut_at_s=max(now_s, claim.ready_at_s + 0.001), cut=told).remembering(
        MachineEvent(now_s, FAILED, why)
    )
