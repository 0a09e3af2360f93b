"""The cluster store: a Kubernetes API server without the HTTP, in memory, under an injected clock.

Objects are plain JSON dicts and immutable: the store copies what it is given and never changes what it holds.
"""

from collections.abc import Callable
from typing import Any, Literal

from providers.clock import Clock
from providers.sim.store import scale as scaling
from providers.sim.store.admission import admit_change, admit_new, admit_status, with_parts
from providers.sim.store.apply import Writer, applied_object, updated_ownership
from providers.sim.store.celrules import custom_faults
from providers.sim.store.crds import CRD_KEY, defined_resource, established
from providers.sim.store.disruption import evicted_pod, eviction_of, spent_budget
from providers.sim.store.endpoints import (
    CREATED_BY_UPDATE,
    already_exists,
    check_delete_preconditions,
    check_name,
    check_preconditions,
    check_same_uid,
    details,
    ending_faults,
    endpoint_view,
    fresh_view,
    mutated_view,
    namespace_ends,
    not_found,
    qualified,
    shape_of,
)
from providers.sim.store.errors import (
    StoreAlreadyExists,
    StoreBadRequest,
    StoreConflict,
    StoreForbidden,
    StoreNotFound,
    StoreUnknownError,
    cause,
)
from providers.sim.store.ledger import Key
from providers.sim.store.lifecycle import Lifecycle, Propagation
from providers.sim.store.limitranger import LimitRanger
from providers.sim.store.objects import (
    Identities,
    Obj,
    checked_namespace,
    checked_type,
    copied,
    invalid,
    metadata_faults,
    ordered,
    same_but_metadata,
    timestamp,
)
from providers.sim.store.pods import bound_pod
from providers.sim.store.policies import POLICY_RULES, AdmissionPolicies
from providers.sim.store.reading import StoredObjects
from providers.sim.store.registry import Resource
from providers.sim.store.releases import LATEST, Release
from providers.sim.store.resourcequota import QUOTAS, charged
from providers.sim.store.schema import SoundFields, decoded
from providers.sim.store.strategic import PatchType, patched
from providers.sim.store.typed import check_applied
from providers.sim.store.watchlog import StoreEvent

_NAMESPACES = ("default", "kube-system", "muster-system")
_UNDELETABLE = frozenset({"default", "kube-system"})
# Kinds whose PUT must carry the resource version it is based on (AllowUnconditionalUpdate is false).
_CONDITIONAL = frozenset({"leases.coordination.k8s.io", "poddisruptionbudgets.policy", CRD_KEY})
_SUFFIX_ATTEMPTS = 8


