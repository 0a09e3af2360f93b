"""The agent may do exactly what its code does: a table of verbs, compared with the roles and with the code's paths."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

from agent.config import MigSettings
from fleet.snapshot import Hold
from providers.kube.objects.jobs import KINDS
from providers.kube.objects.paths import ALL
from providers.kube.resources import LEASES

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"

_WATCHED = {"get", "list", "watch"}
_OWN = _WATCHED | {"create", "patch", "delete"}

# (API group, resource) -> verbs, in the whole cluster
CLUSTER: dict[tuple[str, str], set[str]] = {
    ("", "nodes"): _WATCHED | {"patch", "delete"},
    ("", "pods"): _WATCHED | {"patch", "delete"},
    ("", "pods/eviction"): {"create"},
    ("", "events"): {"create", "patch"},
    ("", "namespaces"): _WATCHED,
    ("scheduling.k8s.io", "priorityclasses"): _WATCHED,
    ("policy", "poddisruptionbudgets"): _WATCHED,
    ("apps", "daemonsets"): _WATCHED,
    ("batch", "jobs/status"): {"patch"},
    **{
        (kind.path.group, kind.path.plural): _WATCHED | ({"patch"} if kind.hold is Hold.SWITCH else set())
        for kind in KINDS
    },
    ("scheduling.volcano.sh", "podgroups"): _WATCHED,
    **{("muster.dev", plural): _OWN for plural in ("workloads", "nodeclaims", "fleetsyncs", "queues", "nodepools")},
    **{
        ("muster.dev", f"{plural}/status"): {"patch"}
        for plural in ("workloads", "nodeclaims", "fleetsyncs", "queues", "nodepools")
    },
}
# The same in the agent's own namespace, and in mig-manager's.
OWN_NAMESPACE: dict[tuple[str, str], set[str]] = {
    ("coordination.k8s.io", "leases"): {"get", "create", "update"},
    ("", "configmaps"): {"get", "create", "patch"},
}
MIG_NAMESPACE: dict[tuple[str, str], set[str]] = {("", "configmaps"): {"get", "create", "patch"}}


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / path).read_text("utf-8")))


def granted(path: str, kind: str) -> dict[tuple[str, str], set[str]]:
    (role,) = [document for document in documents(path) if document["kind"] == kind]
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found[group, resource] |= set(rule["verbs"])
    return dict(found)


def test_the_cluster_role_is_the_table() -> None:
    assert granted("base/rbac.yaml", "ClusterRole") == CLUSTER


def test_the_role_is_the_table() -> None:
    assert granted("base/rbac.yaml", "Role") == OWN_NAMESPACE


def test_the_mig_role_is_the_table() -> None:
    assert granted("components/mig/rbac.yaml", "Role") == MIG_NAMESPACE


def test_the_mig_role_is_for_the_one_config_map_the_agent_writes() -> None:
    (role,) = [document for document in documents("components/mig/rbac.yaml") if document["kind"] == "Role"]
    assert role["metadata"]["namespace"] == MigSettings().namespace
    for rule in role["rules"]:
        assert rule["verbs"] == ["create"] or rule["resourceNames"] == [MigSettings().config_map]


def test_the_table_covers_every_path_of_the_code_and_nothing_else() -> None:
    touched = {(path.group, path.plural) for path in (*ALL, LEASES)}
    allowed = {(group, resource.partition("/")[0]) for group, resource in (CLUSTER | OWN_NAMESPACE | MIG_NAMESPACE)}
    assert allowed == touched


def test_namespaced_grants_are_on_namespaced_resources() -> None:
    namespaced = {(path.group, path.plural) for path in (*ALL, LEASES) if path.namespaced}
    assert set(OWN_NAMESPACE) | set(MIG_NAMESPACE) <= namespaced


def test_no_wildcards_and_no_secrets() -> None:
    for group, resource in CLUSTER | OWN_NAMESPACE | MIG_NAMESPACE:
        assert "*" not in group + resource
        assert resource not in {"secrets", "serviceaccounts", "serviceaccounts/token", "pods/exec"}
    for verbs in (CLUSTER | OWN_NAMESPACE | MIG_NAMESPACE).values():
        assert not verbs & {"*", "escalate", "bind", "impersonate"}


def test_every_binding_binds_the_agent() -> None:
    for path in ("base/rbac.yaml", "components/mig/rbac.yaml"):
        found = {(one["kind"], one["metadata"]["name"]): one for one in documents(path)}
        bindings = [one for (kind, _), one in found.items() if kind.endswith("Binding")]
        assert bindings
        for binding in bindings:
            assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in found
            assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "muster", "namespace": "muster-system"}]
