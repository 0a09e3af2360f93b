"""Machines that nobody here bought, with a node that has joined all the same."""

from dataclasses import replace
from typing import Any

from fleet.snapshot import Instance, Node
from model import labels
from model.kinds import CapacityType
from tests.support.fleets import NOW, P5, A, claim_of, node_of, offering
from tests.support.world import World


def stranger(
    world: World,
    name: str = "i-1",
    asks: str = "default/h100",
    *,
    like: str = "h100",
    kind: str = P5.name,
    zone: str = A,
    capacity_type: CapacityType = "on-demand",
    layout: str = "",
    node: dict[str, Any] | None = None,
    **facts: Any,
) -> tuple[Instance, Node]:
    """A running machine that offers what those of pool `like` do; `asks` is its adoption tag, empty = it has none."""
    it = offering(world.fleet, world.catalog, like, kind, zone, capacity_type, layout)
    here = claim_of(it, name, instance_id=name, launched_at_s=NOW - 3600)
    tags = {labels.ADOPT: asks} if asks else {}
    tags |= facts.pop("tags", {})
    facts = {"provider_id": f"aws:///{zone}/{name}", **facts}
    instance = Instance(name, kind, zone, capacity_type, "running", NOW - 3600, tags, **facts)
    joined = node_of(here, it, name=f"node-{name}")
    own = {labels.NODE_CLAIM, labels.NODE_POOL, labels.CAPACITY_TYPE}
    plain = {key: text for key, text in joined.labels.items() if key not in own}
    joined = replace(joined, labels={**plain, labels.HOSTNAME: joined.name}, taints=())
    if node:
        node = {**node, "labels": {**joined.labels, **node["labels"]}} if "labels" in node else node
        joined = replace(joined, **node)
    world.instances[name] = instance
    world.nodes[joined.name] = joined
    return instance, joined
