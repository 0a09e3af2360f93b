"""Profiles of releases: what is served, and that discovery says the same."""

from collections.abc import Iterator
from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.apiserver import discovery
from providers.sim.store import LATEST, RELEASES, Release, Store

MUTATING, CLAIMS = "mutatingadmissionpolicies", "resourceclaims"
BETA = "admissionregistration.k8s.io/v1beta1"


def versions(release: Release, plural: str) -> list[str]:
    return [it.api_version for it in Store(VirtualClock(), release=release).resources() if it.plural == plural]


def test_the_last_release_is_the_default() -> None:
    assert Store(VirtualClock()).release == LATEST == RELEASES["1.36"]
    assert discovery.version(LATEST)["gitVersion"] == "v1.36.2"


@pytest.mark.parametrize(
    ("name", "policies", "with_beta", "claims"),
    [
        ("1.32", [], [], []),
        ("1.33", [], [], []),
        ("1.34", [], [BETA], ["resource.k8s.io/v1"]),
        ("1.35", [], [BETA], ["resource.k8s.io/v1"]),
        ("1.36", ["admissionregistration.k8s.io/v1"], ["admissionregistration.k8s.io/v1"], ["resource.k8s.io/v1"]),
    ],
)
def test_each_release_serves_its_versions(
    name: str, policies: list[str], with_beta: list[str], claims: list[str]
) -> None:
    release = RELEASES[name]
    assert versions(release, MUTATING) == policies
    assert versions(release.with_betas(BETA), MUTATING) == with_beta
    assert versions(release, CLAIMS) == claims
    assert versions(release, "validatingadmissionpolicies") == ["admissionregistration.k8s.io/v1"]


@pytest.mark.parametrize(("name", "beta"), [("1.32", "v1beta1"), ("1.33", "v1beta2")])
def test_claims_of_resources_were_beta_once(name: str, beta: str) -> None:
    assert versions(RELEASES[name].with_betas(f"resource.k8s.io/{beta}"), CLAIMS) == [f"resource.k8s.io/{beta}"]


def groups_of(document: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for item in document["items"]:
        yield item["metadata"]["name"], [version["version"] for version in item["versions"]]


@pytest.mark.parametrize("name", RELEASES)
def test_discovery_agrees_with_itself_and_names_a_group_once(name: str) -> None:
    resources = Store(VirtualClock(), release=RELEASES[name].with_betas(BETA)).resources()
    listed = {it["name"]: [v["version"] for v in it["versions"]] for it in discovery.api_groups(resources)["groups"]}
    assert listed == dict(groups_of(discovery.aggregated(resources, core=False)))
    assert listed["admissionregistration.k8s.io"] == (["v1", "v1beta1"] if name in ("1.34", "1.35") else ["v1"])
    group = discovery.api_group("admissionregistration.k8s.io", resources)
    assert group is not None
    assert group["preferredVersion"]["version"] == "v1"
    assert discovery.api_group("nothing.io", resources) is None
    served = discovery.api_resources("v1", resources)
    assert served is not None
    assert ("pods/resize" in {row["name"] for row in served["resources"]}) is (name != "1.32")
