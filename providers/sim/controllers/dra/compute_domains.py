"""NVIDIA's ComputeDomains: the template for the channel that pods claim, and the nodes that have joined.

Source: kubernetes-sigs/dra-driver-nvidia-gpu, `cmd/compute-domain-controller` and its kubelet plugin. A node joins when
a pod on it has a claim of the domain, and leaves with the last. That all nodes are of one clique (an NVLink domain)
nobody sees to: who wants it says so with a pod affinity over `nvidia.com/gpu.clique`.
"""

from typing import Any, Final

from providers.sim.controllers.dra.nvidia_driver import COMPUTE_DOMAINS
from providers.sim.controllers.dra.podclaims import users_of
from providers.sim.controllers.mirror import InformerCache, MirroredCluster
from providers.sim.controllers.objects import Key, Obj, being_deleted, key_of, labels_of, status_of
from providers.sim.controllers.runtime import Reconciler

GROUP: Final = "resource.nvidia.com"
LABEL: Final = f"{GROUP}/computeDomain"
"""On a node: the domain that it is in. The finalizer of what belongs to a domain has the same name."""
CLIQUE: Final = "nvidia.com/gpu.clique"
CHANNEL_CLASS: Final = "compute-domain-default-channel.nvidia.com"
_JOIN_S: Final = 5.0
"""From the claim to a daemon that is ready: its pod is scheduled and started."""


class ComputeDomains(Reconciler[Key]):
    """Keys are ComputeDomains."""

    name = "compute-domains"

    def __init__(self, cluster: MirroredCluster) -> None:
        super().__init__(cluster)
        self._nodes = cluster.mirror("Node")
        self._claims = cluster.mirror("ResourceClaim", "resource.k8s.io")
        self._templates = cluster.mirror("ResourceClaimTemplate", "resource.k8s.io")
        self._claims.index("domain", lambda claim: [domain] if (domain := domain_of(claim)) else [])
        self._claims.watch(self._on_claim)
        self._domains: InformerCache | None = None
        self._joining: dict[tuple[str, str], float] = {}

    def step(self, now: float) -> float | None:
        """Reconcile the domains that are due; the definition of their kind is installed at first."""
        self._mirror()
        return super().step(now)

    def _mirror(self) -> InformerCache:
        if self._domains is None:
            definitions = self._cluster.mirror("CustomResourceDefinition", "apiextensions.k8s.io")
            if definitions.get(("", f"computedomains.{GROUP}")) is None:
                definitions.create(_definition())
            self._domains = self._cluster.mirror("ComputeDomain", GROUP)
            self._domains.index("uid", lambda domain: (domain["metadata"]["uid"],))
            self._domains.watch(self._on_domain)
        return self._domains

    def _on_domain(self, _old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            self._queue.add(key_of(new))

    def _on_claim(self, old: Obj | None, new: Obj | None) -> None:
        if self._domains is None:
            return
        for uid in {domain_of(it) for it in (old, new) if it is not None}:
            for domain in self._domains.by("uid", uid):
                self._queue.add(key_of(domain))

    def reconcile(self, key: Key, now: float) -> float | None:
        """Make a domain's template, and say which nodes are in it."""
        domain = self._mirror().get(key)
        if domain is None:
            return None
        if being_deleted(domain):
            self._take_down(domain)
            return None
        if LABEL not in (domain["metadata"].get("finalizers") or ()):
            self._mirror().update_metadata(domain, finalizers=[*(domain["metadata"].get("finalizers") or ()), LABEL])
            return now
        name = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
        if self._templates.get((key[0], name)) is None:
            self._templates.create(_template(domain, name))
        return self._say_members(domain, now)

    # Members

    def _say_members(self, domain: Obj, now: float) -> float | None:
        """Nodes with a claim join after a while; those without leave at once."""
        uid, members = domain["metadata"]["uid"], self._members(domain["metadata"]["uid"])
        for gone in [it for it in self._joining if it[0] == uid and it[1] not in members]:
            del self._joining[gone]
        due = {node: self._joining.setdefault((uid, node), now + _JOIN_S) for node in members}
        for node in self._nodes:
            self._label(node, uid, belongs=node["metadata"]["name"] in due)
        nodes = self._entries(domain, [node for node in sorted(due) if due[node] <= now])
        wanted = domain["spec"].get("numNodes") or 0
        ready = bool(nodes) and (not wanted or len(nodes) == wanted)
        status = {**({"nodes": nodes} if nodes else {}), "status": "Ready" if ready else "NotReady"}
        if status != status_of(domain):
            self._mirror().update_status(domain, status)
        return min((at for at in due.values() if at > now), default=None)

    def _members(self, uid: str) -> set[str]:
        """The nodes for which a pod has a channel of the domain."""
        claims = (claim for claim in self._claims.by("domain", uid) if users_of(claim))
        results = (it for claim in claims for it in status_of(claim)["allocation"]["devices"]["results"])
        return {it["pool"] for it in results if it["driver"] == COMPUTE_DOMAINS}

    def _label(self, node: Obj, uid: str, *, belongs: bool) -> None:
        labels = labels_of(node)
        if belongs and labels.get(LABEL) != uid:
            self._nodes.update_metadata(node, labels={**labels, LABEL: uid})
        elif not belongs and labels.get(LABEL) == uid:
            self._nodes.update_metadata(node, labels={key: it for key, it in labels.items() if key != LABEL})

    def _entries(self, domain: Obj, joined: list[str]) -> list[Obj]:
        """What the status says of the nodes; a node keeps its index, which is its own within its clique."""
        held = {it["name"]: it for it in status_of(domain).get("nodes") or ()}
        found: list[Obj] = []
        for name in sorted(joined, key=lambda it: (it not in held, it)):
            node = self._nodes.get(("", name))
            clique = labels_of(node).get(CLIQUE, "") if node is not None else ""
            taken = {it["index"] for it in found if it["cliqueID"] == clique}
            index = held[name]["index"] if name in held else next(n for n in range(len(joined)) if n not in taken)
            entry = {"name": name, "cliqueID": clique, "ipAddress": name, "index": index, "status": "Ready"}
            found.append(entry)
        return sorted(found, key=lambda it: str(it["name"]))

    def why_not_prepared(self, node: str, claim: Obj) -> str | None:
        """What the kubelet of a node hears of a claim of a channel; None: its domain's daemon is ready there."""
        uid = domain_of(claim)
        if uid is None:
            return None
        name = claim["metadata"]["name"]
        said = f"NodePrepareResources failed for ResourceClaim {name}: error preparing devices for claim"
        domain = next(iter(self._mirror().by("uid", uid)), None)
        if domain is None:
            return f"{said}: compute domain not found: {uid}"
        if key_of(domain)[0] != key_of(claim)[0]:
            return f"{said}: the ResourceClaim's namespace is different than the ComputeDomain's namespace"
        ready = any(it["name"] == node and it["status"] == "Ready" for it in status_of(domain).get("nodes") or ())
        return None if ready else f"{said}: current node not ready in ComputeDomain {uid}"

    def _take_down(self, domain: Obj) -> None:
        """The template goes, and the domain when nobody is in it any more."""
        uid = domain["metadata"]["uid"]
        for template in [it for it in self._templates if labels_of(it).get(LABEL) == uid]:
            if not being_deleted(template):
                self._templates.delete(template)
                self._cluster.sync()
            held = self._templates.get(key_of(template))
            if held is not None:
                kept = [it for it in held["metadata"].get("finalizers") or () if it != LABEL]
                self._templates.update_metadata(held, finalizers=kept)
        if self._members(uid):
            return
        for node in self._nodes:
            self._label(node, uid, belongs=False)
        kept = [it for it in domain["metadata"].get("finalizers") or () if it != LABEL]
        self._mirror().update_metadata(domain, finalizers=kept)


def domain_of(claim: Obj) -> str | None:
    """The uid of the domain that an allocated claim has a channel of."""
    devices = (status_of(claim).get("allocation") or {}).get("devices") or {}
    for config in devices.get("config") or ():
        opaque: Any = config.get("opaque") or {}
        if opaque.get("driver") == COMPUTE_DOMAINS and opaque["parameters"].get("kind") == "ComputeDomainChannelConfig":
            return str(opaque["parameters"].get("domainID") or "") or None
    return None


def _template(domain: Obj, name: str) -> Obj:
    uid, channel = domain["metadata"]["uid"], domain["spec"]["channel"]
    parameters = {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "ComputeDomainChannelConfig",
        "domainID": uid,
        "allocationMode": channel.get("allocationMode") or "Single",
    }
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}}],
        "config": [{"requests": ["channel"], "opaque": {"driver": COMPUTE_DOMAINS, "parameters": parameters}}],
    }
    labels = {LABEL: uid, f"{LABEL}Target": "Workload"}
    metadata = {"name": name, "namespace": key_of(domain)[0], "finalizers": [LABEL], "labels": labels}
    return {"metadata": metadata, "spec": {"spec": {"devices": devices}}}