class Store(StoredObjects):
    """All objects of one cluster. Thread-safe; each write is atomic, tells its listeners and leaves no garbage."""

    def __init__(
        self,
        clock: Clock,
        *,
        event_log_capacity: int = 100_000,
        seed: int = 0,
        collect_garbage: Literal["at once", "when asked", "never"] = "at once",
        release: Release = LATEST,
    ) -> None:
        super().__init__(release, event_log_capacity)
        self._clock = clock
        self._identities = Identities(seed)
        self._sound = SoundFields()
        self._lifecycle = Lifecycle(self._ledger, clock, self._by_key, collect=collect_garbage)
        self._limits = LimitRanger(self._held)
        self._policies = AdmissionPolicies(self._held, lambda name: self._lookup("namespaces", "", name))
        self._ledger.listen(self._definition_changed, self._by_key(CRD_KEY))
        for policies in filter(None, map(self._registry.known, POLICY_RULES)):
            self._ledger.listen(self._policies.changed, policies)
        for name in _NAMESPACES:
            self.create(self._by_key("namespaces"), {"metadata": {"name": name}})

    # -- writing ------------------------------------------------------------------------------------------------

    def create(
        self, resource: Resource, obj: Obj, *, namespace: str = "", dry_run: bool = False, field_manager: str = ""
    ) -> Obj:
        """Store a new object; returns it as stored. AlreadyExists, Invalid, NotFound (namespace), BadRequest."""
        with self._lock:
            return self._create(
                resource, copied(obj), namespace, self._writer(resource, field_manager), dry_run=dry_run
            )

    def update(
        self,
        resource: Resource,
        obj: Obj,
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        handed_over: bool = False,
    ) -> Obj:
        """Replace an object or subresource; Conflict on a stale version or uid. What is `handed_over` is not copied."""
        with self._lock:
            new = obj if handed_over else copied(obj)
            if subresource != "scale":
                checked_type(resource, new)
            meta = new.get("metadata") or {}
            check_name(meta, name := name or meta.get("name", ""))
            key = (checked_namespace(resource, new, namespace), name)
            if resource.key in CREATED_BY_UPDATE and self._ledger.table(resource).get(key) is None:
                return self._create(resource, new, key[0], self._writer(resource, field_manager), dry_run=dry_run)
            current = self.read(resource, name, key[0]).obj
            if (resource.custom or resource.key in _CONDITIONAL) and not (
                meta.get("resourceVersion") or subresource == "scale"
            ):
                fault = cause("metadata.resourceVersion", "Invalid value: 0x0: must be specified for an update")
                raise invalid(resource, name, fault)
            check_preconditions(resource, current, meta.get("uid"), meta.get("resourceVersion"))
            if subresource == "scale":
                new = scaling.written_scale(resource, current, new)
            return self._replace(
                resource, key, new, self._writer(resource, field_manager, subresource), dry_run=dry_run
            )

    def patch(  # noqa: PLR0913 - the parameters of the API
        self,
        resource: Resource,
        name: str,
        patch: Any,
        patch_type: PatchType,
        *,
        namespace: str = "",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
        decode: Callable[[Obj], Obj] | None = None,
        handed_over: bool = False,
    ) -> Obj:
        """Change an object by any of the four patch formats; returns it as stored.

        An apply creates what is missing. Conflict on a stale version of the result or between managers. By `decode` the
        result is read again as a body would be, and what is applied must fit its schema. A `handed_over` is not copied.
        """
        with self._lock:
            key = (namespace if resource.namespaced else "", name)
            writer = self._writer(resource, field_manager, subresource)
            if patch_type is PatchType.APPLY:
                applied = patch if handed_over else copied(patch)
                if decode is not None:
                    check_applied(resource, applied, name)
                return self._apply(resource, key, applied, writer, force=force, dry_run=dry_run)
            current = self.read(resource, name, namespace).obj
            scaled = subresource == "scale"
            base = scaling.read_scale(resource, current) if scaled else current
            new = patched(resource, base, patch if handed_over else copied(patch), patch_type)
            if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
                raise StoreBadRequest("the patch does not leave an object")
            if decode is not None and not scaled:
                new = decode(new)
            check_name(new["metadata"], name)
            checked_namespace(resource, new, key[0])
            check_preconditions(resource, current, None, new["metadata"].get("resourceVersion"))
            check_same_uid(resource, current, new)
            if scaled:
                new = scaling.written_scale(resource, current, new)
            return self._replace(resource, key, checked_type(resource, new), writer, dry_run=dry_run)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        grace_period_s: int | None = None,
        propagation: Propagation | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        dry_run: bool = False,
    ) -> Obj:
        """Delete an object, or begin to; returns its last, or its marked, state. Conflict when a precondition fails."""
        with self._lock:
            key = (namespace if resource.namespaced else "", name)
            current = self.read(resource, name, namespace).obj
            check_delete_preconditions(resource, current, uid, resource_version)
            if resource.key == "namespaces" and name in _UNDELETABLE:
                raise StoreForbidden(f'namespaces "{name}" is forbidden: this namespace may not be deleted')
            self._policies.validate(resource, None, current, dry_run=dry_run)
            if dry_run:
                return current
            result = self._lifecycle.delete(resource, key, current, grace_period_s, propagation)
            self._lifecycle.settle()
            return result

    def defer_garbage(self) -> Callable[[], None]:
        """From now on dependants of what is deleted go when the function that is returned is called, not before."""
        self._lifecycle.defer()
        return self.collect_garbage

    def evict(
        self,
        name: str,
        namespace: str,
        *,
        grace_period_s: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        dry_run: bool = False,
        eviction: Obj | None = None,
    ) -> None:
        """Delete a pod if its disruption budget allows it now. TooManyRequests when not; try again later.

        Policies are asked of the `eviction`, not of the pod's condition and deletion (core/pod/storage/eviction.go).
        """
        with self._lock:
            pods, budgets = self._by_key("pods"), self._by_key("poddisruptionbudgets.policy")
            asked = eviction_of(name, namespace, eviction or {})
            self._policies.validate(pods, asked, None, "eviction", dry_run=dry_run)
            pod = self.get(pods, name, namespace)
            check_delete_preconditions(pods, pod, uid, resource_version)
            booked = spent_budget(pod, self.list(budgets, namespace), self._now())
            if dry_run:
                return
            if booked is not None:
                self.update(budgets, booked, subresource="status")
            told = evicted_pod(pod, self._now())
            pod = pod if told is pod else self._ledger.put(pods, (namespace, name), copied(told)).obj
            self._lifecycle.delete(pods, (namespace, name), pod, grace_period_s, None)
            self._lifecycle.settle()

    def bind(
        self,
        pod_name: str,
        namespace: str,
        node: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        metadata: Obj | None = None,
        dry_run: bool = False,
    ) -> None:
        """Assign a pod to a node, with the labels and annotations of the binding's `metadata`.

        Conflict when the pod is gated, assigned or ending, or a precondition fails.
        """
        with self._lock:
            pods = self._by_key("pods")
            held = self.get(pods, pod_name, namespace)
            check_preconditions(pods, held, uid, resource_version)
            pod = bound_pod(held, node, self._now(), metadata or {})
            if not dry_run:
                self._ledger.put(pods, (namespace, pod_name), {**pod, "metadata": {**pod["metadata"]}})

    def collect_garbage(self) -> None:
        """Do what the garbage collector would have done by now, in a store that does it when asked."""
        with self._lock:
            self._lifecycle.collect()

    # -- inside -------------------------------------------------------------------------------------------------

    def _now(self) -> str:
        return timestamp(self._clock.now())

    def _writer(self, resource: Resource, manager: str, subresource: str = "") -> Writer:
        return Writer(manager, resource.api_version, self._now(), subresource)

    def _ending_kinds(self) -> set[str]:
        definitions = self._held(CRD_KEY)
        return {it["metadata"]["name"] for it in definitions if "deletionTimestamp" in it["metadata"]}

    def _held(self, resource_key: str) -> list[Obj]:
        """Every object of a resource that may not be served."""
        resource = self._registry.known(resource_key)
        return [revision.obj for _, revision in self._ledger.table(resource).scan()] if resource else []

    def _lookup(self, resource_key: str, namespace: str, name: str) -> Obj | None:
        held = self._ledger.table(self._by_key(resource_key)).get((namespace, name))
        return held.obj if held else None

    def _create(self, resource: Resource, obj: Obj, namespace: str, writer: Writer, *, dry_run: bool) -> Obj:
        given = checked_type(resource, obj).get("metadata") or {}
        if given.get("resourceVersion"):
            raise StoreUnknownError("resourceVersion should not be set on objects to be created")
        namespace = checked_namespace(resource, obj, namespace)
        key = (namespace, given.get("name") or self._generated(resource, namespace, given.get("generateName")))
        self._check_namespace(resource, *key)
        obj = fresh_view(resource, obj, key[1], namespace, uid=self._identities.uid, now=writer.time)
        obj = self._mutated(resource, obj, None, dry_run=dry_run)
        key = (namespace, obj["metadata"]["name"])
        obj = self._limits.mutated(obj) if resource.key == "pods" else obj
        obj = with_parts(resource, admit_new(resource, self._conforming(resource, obj), self._lookup))
        if resource.key == "pods":
            self._limits.validate(obj)
        self._policies.validate(resource, obj, None, dry_run=dry_run)
        if self._ledger.table(resource).get(key):
            raise already_exists(resource, key[1], self.get(resource, key[1], key[0]))
        if resource.key == "pods":
            self._charge_quotas(resource, obj, namespace, dry_run=dry_run)
        if resource.key == CRD_KEY:
            obj["status"] = established(obj, writer.time)
        if writer.operation == "Update":
            obj = updated_ownership({}, obj, writer, shape_of(resource))
        obj = ordered(obj)
        if dry_run:
            return obj
        stored = self._ledger.put(resource, key, {**obj, "metadata": {**obj["metadata"]}}).obj
        self._lifecycle.created(resource, key, stored)
        self._lifecycle.settle()
        return stored

    def _charge_quotas(self, pods: Resource, pod: Obj, namespace: str, *, dry_run: bool) -> None:
        """Count a new pod in the quotas of its namespace. Forbidden where one of them has no room for it."""
        quotas = self._by_key(QUOTAS)
        for counted in charged(pods, pod, self.list(quotas, namespace), self._clock.now()):
            if not dry_run:
                self.update(quotas, counted, subresource="status")

    def _generated(self, resource: Resource, namespace: str, prefix: str | None) -> str:
        if not prefix:
            return ""
        table = self._ledger.table(resource)
        for _ in range(_SUFFIX_ATTEMPTS):
            name = prefix[:58] + self._identities.suffix()
            if table.get((namespace, name)) is None:
                return name
        raise StoreAlreadyExists(
            f'{qualified(resource)} "{prefix}": no free name was found, try again', details(resource, prefix)
        )

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        if not resource.namespaced:
            return
        if self._ledger.table(self._by_key("namespaces")).get(("", namespace)) is None:
            raise StoreNotFound(f'namespaces "{namespace}" not found', {"name": namespace, "kind": "namespaces"})
        if resource.custom and resource.key in self._ending_kinds():
            text = "create not allowed while custom resource definition is terminating"
            raise StoreForbidden(f'{qualified(resource)} "{name}" is forbidden: {text}', details(resource, name))
        if self._lifecycle.terminating(namespace):
            raise namespace_ends(resource, namespace, name)

    def _mutated(self, resource: Resource, obj: Obj, current: Obj | None, *, dry_run: bool) -> Obj:
        """The object as mutating policies leave it, who see it as it is read and filled in."""
        filled = self._limits.mutated if resource.key == "pods" and current is None else lambda obj: obj
        schema = resource.schema
        settled = filled if schema is None else lambda obj: dict(decoded(obj, schema))
        found = self._policies.mutated(resource, obj, current, settled, dry_run=dry_run)
        return mutated_view(resource, found, obj, current)

    def _conforming(self, resource: Resource, obj: Obj, old: Obj | None = None) -> Obj:
        if resource.schema is None:
            return obj
        obj, problems = self._sound.checked(obj, resource.schema)
        problems += custom_faults(resource, obj, old, problems)
        if problems:
            raise invalid(resource, obj["metadata"]["name"], *problems)
        self._sound.note(obj, resource.schema)
        return obj

    def _replace(self, resource: Resource, key: Key, new: Obj, writer: Writer, *, dry_run: bool) -> Obj:
        current = self.read(resource, key[1], key[0]).obj
        obj = endpoint_view(resource, new, current, writer.subresource)
        if not writer.subresource:
            obj = self._conforming(resource, self._mutated(resource, obj, current, dry_run=dry_run), current)
            obj = admit_change(resource, obj, current)
        else:
            obj = self._conforming(resource, obj, current)
        if writer.subresource == "status":
            obj = admit_status(resource, obj, current)
        if problems := [*metadata_faults(obj["metadata"]), *ending_faults(obj["metadata"], current["metadata"])]:
            raise invalid(resource, key[1], *problems)
        self._policies.validate(resource, obj, current, writer.subresource, dry_run=dry_run)
        if writer.operation == "Update":
            obj = updated_ownership(current, obj, writer, shape_of(resource))
        if obj == current:
            return current
        ignored = ("status",) if "status" in resource.subresources else ()
        if resource.generations and not same_but_metadata(obj, current, *ignored):
            obj = {**obj, "metadata": {**obj["metadata"], "generation": current["metadata"].get("generation", 0) + 1}}
        if resource.key == CRD_KEY and not writer.subresource:
            obj = {**obj, "status": {**established(obj, writer.time), **(obj.get("status") or {})}}
        return obj if dry_run else self._commit(resource, key, obj)

    def _commit(self, resource: Resource, key: Key, obj: Obj) -> Obj:
        meta = {**obj["metadata"]}
        ended = (
            "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
        )
        if ended and resource.key != "namespaces":
            result = self._lifecycle.remove(resource, key, obj)
        else:
            result = self._ledger.put(resource, key, {**obj, "metadata": meta}).obj
            self._lifecycle.created(resource, key, result)
        self._lifecycle.settle()
        return result

    def _apply(self, resource: Resource, key: Key, applied: Any, writer: Writer, *, force: bool, dry_run: bool) -> Obj:
        checked_type(resource, applied)
        meta = applied.get("metadata") or {}
        if not writer.manager:
            fault = cause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
            raise invalid(resource, key[1], fault)
        if meta.get("managedFields"):
            raise StoreBadRequest("metadata.managedFields must be nil")
        check_name(meta, key[1])
        writer = Writer(writer.manager, writer.api_version, writer.time, writer.subresource, "Apply")
        held = self._ledger.table(resource).get(key)
        if held is None:
            if writer.subresource:
                raise not_found(resource, key[1])
            if meta.get("uid"):
                raise StoreConflict(
                    f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
                )
            fresh = applied_object({}, applied, writer, shape_of(resource), force=True)
            fresh["metadata"] = {**fresh["metadata"], "name": key[1]}
            fresh["metadata"].pop("resourceVersion", None)
            return self._create(resource, fresh, key[0], writer, dry_run=dry_run)
        check_preconditions(resource, held.obj, None, meta.get("resourceVersion"))
        check_same_uid(resource, held.obj, applied)
        result = applied_object(held.obj, applied, writer, shape_of(resource), force=force)
        return self._replace(resource, key, result, writer, dry_run=dry_run)

    def _definition_changed(self, event: StoreEvent) -> None:
        resource = defined_resource(event.object)
        if event.type == "DELETED":
            self._registry.remove(resource.key)
            self._ledger.forget(resource)
        else:
            self._registry.add(resource)
