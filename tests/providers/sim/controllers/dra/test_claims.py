"""The life of claims: made from templates, reserved, allocated, given back, protected."""

import re

import pytest

from providers.clock import VirtualClock
from providers.sim.controllers import assemble
from providers.sim.store import Store
from providers.sim.store.releases import RELEASES
from tests.providers.sim.controllers.dra.claim_world import ClaimWorld, exactly


@pytest.fixture
def world() -> ClaimWorld:
    made = ClaimWorld()
    made.template("one-gpu", exactly())
    return made


def test_a_claim_is_named_after_pod_and_claim_and_owned_by_the_pod(world: ClaimWorld) -> None:
    world.pod_from("worker", "one-gpu")
    world.settle()
    (claim,) = world.all("ResourceClaim")
    meta, pod = claim["metadata"], world.the("Pod", "worker")
    assert re.fullmatch(r"worker-gpu-[a-z0-9]{5}", meta["name"])
    assert meta["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert [(it["kind"], it["uid"], it["controller"]) for it in meta["ownerReferences"]] == [
        ("Pod", pod["metadata"]["uid"], True)
    ]
    assert pod["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": meta["name"]}]


def test_long_names_are_cut_in_proportion(world: ClaimWorld) -> None:
    world.pod("p" * 60, resourceClaims=[{"name": "c" * 20, "resourceClaimTemplateName": "one-gpu"}])
    world.settle()
    (claim,) = world.all("ResourceClaim")
    assert re.fullmatch(r"p{41}-c{13}[a-z0-9]{5}", claim["metadata"]["name"])


def test_labels_and_annotations_of_a_template_are_those_of_its_claims(world: ClaimWorld) -> None:
    metadata = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    spec = {"metadata": metadata, "spec": {"devices": {"requests": [exactly()]}}}
    world.create("ResourceClaimTemplate", {"metadata": {"name": "labelled"}, "spec": spec})
    world.pod_from("worker", "labelled")
    world.settle()
    meta = world.all("ResourceClaim")[0]["metadata"]
    assert (meta["labels"], meta["annotations"]["note"]) == ({"team": "a"}, "b")


def test_a_missing_template_is_told_and_nothing_of_the_scheduler_is(world: ClaimWorld) -> None:
    world.gpu_node()
    world.pod_from("worker", "nope")
    world.pass_s(5)
    assert world.events("FailedResourceClaimCreation") == [
        'PodResourceClaim gpu: resource claim template "nope": resourceclaimtemplate.resource.k8s.io "nope" not found'
    ]
    assert world.condition("Pod", "worker", "PodScheduled") is None
    world.template("nope", exactly())
    world.pass_s(5)
    assert world.phase("worker") == "Running"


def test_a_pod_waits_for_a_claim_that_somebody_is_to_make(world: ClaimWorld) -> None:
    world.gpu_node()
    world.pod_with("worker", "later")
    world.pass_s(5)
    assert world.condition("Pod", "worker", "PodScheduled") is None
    world.claim("later", exactly())
    world.pass_s(5)
    assert world.phase("worker") == "Running"


