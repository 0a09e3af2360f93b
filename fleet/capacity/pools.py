"""Pools as a whole: the hash that tells drift, and what is left of their limits."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.capacity.shapes import Shape
from fleet.memo import remembered
from fleet.snapshot import Claim, InstanceType
from model.kinds import NodePool
from model.quantity import Resources

HASH_VERSION = "v1"
_READ_LIVE = {"expire_after", "termination_grace_period"}
"""Of machines that stand it is the present declaration that counts, so that a change needs no new ones."""


@remembered(1024)
def pool_hash(pool: NodePool) -> str:
    """Hash of what a machine is born with. Requirements are left out: they are judged one by one (`drift`).

    The version prefix lets a new release change the form without every machine drifting (Karpenter
    `karpenter.sh/nodepool-hash-version`).
    """
    template = pool.spec.template.model_dump(mode="json", exclude=_READ_LIVE)
    if not template["annotations"]:
        del template["annotations"]  # a field that came later must not change the hash of pools that do not use it
    born_with = {
        "template": template,
        "placement": pool.spec.placement.model_dump(mode="json"),
        "sharing": pool.spec.sharing.model_dump(mode="json", exclude={"mig"}),
    }
    text = json.dumps(born_with, sort_keys=True, separators=(",", ":"))
    return f"{HASH_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(slots=True)
class Headroom:
    """What a pool may still buy; None = no bound."""

    nodes: int | None
    usd_h: float | None
    resources: dict[str, int]

    @classmethod
    def of(cls, pool: NodePool, claims: Iterable[Claim], types: Mapping[str, InstanceType]) -> "Headroom":
        """Limits less what the pool's claims take, those on their way out included: they still bill.

        Resources are counted by the capacity of the machines, before any cut (as in Karpenter).
        """
        mine = [claim for claim in claims if claim.node_pool == pool.name]
        limits = pool.spec.limits
        return cls(
            None if limits.nodes is None else limits.nodes - len(mine),
            None if limits.usd_per_hour is None else limits.usd_per_hour - sum(claim.price_usd_h for claim in mine),
            {
                name: most - sum(_capacity(claim, types).get(name, 0) for claim in mine)
                for name, most in limits.resources.items()
            },
        )

    def most(self, shape: Shape) -> int:
        """How many machines of this shape the limits still allow."""
        bounds = [] if self.nodes is None else [self.nodes]
        if self.usd_h is not None and shape.offer.price_usd_h > 0:
            bounds.append(int((self.usd_h + 1e-9) // shape.offer.price_usd_h))
        bounds += [
            left // each
            for name, left in self.resources.items()
            if (each := shape.offer.instance_type.capacity.get(name, 0))
        ]
        return max(0, min(bounds, default=1 << 30))

    def spend(self, shape: Shape, count: int) -> None:
        """Account for `count` machines of this shape; a negative count gives them back."""
        if self.nodes is not None:
            self.nodes -= count
        if self.usd_h is not None:
            self.usd_h -= shape.offer.price_usd_h * count
        for name in self.resources:
            self.resources[name] -= shape.offer.instance_type.capacity.get(name, 0) * count


def _capacity(claim: Claim, types: Mapping[str, InstanceType]) -> Resources:
    machine = types.get(claim.capacity_pool.instance_type)
    return machine.capacity if machine else claim.resources
