"""The labels and annotations of work whose names begin with ours: what each may be, where, and which are nobody's.

A name that nobody reads is a word misspelt: a limit written as `max-runtime` would be none, and nobody would know. So
would a queue that is named by an annotation.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from fleet.snapshot.constraints import UnsupportedConstraint
from model import labels
from model.hints import near
from providers.kube.objects import names, topology

_OURS: Final = f"{names.GROUP}/"
_TOLD: Final = 5
"""Names of one object that are told."""
_LONGEST: Final = 80
"""Signs of a name that are told."""


class KeyHolder(StrEnum):
    """What of a piece of work carries labels and annotations, in the words of a sentence."""

    JOB = "the job"
    BATCH_JOB = "a Job of batch/v1"
    TEMPLATE = "the pod template"
    POD = "a pod on a queue"


class _ReadAt(NamedTuple):
    where: str
    """`labels` or `annotations`."""
    holders: tuple[KeyHolder, ...]


_J, _T, _P = KeyHolder.JOB, KeyHolder.TEMPLATE, KeyHolder.POD
_OF_WORK = _ReadAt("annotations", (_J, _P))
_OF_PODS = _ReadAt("annotations", (_T, _P))
OF_USERS: Final[Mapping[str, _ReadAt]] = {
    **dict.fromkeys((labels.QUEUE, labels.PRIORITY_CLASS), _ReadAt("labels", (_J, _P))),
    labels.USER: _ReadAt("labels", (_J, _T, _P)),
    labels.POD_SET: _ReadAt("labels", (_T, _P)),
    **dict.fromkeys((names.LAST_CHECKPOINT, names.CHECKPOINT_INTERVAL, names.EXPECTED_RUN, names.MAX_RUN), _OF_WORK),
    **dict.fromkeys((names.SLA_WAITING[0], names.PRIORITY_BOOST[0], names.ON_NODE_FAILURE), _OF_WORK),
    names.OWN_DO_NOT_DISRUPT: _ReadAt("annotations", (_J, _T, _P)),
    **dict.fromkeys(
        (names.MIN_PARALLELISM[0], names.EQUAL_COMPLETIONS[0]), _ReadAt("annotations", (KeyHolder.BATCH_JOB,))
    ),
    names.GROUP_NAME[0]: _ReadAt("labels", (_P,)),
    names.GROUP_TOTAL[0]: _ReadAt("annotations", (_P,)),
    **dict.fromkeys((topology.REQUIRED[0], topology.PREFERRED[0], topology.UNCONSTRAINED[0]), _OF_PODS),
    **dict.fromkeys((topology.GROUP_NAME[0], topology.SLICE_TOPOLOGY[0], topology.SLICE_SIZE[0]), _OF_PODS),
    topology.SLICE_LAYERS[0]: _OF_PODS,
}
"""What people write on jobs, pod templates and pods, and where it is read."""

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


class KeyedObject(NamedTuple):
    """Labels and annotations of one object, or of a template in it; it may be several kinds of holder."""

    holders: frozenset[KeyHolder]
    labels: Mapping[str, str] | None
    annotations: Mapping[str, str] | None
    whose: str = ""
    """What goes before its paths: `pods of main: `."""

    def ours(self) -> Iterator[tuple[str, str, str]]:
        """Yields where, key and value of what has our prefix and is for users to say, or unknown; in order."""
        for where, found in (("labels", self.labels), ("annotations", self.annotations)):
            for key in sorted(it for it in found or () if it.startswith(_OURS) and it not in OF_OTHERS):
                yield where, key, (found or {})[key]

    def reads(self, where: str, key: str) -> bool:
        """Returns whether a key means something there."""
        read = OF_USERS.get(key)
        return read is not None and read.where == where and not self.holders.isdisjoint(read.holders)


def misread_keys(objects: Sequence[KeyedObject]) -> Iterator[UnsupportedConstraint]:
    """Yields the labels and annotations of a piece of work that have our prefix and that nothing reads where they are.

    With the place where it is read, or the name that may be meant. What is also said where it is read is no mistake:
    tools write one label on an object and all of its templates.
    """
    said = {(key, value) for it in objects for where, key, value in it.ours() if it.reads(where, key)}
    for it in objects:
        idle = [
            (where, key) for where, key, value in it.ours() if not it.reads(where, key) and (key, value) not in said
        ]
        for where, key in idle[:_TOLD]:
            yield UnsupportedConstraint(f"{it.whose}metadata.{where}[{key[:_LONGEST]}]", _words(it, where, key))


def _words(found: KeyedObject, where: str, key: str) -> str:
    noun, read = where.removesuffix("s"), OF_USERS.get(key)
    if read is None:
        meant = near(key.removeprefix(_OURS), (it.removeprefix(_OURS) for it in OF_USERS))
        return f"no {noun} of that name is known" + (f"; did you mean {_OURS}{meant}?" if meant else "")
    of_job = KeyHolder.POD not in found.holders
    holders = [it for it in read.holders if it is not KeyHolder.POD] if of_job else list(read.holders)
    right = {"labels": "a label", "annotations": "an annotation"}[read.where]
    return f"no {noun} of that name is read there: it is {right} of {' or '.join(holders or read.holders)}"