def test_what_is_allocated_is_reserved_and_protected(world: ClaimWorld) -> None:
    world.gpu_node()
    world.pod_from("worker", "one-gpu")
    world.pass_s(5)
    (claim,), pod = world.all("ResourceClaim"), world.the("Pod", "worker")
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "worker", "uid": pod["metadata"]["uid"]}]
    node = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    assert claim["status"]["allocation"]["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": node}]}
    assert claim["status"]["allocation"]["devices"]["results"] == [
        {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
    ]


def test_the_claim_of_a_pod_goes_with_it(world: ClaimWorld) -> None:
    world.gpu_node()
    world.pod_from("worker", "one-gpu")
    world.pass_s(5)
    world.delete("Pod", "worker")
    world.pass_s(60)
    assert not world.all("ResourceClaim")


def test_the_claim_of_a_pod_that_is_over_goes_while_the_pod_stays(world: ClaimWorld) -> None:
    world.gpu_node()
    world.pod_from("worker", "one-gpu", notes={"run-seconds": "10"})
    world.pass_s(60)
    assert world.phase("worker") == "Succeeded"
    assert not world.all("ResourceClaim")


def test_a_claim_of_its_own_is_given_back_by_the_last_who_used_it(world: ClaimWorld) -> None:
    world.gpu_node()
    world.claim("shared", exactly())
    for name, seconds in (("short", "10"), ("long", "100")):
        world.pod_with(name, "shared", notes={"run-seconds": seconds})
    world.pass_s(50)
    status = world.the("ResourceClaim", "shared")["status"]
    assert [it["name"] for it in status["reservedFor"]] == ["long"]
    assert world.devices("shared") == ["gpu-0"]
    world.pass_s(100)
    claim = world.the("ResourceClaim", "shared")
    assert "allocation" not in claim.get("status", {})
    assert not claim["metadata"].get("finalizers")


def test_a_claim_in_use_outlives_its_deletion(world: ClaimWorld) -> None:
    world.gpu_node()
    world.claim("shared", exactly())
    world.pod_with("worker", "shared", notes={"run-seconds": "60"})
    world.pass_s(5)
    world.delete("ResourceClaim", "shared")
    world.pass_s(5)
    assert world.devices("shared") == ["gpu-0"]
    world.pod_with("late", "shared")
    world.pass_s(5)
    assert world.phase("late") == "Pending"
    world.pass_s(100)
    assert world.get("ResourceClaim", "shared") is None


def test_a_shared_claim_holds_its_pods_to_one_node(world: ClaimWorld) -> None:
    world.gpu_node("n1")
    world.claim("shared", exactly())
    world.pod_with("first", "shared", cpu="90")
    world.pass_s(5)
    world.gpu_node("n2")
    world.pod_with("second", "shared", cpu="90")
    world.pass_s(5)
    assert world.why("second") == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 resourceclaim not available on the node. "
        "still not schedulable, preemption: 0/2 nodes are available: "
        "1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    )


def test_an_idle_claim_gives_back_devices_of_a_node_that_does_not_suit(world: ClaimWorld) -> None:
    """As after a node that is gone: nobody uses them, so the claim is allocated anew."""
    world.gpu_node("n1")
    world.claim("kept", exactly())
    world.pod_with("first", "kept", notes={"run-seconds": "600"})
    world.pass_s(5)
    world.delete("Node", "n1")
    world.gpu_node("n2")
    world.pass_s(700)
    world.pod_with("second", "kept")
    world.pass_s(10)
    assert world.phase("second") == "Running"
    assert world.the("Pod", "second")["spec"]["nodeName"] == "n2"


def test_a_pod_bound_by_hand_is_held_until_its_claim_is_its_own(world: ClaimWorld) -> None:
    world.gpu_node()
    world.claim("shared", exactly())
    world.pod_with("stowaway", "shared", nodeName="n1")
    world.pass_s(30)
    assert world.phase("stowaway") == "Pending"
    pod, claim = world.the("Pod", "stowaway"), world.the("ResourceClaim", "shared")
    whose, which = pod["metadata"]["uid"], claim["metadata"]["uid"]
    said = f"pod stowaway ({whose}) is not allowed to use ResourceClaim shared ({which})"
    failed = f"Failed to prepare dynamic resources: prepare dynamic resources: {said}"
    assert world.events("FailedPrepareDynamicResources") == [failed]
    world.pod_with("proper", "shared")  # the scheduler allocates, and the controller reserves for who is bound
    world.pass_s(30)
    assert (world.phase("proper"), world.phase("stowaway")) == ("Running", "Running")


def test_a_release_without_claims_runs_as_before() -> None:
    clock = VirtualClock()
    store = Store(clock, release=RELEASES["1.33"])
    sim = assemble(store, clock)
    sim.kernel.run_until_quiet()
    assert sim.dra_driver is None
