"""The resource claim controller: claims from templates, who still uses a claim, and what becomes of it after that.

Source: `pkg/controller/resourceclaim/controller.go`.
"""

from typing import Final

from providers.sim.controllers.dra.podclaims import (
    FINALIZER,
    POD_CLAIM,
    ClaimsNotReady,
    can_be_reserved,
    claim_keys,
    claim_name,
    claims_devices,
    claims_of,
    is_for,
    is_reserved_for,
    reserved,
    users_of,
)
from providers.sim.controllers.eventlog import EventLog
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    annotations_of,
    being_deleted,
    controlled_by,
    controller_of,
    is_terminal,
    key_of,
    node_of,
    status_of,
)
from providers.sim.controllers.runtime import Reconciler

_GROUP: Final = "resource.k8s.io"
_BASE_MOST: Final = 57
"""Letters of a name before a hyphen and five that are random."""
_AGAIN_S: Final = 5.0


class ResourceClaims(Reconciler[tuple[str, Key]]):
    """Keys are pods and claims."""

    name = "resource-claims"

    def __init__(self, cluster: MirroredCluster) -> None:
        super().__init__(cluster)
        self._pods = cluster.mirror("Pod")
        self._claims = cluster.mirror("ResourceClaim", _GROUP)
        self._templates = cluster.mirror("ResourceClaimTemplate", _GROUP)
        self._pods.index("claim", _named)
        self._claims.index("owner", lambda claim: [owner[1]] if (owner := controller_of(claim, "Pod")) else [])
        self._events = EventLog(cluster, "resource_claim")
        self._pods.watch(self._on_pod)
        self._claims.watch(self._on_claim)
        self._templates.watch(self._on_template)

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        pod = new or old or {}
        if not claims_devices(pod):
            return
        if new is not None:
            self._queue.add(("pod", key_of(new)))
        else:
            self._events.forget(pod["metadata"]["uid"])
        if new is None or _is_done(new):
            for key in _named(pod):
                self._queue.add(("claim", key))

    def _on_claim(self, _old: Obj | None, new: Obj | None) -> None:
        if new is None:
            return
        self._queue.add(("claim", key_of(new)))
        for pod in self._pods.by("claim", key_of(new)):
            if node_of(pod):
                self._queue.add(("pod", key_of(pod)))

    def _on_template(self, old: Obj | None, new: Obj | None) -> None:
        if old is not None or new is None:
            return
        namespace, name = key_of(new)
        for pod in self._pods:
            named = (it.get("resourceClaimTemplateName") for it in pod["spec"].get("resourceClaims") or ())
            if key_of(pod)[0] == namespace and name in named:
                self._queue.add(("pod", key_of(pod)))

    def reconcile(self, key: tuple[str, Key], now: float) -> float | None:
        """Bring a pod's claims, or one claim, up to date."""
        kind, of = key
        if kind == "pod":
            pod = self._pods.get(of)
            return None if pod is None or being_deleted(pod) or is_terminal(pod) else self._sync_pod(pod, now)
        claim = self._claims.get(of)
        if claim is not None:
            self._sync_claim(claim)
        return None

    # Pods

    def _sync_pod(self, pod: Obj, now: float) -> float | None:
        made = {}
        for pod_claim in pod["spec"].get("resourceClaims") or ():
            if not self._needs_claim(pod, pod_claim):
                continue
            name = self._made(pod, pod_claim)
            if name is None:
                template = pod_claim["resourceClaimTemplateName"]
                missing = f'resourceclaimtemplate.resource.k8s.io "{template}" not found'
                said = f'PodResourceClaim {pod_claim["name"]}: resource claim template "{template}": {missing}'
                self._events.warning(pod, "FailedResourceClaimCreation", said, now)
                return now + _AGAIN_S * 6
            made[pod_claim["name"]] = name
        if made:
            status = status_of(pod)
            kept = [it for it in status.get("resourceClaimStatuses") or () if it["name"] not in made]
            fresh = [{"name": name, "resourceClaimName": claim} for name, claim in made.items()]
            self._pods.update_status(pod, {**status, "resourceClaimStatuses": [*kept, *fresh]})
        elif node_of(pod):
            self._reserve(pod)
        return None

    def _needs_claim(self, pod: Obj, pod_claim: Obj) -> bool:
        """Whether a claim is to be made from the template, because there is none that is this pod's."""
        if pod_claim.get("resourceClaimTemplateName") is None:
            return False
        try:
            name = claim_name(pod, pod_claim)
        except ClaimsNotReady:
            return True
        claim = self._claims.get((key_of(pod)[0], name)) if name else None
        return name is not None and (claim is None or not is_for(pod, claim))

    def _made(self, pod: Obj, pod_claim: Obj) -> str | None:
        """The name of the claim for a pod, made now or left over from before; None without its template."""
        for claim in self._claims.by("owner", pod["metadata"]["uid"]):
            if annotations_of(claim).get(POD_CLAIM) == pod_claim["name"]:
                return str(claim["metadata"]["name"])
        namespace, _ = key_of(pod)
        template = self._templates.get((namespace, pod_claim["resourceClaimTemplateName"]))
        if template is None:
            return None
        given = template["spec"].get("metadata") or {}
        metadata = {
            "namespace": namespace,
            "generateName": _base(pod["metadata"]["name"], pod_claim["name"]),
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM: pod_claim["name"]},
            "labels": given.get("labels") or {},
            "ownerReferences": controlled_by(pod, "v1", "Pod"),
        }
        return str(self._claims.create({"metadata": metadata, "spec": template["spec"]["spec"]})["metadata"]["name"])

    def _reserve(self, pod: Obj) -> None:
        """A pod that somebody else has bound gets claims that are allocated already."""
        try:
            claims = claims_of(pod, self._claims)
        except ClaimsNotReady:
            return
        for claim in claims:
            allocated = status_of(claim).get("allocation") is not None
            if allocated and not is_reserved_for(claim, pod) and can_be_reserved(claim):
                self._claims.update_status(claim, reserved(claim, pod))

    # Claims

    def _sync_claim(self, claim: Obj) -> None:
        users = users_of(claim)
        valid = [user for user in users if self._uses(claim, user)]
        guarded = FINALIZER in (claim["metadata"].get("finalizers") or ())
        if len(valid) < len(users) or (guarded and being_deleted(claim) and not valid):
            claim = self._released(claim, valid, guarded=guarded)
        owner = controller_of(claim, "Pod")
        if valid or owner is None or being_deleted(claim):
            return
        pod = self._pods.get(owner[0])
        if pod is not None and (pod["metadata"]["uid"] != owner[1] or _is_done(pod)):
            self._claims.delete(claim)

    def _uses(self, claim: Obj, user: Obj) -> bool:
        if user["resource"] != "pods" or user.get("apiGroup"):
            return True  # of whom nothing is known here
        pod = self._pods.get((key_of(claim)[0], user["name"]))
        return pod is not None and pod["metadata"]["uid"] == user["uid"] and not _is_done(pod)

    def _released(self, claim: Obj, valid: list[Obj], *, guarded: bool) -> Obj:
        """Take those from a claim that do not use it; with the last its devices are free, and it may be deleted."""
        status = {**status_of(claim), "reservedFor": valid}
        if not valid:
            del status["reservedFor"]
            status.pop("allocation", None)
        if status != status_of(claim):
            claim = self._claims.update_status(claim, status)
        if guarded and not valid:
            kept = [it for it in claim["metadata"]["finalizers"] if it != FINALIZER]
            claim = self._claims.update_metadata(claim, finalizers=kept)
        return claim


def _named(pod: Obj) -> list[Key]:
    """The claims of a pod, as far as they are made."""
    if not claims_devices(pod):
        return []
    try:
        return [key for key, _ in claim_keys(pod)]
    except ClaimsNotReady:
        return []


def _base(pod: str, claim: str) -> str:
    """What the name of a claim begins with: pod and claim, both cut where they are too long together."""
    whole = f"{pod}-{claim}-"
    if len(whole) <= _BASE_MOST:
        return whole
    return f"{pod[: len(pod) * _BASE_MOST // len(whole)]}-{claim[: len(claim) * _BASE_MOST // len(whole)]}"


def _is_done(pod: Obj) -> bool:
    """Whether none of its containers run, or ever will."""
    return is_terminal(pod) or (being_deleted(pod) and not node_of(pod))
