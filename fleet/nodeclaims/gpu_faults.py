"""What a fault of a GPU asks for: another machine, a reset, or nothing of the machine; as conditions of its node.

XIDs go by the immediate action of NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the
Xid Catalog", Ampere and newer, read in November 2026). What its own workflows decide by hand is put where their first
step is. GPUs are not reset in place: a machine with one that needs it is replaced as well, only later, which asks
nobody to know who else uses the GPU.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from fleet.snapshot import Claim, Node, NodeCondition
from fleet.snapshot.gpus import ComplaintKind, GpuComplaint, GpuFault
from model.index import Index, derived, derived_each
from model.kinds.node_pool import GPU_FAILED, GPU_NEEDS_RESET


class FaultAction(StrEnum):
    """A `FaultAction` is what a fault of a GPU asks for."""

    REPLACE = "Replace"
    """Another machine: no reset mends it, or the catalogue asks for a boot of the machine, or for support."""
    RESET = "Reset"
    """A reset of the GPU, or a boot."""
    APPLICATION = "Application"
    """Nothing of the machine: the process on it has to start anew, and mostly is at fault."""
    NOTED = "Noted"
    """Nothing: the driver has dealt with it, or it takes more than a number to tell."""


XIDS: Final[Mapping[FaultAction, frozenset[int]]] = {
    # RESTART_BM, RESTART_VM, CHECK_MECHANICALS, CONTACT_SUPPORT of those that occur
    FaultAction.REPLACE: frozenset({54, 79, 142, 151}),
    # RESET_GPU, and the workflows of 48 (double bit ECC) and 74 (NVLink), both of which end in a reset or a boot
    FaultAction.RESET: frozenset({46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}),
    # RESTART_APP; 43 and 45, which tell of a process that ended; 137, an access that was not allowed
    FaultAction.APPLICATION: frozenset(
        {8, 11, 13, 25, 31, 32, 39, 40, 41, 43, 45, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89}
        | {94, *range(96, 106), *range(126, 136), 137, 139}
    ),
}
"""Action -> the XIDs that ask for it; of all others (IGNORE, 144 to 150 of NVLink 5, new ones) a note is taken."""

_OF_KINDS: Final[Mapping[ComplaintKind, FaultAction]] = {
    ComplaintKind.ROW_REMAP_FAILURE: FaultAction.REPLACE,  # NVIDIA GPU Memory Error Management: the GPU is sent back
    ComplaintKind.ROW_REMAP_PENDING: FaultAction.RESET,
    ComplaintKind.UNCORRECTABLE_ECC: FaultAction.RESET,
    ComplaintKind.HEALTH: FaultAction.RESET,
}
_CONDITIONS: Final = {FaultAction.REPLACE: GPU_FAILED, FaultAction.RESET: GPU_NEEDS_RESET}
_WORDS: Final[Mapping[ComplaintKind, str]] = {
    ComplaintKind.ROW_REMAP_FAILURE: "a bad row of memory could not be remapped",
    ComplaintKind.ROW_REMAP_PENDING: "a row of memory is remapped at the next reset",
    ComplaintKind.UNCORRECTABLE_ECC: "memory errors that ECC could not mend",
    ComplaintKind.HEALTH: "DCGM's checks fail",
}


def action_for(complaint: GpuComplaint) -> FaultAction:
    """Returns what a complaint asks for."""
    if complaint.kind is not ComplaintKind.XID:
        return _OF_KINDS[complaint.kind]
    return next((action for action, codes in XIDS.items() if complaint.code in codes), FaultAction.NOTED)


def fault_words(complaint: GpuComplaint) -> str:
    """Returns a complaint in words, with the GPU it is about."""
    what = f"XID {complaint.code}" if complaint.kind is ComplaintKind.XID else _WORDS[complaint.kind]
    said = f" ({complaint.words})" if complaint.words else ""
    return f"{complaint.gpu}: {what}{said}"


def gpu_conditions(faults: Iterable[GpuFault]) -> Mapping[str, NodeCondition]:
    """Returns the conditions of a node that faults of its GPUs stand for; since the earliest that asks for it."""
    found: dict[str, NodeCondition] = {}
    for since_s, complaint in sorted(faults):
        condition = _CONDITIONS.get(action_for(complaint))
        if condition is not None and condition not in found:
            found[condition] = NodeCondition("True", since_s, fault_words(complaint))
    return found


@derived(1)
def as_claims_say(_index: Index, nodes: Mapping[str, Node], claims: Mapping[str, Claim]) -> Mapping[str, Node]:
    """Returns the nodes with the conditions of their GPUs that claims tell of, for who has read no exporter yet."""
    told = {it.node: it.gpu_conditions for it in claims.values() if it.gpu_conditions and it.node in nodes}
    changed = {
        name: replace(
            nodes[name],
            conditions={
                **nodes[name].conditions,
                **{it.what: NodeCondition("True", it.at_s, it.message) for it in said},
            },
        )
        for name, said in told.items()
    }
    return {**nodes, **changed} if changed else nodes


@derived(1)
def with_gpu_faults(
    index: Index, nodes: Mapping[str, Node], faults: Mapping[str, Sequence[GpuFault]]
) -> Mapping[str, Node]:
    """Returns the nodes, those with faults of GPUs with the conditions that these stand for; itself without any."""
    changed = {name: _faulty(index, nodes[name], faults, name) for name in faults if name in nodes}
    return {**nodes, **changed} if changed else nodes


@derived_each
def _faulty(node: Node, faults: Sequence[GpuFault]) -> Node:
    return replace(node, conditions={**node.conditions, **gpu_conditions(faults)}, gpu_faults=tuple(faults))
