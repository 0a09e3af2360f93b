"""What is written to the cluster says everything that must survive a crash, and the server stores all of it."""

from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given

from fleet.snapshot import (
    LIVE_FIELDS,
    Claim,
    CutOrder,
    DecisionFailure,
    Eviction,
    Gang,
    IdleGpus,
    Job,
    Launch,
    NodeDisruption,
    Pin,
    PodSet,
    Slice,
    WriteRefusal,
)
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints, TopologySpreadConstraint
from providers.kube.objects import (
    SyncReport,
    claim_object,
    claim_status,
    decode_claim,
    decode_standing,
    decode_sync,
    decode_workload,
    sync_object,
    sync_status,
    workload_object,
    workload_status,
)
from providers.kube.objects.crds import definitions
from tests.providers.kube.objects.structural import faults
from tests.providers.kube.objects.values import NOW_S, as_stored, claims, gangs, reports, unhurried

SCHEMAS = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for crd in definitions()
}


def assert_stored_whole(*bodies: dict[str, Any]) -> None:
    for body in bodies:
        found = [fault for fault in faults(SCHEMAS[body["kind"]], body) if fault != ".spec: missing"]
        assert not found


@unhurried
@given(gang=gangs())
def test_gang_survives(gang: Gang) -> None:
    body, status = workload_object(gang), workload_status(gang, NOW_S)
    assert_stored_whole(body, status)
    assert decode_workload(msgspec.json.encode(as_stored(body, status))) == gang


@unhurried
@given(gang=gangs())
def test_gang_survives_its_own_history(gang: Gang) -> None:
    """The conditions of an earlier state change nothing but reasons and times."""
    body = workload_object(gang)
    before = decode_standing(msgspec.json.encode(as_stored(body, workload_status(gang, NOW_S))))[0]
    status = workload_status(gang, NOW_S + 100, before)
    assert decode_workload(msgspec.json.encode(as_stored(body, status))) == gang
    was = {condition.type: condition for condition in before}
    for condition in decode_standing(msgspec.json.encode(as_stored(body, status)))[0]:
        changed = condition.type not in was or was[condition.type].holds is not condition.holds
        assert condition.since_s == (NOW_S + 100 if changed else NOW_S)


KNOWN = {
    Gang: "uid namespace workload job queue priority_class priority pod_sets created_at_s state reason message "
    "since_s flavors pins leaving recuts quota_reserved_at_s admitted_at_s pods_ready not_ready_since_s "
    "replacing_since_s eviction evictions requeue_at_s preempts active timeouts ran_before_s checks idle refused "
    "failure last_checkpoint_s checkpoint_interval_s do_not_disrupt expected_run_s max_run_s sla_waiting_s "
    "priority_boost deletion_cost workload_uid remaining choice labels",
    PodSet: "name count requests node_selector required_affinity tolerations namespace labels constraints "
    "runtime_class unsupported forbidden amounts resource_claims required_topology preferred_topology any_topology "
    "slices group min_count core part_of",
    PodConstraints: "affinity anti_affinity spread host_ports claims ephemeral preferred_nodes preferred_pods devices",
    PodAffinityTerm: "topology_key selector namespaces namespace_selector",
    TopologySpreadConstraint: "topology_key max_skew selector hard min_domains honors_affinity honors_taints",
    Slice: "level size",
    Pin: "pod_set node claim count",
    Eviction: "reason message at_s room_for admitted_at_s",
    Claim: "name uid node_pool pool_hash capacity_pool price_usd_h launch created_at_s gang purpose replaces also_for "
    "adopts resources layout gpu_cuts startup_taints instance_id node launched_at_s registered_at_s ready_at_s "
    "emptied_at_s recut_at_s cut advised_at_s node_ready deleting disruption refused failure list_usd_h gpu_conditions "
    "history",
    IdleGpus: "since_s idle of after_s",
    CutOrder: "reason message since_s began_s asked_at_s tries former before",
    DecisionFailure: "error cause",
    WriteRefusal: "reason message",
    Launch: "group lot size",
    NodeDisruption: "reason message at_s deadline_s",
}


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_a_new_field_needs_a_place_on_the_wire(kind: type) -> None:
    """Then add it to the strategies too, so that the round trips below see it."""
    assert [field.name for field in fields(kind)] == KNOWN[kind].split()


