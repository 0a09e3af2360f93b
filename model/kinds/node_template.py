"""What a machine is born with: what its node carries, how long it lives, and the rest in its cloud's own words."""

from pydantic import Field

from model.kinds.aws import Ec2Machine
from model.kinds.base import NEVER, Annotations, Duration, Labels, Spec, Tags, Taint


class NodeMarks(Spec):
    """What a node carries from the first."""

    labels: Labels = Field(default_factory=dict)
    """Node labels, in addition to those every node carries."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations the node gets when it joins, such as `karpenter.sh/do-not-disrupt`."""
    taints: tuple[Taint, ...] = ()
    """Taints that stay; gangs need a toleration, see the flavor."""
    startup_taints: tuple[Taint, ...] = ()
    """Taints that something on the node removes when it is ready; the node counts as initialised only afterwards."""


class NodeTemplate(Ec2Machine, NodeMarks):
    """What every machine of the pool is born with."""

    tags: Tags = Field(default_factory=dict)
    """Extra EC2 tags on instances and volumes."""
    expire_after: Duration = 720 * 3600.0
    """Age at which a node is replaced."""
    termination_grace_period: Duration = NEVER
    """How long a drain may take before pods are removed by force."""
