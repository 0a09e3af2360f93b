"""Whether a node really offers what its claim was promised. Judged from allocatable, never from a state label alone.

`nvidia.com/mig.config.state` has no observed generation: it still says `success` of the previous layout until
mig-manager wakes (reference gpu-partitioning, facts 1 and section 2.6).
"""

from fleet.mig.layouts import gpu_part, is_gpu_resource
from fleet.snapshot import Claim, Node
from model import labels
from model.quantity import Resources

MIG_SUCCESS = "success"


def owed(claim: Claim, node: Node) -> str:
    """What is still missing on the node, in words; empty when it keeps its promise."""
    if claim.layout:
        if node.labels.get(labels.MIG_CONFIG) != claim.layout:
            return f"label {labels.MIG_CONFIG} is not {claim.layout}"
        state = node.labels.get(labels.MIG_CONFIG_STATE, "")
        if state != MIG_SUCCESS:
            return f"mig-manager reports {state or 'nothing yet'}"
        if gpu_part(node.allocatable) != gpu_part(claim.resources):
            return f"allocatable shows {_shown(node.allocatable)}, the layout promises {_shown(claim.resources)}"
    for resource, amount in sorted(claim.resources.items()):
        if "/" in resource and amount and node.allocatable.get(resource, 0) < amount and not is_gpu_resource(resource):
            return f"{resource} is {node.allocatable.get(resource, 0)}, promised {amount}"
    if not claim.layout:
        short = {r: a for r, a in gpu_part(claim.resources).items() if node.allocatable.get(r, 0) < a}
        if short:
            return f"allocatable shows {_shown(node.allocatable)}, promised {_shown(claim.resources)}"
    return ""


def _shown(resources: Resources) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in gpu_part(resources).items()) or "no GPU"
