"""How many EBS volumes the CSI driver attaches to a machine, for those that have not joined: never more than it says.

The driver tells it in the CSINode of each machine: what EC2 allows the type, less the disks it was launched with and,
where attachments share their slots with interfaces, those beyond the first. Here are the fewest of a family and size, a
root disk and a second interface taken off. Sources: EC2 User Guide, "Amazon EBS volume limits"; aws-ebs-csi-driver
`pkg/driver/node.go` (getVolumesLimit), `pkg/cloud/limits`.
"""

import re
from collections.abc import Mapping
from typing import Final

from providers.aws.facts import TypeFacts

EBS_DRIVER: Final = "ebs.csi.aws.com"
_ROOT_DISK: Final = 1
_SECOND_INTERFACE: Final = 1
_XEN: Final = 39
_SHARED: Final = 27
_SHARED_WITH_DISKS: Final = ((16, 25), (10_000, 19))
"""Up to so many vCPUs -> slots that are left where the machine has NVMe disks of its own."""
_METAL: Final = 27
_DEDICATED: Final = ((12, 32), (18, 48), (10_000, 64))
"""Up to a size of so many xlarge -> slots that are for volumes alone."""
_DEDICATED_FAMILIES: Final = re.compile(
    r"[cmr]7(a|i|iz|i-flex)|[cmrx]8(a|aedz|g|gb|gd|gn|i|i-flex)|i7ie?|i8ge?|u7in?-.*|f2"
    r"|g6[ef]?|g7e|gr6f?|p5(e|en)?|p6-b[23]00|trn2"
)
_FEWEST: Final[Mapping[str, int]] = {
    "d3": 3,
    "d3en": 3,
    "dl2q": 19,
    "g4ad": 21,
    "g4dn": 22,
    "g5.48xlarge": 9,
    "hpc7a": 27,
    "inf1.24xlarge": 11,
    "inf1": 23,
    "inf2": 26,
    "p3dn": 17,
    "p4d": 28,
    "p4de": 28,
    "trn1": 25,
    "u-6tb1": 19,
    "vt1": 23,
}
"""Types and families of which none of the rules holds."""


def attach_limits(facts: TypeFacts) -> Mapping[str, int]:
    """CSI driver -> most volumes that pods on such a machine may mount."""
    slots, shared = _slots(facts)
    return {EBS_DRIVER: max(1, slots - _ROOT_DISK - (_SECOND_INTERFACE if shared else 0))}


def _slots(facts: TypeFacts) -> tuple[int, bool]:
    """How many attachments EC2 allows, and whether interfaces take some of them."""
    fewest = _FEWEST.get(facts.name) or _FEWEST.get(facts.family)
    if fewest is not None:
        return fewest, facts.family not in ("p4d", "p4de", "hpc7a")
    if facts.hypervisor == "xen":
        return _XEN, False
    if "metal" in facts.size:
        return _METAL, True
    if _DEDICATED_FAMILIES.fullmatch(facts.family):
        times = re.match(r"\d+", facts.size)
        return _of(_DEDICATED, int(times[0]) if times else 1), False
    if facts.nvme_gb:
        return _of(_SHARED_WITH_DISKS, facts.vcpu), True
    return _SHARED - sum(max(1, gpu.count) for gpu in facts.gpus), True


def _of(steps: tuple[tuple[int, int], ...], size: int) -> int:
    return next(slots for most, slots in steps if size <= most)
