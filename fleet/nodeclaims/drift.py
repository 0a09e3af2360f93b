"""Which machines differ from what their pools declare, as a snapshot shows it (Karpenter `disruption/drift.go`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fleet.actions import claim_subject, pool_subject
from fleet.fence import claims_set_aside, concerning
from fleet.mig.layouts import pool_layouts
from fleet.nodeclaims.drift_facts import (
    NO_DRIFT,
    TYPE_CHECKED_AFTER_S,
    Drift,
    DriftFacts,
    DriftReason,
    OfferingAvailability,
    TemplateHash,
    drift_reason,
    provider_drift,
    wrong_key,
)
from fleet.offerings.reservations import ReservationSelector, reservation_selector, unselected
from fleet.snapshot import NOT_READ, Catalog, Claim, Instance, Resolutions, Snapshot
from fleet.snapshot.lookups import claims_whatever_runs
from model import labels
from model.fleet import Fleet
from model.index import Index, TableChanges, derived, followed
from model.kinds import NodePool
from model.pools import pool_hashes, pool_requirements
from model.requirements import Requirements

RESERVATION: Final = "CapacityReservationDrift"
_NOT_LOOKED_AT: Final[Mapping[str, Instance]] = {}
"""The machines, while the names of images and subnets have not been read: nothing is compared with them then."""


@dataclass(frozen=True, slots=True)
class DriftInputs:
    """The observations that tell whether a machine is what its pool declares."""

    catalog: Catalog
    on_sale: Mapping[str, frozenset[OfferingAvailability]]
    """Type -> where it is sold. Of a type that is known but has no offer at all the price may just be missing."""
    reserved: ReservationSelector
    resolved: Resolutions
    instances: Mapping[str, Instance]
    strays: Mapping[str, tuple[str, str]]

    def listed(self, claim: Claim) -> Instance | None:
        """Returns the listed machine, if it was launched before the names of images and subnets were read.

        What was launched later may have got what was published in between; what was adopted was born otherwise.
        """
        if claim.adopts or claim.launched_at_s >= self.resolved.at_s:
            return None
        found = self.instances.get(claim.instance_id)
        return None if found is None or found.gone else found


def drifted_claims(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, str]:
    """Returns in words how machines (by claim) differ from their pools, for all that do."""
    return {name: found.words for name, found in drifts(fleet, snapshot).items()}


def drifts(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, Drift]:
    """Returns how machines (by claim) differ from their pools, for all that do."""
    claims, aside = claims_whatever_runs(snapshot), claims_set_aside(snapshot)
    if aside:
        claims = {name: claim for name, claim in claims.items() if name not in aside}
    if not claims:
        return {}
    found = _drifts(snapshot.index, claims, fleet, _inputs(snapshot))
    old_s = snapshot.now_s - TYPE_CHECKED_AFTER_S
    return {
        name: each
        for name, each in found.items()
        if each.reason != DriftReason.TYPE_GONE or claims[name].launched_at_s <= old_s
    }


def _inputs(snapshot: Snapshot) -> DriftInputs:
    reserved = reservation_selector(snapshot)
    instances = _NOT_LOOKED_AT if snapshot.resolved is NOT_READ else snapshot.instances
    return _gathered(snapshot.index, snapshot.catalog, reserved, snapshot.resolved, instances, snapshot.strays)


@derived(1)
def _gathered(
    index: Index,
    catalog: Catalog,
    reserved: ReservationSelector,
    resolved: Resolutions,
    instances: Mapping[str, Instance],
    strays: Mapping[str, tuple[str, str]],
) -> DriftInputs:
    return DriftInputs(catalog, _on_sale(index, catalog), reserved, resolved, instances, strays)


@followed(dict[str, Drift])
def _drifts(
    before: dict[str, Drift], changes: TableChanges[Claim], fleet: Fleet, inputs: DriftInputs
) -> dict[str, Drift]:
    """Returns claim -> drift, as if all machines were old; machines of one kind are judged once."""
    judged: dict[tuple[object, ...], Drift] = {}
    gone = {name for name, _ in changes.gone()}
    found = {name: drift for name, drift in before.items() if name not in gone}
    for name, claim in changes.came():
        kind = (
            claim.node_pool,
            claim.pool_hash,
            claim.capacity_pool,
            bool(claim.layout),
            bool(claim.launched_at_s),
            _marks(inputs.listed(claim)),
            inputs.strays.get(name),
        )
        if kind not in judged:
            with concerning(claim_subject(name)):
                judged[kind] = _drift_of(fleet, claim, inputs)
        if judged[kind].words:
            found[name] = judged[kind]
    return found


def _marks(machine: Instance | None) -> tuple[object, ...]:
    """Returns what the machine was launched with, as far as it can drift."""
    return () if machine is None else (machine.image, machine.subnet, machine.security_groups)


def _drift_of(fleet: Fleet, claim: Claim, inputs: DriftInputs) -> Drift:
    """Returns how a machine differs from its pool, whatever its age; a pool that was removed is a difference, too."""
    pool = fleet.node_pools.get(claim.node_pool)
    if pool is None:
        return Drift("", f"node pool {claim.node_pool} is no longer declared")
    provided = _provided(fleet, pool, claim, inputs)
    facts = _facts(fleet, pool, claim, inputs, provided.reason)
    reason = drift_reason(facts)
    if reason == DriftReason.TEMPLATE:
        return Drift(reason, f"the template of node pool {pool.name} has changed")
    if reason == DriftReason.REQUIREMENTS and facts.wanted is not None:
        key = wrong_key(facts.carried, facts.wanted)
        told = f"{key}={facts.carried.get(key)}"
        return Drift(reason, f"{told} no longer meets the requirements of node pool {pool.name}")
    if reason == DriftReason.TYPE_GONE:
        return Drift(reason, f"{claim.capacity_pool} is not on sale any more")
    return provided if reason else _sharing(fleet, pool, claim)


def _provided(fleet: Fleet, pool: NodePool, claim: Claim, inputs: DriftInputs) -> Drift:
    """Returns the difference that only the cloud can tell: of image and network first, then of the reservation."""
    machine, now = inputs.listed(claim), inputs.resolved.found.get(_hash_of(fleet, pool))
    if machine is not None and now is not None:
        sold = inputs.catalog.types.get(claim.capacity_pool.instance_type)
        found = provider_drift(pool.name, sold.image_kind if sold else None, machine, now)
        if found.reason:
            return found
    if claim.name in inputs.strays:
        return Drift(*inputs.strays[claim.name])
    words = unselected(inputs.reserved, pool, claim)
    return Drift(RESERVATION, words) if words else NO_DRIFT


def _facts(fleet: Fleet, pool: NodePool, claim: Claim, inputs: DriftInputs, provider: str) -> DriftFacts:
    where, catalog = claim.capacity_pool, inputs.catalog
    machine = catalog.types.get(where.instance_type)
    carried = {**(machine.labels if machine else {}), **pool.spec.template.labels}
    carried |= {labels.ZONE: where.zone, labels.CAPACITY_TYPE: where.capacity_type, labels.NODE_POOL: pool.name}
    carried |= {labels.INSTANCE_TYPE: where.instance_type, labels.REGION: catalog.region}
    return DriftFacts(
        bool(claim.launched_at_s),
        pool=stamp_of(_hash_of(fleet, pool)),
        machine=stamp_of(claim.pool_hash),
        carried=carried,
        wanted=_wanted(fleet.index, pool) if machine else None,
        market=OfferingAvailability(where.zone, where.capacity_type),
        on_sale=inputs.on_sale.get(where.instance_type) if machine else (frozenset() if catalog.types else None),
        provider=provider,
    )


def _hash_of(fleet: Fleet, pool: NodePool) -> str:
    return pool_hashes(fleet.index, fleet.node_pools)[pool.name]


def stamp_of(text: str) -> TemplateHash | None:
    """Reads the template hash in a claim's `pool_hash` (`v1-0123...`); None for one that has no version."""
    version, dash, found = text.partition("-")
    return TemplateHash(found, version) if dash else None


@derived(256)
def _wanted(_index: Index, pool: NodePool) -> Requirements:
    """Returns what the pool requires of its machines, but for their layout: they are re-cut in place (`rollout`)."""
    with concerning(pool_subject(pool.name)):
        wanted = pool_requirements(pool)
    return Requirements({key: value for key, value in wanted.items() if key != labels.MIG_LAYOUT})


@derived()
def _on_sale(_index: Index, catalog: Catalog) -> Mapping[str, frozenset[OfferingAvailability]]:
    found: dict[str, set[OfferingAvailability]] = {}
    for offer in catalog.offers:
        found.setdefault(offer.instance_type.name, set()).add(OfferingAvailability(offer.zone, offer.capacity_type))
    return {name: frozenset(markets) for name, markets in found.items()}


def _sharing(fleet: Fleet, pool: NodePool, claim: Claim) -> Drift:
    """Returns whether the pool started or stopped cutting GPUs; other layouts are re-cut in place (`rollout`)."""
    if bool(pool_layouts(fleet, pool)) == bool(claim.layout):
        return NO_DRIFT
    words = f"node pool {pool.name} {'now cuts' if not claim.layout else 'no longer cuts'} its GPUs"
    return Drift(DriftReason.TEMPLATE, words)
