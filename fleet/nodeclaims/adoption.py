"""Adoption: machines that were not bought here become a pool's, each by a person's explicit tag and by nothing else.

The tag `muster.dev/adopt` = `<cluster>/<node pool>` asks. What may be adopted gets a claim that names the instance; the
life cycle then writes the cluster's tags on it, registers its node and has an ordinary machine (`lifecycle`). What may
not is left alone, and told why: it is never terminated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fleet.actions import Action, OpenClaims, SaveGang, claim_subject, gang_subject, instance_subject, node_subject
from fleet.nodeclaims.adopted import asks, claimed_instances, taken_over
from fleet.nodeclaims.adoption_rule import Office, claim_for, claim_name
from fleet.nodeclaims.launch import own_tags
from fleet.offerings.offerings import Offering
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, Gang, Instance, Pin, Snapshot
from fleet.snapshot.lookups import holders, nodes_by_instance
from fleet.snapshot.memo import remembered
from model.fleet import Fleet

TAGGED_WITHIN_S: Final = 60.0
"""A claim whose machine does not carry its tags after this long is told of."""


def decide(fleet: Fleet, snapshot: Snapshot) -> list[Action]:
    """Claims for the machines that may be adopted, by id; then the seats of gangs that stood on them before."""
    office = Office(fleet, snapshot)
    actions: list[Action] = []
    for instance in asking(snapshot):
        offering = office.judge(instance)
        if isinstance(offering, Offering) and not _in_hand(snapshot, instance):
            office.take(offering)
            actions.append(OpenClaims((claim_for(instance, offering, snapshot.now_s),)))
    return [*actions, *_seats(snapshot)]


def refusals(fleet: Fleet, snapshot: Snapshot) -> dict[str, Refusal]:
    """Instance id -> why it is not adopted, though somebody asks for it; those that are being adopted are missing."""
    office = Office(fleet, snapshot)
    found: dict[str, Refusal] = {}
    for instance in asking(snapshot):
        verdict = office.judge(instance)
        if isinstance(verdict, Refusal):
            found[instance.id] = verdict
        else:
            office.take(verdict)
    return found | _untagged(snapshot)


def asking(snapshot: Snapshot) -> Sequence[Instance]:
    """Machines, by id, that somebody asks to adopt and that no claim answers for."""
    return _asking(snapshot.instances, snapshot.claims)


@remembered()
def _asking(instances: Mapping[str, Instance], claims: Mapping[str, Claim]) -> Sequence[Instance]:
    owned = claimed_instances(claims)
    here = (found for _, found in sorted(instances.items()) if asks(found) and not found.gone)
    return [found for found in here if found.id not in owned]


def _in_hand(snapshot: Snapshot, instance: Instance) -> bool:
    node = nodes_by_instance(snapshot)[instance.id]
    subjects = {claim_subject(claim_name(instance.id)), instance_subject(instance.id), node_subject(node.name)}
    return not subjects.isdisjoint(snapshot.busy)


def _untagged(snapshot: Snapshot) -> dict[str, Refusal]:
    """Machines whose claim waits for its tags: most likely the agent may not write them."""
    late = {
        claim.adopts
        for claim in _adopting(snapshot.claims)
        if snapshot.now_s - claim.launched_at_s >= TAGGED_WITHIN_S
        and not taken_over(snapshot.instances.get(claim.adopts), own_tags(claim, snapshot.cluster))
    }
    message = (
        "the cluster's tags could not be written on it, as the log says: the agent's role needs ec2:CreateTags for it"
    )
    return {instance_id: Refusal(Reason.NOT_TAGGED, message) for instance_id in sorted(late)}


@remembered()
def _adopting(claims: Mapping[str, Claim]) -> Sequence[Claim]:
    return [claim for _, claim in sorted(claims.items()) if claim.adopts and not claim.registered_at_s]


# -- gangs that stood there before -----------------------------------------------------------------------------------


def _seats(snapshot: Snapshot) -> Iterator[SaveGang]:
    """Gangs that ran on a node before it was adopted count as its tenants: their seats name its claim from now on."""
    for gang in _reseated(holders(snapshot), snapshot.claims):
        if gang_subject(gang.uid) not in snapshot.busy:
            yield SaveGang(gang)


@remembered()
def _reseated(gangs: Sequence[Gang], claims: Mapping[str, Claim]) -> Sequence[Gang]:
    adopted = {claim.node: claim.name for claim in claims.values() if claim.adopts and claim.node}
    if not adopted:
        return ()

    def seated(pins: tuple[Pin, ...]) -> tuple[Pin, ...]:
        return tuple(
            pin if pin.claim or pin.node not in adopted else replace(pin, claim=adopted[pin.node]) for pin in pins
        )

    moved = ((gang, replace(gang, pins=seated(gang.pins), leaving=seated(gang.leaving))) for gang in gangs)
    return [after for gang, after in moved if after != gang]
