"""The agent may do exactly what its code does: a table of verbs, the roles, the code's paths, and a run."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import BOOKS, LEASE, NAMESPACE, MigSettings
from agent.sources import WATCHED
from fleet.snapshot import Hold
from providers.kube.errors import Forbidden
from providers.kube.objects import HARD_FENCE
from providers.kube.objects.jobs import KINDS
from providers.kube.objects.paths import ALL
from providers.kube.resources import LEASES
from providers.kube.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from providers.sim.apiserver.routes import Route, parse_route
from providers.sim.direct import DirectTransport
from tests.agent.scenes import P4DE, B, Scene, files, gpu_job, gpu_jobset, layout, pool, queue, team
from tests.agent.test_simulation_trouble import slices
from tools import roles

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"

REVIEWS = (ACCESS_REVIEWS, TOKEN_REVIEWS)
_WATCHED = {"list", "watch"}
_READ = _WATCHED | {"get"}
_OWN = _READ | {"create", "patch", "delete"}

# (API group, resource) -> verbs, in the whole cluster
CLUSTER: dict[tuple[str, str], set[str]] = {
    ("", "nodes"): _READ | {"patch", "delete"},
    ("", "pods"): _READ | {"patch", "delete"},
    ("", "pods/eviction"): {"create"},
    ("", "events"): {"create", "patch"},
    ("", "namespaces"): _WATCHED,
    ("scheduling.k8s.io", "priorityclasses"): _WATCHED,
    ("policy", "poddisruptionbudgets"): _WATCHED,
    ("", "resourcequotas"): _WATCHED | {"create", "patch", "delete"},
    ("", "limitranges"): _WATCHED,
    ("node.k8s.io", "runtimeclasses"): _WATCHED,
    **{("", plural): _WATCHED for plural in ("persistentvolumeclaims", "persistentvolumes")},
    **{("storage.k8s.io", plural): _WATCHED for plural in ("storageclasses", "csinodes")},
    **{
        ("resource.k8s.io", plural): _WATCHED
        for plural in (
            *("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"),
            "devicetaintrules",
        )
    },
    ("apps", "daemonsets"): _WATCHED,
    ("batch", "jobs/status"): {"patch"},
    ("authentication.k8s.io", "tokenreviews"): {"create"},
    ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
    **{
        (kind.path.group, kind.path.plural): _WATCHED | ({"get", "patch"} if kind.hold is Hold.SWITCH else set())
        for kind in KINDS
    },
    ("scheduling.volcano.sh", "podgroups"): _WATCHED,
    **{("muster.dev", plural): _OWN for plural in ("workloads", "nodeclaims")},
    ("muster.dev", "fleetsyncs"): _OWN - {"delete"},
    **{("muster.dev", plural): _OWN - {"watch"} for plural in ("queues", "nodepools")},
    **{
        ("muster.dev", f"{plural}/status"): {"patch"}
        for plural in ("workloads", "nodeclaims", "fleetsyncs", "queues", "nodepools")
    },
}
WRITTEN = {
    ("", "configmaps"),
    ("", "events"),
    ("", "nodes"),
    ("", "resourcequotas"),
    ("batch", "jobs"),
    ("jobset.x-k8s.io", "jobsets"),
    ("muster.dev", "fleetsyncs/status"),
    ("muster.dev", "nodeclaims/status"),
    ("muster.dev", "workloads/status"),
}
"""What the story below writes among other things."""

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


def test_of_resource_quotas_only_those_of_one_name_may_be_changed() -> None:
    (role,) = [it for it in documents("base/rbac.yaml") if it["kind"] == "ClusterRole"]
    rules = [it for it in role["rules"] if it["resources"] == ["resourcequotas"]]
    assert [(it["verbs"], it.get("resourceNames")) for it in rules] == [
        (["list", "watch", "create"], None),
        (["patch", "delete"], [HARD_FENCE]),
    ]


def test_the_role_is_the_table() -> None:
    assert granted("base/rbac.yaml", "Role") == OWN_NAMESPACE


def test_the_mig_role_is_the_table() -> None:
    assert granted("components/mig/rbac.yaml", "Role") == MIG_NAMESPACE


GPU_OPERATOR_MAPS = {"configmaps": [MigSettings().config_map, MigSettings().device_plugin_config_map]}


@pytest.mark.parametrize(
    ("path", "namespace", "names"),
    [
        ("components/mig/rbac.yaml", MigSettings().namespace, GPU_OPERATOR_MAPS),
        ("base/rbac.yaml", None, {"configmaps": [BOOKS], "leases": [LEASE]}),
        ("components/plan-reader/rbac.yaml", NAMESPACE, {"configmaps": [BOOKS]}),
    ],
)
def test_in_a_namespace_only_what_is_named_may_be_read_or_changed(
    path: str, namespace: str | None, names: dict[str, list[str]]
) -> None:
    """Above all no ConfigMap with its own settings or signers. A name cannot be given for `create` alone."""
    (role,) = [document for document in documents(path) if document["kind"] == "Role"]
    assert role["metadata"].get("namespace") == namespace
    for rule in role["rules"]:
        (resource,) = rule["resources"]
        assert rule["verbs"] == ["create"] or rule["resourceNames"] == names[resource]


@pytest.mark.parametrize("folder", ["base", "overlays/example"])
def test_settings_signers_and_secrets_stand_where_the_agent_cannot_write(folder: str) -> None:
    """What the pod mounts is none of the objects that its roles name, and is mounted read-only."""
    (deployment,) = documents("base/deployment.yaml")
    pod = deployment["spec"]["template"]["spec"]
    named = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    assert named == {it["name"] for it in documents(f"{folder}/kustomization.yaml")[0]["configMapGenerator"]}
    assert not named & {BOOKS, MigSettings().config_map}
    assert ("", "secrets") not in CLUSTER | OWN_NAMESPACE
    held = {volume["name"] for volume in pod["volumes"] if {"configMap", "secret"} & volume.keys()}
    mounts = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] in held]
    assert len(mounts) == len(held)
    assert all(mount["readOnly"] for mount in mounts)


@pytest.mark.parametrize("name", roles.manifests())
def test_the_roles_are_current(name: str) -> None:
    """`make schema` writes them."""
    assert (DEPLOY / name).read_text("utf-8") == roles.manifests()[name]


def test_who_makes_plans_may_read_all_that_is_watched_and_write_nothing() -> None:
    found = granted("components/plan-reader/rbac.yaml", "ClusterRole")
    watched = {(it.resource.group, it.resource.plural) for it in WATCHED.values()}
    own = {("muster.dev", "fleetsyncs"), ("muster.dev", "nodepools"), ("muster.dev", "queues")}
    assert found.keys() == watched | own
    assert set().union(*found.values()) == {"get", "list"}
    assert {name for name, verbs in found.items() if "get" in verbs} == {("muster.dev", "queues")}, (
        "by name, to explain"
    )


class Authorizer:
    """Refuses what the agent's roles do not grant, as the API server would; remembers what was asked for."""

    def __init__(self) -> None:
        self.used: set[tuple[str, str, str]] = set()
        self.refused: list[str] = []
        self._rules = [
            (role["metadata"].get("namespace", NAMESPACE) if role["kind"] == "Role" else "", rule)
            for path in ("base/rbac.yaml", "components/mig/rbac.yaml")
            for role in documents(path)
            for rule in role.get("rules", ())
        ]

    def check(self, method: str, path: str, content_type: str) -> None:
        route = parse_route(path.partition("?")[0])
        assert route is not None, path
        resource = f"{route.plural}/{route.subresource}" if route.subresource else route.plural
        verbs = {route.verb(method, {})}
        if "apply-patch" in content_type and not route.subresource:
            verbs.add("create")  # what server-side apply needs where there is no such object yet
        for verb in verbs:
            self.used.add((route.group, resource, verb))
            name = "" if verb == "create" else route.name
            if not any(self._grants(where, rule, route, resource, verb, name) for where, rule in self._rules):
                self.refused.append(f"{verb} {resource}.{route.group} {route.namespace}/{route.name}")
                raise Forbidden(self.refused[-1])

    @staticmethod
    def _grants(where: str, rule: dict[str, Any], route: Route, resource: str, verb: str, name: str) -> bool:
        return (
            where in {"", route.namespace}
            and route.group in rule["apiGroups"]
            and resource in rule["resources"]
            and verb in rule["verbs"]
            and ("resourceNames" not in rule or name in rule["resourceNames"])
        )


