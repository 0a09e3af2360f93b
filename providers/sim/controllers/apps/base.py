"""What the controllers of `apps/v1` share: they wake up with the first object of their kind, and own pods by selector.

Source: `pkg/controller/controller_ref_manager.go`, `pkg/controller/controller_utils.go`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from providers.sim.controllers.eventlog import EventLog
from providers.sim.controllers.matching import selector_matches
from providers.sim.controllers.mirror import InformerCache, MirroredCluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    being_deleted,
    condition_of,
    controlled_by,
    instant,
    is_true,
    key_of,
    labels_of,
    status_of,
)
from providers.sim.controllers.runtime import Reconciler

API_VERSION = "apps/v1"
_SAFE = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery pkg/util/rand


class AppsController(Reconciler[Key]):
    """Looks at an object when it, or something that it owns or may adopt, has changed; keys are objects."""

    kind: ClassVar[str]
    component: ClassVar[str]
    """What its events are from."""
    retry_s, retry_cap_s = 1.0, 300.0

    def __init__(self, cluster: MirroredCluster) -> None:
        super().__init__(cluster)
        self._objects = cluster.mirror(self.kind, "apps")
        self._pods = cluster.mirror("Pod")
        self._events = EventLog(cluster, self.component)
        self._awake = False
        self._objects.watch(self._on_object)

    def step(self, now: float) -> float | None:
        """Reconcile the objects that are due; nothing at all as long as there has never been one."""
        self._cluster.sync()
        return super().step(now) if self._awake else None

    def _wake_up(self) -> None:
        """Begin to look at what objects of this kind own: there is one now."""
        self._own(self._pods)

    def _own(self, dependants: InformerCache) -> None:
        """File what may be owned by its controller, and tell of its changes."""
        index_owners(dependants)
        dependants.watch(self._on_dependant)

    def _on_object(self, old: Obj | None, new: Obj | None) -> None:
        if not self._awake:
            self._awake = True
            self._wake_up()
        self._queue.add(key_of(new or old or {}))
        if new is None and old is not None:
            self._events.forget(old["metadata"]["uid"])

    def _on_dependant(self, old: Obj | None, new: Obj | None) -> None:
        for owner in dict.fromkeys((_controller(old), _controller(new))):
            if owner is not None and owner[0] == self.kind:
                self._queue.add(((new or old or {})["metadata"]["namespace"], owner[1]))
        if new is not None and _controller(new) is None and not being_deleted(new):
            for candidate in self._objects:
                if candidate["metadata"]["namespace"] == new["metadata"]["namespace"] and _selects(candidate, new):
                    self._queue.add(key_of(candidate))

    def _claimed(self, owner: Obj, among: InformerCache, member: Callable[[Obj], bool] = lambda _: True) -> list[Obj]:
        """What `owner` controls: an orphan that it selects is adopted, what it no longer selects is let go."""
        kept = []
        for held in among.by("controller", owner["metadata"]["uid"]):
            if _selects(owner, held) and member(held):
                kept.append(held)
            elif not being_deleted(owner):
                self._release(owner, held, among)
        if being_deleted(owner):
            return kept
        for orphan in among.by("orphans", owner["metadata"]["namespace"]):
            if not being_deleted(orphan) and _selects(owner, orphan) and member(orphan):
                others = orphan["metadata"].get("ownerReferences") or []
                mine = controlled_by(owner, API_VERSION, self.kind)
                kept.append(among.update_metadata(orphan, ownerReferences=[*others, *mine]))
        return kept

    def _release(self, owner: Obj, held: Obj, among: InformerCache) -> None:
        uid = owner["metadata"]["uid"]
        rest = [one for one in held["metadata"].get("ownerReferences") or () if one["uid"] != uid]
        among.update_metadata(held, ownerReferences=rest)


def index_owners(mirror: InformerCache) -> None:
    """File objects under `controller` by the uid of their controller, those without one under `orphans`."""
    mirror.index("controller", lambda obj: (uid,) if (uid := _controller_uid(obj)) else ())
    mirror.index("orphans", lambda obj: () if _controller_uid(obj) else (obj["metadata"].get("namespace") or "",))


def _controller_uid(obj: Obj) -> str:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return ""


def _controller(obj: Obj | None) -> tuple[str, str] | None:
    """Kind and name of what controls an object."""
    for owner in (obj or {"metadata": {}})["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner["kind"], owner["name"]
    return None


def _selects(owner: Obj, held: Obj) -> bool:
    selector = owner["spec"].get("selector")
    return bool(selector) and selector_matches(selector, labels_of(held))


def pod_from(owner: Obj, template: Obj, *, name: str = "", labels: Mapping[str, str] | None = None) -> Obj:
    """A pod of a template, controlled by `owner`; without a name it gets a generated one."""
    held, meta = template.get("metadata") or {}, owner["metadata"]
    given = {field: held[field] for field in ("annotations", "finalizers") if held.get(field)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **({"name": name} if name else {"generateName": f"{meta['name']}-"}),
            "namespace": meta["namespace"],
            "labels": {**(held.get("labels") or {}), **(labels or {})},
            **given,
            "ownerReferences": controlled_by(owner, API_VERSION, owner["kind"]),
        },
        "spec": template["spec"],
    }


def is_available(pod: Obj, min_ready_s: float, now: float) -> bool:
    """Whether a pod has been ready for long enough."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready["status"] != "True":
        return False
    return min_ready_s <= 0 or instant(ready["lastTransitionTime"]) + min_ready_s <= now


def available_at(pods: Iterable[Obj], min_ready_s: float, now: float) -> float | None:
    """When the next ready pod will have been ready for long enough."""
    if min_ready_s <= 0:
        return None
    due = (
        instant(condition["lastTransitionTime"]) + min_ready_s
        for pod in pods
        if is_true(pod, "Ready") and (condition := condition_of(pod, "Ready"))
    )
    return min((at for at in due if at > now), default=None)


def replicas_of(obj: Obj) -> int:
    """The replicas that a spec asks for; one where it does not say."""
    wanted = obj["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


def counted(obj: Obj, field: str) -> int:
    """A number of the status; none where it is not there."""
    return int(status_of(obj).get(field) or 0)


def safe_hash(value: object, collisions: int | None = None) -> str:
    """A short name for a value, in letters that make no words (`ComputeHash`, `rand.SafeEncodeString`)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    if collisions is not None:
        text += f"#{collisions}"
    number = 2166136261  # FNV-1a, 32 bits
    for byte in text.encode():
        number = (number ^ byte) * 16777619 & 0xFFFFFFFF
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(number))


def share_of(value: int | str | None, total: int, default: int | str, *, up: bool) -> int:
    """A number of pods, or a share of all of them in percent, rounded up or down."""
    given = default if value is None else value
    if not isinstance(given, str):
        return int(given)
    hundredths = int(given.rstrip("%")) * total
    return -(-hundredths // 100) if up else hundredths // 100