def test_live_fields_are_fields_of_the_job() -> None:
    assert {field.name for field in fields(Job)} > set(LIVE_FIELDS)


@unhurried
@given(gang=gangs())
def test_live_fields_come_back_as_defaults(gang: Gang) -> None:
    lively = replace(gang, **dict.fromkeys(LIVE_FIELDS, 5))
    assert all(getattr(lively, name) != getattr(gang, name) for name in LIVE_FIELDS)
    stored = as_stored(workload_object(lively), workload_status(lively, NOW_S))
    assert decode_workload(msgspec.json.encode(stored)) == gang


@unhurried
@given(gang=gangs())
def test_workload_without_status_is_a_pending_gang(gang: Gang) -> None:
    body = as_stored(workload_object(gang), creationTimestamp="2027-01-15T08:00:00Z")
    found = decode_workload(msgspec.json.encode(body))
    assert (found.state, found.reason, found.pins, found.eviction) == ("Pending", "Queued", (), None)
    assert (found.pod_sets, found.job, found.created_at_s) == (gang.pod_sets, gang.job, gang.created_at_s)
    assert found.since_s == NOW_S


@unhurried
@given(claim=claims)
def test_claim_survives(claim: Claim) -> None:
    body, status = claim_object(claim), claim_status(claim, NOW_S)
    assert_stored_whole(body, status)
    server = {"uid": claim.uid} | ({"deletionTimestamp": "2027-01-15T08:00:00Z"} if claim.deleting else {})
    assert decode_claim(msgspec.json.encode(as_stored(body, status, **server))) == claim


@unhurried
@given(claim=claims)
def test_a_claim_says_whether_its_node_is_ready_while_that_matters(claim: Claim) -> None:
    sick = replace(claim, ready_at_s=NOW_S, deleting=False, disruption=None, node_ready=False)
    body, status = claim_object(sick), claim_status(sick, NOW_S)
    assert decode_claim(msgspec.json.encode(as_stored(body, status, uid=claim.uid))) == sick
    (ready,) = (one for one in status["status"]["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NodeNotReady")


@unhurried
@given(claim=claims.filter(lambda claim: bool(claim.adopts)))
def test_the_first_write_of_an_adoption_says_all_of_it(claim: Claim) -> None:
    """No crash between it and the first status makes it a claim that is still to be bought."""
    first = replace(claim, launched_at_s=claim.created_at_s)
    found = decode_claim(msgspec.json.encode(as_stored(claim_object(first), uid=first.uid)))
    assert found == first
    assert (found.state, found.instance_id) == ("Launched", "i-0a1b")


@unhurried
@given(claim=claims)
def test_recut_is_kept_beside_the_unchanged_specification(claim: Claim) -> None:
    recut = replace(claim, layout="", resources={}, recut_at_s=NOW_S)
    server = {"uid": claim.uid} | ({"deletionTimestamp": "2027-01-15T08:00:00Z"} if claim.deleting else {})
    stored = as_stored(claim_object(claim), claim_status(recut, NOW_S), **server)
    assert decode_claim(msgspec.json.encode(stored)) == recut


@unhurried
@given(report=reports)
def test_sync_survives(report: SyncReport) -> None:
    body, status = sync_object(report.name, "file:///fleet", "main", ""), sync_status(report, NOW_S)
    assert_stored_whole(body, status)
    assert decode_sync(msgspec.json.encode(as_stored(body, status))) == report


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:token@git.example.com/fleet.git?x=1#y", "https://git.example.com/fleet.git"),
        ("https://git.example.com:8443/fleet.git", "https://git.example.com:8443/fleet.git"),
        ("ssh://git@git.example.com/fleet.git", "ssh://git.example.com/fleet.git"),
        ("git@git.example.com:fleet.git", "git@git.example.com:fleet.git"),
        ("file:///srv/fleet", "file:///srv/fleet"),
        ("/srv/fleet", "/srv/fleet"),
    ],
)
def test_credentials_stay_out_of_the_cluster(url: str, shown: str) -> None:
    assert sync_object("fleet", url, "main", "")["spec"]["url"] == shown
