"""The writing verbs: a decoded request to a call of the store."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from providers.clock import Clock
from providers.sim.apiserver.bodies import decoded
from providers.sim.apiserver.decoding import field_check
from providers.sim.apiserver.options import check_write_options, dry_run_faults, invalid_options
from providers.sim.apiserver.protobuf import MEDIA_TYPE
from providers.sim.apiserver.reviews import issued_token
from providers.sim.apiserver.routes import Route, flag
from providers.sim.store import (
    ListQuery,
    PatchType,
    Resource,
    Store,
    StoreBadRequest,
    StoreMethodNotAllowed,
    StoreNotFound,
    StoreUnknownError,
    StoreUnsupportedMediaType,
)

Obj = dict[str, Any]
_PATCH_TYPES = {kind.value: kind for kind in PatchType}
_POLICIES = frozenset({"Background", "Foreground", "Orphan"})
_MANAGER_MAX = 128


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a writing verb."""

    verb: str
    resource: Resource
    route: Route
    query: dict[str, str]
    body: bytes
    content_type: str
    user_agent: str

    @property
    def manager(self) -> str:
        """The field manager: as said, or the first word of the user agent."""
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0][:_MANAGER_MAX]

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored."""
        return _dry(self.query.get("dryRun"))

    @property
    def plain(self) -> bool:
        """Whether the decoded body is plain JSON: nobody else holds it, so the store need not copy it."""
        return self.content_type != MEDIA_TYPE

    def value(self) -> Any:
        """The decoded body."""
        return decoded(self.body, self.content_type)

    def object(self) -> Obj:
        """The decoded body, which must be an object."""
        value = self.value()
        if not isinstance(value, dict):
            raise StoreBadRequest("the body is not an object")
        return value


class VerbAnswer(NamedTuple):
    """What to answer: an object, or a bare Status when `obj` is one."""

    code: int
    obj: Obj
    warnings: tuple[str, ...] = ()


def _dry(value: Any) -> bool:
    """Whether `dryRun` asks for a rehearsal; what else it may be is checked with the other options."""
    return value in ("All", ["All"])


def perform(store: Store, clock: Clock, call: Call) -> VerbAnswer:
    """Carry out a writing verb. Any ApiError of the store passes."""
    subresource = call.route.subresource
    if call.verb in ("create", "update", "patch"):
        applying = call.verb == "patch" and call.content_type == PatchType.APPLY.value
        check_write_options(call.verb, call.query, applying=applying)
    if subresource and subresource not in call.resource.subresources:
        raise StoreNotFound("the server could not find the requested resource")
    only_created = subresource in _SUBRESOURCE_CREATE
    if only_created and call.verb != "create":
        raise StoreMethodNotAllowed("the server does not allow this method on the requested resource")
    special = _SUBRESOURCE_CREATE.get(subresource)
    if special:
        return special(store, clock, call)
    verb = _VERBS.get(call.verb)
    unplaced = call.verb == "create" and call.resource.namespaced and not call.route.namespace
    if verb is None or (call.verb == "create" and call.route.name) or unplaced:
        raise StoreMethodNotAllowed("the server does not allow this method on the requested resource")
    if subresource and call.verb in ("delete", "deletecollection"):
        raise StoreMethodNotAllowed("the server does not allow this method on the requested resource")
    return verb(store, call)


def _create(store: Store, call: Call) -> VerbAnswer:
    check = field_check(call.query)
    obj = check.of_body(call.resource, call.object(), call.body)
    if not call.body.strip():
        raise StoreBadRequest(
            f"the object provided is unrecognized (must be of type {call.resource.kind}): couldn't get version/kind; "
            "json parse error: unexpected end of JSON input (<empty>)"
        )
    result = store.create(
        call.resource, obj, namespace=call.route.namespace, dry_run=call.dry_run, field_manager=call.manager
    )
    return VerbAnswer(201, result, tuple(check.warnings))


def _update(store: Store, call: Call) -> VerbAnswer:
    check, obj, before = field_check(call.query), call.object(), store.resource_version
    if call.route.subresource != "scale":
        obj = check.of_body(call.resource, obj, call.body)
    result = store.update(
        call.resource,
        obj,
        namespace=call.route.namespace,
        name=call.route.name,
        subresource=call.route.subresource,
        dry_run=call.dry_run,
        field_manager=call.manager,
        handed_over=call.plain,
    )
    outcome = _written(store, call, result, tuple(check.warnings))
    return outcome._replace(code=201) if _is_new(store, call, before) else outcome


def _patch(store: Store, call: Call) -> VerbAnswer:
    patch_type = _PATCH_TYPES.get(call.content_type)
    if patch_type is None:
        raise StoreUnsupportedMediaType("415: Unsupported Media Type")
    patch, check = call.value(), field_check(call.query)
    route, before = call.route, store.resource_version
    applying = patch_type is PatchType.APPLY
    fresh = applying and call.dry_run and not store.holds(call.resource, route.name, route.namespace)
    result = store.patch(
        call.resource,
        route.name,
        patch,
        patch_type,
        namespace=route.namespace,
        subresource=route.subresource,
        field_manager=call.query.get("fieldManager", "") if applying else call.manager,
        force=flag(call.query, "force"),
        dry_run=call.dry_run,
        decode=lambda new: check.of_patched(call.resource, new, patch),
        handed_over=call.plain,
    )
    outcome = _written(store, call, result, tuple(check.warnings))
    created = applying and (fresh if call.dry_run else _is_new(store, call, before))
    return outcome._replace(code=201) if created else outcome


def _is_new(store: Store, call: Call, before: int) -> bool:
    """Whether the apply made the object: its first event lies behind the version noted before."""
    key = (call.route.namespace if call.resource.namespaced else "", call.route.name)
    changes = store.changes(call.resource, before, established=True)
    return any(entry.key == key and entry.type == "ADDED" for entry in changes)


def _written(store: Store, call: Call, result: Obj, warnings: tuple[str, ...]) -> VerbAnswer:
    if call.route.subresource == "scale" and not call.dry_run:
        result = store.scale(call.resource, call.route.name, call.route.namespace)
    return VerbAnswer(200, result, warnings)


def _delete_options(call: Call) -> Obj:
    options = call.object() if call.body else {}
    query = call.query
    asked = options.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    if faults := dry_run_faults(asked):
        raise invalid_options("DeleteOptions", faults)
    if "gracePeriodSeconds" in query:
        try:
            options = {"gracePeriodSeconds": int(query["gracePeriodSeconds"]), **options}
        except ValueError as error:
            raise StoreBadRequest(f"gracePeriodSeconds: {error}") from error
    policy = options.get("propagationPolicy") or query.get("propagationPolicy")
    if policy is None and "orphanDependents" in {**query, **options}:
        orphan = options.get("orphanDependents", flag(query, "orphanDependents"))
        policy = "Orphan" if orphan else "Background"
    if policy is not None and policy not in _POLICIES:
        raise StoreBadRequest(f'propagationPolicy: Unsupported value: "{policy}"')
    conditions = options.get("preconditions") or {}
    return {
        "grace_period_s": options.get("gracePeriodSeconds"),
        "propagation": cast("Literal['Background', 'Foreground', 'Orphan'] | None", policy),
        "uid": conditions.get("uid"),
        "resource_version": conditions.get("resourceVersion"),
        "dry_run": call.dry_run or _dry(options.get("dryRun")),
    }


def _delete(store: Store, call: Call) -> VerbAnswer:
    if call.route.subresource:
        raise StoreNotFound("the server could not find the requested resource")
    resource, route = call.resource, call.route
    result = store.delete(resource, route.name, namespace=route.namespace, **_delete_options(call))
    if "deletionTimestamp" in result["metadata"] or resource.key in ("pods", "namespaces"):
        return VerbAnswer(200, result)
    said = {"name": route.name, "group": resource.group, "kind": resource.plural, "uid": result["metadata"]["uid"]}
    details = {key: value for key, value in said.items() if value}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return VerbAnswer(200, status)


def _delete_collection(store: Store, call: Call) -> VerbAnswer:
    resource, query = call.resource, call.query
    options = _delete_options(call)
    wanted = ListQuery(call.route.namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    gone = []
    for revision in store.page(resource, wanted).rows:
        meta = revision.obj["metadata"]
        try:
            namespace = meta.get("namespace", "")
            gone.append(store.delete(resource, meta["name"], namespace=namespace, **{**options, "uid": meta["uid"]}))
        except StoreNotFound:
            continue  # taken along by the garbage collector
    body = {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(store.resource_version)},
        "items": gone,
    }
    return VerbAnswer(200, body)


def _evict(store: Store, _: Clock, call: Call) -> VerbAnswer:
    body = call.object()
    _check_same_name(call, body, "Eviction")
    options = body.get("deleteOptions") or {}
    asked = [*([call.query["dryRun"]] if call.query.get("dryRun") else []), *(options.get("dryRun") or [])]
    if faults := dry_run_faults(asked):
        raise invalid_options("DeleteOptions", faults)
    conditions = options.get("preconditions") or {}
    store.evict(
        call.route.name,
        call.route.namespace,
        grace_period_s=options.get("gracePeriodSeconds"),
        uid=conditions.get("uid"),
        resource_version=conditions.get("resourceVersion"),
        dry_run=bool(asked),
        eviction=body,
    )
    return _DONE


def _bind(store: Store, _: Clock, call: Call) -> VerbAnswer:
    """Assign a pod; a Binding's uid and version say which one is meant (registry/core/pod `BindingREST.Create`)."""
    binding = call.object()
    _check_same_name(call, binding, "Binding")
    meta, target = binding.get("metadata") or {}, binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node"):
        known = '"Node", "<empty>"'
        raise StoreUnknownError(f'target.kind: Unsupported value: "{target["kind"]}": supported values: {known}')
    store.bind(
        call.route.name,
        call.route.namespace,
        str(target.get("name") or ""),
        uid=meta.get("uid"),
        resource_version=meta.get("resourceVersion"),
        metadata=meta,
        dry_run=call.dry_run,
    )
    return _DONE


def _check_same_name(call: Call, body: Obj, kind: str) -> None:
    if (body.get("metadata") or {}).get("name") != call.route.name:
        raise StoreBadRequest(f"name in URL does not match name in {kind} object")


_DONE = VerbAnswer(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})


def _token(store: Store, clock: Clock, call: Call) -> VerbAnswer:
    account = store.get(call.resource, call.route.name, call.route.namespace)
    return VerbAnswer(201, issued_token(account, call.object(), clock.now()))


_VERBS: dict[str, Callable[[Store, Call], VerbAnswer]] = {
    "create": _create,
    "update": _update,
    "patch": _patch,
    "delete": _delete,
    "deletecollection": _delete_collection,
}
_SUBRESOURCE_CREATE: dict[str, Callable[[Store, Clock, Call], VerbAnswer]] = {
    "eviction": _evict,
    "binding": _bind,
    "token": _token,
}