@pytest.fixture
def authorizer(monkeypatch: pytest.MonkeyPatch) -> Authorizer:
    made, call = Authorizer(), DirectTransport._call

    def checked(transport: DirectTransport, method: str, path: str, **options: Any) -> bytes:
        if "/apiextensions.k8s.io/" not in path:  # the definitions come with the manifests
            made.check(method, path, options.get("content_type", ""))
        return call(transport, method, path, **options)

    monkeypatch.setattr(DirectTransport, "_call", checked)
    return made


UNUSED: dict[tuple[str, str, str], str] = {
    ("authentication.k8s.io", "tokenreviews", "create"): "somebody looks at the page",
    ("authorization.k8s.io", "subjectaccessreviews", "create"): "the same",
    ("", "pods", "get"): "pods of groups without an operator are taken in one by one",
    ("", "pods", "delete"): "the same pods are stopped so, and others past the deadline of a drain",
    ("", "pods/eviction", "create"): "pods of nobody leave a machine that is drained so",
    ("batch", "jobs/status", "patch"): "the template of a job that has run changes",
    ("muster.dev", "workloads", "patch"): "a gang is deactivated, or an admission check is prepared",
    **{("muster.dev", plural, "get"): "an event is about one of them" for plural in ("queues", "nodepools")},
    **{
        (kind.path.group, kind.path.plural, verb): "another kind of work, started and stopped alike"
        for kind in KINDS
        for verb in ("get", "patch")
        if kind.hold is Hold.SWITCH and kind.path.plural not in {"jobs", "jobsets"}
    },
}
"""What the story below does not tell -> what it is granted for. Other scenes do."""


