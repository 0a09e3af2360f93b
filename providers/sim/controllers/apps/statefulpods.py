"""The pods of a StatefulSet: their names, claims and revisions, and which of them must be there, as values.

Source: `pkg/controller/statefulset/stateful_set_utils.go`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from providers.sim.controllers.apps.base import is_available, pod_from, replicas_of, share_of
from providers.sim.controllers.apps.revisions import REVISION_HASH, template_in
from providers.sim.controllers.objects import Obj, being_deleted, is_true, labels_of, status_of

_POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_NUMBERED: Final = re.compile(r"(?P<parent>.*)-(?P<ordinal>[0-9]+)")


def ordinal_of(pod: Obj) -> int:
    """The number at the end of its name; -1 without one."""
    found = _NUMBERED.fullmatch(pod["metadata"]["name"])
    return int(found["ordinal"]) if found else -1


def is_member(stateful_set: Obj, pod: Obj) -> bool:
    """Whether the name of a pod is that of one of the set's."""
    found = _NUMBERED.fullmatch(pod["metadata"]["name"])
    return found is not None and found["parent"] == stateful_set["metadata"]["name"]


def revision_of(pod: Obj) -> str:
    """The name of the revision that a pod was made of."""
    return labels_of(pod).get(REVISION_HASH, "")


def is_healthy(pod: Obj | None) -> bool:
    """Whether it runs, is ready and stays."""
    return pod is not None and is_running_and_ready(pod) and not being_deleted(pod)


def is_running_and_ready(pod: Obj) -> bool:
    """Whether it runs and is ready."""
    return status_of(pod).get("phase") == "Running" and is_true(pod, "Ready")


@dataclass(frozen=True, slots=True)
class StatefulWork:
    """The spec of a StatefulSet with its defaults filled in."""

    replicas: int
    start: int
    one_by_one: bool
    """OrderedReady: each pod waits for those before it."""
    rolls: bool
    """RollingUpdate; with OnDelete only pods that somebody deletes are made anew."""
    partition: int | None
    """Ordinals below it keep the old revision; None where the field is not there at all."""
    max_unavailable: int
    min_ready_s: float

    @classmethod
    def of(cls, stateful_set: Obj) -> "StatefulWork":
        """Read a StatefulSet."""
        spec, replicas = stateful_set["spec"], replicas_of(stateful_set)
        strategy = spec.get("updateStrategy") or {}
        rolling = strategy.get("rollingUpdate")
        most = share_of((rolling or {}).get("maxUnavailable"), replicas, 1, up=True)
        return cls(
            replicas=replicas,
            start=int((spec.get("ordinals") or {}).get("start") or 0),
            one_by_one=spec.get("podManagementPolicy") != "Parallel",
            rolls=(strategy.get("type") or "RollingUpdate") == "RollingUpdate",
            partition=None if rolling is None else int(rolling.get("partition") or 0),
            max_unavailable=max(1, most),
            min_ready_s=float(spec.get("minReadySeconds") or 0),
        )

    @property
    def ordinals(self) -> range:
        """The numbers of the pods that must be there."""
        return range(self.start, self.start + self.replicas)

    def keeps_old(self, ordinal: int, current: int) -> bool:
        """Whether a pod of that number is made of the former revision; `current`: how many still are of it."""
        if not self.rolls:
            return False
        return ordinal < self.start + (current if self.partition is None else self.partition)

    def replaced(self, replicas: list[Obj], update: str) -> list[Obj]:
        """The pods of a former revision that go now: the highest numbers first, as long as enough others are healthy.

        `replicas`: the pods that must be there, by number.
        """
        if not self.rolls:
            return []
        above = [pod for pod in reversed(replicas) if ordinal_of(pod) >= self.start + (self.partition or 0)]
        if self.max_unavailable == 1:
            return _first_of_others(above, update)
        spare = self.max_unavailable - sum(not is_healthy(pod) for pod in replicas)
        others = [pod for pod in above if revision_of(pod) != update and not being_deleted(pod)]
        return others[: max(0, spare)]


def _first_of_others(pods: Iterable[Obj], update: str) -> list[Obj]:
    """The first that is of another revision, unless one before it is not healthy."""
    for pod in pods:
        if revision_of(pod) != update and not being_deleted(pod):
            return [pod]
        if not is_healthy(pod):
            return []
    return []


def new_pod(stateful_set: Obj, revision: Obj, ordinal: int) -> Obj:
    """The pod of that number, of that revision."""
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    marks = {_POD_NAME: name, _POD_INDEX: str(ordinal), REVISION_HASH: revision["metadata"]["name"]}
    pod = pod_from(stateful_set, template_in(revision), name=name, labels=marks)
    service = stateful_set["spec"].get("serviceName")
    spec = {**pod["spec"], "hostname": name, **({"subdomain": service} if service else {})}
    claimed = [
        {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
        for template, claim in zip(_claim_templates(stateful_set), claims_of(stateful_set, ordinal), strict=True)
    ]
    if claimed:
        names = {volume["name"] for volume in claimed}
        spec["volumes"] = [*claimed, *(one for one in spec.get("volumes") or () if one["name"] not in names)]
    return {**pod, "spec": spec}


def _claim_templates(stateful_set: Obj) -> list[Obj]:
    return list(stateful_set["spec"].get("volumeClaimTemplates") or ())


def claims_of(stateful_set: Obj, ordinal: int) -> list[Obj]:
    """The claims of the pod of that number, in the order of their templates."""
    meta, found = stateful_set["metadata"], []
    selector = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
    for template in _claim_templates(stateful_set):
        given = template["metadata"]
        metadata = {
            "name": f"{given['name']}-{meta['name']}-{ordinal}",
            "namespace": meta["namespace"],
            "labels": {**(given.get("labels") or {}), **selector},
            **({"annotations": given["annotations"]} if given.get("annotations") else {}),
        }
        found.append({"metadata": metadata, "spec": template["spec"]})
    return found


def claim_owners(stateful_set: Obj, pod: Obj | None) -> list[Obj]:
    """Who takes a claim along when they go; `pod` is the one that is scaled away, if it is."""
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    if pod is not None and policy.get("whenScaled") == "Delete":
        return [_reference(pod)]
    return [_reference(stateful_set)] if policy.get("whenDeleted") == "Delete" else []


def _reference(obj: Obj) -> Obj:
    meta = obj["metadata"]
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"]}


def counts_of(pods: list[Obj], work: StatefulWork, current: str, update: str, now: float) -> dict[str, int]:
    """The numbers of the status."""
    ready = [pod for pod in pods if is_running_and_ready(pod)]
    staying = [pod for pod in pods if not being_deleted(pod)]
    return {
        "replicas": len(pods),
        "readyReplicas": len(ready),
        "availableReplicas": sum(is_available(pod, work.min_ready_s, now) for pod in ready),
        "currentReplicas": sum(revision_of(pod) == current for pod in staying),
        "updatedReplicas": sum(revision_of(pod) == update for pod in staying),
    }
