"""Of GPUs: what could serve so many, cheapest first, and what is against each, as values for programs."""

from typing import Any

from fleet.explain.offers import GpuRequest, PurchaseOption, offers_for
from fleet.snapshot import Snapshot
from model.fleet import Fleet


def offers_told(
    fleet: Fleet, snapshot: Snapshot, ask: GpuRequest, *, asked_cluster: bool = True, agent_priced_at_s: float = 0.0
) -> dict[str, Any]:
    """Returns the answer; instants are epoch seconds, 0 where there is none, money is USD. Errors: UnknownGpu."""
    answer, catalog = offers_for(fleet, snapshot, ask), snapshot.catalog
    return {
        "gpu": ask.gpu,
        "count": ask.count,
        "observed_at_s": snapshot.now_s,
        "region": catalog.region,
        "priced_at_s": catalog.priced_at_s,
        "price_source": catalog.price_source,
        "agent_priced_at_s": agent_priced_at_s,
        "cluster_asked": asked_cluster,
        "offers": [_object(option) for option in answer.options],
        "why_none": [
            {"reason": str(refusal.reason), "message": refusal.message, "retry_at_s": refusal.retry_at_s}
            for refusal in answer.refusals
        ],
    }


def _object(option: PurchaseOption) -> dict[str, Any]:
    return {
        "pool": option.pool,
        "instance_type": option.instance_type,
        "zone": option.zone,
        "capacity_type": option.capacity_type,
        "sharing": option.sharing,
        "each": option.each,
        "machines": option.machines,
        "usd_per_hour": round(option.usd_h, 6),
        "usd_per_unit_hour": round(option.unit_usd_h, 6),
        "total_usd_per_hour": round(option.total_usd_h, 6),
        "machines_allowed": option.allowed,
        "short_until_s": option.short_until_s,
        "obstacle": str(option.obstacle),
    }