def test_an_agent_with_these_roles_is_refused_nothing(authorizer: Authorizer) -> None:
    """A life in which nearly all is written: two kinds of jobs, a preemption, cut GPUs, a fence, what goes."""
    cut = pool("mig", (P4DE,), zones=[B], sharing={"mig": {"layouts": ["thick", "thin"]}}, limits={"nodes": 1})
    layouts = layout("thick", **{"3g_40gb": 2}), layout("thin", **{"1g_10gb": 7})
    slots = {"nvidia.com/mig-3g.40gb": 32, "nvidia.com/mig-1g.10gb": 112}
    quotas = {"h100": {"nvidia.com/gpu": 32}, "mig": slots}
    scene = Scene(
        files(
            pool(limits={"nodes": 4}),
            cut,
            *layouts,
            team(quotas=quotas, hardFence=True),
            queue(flavors=("h100", "mig")),
        )
    )
    low, high = gpu_jobset("low", workers=4), gpu_job("high", pods=2, priority="high")
    thick, thin = slices("thick", "3g.40gb", pods=2, run_s=20), slices("thin", "1g.10gb", pods=7)
    scene.runs(low, 1200)
    scene.sim.submit(thick)
    scene.until_state("thick", "Finished", 2400)
    for manifest in (thin, high):
        scene.sim.submit(manifest)
    scene.until_running("thin", 2400)
    scene.until_running("high", 1200)
    for manifest in (low, high, thick, thin):
        scene.sim.delete(manifest)
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 2400)
    scene.sim.push(files(pool(limits={"nodes": 4}), team(), queue("other", team="t")))
    scene.settle(180)
    assert scene.sim.sync()["conditions"][0]["reason"] == "Applied"
    assert not scene.sim.objects("ResourceQuota")
    assert authorizer.refused == []
    written = {(group, resource) for group, resource, verb in authorizer.used if verb == "patch"}
    assert written >= WRITTEN, "the story has become shorter than its name"
    granted_and_unused = {
        (group, resource, verb)
        for (group, resource), verbs in CLUSTER.items()
        for verb in verbs - {"list", "watch"}  # of what is watched, which the table of watches decides
        if (group, resource, verb) not in authorizer.used
    }
    assert granted_and_unused == set(UNUSED), "a verb that nothing uses is not granted, but for these"


def test_the_table_covers_every_path_of_the_code_and_nothing_else() -> None:
    touched = {(path.group, path.plural) for path in (*ALL, LEASES, *REVIEWS)}
    allowed = {(group, resource.partition("/")[0]) for group, resource in (CLUSTER | OWN_NAMESPACE | MIG_NAMESPACE)}
    assert allowed == touched


def test_namespaced_grants_are_on_namespaced_resources() -> None:
    namespaced = {(path.group, path.plural) for path in (*ALL, LEASES, *REVIEWS) if path.namespaced}
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
