"""Writes the roles of the agent and of who makes plans: `python -m tools.roles deploy`.

What is read follows from what is watched (`agent/sources.py`); what is written stands here, beside the reason. A test
compares the files, and another runs the agent with nothing but these rights.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.config import BOOKS, LEASE, NAMESPACE, MigSettings
from agent.sources import WATCHED
from fleet.snapshot import Hold
from providers.kube.objects import HARD_FENCE
from providers.kube.objects.jobs import KINDS
from providers.kube.objects.paths import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEVICE_CLASSES,
    EVENTS,
    FLEET_SYNCS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODE_CLAIMS,
    NODE_POOLS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    VOLUME_CLAIMS,
    WORKLOADS,
)
from providers.kube.resources import LEASES, PODS, ResourcePath
from providers.kube.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS

WATCH = ("list", "watch")
_WHY: Mapping[ResourcePath, str] = {
    NODES: "Machines: labels and taints, cordon, and removal of nodes whose machine is gone.",
    PODS: "Pods: release onto their node, end by force past a deadline; of what is held pod by pod, also to stop it.",
    EVENTS: "What people read with kubectl describe.",
    NAMESPACES: "What queues select namespaces by.",
    PRIORITY_CLASSES: "The priorities pods have.",
    RUNTIME_CLASSES: "What a runtime adds to its pods: overhead, node selector, tolerations.",
    LIMIT_RANGES: "What the API server gives pods that ask for nothing, and which pods it refuses.",
    VOLUME_CLAIMS: "Where the volumes of pods are, or may be made, and how many a node attaches.",
    DEVICE_CLASSES: "Claims of devices: what pods ask, what machines have, and what of it is in use.",
    POD_DISRUPTION_BUDGETS: "Who may be asked to leave for what is not urgent.",
    RESOURCE_QUOTAS: "What bounds the pods of namespaces, and our fences. `create` knows no names: there is none yet.",
    DAEMON_SETS: "What daemons take on a new machine.",
    JOBS: "Work: start and stop. Where there is no patch, the pods are held and not the objects.",
    WORKLOADS: "Its own objects. Of the FleetSync it also hears requests to poll.",
}


@dataclass(frozen=True, slots=True)
class RoleRule:
    """One rule of a role: verbs on a resource or a subresource, of all objects or of those named."""

    resource: ResourcePath
    verbs: tuple[str, ...]
    subresource: str = ""
    names: tuple[str, ...] = ()
    why: str = ""

    def lines(self) -> Iterator[str]:
        """The rule as it stands in a list of rules."""
        plural = f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural
        if self.why:
            yield f"  # {self.why}"
        group = self.resource.group or '""'
        yield f"  - apiGroups: [{group}]"
        yield f"    resources: [{plural}]"
        if self.names:
            yield f"    resourceNames: [{', '.join(self.names)}]"
        yield f"    verbs: [{', '.join(self.verbs)}]"


def _read_one_by_one() -> tuple[ResourcePath, ...]:
    """What is read again by name before it is written, and the FleetSync that an earlier process has left."""
    work = tuple(kind.path for kind in KINDS if kind.hold is Hold.SWITCH)
    return (*work, NODES, PODS, WORKLOADS, NODE_CLAIMS, FLEET_SYNCS)


def _written() -> Mapping[ResourcePath, tuple[str, ...]]:
    """What is written, beside subresources."""
    work = {kind.path: ("patch",) for kind in KINDS if kind.hold is Hold.SWITCH}
    return {
        **work,
        NODES: ("patch", "delete"),
        PODS: ("patch", "delete"),
        EVENTS: ("create", "patch"),
        RESOURCE_QUOTAS: ("create",),
        WORKLOADS: ("create", "patch", "delete"),
        NODE_CLAIMS: ("create", "patch", "delete"),
        FLEET_SYNCS: ("create", "patch"),
        QUEUES: ("create", "patch", "delete"),
        NODE_POOLS: ("create", "patch", "delete"),
    }


_ONE_OF_A_NAME = (RoleRule(RESOURCE_QUOTAS, ("patch", "delete"), names=(HARD_FENCE,)),)
_REVIEWS = (
    RoleRule(TOKEN_REVIEWS, ("create",), why="Who looks at the page, and at whose work they may look."),
    RoleRule(ACCESS_REVIEWS, ("create",)),
)
_SUBRESOURCES = (
    RoleRule(PODS, ("create",), "eviction", why="Evictions heed PodDisruptionBudgets, deletions do not."),
    RoleRule(JOBS, ("patch",), "status", why="Only to clear startTime, without which a template cannot change."),
    *(RoleRule(it, ("patch",), "status") for it in (WORKLOADS, NODE_CLAIMS, FLEET_SYNCS, QUEUES, NODE_POOLS)),
)


def _watched() -> tuple[ResourcePath, ...]:
    return tuple(dict.fromkeys(watched.resource for watched in WATCHED.values()))


def agent_rules() -> tuple[RoleRule, ...]:
    """What the agent may do in the whole cluster."""
    reads = {
        **dict.fromkeys(_watched(), WATCH),
        FLEET_SYNCS: WATCH,
        QUEUES: ("get", "list"),
        NODE_POOLS: ("get", "list"),
    }
    writes, ones = _written(), dict.fromkeys(_read_one_by_one(), ("get",))
    verbs = {it: (*ones.get(it, ()), *reads.get(it, ()), *writes.get(it, ())) for it in {**reads, **writes}}
    rules = (RoleRule(it, granted, why=_WHY.get(it, "")) for it, granted in verbs.items())
    return (*rules, *_ONE_OF_A_NAME, *_SUBRESOURCES, *_REVIEWS)


def own_namespace_rules() -> tuple[RoleRule, ...]:
    """What it may do where it lives: no object of that namespace is its to write but these two."""
    first = "A name cannot be given for `create`: at that moment there is none. What exists cannot be changed by it."
    return (
        RoleRule(LEASES, ("create",), why=first),
        RoleRule(LEASES, ("get", "update"), names=(LEASE,), why="Which of two agents leads."),
        RoleRule(CONFIG_MAPS, ("create",)),
        RoleRule(
            CONFIG_MAPS, ("get", "patch"), names=(BOOKS,), why="What was spent. Signers and settings stand elsewhere."
        ),
    )


def mig_rules() -> tuple[RoleRule, ...]:
    """What it may do where mig-manager and the device plugin read their configurations."""
    why = "A name cannot be given for `create`: at that moment there is none."
    names = (MigSettings().config_map, MigSettings().device_plugin_config_map)
    return RoleRule(CONFIG_MAPS, ("create",), why=why), RoleRule(CONFIG_MAPS, ("get", "patch"), names=names)


def plan_rules() -> tuple[RoleRule, ...]:
    """What `muster plan --world`, `get`, `explain` and `offers` read."""
    listed = tuple(dict.fromkeys((*_watched(), FLEET_SYNCS, NODE_POOLS)))
    return (*(RoleRule(it, ("list",)) for it in listed), RoleRule(QUEUES, ("get", "list")))


def plan_books_rules() -> tuple[RoleRule, ...]:
    """The agent's books: what was used lately, for the order of queues."""
    return (RoleRule(CONFIG_MAPS, ("get",), names=(BOOKS,)),)


