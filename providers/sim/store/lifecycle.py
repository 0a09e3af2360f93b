"""How objects end: grace, finalizers, propagation to dependants, namespaces that empty themselves.

The garbage collector runs inside the write that makes it necessary, so there is never garbage to wait for.
Source: `pkg/controller/garbagecollector`, `pkg/controller/namespace`, apiserver `registry/generic/registry/store.go`.
"""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from providers.clock import Clock
from providers.sim.store.crds import CRD_KEY, defined_resource
from providers.sim.store.ledger import Address, Key, ObjectTables
from providers.sim.store.objects import Obj, timestamp
from providers.sim.store.pods import delete_grace_s
from providers.sim.store.registry import Resource

Propagation = Literal["Background", "Foreground", "Orphan"]
Collect = Literal["at once", "when asked", "never"]
_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"
_FINALIZERS: dict[str, str] = {"Foreground": _FOREGROUND, "Orphan": _ORPHAN}
_INSTANCES = "customresourcecleanup.apiextensions.k8s.io"
# batch/v1 keeps its first behaviour for callers that do not say (pkg/registry/batch/job/strategy.go).
_DEFAULT_PROPAGATION: dict[str, Propagation] = {"jobs.batch": "Orphan"}


class Lifecycle:
    """Ends objects on a ledger; `settle` must be called at the end of each write to collect what became garbage."""

    def __init__(
        self, ledger: ObjectTables, clock: Clock, find: Callable[[str], Resource], *, collect: Collect
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._find = find
        self._collect = collect != "never"
        self._deferred = collect == "when asked"
        self._ended: deque[str] = deque()
        self._suspects: deque[Address] = deque()
        self._terminating: set[str] = set()

    def defer(self) -> None:
        """From now on garbage waits for `collect`."""
        self._deferred = True

    def created(self, resource: Resource, key: Key, obj: Obj) -> None:
        """Note a new object: with owners, it may be an orphan from birth."""
        if obj["metadata"].get("ownerReferences"):
            self._suspects.append((resource.key, key))

    def terminating(self, namespace: str) -> bool:
        """Whether the namespace is being deleted."""
        return namespace in self._terminating

    def delete(
        self, resource: Resource, key: Key, obj: Obj, grace_s: int | None, propagation: Propagation | None
    ) -> Obj:
        """Begin, hasten or complete the deletion of `obj`; returns its state after that."""
        meta = obj["metadata"]
        policy = propagation or _standing_policy(meta) or _DEFAULT_PROPAGATION.get(resource.key, "Background")
        uid = meta["uid"]
        finalizers = [name for name in meta.get("finalizers") or () if name not in (_FOREGROUND, _ORPHAN)]
        if self._deferred and policy in _FINALIZERS and resource.key != "namespaces":
            finalizers.append(_FINALIZERS[policy])
            self._suspects.append((resource.key, key))
        elif policy == "Orphan":
            self._orphan_dependants(uid)
        elif policy == "Foreground" and self._collect and self._blocking(uid):
            finalizers.append(_FOREGROUND)
        if resource.key == "namespaces":
            return self._delete_namespace(resource, key, obj)
        if resource.key == CRD_KEY and self._delete_instances(obj):
            finalizers = list(dict.fromkeys([*finalizers, _INSTANCES]))
        if resource.key == "pods" and grace_s is None and _graced(meta):
            return obj  # a deletion under way is only hastened by who says so
        grace = delete_grace_s(obj, grace_s) if resource.key == "pods" else 0
        if not finalizers and not grace:
            if resource.key == "pods":  # its end is written down before it goes
                obj = self._ledger.put(resource, key, {**obj, "metadata": self._ended_at_once(meta)}).obj
            return self.remove(resource, key, obj)
        marked = self._mark(resource, key, obj, finalizers, grace)
        if _FOREGROUND in finalizers and not self._deferred:
            self._delete_blocking(uid)
        return marked

    def _ended_at_once(self, meta: Obj) -> Obj:
        """The metadata of a pod that goes without grace: its last state says when."""
        if "deletionTimestamp" in meta:
            return {**meta, "deletionGracePeriodSeconds": 0}
        ending = {"deletionTimestamp": timestamp(self._clock.now()), "deletionGracePeriodSeconds": 0}
        return {**meta, **ending, "generation": meta.get("generation", 0) + 1}

    def remove(self, resource: Resource, key: Key, obj: Obj) -> Obj:
        """Take the object away now; watchers are shown it as it stood last, so with the finalizer that went with it."""
        stored = self._ledger.table(resource).get(key)
        meta = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
        shown = stored.obj if stored else obj
        gone = self._ledger.drop(resource, key, {**shown, "metadata": {**shown["metadata"]}}).obj
        final = {**obj, "metadata": {**meta, "resourceVersion": gone["metadata"]["resourceVersion"]}}
        self._ended.append(meta["uid"])
        for owner in meta.get("ownerReferences") or ():
            held = self._ledger.owner_alive(owner["uid"])
            if held:
                self._suspects.append(held)
        if resource.key == "namespaces":
            self._terminating.discard(key[1])
        elif key[0] in self._terminating:
            self._finish_namespace(key[0])
        if resource.custom:
            self._finish_definition(resource)
        return final

    def settle(self) -> None:
        """Collect garbage at the end of a write, unless somebody asks for it."""
        if not self._deferred:
            self.collect()

    def collect(self) -> None:
        """Collect garbage until there is none."""
        while self._collect and (self._ended or self._suspects):
            if self._ended:
                self._suspects.extend(self._ledger.dependants(self._ended.popleft()))
            else:
                self._examine(self._suspects.popleft())
        self._ended.clear()
        self._suspects.clear()

    def _examine(self, address: Address) -> None:
        resource, key = self._find(address[0]), address[1]
        held = self._ledger.table(resource).get(key)
        if held is None:
            return
        meta = held.obj["metadata"]
        finalizers, ending = meta.get("finalizers") or (), "deletionTimestamp" in meta
        if self._deferred and ending and _ORPHAN in finalizers:
            self._orphan_dependants(meta["uid"])
            self._unblock(resource, key, held.obj, _ORPHAN)
            return
        if _FOREGROUND in finalizers and ending:
            if self._deferred:
                self._delete_blocking(meta["uid"])
            if not self._blocking(meta["uid"]):
                self._unblock(resource, key, held.obj, _FOREGROUND)
            return
        owners = meta.get("ownerReferences") or []
        present = [owner for owner in owners if self._ledger.owner_alive(owner["uid"])]
        if owners and not present and "deletionTimestamp" not in meta:
            self.delete(resource, key, held.obj, None, _standing_policy(meta) or "Background")
        elif 0 < len(present) < len(owners):
            self._ledger.put(resource, key, {**held.obj, "metadata": {**meta, "ownerReferences": present}})

    def _unblock(self, resource: Resource, key: Key, obj: Obj, finalizer: str) -> None:
        meta = obj["metadata"]
        rest = [name for name in meta["finalizers"] if name != finalizer]
        if rest or meta.get("deletionGracePeriodSeconds"):
            self._ledger.put(resource, key, {**obj, "metadata": _with_finalizers(meta, rest)})
        else:
            self.remove(resource, key, obj)

    def _blocking(self, uid: str) -> list[Address]:
        """Dependants that hold up the foreground deletion of `uid`."""
        return [a for a in self._ledger.dependants(uid) if self._blocks(a, uid)]

    def _blocks(self, address: Address, uid: str) -> bool:
        held = self._ledger.table(self._find(address[0])).get(address[1])
        owners = held.obj["metadata"].get("ownerReferences") or () if held else ()
        return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _delete_blocking(self, uid: str) -> None:
        for resource_key, key in self._blocking(uid):
            resource = self._find(resource_key)
            held = self._ledger.table(resource).get(key)
            if held and "deletionTimestamp" not in held.obj["metadata"]:
                blocks = self._blocking(held.obj["metadata"]["uid"])
                self.delete(resource, key, held.obj, None, "Foreground" if blocks else "Background")

    def _orphan_dependants(self, uid: str) -> None:
        for resource_key, key in self._ledger.dependants(uid):
            resource = self._find(resource_key)
            held = self._ledger.table(resource).get(key)
            if held:
                meta = held.obj["metadata"]
                rest = [owner for owner in meta["ownerReferences"] if owner["uid"] != uid]
                left = {name: value for name, value in meta.items() if name != "ownerReferences"}
                self._ledger.put(
                    resource, key, {**held.obj, "metadata": {**left, "ownerReferences": rest} if rest else left}
                )

    def _mark(self, resource: Resource, key: Key, obj: Obj, finalizers: list[str], grace_s: int) -> Obj:
        """Set or bring forward the deletion time; an unchanged object is left alone."""
        meta = obj["metadata"]
        wanted = _with_finalizers(meta, finalizers)
        if "deletionTimestamp" not in meta or grace_s < (meta.get("deletionGracePeriodSeconds") or 0):
            start = _epoch(meta["deletionTimestamp"]) - meta["deletionGracePeriodSeconds"] if _graced(meta) else None
            begun = start if start is not None else self._clock.now()
            wanted["deletionTimestamp"] = timestamp(begun + grace_s)
            wanted["deletionGracePeriodSeconds"] = grace_s
            if "generation" in meta and "deletionTimestamp" not in meta:
                wanted["generation"] = meta["generation"] + 1
        if wanted == meta:
            return obj
        return self._ledger.put(resource, key, {**obj, "metadata": wanted}).obj

    def _delete_namespace(self, resource: Resource, key: Key, obj: Obj) -> Obj:
        if "deletionTimestamp" in obj["metadata"]:
            return obj
        meta = {
            **obj["metadata"],
            "deletionTimestamp": timestamp(self._clock.now()),
            "deletionGracePeriodSeconds": 0,
        }
        status = {**(obj.get("status") or {}), "phase": "Terminating"}
        self._terminating.add(key[1])
        marked = self._ledger.put(resource, key, {**obj, "metadata": meta, "status": status}).obj
        for owner, row, content in self._ledger.content(key[1], self._find):
            if self._ledger.table(owner).get(row) is not None:
                self.delete(owner, row, content, None, "Background")
        self._finish_namespace(key[1])
        return marked

    def _delete_instances(self, definition: Obj) -> bool:
        """Delete the objects of a custom kind; whether some are held back by finalizers."""
        resource = defined_resource(definition)
        table = self._ledger.table(resource)
        for key, _ in list(table.scan()):
            held = table.get(key)
            if held is not None:
                self.delete(resource, key, held.obj, None, "Background")
        return len(table) > 0

    def _finish_definition(self, resource: Resource) -> None:
        """Let a definition go when its last object went."""
        definitions, key = self._find(CRD_KEY), ("", resource.key)
        held = self._ledger.table(definitions).get(key)
        if held is None or len(self._ledger.table(resource)):
            return
        meta = held.obj["metadata"]
        if _INSTANCES in (meta.get("finalizers") or ()):
            rest = [name for name in meta["finalizers"] if name != _INSTANCES]
            obj = {**held.obj, "metadata": _with_finalizers(meta, rest)}
            if rest:
                self._ledger.put(definitions, key, obj)
            else:
                self.remove(definitions, key, obj)

    def _finish_namespace(self, namespace: str) -> None:
        resource = self._find("namespaces")
        held = self._ledger.table(resource).get(("", namespace))
        if held is None or self._ledger.content(namespace, self._find):
            return
        if not held.obj["metadata"].get("finalizers"):
            self.remove(resource, ("", namespace), held.obj)


def _standing_policy(meta: Obj) -> Propagation | None:
    finalizers = meta.get("finalizers") or ()
    return "Orphan" if _ORPHAN in finalizers else "Foreground" if _FOREGROUND in finalizers else None


def _with_finalizers(meta: Obj, finalizers: list[str]) -> Obj:
    rest = {name: value for name, value in meta.items() if name != "finalizers"}
    return {**rest, "finalizers": finalizers} if finalizers else rest


def _graced(meta: Obj) -> bool:
    return bool(meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds"))


def _epoch(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