def _text(description: str) -> Obj:
    return {"type": "string", "description": description}


def _object(description: str, required: tuple[str, ...], **properties: Obj) -> Obj:
    return {"type": "object", "description": description, "required": list(required), "properties": properties}


def _state(description: str) -> Obj:
    return {**_text(description), "enum": ["Ready", "NotReady"], "default": "NotReady"}


def _spec() -> Obj:
    template = _object("The ResourceClaimTemplate that is made.", ("name",), name=_text("Its name, in this namespace."))
    mode = {**_text("One channel, or all of the domain."), "enum": ["All", "Single"], "default": "Single"}
    nodes = {"type": "integer", "minimum": 0, "default": 0, "description": "So many nodes make the domain Ready."}
    channel = _object(
        "How pods claim a channel.", ("resourceClaimTemplate",), resourceClaimTemplate=template, allocationMode=mode
    )
    rules = [{"rule": "self == oldSelf", "message": "A computeDomain.spec is immutable"}]
    wanted = _object("Nodes that pods share memory across.", ("channel",), numNodes=nodes, channel=channel)
    return {**wanted, "x-kubernetes-validations": rules}


def _status() -> Obj:
    node = _object(
        "A node that has joined.",
        ("name", "ipAddress", "cliqueID"),
        name=_text("Its name."),
        ipAddress=_text("Where its daemon listens."),
        cliqueID=_text("Its NVLink domain; empty where it is in none."),
        index={"type": "integer", "description": "Its number within its clique."},
        status=_state("Whether its daemon is ready."),
    )
    nodes = {
        "type": "array",
        "description": "The nodes that have joined.",
        "items": node,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    return _object("Who is in it.", ("status",), nodes=nodes, status=_state("Whether all nodes have joined."))


def _definition() -> Obj:
    """The CustomResourceDefinition."""
    schema = {
        "type": "object",
        "description": "A set of nodes whose GPUs are joined by NVLink, for a job over several of them.",
        "properties": {"spec": _spec(), "status": _status()},
    }
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {
        "kind": "ComputeDomain",
        "listKind": "ComputeDomainList",
        "plural": "computedomains",
        "singular": "computedomain",
    }
    return {
        "metadata": {"name": f"computedomains.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
