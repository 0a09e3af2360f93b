"""What tells adopted machines from others: the tag that asks for it, and the tags and claims that say it is done.

One tag asks, `muster.dev/adopt` = `<cluster>/<node pool>`, so that there is no instant between two of them at which the
machine would belong to the cluster and to no claim. It is a person's word that the machine is to stay: whoever carries
it, with whatever value, is never collected as garbage. Once a claim has taken it over, the tag means nothing any more.
"""

from collections.abc import Mapping

from fleet.snapshot import Claim, Instance
from fleet.snapshot.memo import remembered
from model import labels


def asks(instance: Instance) -> bool:
    """Whether somebody asks for its adoption, by this cluster or another."""
    return labels.ADOPT in instance.tags


def asked_pool(instance: Instance, cluster: str) -> str:
    """The node pool of this cluster that it is to join; empty when its tag names none."""
    named, _, pool = instance.tags.get(labels.ADOPT, "").partition("/")
    return pool if named == cluster else ""


def taken_over(instance: Instance | None, tags: Mapping[str, str]) -> bool:
    """Whether it carries the tags of its claim (`launch.own_tags`)."""
    return instance is not None and all(instance.tags.get(key) == value for key, value in tags.items())


@remembered()
def claimed_instances(claims: Mapping[str, Claim]) -> frozenset[str]:
    """Ids of the machines that a claim answers for."""
    return frozenset(claim.instance_id for claim in claims.values() if claim.instance_id)
