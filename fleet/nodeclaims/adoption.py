"""Decides on adoption: a machine not bought here joins a pool only by a person's explicit tag.

One tag asks, `muster.dev/adopt` = `<cluster>/<node pool>`, so that there is no instant between two of them at which the
machine would belong to the cluster and to no claim. What may be adopted gets a claim that names the instance; the life
cycle then writes the cluster's tags on it, registers its node and has an ordinary machine (`registration`). What may
not is left alone, and told why. The tag is a person's word that the machine is to stay: whoever carries it, with
whatever value, is never collected as garbage. Once a claim has taken it over, the tag means nothing any more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fleet.actions import Action, OpenClaims, SaveGang, claim_subject, gang_subject, instance_subject, node_subject
from fleet.fence import Decided, each
from fleet.nodeclaims.adoption_checks import AdoptionPass, asks, claim_for, claim_name
from fleet.nodeclaims.launch import own_tags
from fleet.offerings.offerings import Offering
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, Gang, Instance, Pin, Snapshot
from fleet.snapshot.lookups import holders, nodes_by_instance
from model.fleet import Fleet
from model.index import Index, derived

TAGGED_WITHIN_S: Final = 60.0
"""Seconds after which it is reported that an adopted machine still lacks its tags."""


def decide(fleet: Fleet, snapshot: Snapshot) -> list[Decided]:
    """Returns claims for the machines that may be adopted, by id; then gangs pinned to the claims of their nodes."""
    checks = AdoptionPass(fleet, snapshot)

    def adopt(instance: Instance) -> Iterator[Action]:
        offering = checks.judge(instance)
        if isinstance(offering, Offering) and not _in_hand(snapshot, instance):
            yield OpenClaims((claim_for(instance, offering, snapshot.now_s),))
            checks.take(offering)

    machines = ((instance_subject(instance.id), instance) for instance in asking(snapshot))
    return [*each(snapshot, machines, adopt), *_pins_to_claims(snapshot)]


def refusals(fleet: Fleet, snapshot: Snapshot) -> dict[str, Refusal]:
    """Returns instance id -> why it is not adopted although its tag asks for it."""
    checks = AdoptionPass(fleet, snapshot)
    found: dict[str, Refusal] = {}
    for instance in asking(snapshot):
        judged = checks.judge(instance)
        if isinstance(judged, Refusal):
            found[instance.id] = judged
        else:
            checks.take(judged)
    return found | _untagged(snapshot)


def asking(snapshot: Snapshot) -> Sequence[Instance]:
    """Returns the machines, by id, whose tag asks for adoption and that no claim answers for."""
    return _asking(snapshot.index, snapshot.instances, snapshot.claims)


@derived()
def _asking(index: Index, instances: Mapping[str, Instance], claims: Mapping[str, Claim]) -> Sequence[Instance]:
    here = _with_the_tag(index, instances)
    if not here:
        return ()
    owned = claimed_instances(index, claims)
    return [found for found in here if found.id not in owned]


@derived()
def _with_the_tag(_index: Index, instances: Mapping[str, Instance]) -> Sequence[Instance]:
    return [found for _, found in sorted(instances.items()) if asks(found) and not found.gone]


@derived()
def claimed_instances(_index: Index, claims: Mapping[str, Claim]) -> frozenset[str]:
    """Returns the ids of the machines that a claim answers for."""
    return frozenset(claim.instance_id for claim in claims.values() if claim.instance_id)


def _in_hand(snapshot: Snapshot, instance: Instance) -> bool:
    node = nodes_by_instance(snapshot)[instance.id]
    subjects = {claim_subject(claim_name(instance.id)), instance_subject(instance.id), node_subject(node.name)}
    return not subjects.isdisjoint(snapshot.busy)


# -- claims whose machine is not ours yet ----------------------------------------------------------------------------


def being_adopted(snapshot: Snapshot, claim: Claim) -> bool:
    """Returns whether the claim's machine still lacks the cluster's tags: giving the claim up then leaves it alone."""
    instance = snapshot.instances.get(claim.instance_id)
    adopting = bool(claim.adopts) and not claim.registered_at_s
    return adopting and not _taken_over(instance, own_tags(claim, snapshot.cluster))


def _taken_over(instance: Instance | None, tags: Mapping[str, str]) -> bool:
    """Returns whether the instance carries the tags of its claim (`launch.own_tags`)."""
    return instance is not None and all(instance.tags.get(key) == value for key, value in tags.items())


def _untagged(snapshot: Snapshot) -> dict[str, Refusal]:
    """Returns the machines that have waited too long for their tags: most likely the agent may not write them."""
    late = {
        claim.adopts
        for claim in _adopting(snapshot.index, snapshot.claims)
        if snapshot.now_s - claim.launched_at_s >= TAGGED_WITHIN_S
        and not _taken_over(snapshot.instances.get(claim.adopts), own_tags(claim, snapshot.cluster))
    }
    needed = snapshot.catalog.tagging_permission
    message = f"the cluster's tags could not be written on it, as the log says: the agent's role needs {needed} for it"
    return {instance_id: Refusal(Reason.NOT_TAGGED, message) for instance_id in sorted(late)}


@derived()
def _adopting(_index: Index, claims: Mapping[str, Claim]) -> Sequence[Claim]:
    adopting = [claim for claim in claims.values() if claim.adopts and not claim.registered_at_s]
    return sorted(adopting, key=lambda claim: claim.name)


# -- gangs that stood there before -----------------------------------------------------------------------------------


def _pins_to_claims(snapshot: Snapshot) -> Iterator[Decided]:
    """Pins gangs that ran on a node before it was adopted to its claim."""
    adopted = _adopted_nodes(snapshot.index, snapshot.claims)
    if not adopted:
        return iter(())

    def pin(gang: Gang) -> Iterator[Action]:
        after = replace(gang, pins=_pinned(gang.pins, adopted), leaving=_pinned(gang.leaving, adopted))
        if after != gang:
            yield SaveGang(after)

    there = ((gang_subject(gang.uid), gang) for gang in _unclaimed(snapshot.index, holders(snapshot), adopted))
    return each(snapshot, ((subject, gang) for subject, gang in there if subject not in snapshot.busy), pin)


@derived()
def _adopted_nodes(_index: Index, claims: Mapping[str, Claim]) -> Mapping[str, str]:
    """Returns node -> the claim that has adopted it."""
    return {claim.node: claim.name for claim in claims.values() if claim.adopts and claim.node}


@derived()
def _unclaimed(_index: Index, gangs: Sequence[Gang], adopted: Mapping[str, str]) -> Sequence[Gang]:
    """Returns the gangs with a pin that names an adopted node and no claim."""
    return [gang for gang in gangs if any(not pin.claim and pin.node in adopted for pin in (*gang.pins, *gang.leaving))]


def _pinned(pins: tuple[Pin, ...], adopted: Mapping[str, str]) -> tuple[Pin, ...]:
    return tuple(pin if pin.claim or pin.node not in adopted else replace(pin, claim=adopted[pin.node]) for pin in pins)
