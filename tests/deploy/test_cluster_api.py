"""What is applied to a cluster names API versions that it serves, and gives people and the agent what they need there.

`data/served.json` is what a real API server of that version said it serves (`/api` and `/apis`, default settings).
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import NAMESPACE
from providers.kube.objects.crds import NAMES
from providers.kube.resources import LEASES
from tools import roles

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = ROOT / "deploy/components"
SERVED: dict[str, list[str]] = json.loads((Path(__file__).parent / "data/served.json").read_text("utf-8"))
DEFINED_BY_OTHERS = {"monitoring.coreos.com/v1"}
"""Of CustomResourceDefinitions that are there before a component is used."""
Manifest = dict[str, Any]


def built(folder: Path, *components: str) -> list[Manifest]:
    """What kubectl makes of the base with these components."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH")
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    overlay = {"resources": ["../deploy/base"], "components": [f"../deploy/components/{name}" for name in components]}
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    (folder / "overlay").mkdir()
    (folder / "overlay/kustomization.yaml").write_text(yaml.safe_dump(head | overlay), "utf-8")
    command = [kubectl, "kustomize", str(folder / "overlay")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return list(yaml.safe_load_all(done.stdout))


def test_the_role_of_the_mig_component_stays_where_the_gpu_operator_is(tmp_path: Path) -> None:
    (role,) = [it for it in built(tmp_path, "mig") if (it["kind"], it["metadata"]["name"]) == ("Role", "muster-mig")]
    assert role["metadata"]["namespace"] == "gpu-operator"


def policies(documents: list[Manifest]) -> Iterator[Manifest]:
    return (it for it in documents if it["kind"].startswith("MutatingAdmissionPolicy"))


def test_a_cluster_of_1_36_serves_all_that_is_applied(tmp_path: Path) -> None:
    every = [it.name for it in COMPONENTS.iterdir() if it.name != "admission-policy-1.34"]
    named = {it["apiVersion"] for it in built(tmp_path, *every)}
    assert named - set(SERVED["1.36"]) == DEFINED_BY_OTHERS


def test_the_policies_for_1_34_are_those_of_1_36_in_another_version(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    new = list(policies(built(tmp_path / "new", "admission-policy")))
    old = list(policies(built(tmp_path / "old", "admission-policy-1.34")))
    assert {it["apiVersion"] for it in new} == {"admissionregistration.k8s.io/v1"}
    assert [it | {"apiVersion": "admissionregistration.k8s.io/v1beta1"} for it in new] == old
    assert old


# -- people -----------------------------------------------------------------------------------------------------------


def base(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((ROOT / "deploy/base" / name).read_text("utf-8")))


def test_people_see_every_kind_and_change_only_what_is_theirs() -> None:
    rules = {role["metadata"]["name"]: role["rules"] for role in base("user-roles.yaml")}
    may = {
        name: {(res, verb) for r in rule for res in r["resources"] for verb in r["verbs"]}
        for name, rule in rules.items()
    }
    seen = (*NAMES, "resourceclaims", "resourceslices")
    assert may["muster-view"] == {(plural, verb) for plural in seen for verb in ("get", "list", "watch")}
    assert may["muster-edit"] == {("workloads", verb) for verb in ("patch", "update", "delete")}
    assert may["muster-operator"] == {
        *(("fleetsyncs", verb) for verb in ("get", "list", "patch")),
        ("nodeclaims", "delete"),
    }


def test_the_roles_of_kubernetes_take_them_in() -> None:
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    taken = {
        role["metadata"]["name"]: {key.removeprefix(prefix) for key in role["metadata"].get("labels", ())}
        for role in base("user-roles.yaml")
    }
    assert taken == {
        "muster-view": {"view", "edit", "admin"},
        "muster-edit": {"edit", "admin"},
        "muster-operator": set(),
    }


# -- priority and fairness --------------------------------------------------------------------------------------------


def test_the_lease_goes_with_those_of_controllers_and_before_the_rest() -> None:
    lease, rest = (document["spec"] for document in base("flow-schemas.yaml"))
    assert lease["priorityLevelConfiguration"]["name"] == "leader-election"
    assert lease["matchingPrecedence"] < rest["matchingPrecedence"] < 9000, "before `service-accounts`"
    for spec in (lease, rest):
        (rule,) = spec["rules"]
        assert rule["subjects"] == [
            {"kind": "ServiceAccount", "serviceAccount": {"name": "muster", "namespace": NAMESPACE}}
        ]
    (asked,) = lease["rules"][0]["resourceRules"]
    granted = {verb for rule in roles.own_namespace_rules() if rule.resource == LEASES for verb in rule.verbs}
    assert (asked["resources"], asked["namespaces"]) == (["leases"], [NAMESPACE])
    assert set(asked["verbs"]) == granted
