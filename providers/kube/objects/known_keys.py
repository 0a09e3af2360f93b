"""The labels and annotations of work whose names begin with ours: what each may be, and which are nobody's.

A name that nobody reads is a word misspelt: a limit written as `max-runtime` would be none, and nobody would know.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from fleet.snapshot.constraints import UnsupportedConstraint
from model import labels
from model.hints import near
from providers.kube.objects import names, topology

_OURS: Final = f"{names.GROUP}/"
_TOLD: Final = 5
"""Unknown names of one object that are told."""
_LONGEST: Final = 80
"""Signs of a name that are told."""

OF_USERS: Final[frozenset[str]] = frozenset(
    {
        labels.QUEUE,
        labels.PRIORITY_CLASS,
        labels.USER,
        labels.POD_SET,
        names.LAST_CHECKPOINT,
        names.CHECKPOINT_INTERVAL,
        names.EXPECTED_RUN,
        names.MAX_RUN,
        names.SLA_WAITING[0],
        names.PRIORITY_BOOST[0],
        names.OWN_DO_NOT_DISRUPT,
        names.ON_NODE_FAILURE,
        names.MIN_PARALLELISM[0],
        names.EQUAL_COMPLETIONS[0],
        names.GROUP_NAME[0],
        names.GROUP_TOTAL[0],
        topology.REQUIRED[0],
        topology.PREFERRED[0],
        topology.UNCONSTRAINED[0],
        topology.GROUP_NAME[0],
        topology.SLICE_TOPOLOGY[0],
        topology.SLICE_SIZE[0],
        topology.SLICE_LAYERS[0],
    }
)
"""What people write on jobs, pod templates and pods."""

OF_OTHERS: Final[frozenset[str]] = frozenset(
    {
        labels.WORKLOAD,
        labels.SHARED_CLAIM,
        labels.NODE_POOL,
        labels.NODE_CLAIM,
        labels.LAUNCH_GROUP,
        labels.GPU_FRACTION,
        labels.GPU_EQUIVALENT,
        labels.MIG_LAYOUT,
        labels.DRA_DYNAMIC_MIG,
        labels.CLUSTER,
        labels.ADOPT,
        labels.BOOKS,
        labels.REQUESTED_AT,
        names.JOB_UID,
        names.PLACEMENT_GATE,
        names.TERMINATION_FINALIZER,
        names.ADDITIONS,
        names.ASKED,
        names.REVISION,
    }
)
"""What we write ourselves, on work, nodes and elsewhere: tools copy such labels to pods, which means nothing."""
_KNOWN: Final = OF_USERS | OF_OTHERS


def unknown_keys(
    keys: Mapping[str, str] | None, annotations: Mapping[str, str] | None, whose: str = ""
) -> Iterator[UnsupportedConstraint]:
    """Yields the labels and annotations with our prefix that nothing reads, in order, with the one that may be meant.

    `whose` goes before their paths: `pods of main: `.
    """
    for where, found in (("labels", keys), ("annotations", annotations)):
        unknown = sorted(key for key in found or () if key.startswith(_OURS) and key not in _KNOWN)
        for key in unknown[:_TOLD]:
            meant = near(key.removeprefix(_OURS), (it.removeprefix(_OURS) for it in OF_USERS))
            hint = f"; did you mean {_OURS}{meant}?" if meant else ""
            path = f"{whose}metadata.{where}[{key[:_LONGEST]}]"
            yield UnsupportedConstraint(path, f"no {where.removesuffix('s')} of that name is known{hint}")