def document(kind: str, name: str, rules: Iterable[RoleRule], namespace: str = "") -> str:
    """A Role or ClusterRole as YAML."""
    head = ["apiVersion: rbac.authorization.k8s.io/v1", f"kind: {kind}", "metadata:", f"  name: {name}"]
    head += [f"  namespace: {namespace}"] if namespace else []
    return "\n".join([*head, "rules:", *(line for rule in rules for line in rule.lines())]) + "\n"


def binding(kind: str, name: str, subject: str, namespace: str = "") -> str:
    """The binding of a role of the same name to a service account of the agent's namespace."""
    head = ["apiVersion: rbac.authorization.k8s.io/v1", f"kind: {kind}Binding", "metadata:", f"  name: {name}"]
    head += [f"  namespace: {namespace}"] if namespace else []
    role = ["roleRef:", "  apiGroup: rbac.authorization.k8s.io", f"  kind: {kind}", f"  name: {name}"]
    to = ["subjects:", "  - kind: ServiceAccount", f"    name: {subject}", f"    namespace: {NAMESPACE}"]
    return "\n".join([*head, *role, *to]) + "\n"


def account(name: str, namespace: str = "") -> str:
    """A service account."""
    head = ["apiVersion: v1", "kind: ServiceAccount", "metadata:", f"  name: {name}"]
    return "\n".join([*head, *([f"  namespace: {namespace}"] if namespace else [])]) + "\n"


def manifests() -> Mapping[str, str]:
    """Path below `deploy/` -> its content."""
    mig, plan = MigSettings().namespace, "muster-plan"
    return {
        "base/rbac.yaml": _file(
            "What the agent may do, and no more.",
            account("muster"),
            document("ClusterRole", "muster", agent_rules()),
            binding("ClusterRole", "muster", "muster"),
            document("Role", "muster", own_namespace_rules()),
            binding("Role", "muster", "muster"),
        ),
        "components/mig/rbac.yaml": _file(
            "What mig-manager and the device plugin read.",
            document("Role", "muster-mig", mig_rules(), mig),
            binding("Role", "muster-mig", "muster", mig),
        ),
        "components/plan-reader/rbac.yaml": _file(
            "What reads a cluster for a plan, and writes nothing: for CI.",
            account(plan, NAMESPACE),
            document("ClusterRole", plan, plan_rules()),
            binding("ClusterRole", plan, plan),
            document("Role", plan, plan_books_rules(), NAMESPACE),
            binding("Role", plan, plan, NAMESPACE),
        ),
    }


def _file(words: str, *documents: str) -> str:
    return f"# {words} Written by tools/roles.py (`make schema`).\n" + "---\n".join(documents)


def main(folder: Path) -> None:
    """Writes every manifest below `folder`."""
    for name, content in manifests().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
