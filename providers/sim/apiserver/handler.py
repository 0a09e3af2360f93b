"""One HTTP request: route it, let the faults have their say, ask the store, write the answer."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import msgspec
import structlog
from aiohttp import hdrs, web

from providers.clock import Clock
from providers.sim.apiserver import discovery, openapi
from providers.sim.apiserver.access import Access
from providers.sim.apiserver.bodies import decoded, warning_headers
from providers.sim.apiserver.faults import (
    Compact,
    CutWatch,
    Delay,
    Effect,
    FaultRules,
    GoneStatus,
    Hang,
    LoseAnswer,
    PriorityReject,
    Refuse,
    Seats,
    Trickle,
    WebhookDenies,
    WebhookFails,
)
from providers.sim.apiserver.options import check_list_options
from providers.sim.apiserver.reviews import reviewed, token_reviewed
from providers.sim.apiserver.routes import Route, flag, media_type, parse_query, parse_route
from providers.sim.apiserver.tables import NotAcceptable, Renderer, accepted_form
from providers.sim.apiserver.verbs import Call, perform
from providers.sim.apiserver.watching import DEFAULT_TIMEOUT_S, Bell, Cut, Watch, WatchQuery, serve_watch
from providers.sim.store import (
    ApiError,
    ListQuery,
    Resource,
    Revision,
    Store,
    StoreBadRequest,
    StoreExpired,
    StoreInternalError,
    StoreMethodNotAllowed,
    StoreNoSuchPage,
    StoreNotAcceptable,
    StoreNotFound,
    StoreRequestTooLarge,
    StoreUnknownError,
)
from providers.sim.store.paging import malformed, well_formed
from providers.sim.store.policies import collected_warnings

_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode
_JSON = "application/json"
_CHUNK = 500
_CLIENT_CLOSED = 499
_READ_VERBS = frozenset({"get", "list", "watch"})


_REPRESENTATIONS = (
    "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
    "application/vnd.kubernetes.protobuf"
)


class Handler:
    """Answers the requests of one API server."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        faults: FaultRules,
        bell: Bell,
        bookmark_every_s: float,
        access: Access | None = None,
    ) -> None:
        self._access = access
        self._store = store
        self._clock = clock
        self._faults = faults
        self._bell = bell
        self._bookmark_every_s = bookmark_every_s

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to `request`, dated by the server's clock; failures become `Status` objects."""
        response = await self._respond(request)
        if not response.prepared:
            response.headers.update(self._date())
        return response

    def _date(self) -> dict[str, str]:
        return {hdrs.DATE: formatdate(self._clock.now(), usegmt=True)}

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except NotAcceptable:
            return _refusal(StoreNotAcceptable(_REPRESENTATIONS))
        except ApiError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge as error:
            return _refusal(StoreRequestTooLarge(f"the request is too large: {error.text}"))
        except ConnectionError:
            return web.Response(status=_CLIENT_CLOSED)  # nobody is there to read it
        except Exception as error:  # noqa: BLE001 - the edge: a bug is a 500 and a log line, not a dead connection
            _log.exception("request failed", method=request.method, path=request.raw_path)
            if request.writer.output_size:
                _abort(request)  # too late for another status line
            return _refusal(StoreInternalError(f"Internal error occurred: {error!r}"))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query_text = request.raw_path.partition("?")
        user = self._access.user(request.headers.get(hdrs.AUTHORIZATION, "")) if self._access else None
        before, watched, after = path.partition("/watch/")
        route = parse_route(f"{before}/{after}" if watched else path)
        if route is None:
            if self._access:
                self._access.check_path(user, path)
            return self._document(path, request)
        query = parse_query(query_text)
        if self._access and route.group not in discovery.REVIEW_GROUPS:
            self._access.check(user, route.verb(request.method, query), route)
        resource = self._store.served(route.group, route.version, route.plural)
        if resource is None:
            return await self._review(request, route, query, user)
        verb = "watch" if watched and request.method == "GET" else route.verb(request.method, query)
        if not verb:
            raise StoreMethodNotAllowed("the server does not allow this method on the requested resource")
        if resource.custom and resource.namespaced and route.name and not route.namespace:
            raise StoreNoSuchPage
        if verb in ("list", "watch"):
            check_list_options(query, watch=verb == "watch")
        effects = self._faults.effects(verb, resource.key)
        for effect in effects:
            await self._suffer(effect)
        if verb not in _READ_VERBS:
            body = await request.read()
            response: web.StreamResponse = self._write(request, verb, resource, route, query, body)
        elif verb == "get":
            response = self._get(request, resource, route, query)
        elif verb == "list":
            response = await self._list(request, resource, route, query)
        else:
            return await self._watch(request, resource, route, query, effects)
        return await self._spoiled(request, response, effects) if effects else response

    # -- resources ----------------------------------------------------------------------------------------------

    def _write(
        self, request: web.BaseRequest, verb: str, resource: Resource, route: Route, query: dict[str, str], body: bytes
    ) -> web.Response:
        headers = request.headers
        content_type, agent = media_type(headers.get(hdrs.CONTENT_TYPE, "")), headers.get(hdrs.USER_AGENT, "")
        call = Call(verb, resource, route, query, body, content_type, agent)
        with collected_warnings() as told:
            outcome = perform(self._store, self._clock, call)
        response = _json(self._encoded(resource, outcome.obj, request), outcome.code)
        for warning in warning_headers([*outcome.warnings, *told]):
            response.headers.add("Warning", warning)
        return response

    def _encoded(self, resource: Resource, obj: dict[str, Any], request: web.BaseRequest) -> bytes:
        """The bytes of a written object, shared with the store's cache when it is the stored one."""
        if obj.get("kind") != resource.kind:
            return _encode(obj)
        meta = obj["metadata"]
        revision = self._revision(resource, meta.get("name", ""), meta.get("namespace", ""))
        held = revision if revision is not None and revision.obj is obj else Revision(obj, 0)
        form = accepted_form(request.headers.get(hdrs.ACCEPT, ""))
        return held.json if form == "object" else Renderer(resource, form, self._clock.now()).one(held)

    def _revision(self, resource: Resource, name: str, namespace: str) -> Revision | None:
        try:
            return self._store.read(resource, name, namespace)
        except StoreNotFound:
            return None

    def _get(self, request: web.BaseRequest, resource: Resource, route: Route, query: dict[str, str]) -> web.Response:
        if route.subresource == "scale":
            return _json(_encode(self._store.scale(resource, route.name, route.namespace)))
        if route.subresource in ("binding", "eviction", "token"):
            raise StoreMethodNotAllowed("the server does not allow this method on the requested resource")
        if route.subresource not in ("", *(resource.subresources & {"status", "ephemeralcontainers", "resize"})):
            raise StoreNotFound("the server could not find the requested resource")
        revision = self._store.read_since(resource, route.name, route.namespace, query.get("resourceVersion", ""))
        form = accepted_form(request.headers.get(hdrs.ACCEPT, ""))
        return _json(revision.json if form == "object" else self._renderer(resource, form, query).one(revision))

    def _renderer(self, resource: Resource, form: Any, query: dict[str, str]) -> Renderer:
        include = query.get("includeObject") or "Metadata"
        if form != "metadata" and include not in ("Metadata", "Object", "None"):
            text = f"includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
            raise StoreBadRequest(f"Unable to convert to Table as requested: {text}")
        return Renderer(resource, form, self._clock.now(), query.get("includeObject", "Metadata"))

    async def _list(
        self, request: web.BaseRequest, resource: Resource, route: Route, query: dict[str, str]
    ) -> web.StreamResponse:
        page = self._store.page(resource, _list_query(route, query))
        renderer = self._renderer(resource, accepted_form(request.headers.get(hdrs.ACCEPT, "")), query)
        if len(page.rows) <= _CHUNK:
            return _json(b"%b%b]}" % (renderer.head(page), renderer.items(page.rows)))
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: _JSON, **self._date()})
        await response.prepare(request)
        await response.write(renderer.head(page))
        for start in range(0, len(page.rows), _CHUNK):
            comma = b"," if start else b""
            await response.write(comma + renderer.items(page.rows[start : start + _CHUNK]))
        await response.write(b"]}")
        await response.write_eof()
        return response

    async def _watch(
        self,
        request: web.BaseRequest,
        resource: Resource,
        route: Route,
        query: dict[str, str],
        effects: tuple[Effect, ...],
    ) -> web.StreamResponse:
        asked = _watch_query(resource, route, query)
        renderer = self._renderer(resource, accepted_form(request.headers.get(hdrs.ACCEPT, "")), query)
        if not well_formed(asked.select.resource_version):
            raise StoreUnknownError(malformed(asked.select.resource_version))
        cut = next((effect for effect in effects if isinstance(effect, CutWatch)), None)
        gone: StoreExpired | None = None
        try:
            watch = Watch(self._store, asked, renderer, cut)
        except StoreExpired as error:
            if any(isinstance(effect, GoneStatus) for effect in effects):
                raise
            gone = error
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: _JSON, **self._date()})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if gone is not None:
            await response.write(_encode({"type": "ERROR", "object": gone.status()}) + b"\n")
            await response.write_eof()
            return response
        try:
            await serve_watch(response, watch, self._bell, asked, self._bookmark_every_s)
        except Cut as injected:
            if injected.how == "silence":
                await asyncio.Event().wait()
            if injected.how == "mid-line":
                _abort(request)
                return response
        await response.write_eof()
        return response

    # -- faults -------------------------------------------------------------------------------------------------

    async def _suffer(self, effect: Effect) -> None:
        match effect:
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Seats():
                await effect.take()
            case Refuse() | PriorityReject() | WebhookFails() | WebhookDenies():
                raise effect.error()
            case Hang():
                await asyncio.Event().wait()
            case Compact():
                self._store.compact()
            case _:
                pass

    async def _spoiled(
        self, request: web.BaseRequest, response: web.StreamResponse, effects: tuple[Effect, ...]
    ) -> web.StreamResponse:
        """The answer after the faults that strike on the way back."""
        for effect in effects:
            if isinstance(effect, LoseAnswer):
                _abort(request)
                return response
            if isinstance(effect, Trickle) and isinstance(response, web.Response):
                return await _trickled(request, response, effect)
        return response

    # -- everything that is not a resource ----------------------------------------------------------------------

    async def _review(
        self, request: web.BaseRequest, route: Route, query: dict[str, str], user: str | None
    ) -> web.Response:
        if (route.group, route.plural, route.name, request.method) == ("", "bindings", "", "POST"):
            return await self._bind(request, route, query)
        group_version = f"{route.group}/{route.version}"
        groups = {resource.group for resource in self._store.resources()} | discovery.REVIEW_GROUPS
        if route.group not in groups:
            raise StoreNoSuchPage
        kind = dict(discovery.REVIEWS.get(group_version, ())).get(route.plural)
        if kind is None or route.name:
            raise StoreNotFound("the server could not find the requested resource")
        if request.method != "POST":
            raise StoreMethodNotAllowed("the server does not allow this method on the requested resource")
        body = decoded(await request.read(), media_type(request.headers.get(hdrs.CONTENT_TYPE, "")))
        if not isinstance(body, dict):
            raise StoreBadRequest("the body is not an object")
        spec = body.get("spec") or {}
        if kind == "TokenReview":
            holder = self._access.holder(spec.get("token", "")) if self._access else ""
            return _json(_encode(token_reviewed(body, holder)), 201)
        whose = spec.get("user") if kind == "SubjectAccessReview" else user
        allowed = self._access.allows(whose, spec) if self._access else True
        return _json(_encode(reviewed(group_version, kind, body, allowed=allowed)), 201)

    async def _bind(self, request: web.BaseRequest, route: Route, query: dict[str, str]) -> web.Response:
        """The first form of binding, still what clients generate: a Binding posted to its namespace."""
        content = media_type(request.headers.get(hdrs.CONTENT_TYPE, ""))
        body = await request.read()
        pods, binding = self._store.resource("pods"), replace(route, plural="pods", subresource="binding")
        call = Call("create", pods, binding, query, body, content, request.headers.get(hdrs.USER_AGENT, ""))
        name = str((call.object().get("metadata") or {}).get("name") or "")
        outcome = perform(self._store, self._clock, replace(call, route=replace(binding, name=name)))
        return _json(_encode(outcome.obj), outcome.code)

    def _document(self, path: str, request: web.BaseRequest) -> web.Response:
        """Discovery, OpenAPI, health."""
        resources = self._store.resources()
        accept = request.headers.get(hdrs.ACCEPT, "")
        if path in ("/api", "/apis") and "as=APIGroupDiscoveryList" in accept and "v=v2" in accept:
            body = discovery.aggregated(resources, core=path == "/api")
            return web.Response(body=_encode(body), headers={hdrs.CONTENT_TYPE: discovery.AGGREGATED})
        if path == "/openapi/v2" and openapi.wants_v2_protobuf(accept):
            return web.Response(body=openapi.v2_protobuf(), headers={hdrs.CONTENT_TYPE: openapi.V2_PROTOBUF})
        accepted_form(accept)
        if path == "/version":
            return _json(_encode(discovery.version(self._store.release)))
        health = path.startswith(("/healthz/", "/livez/", "/readyz/"))
        fixed = _health if health else _DOCUMENTS.get(path.rstrip("/"))
        if fixed:
            return fixed(resources, self._definitions_version())
        parts = path.strip("/").split("/")
        found: dict[str, Any] | None = None
        if parts[:2] == ["openapi", "v3"] and len(parts) > 3:
            group_version = "/".join(parts[3:])
            if group_version in discovery.group_versions(resources):
                found = openapi.document(group_version, resources)
        elif parts[0] == "apis" and len(parts) == 2:
            found = discovery.api_group(parts[1], resources)
        elif parts[0] in ("api", "apis"):
            found = discovery.api_resources("/".join(parts[1:]), resources)
        if found is None:
            raise StoreNoSuchPage
        return _json(_encode(found))

    def _definitions_version(self) -> int:
        """Grows whenever a custom definition changed, and with it the schemas."""
        definitions = self._store.list(self._store.resource("customresourcedefinitions"))
        return max((int(crd["metadata"]["resourceVersion"]) for crd in definitions), default=0)


_Document = Callable[[tuple[Resource, ...], int], web.Response]


def _health(_: tuple[Resource, ...], __: int) -> web.Response:
    return web.Response(text="ok")


def _index(resources: tuple[Resource, ...], _: int) -> web.Response:
    paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
    paths += [f"/apis/{gv}" for gv in discovery.group_versions(resources) if "/" in gv]
    return _json(_encode({"paths": sorted(paths)}))


_DOCUMENTS: dict[str, _Document] = {
    "": _index,
    "/api": lambda _, __: _json(_encode(discovery.api_versions())),
    "/apis": lambda resources, _: _json(_encode(discovery.api_groups(resources))),
    "/healthz": _health,
    "/livez": _health,
    "/readyz": _health,
    "/openapi/v3": lambda resources, stamp: _json(_encode(openapi.index(discovery.group_versions(resources), stamp))),
    "/openapi/v2": lambda _, __: _json(_encode(openapi.v2())),
}


def _json(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body, status=code, headers={hdrs.CONTENT_TYPE: _JSON})


def _refusal(error: ApiError) -> web.Response:
    if error.text:
        response = web.Response(text=error.text, status=error.code)
    else:
        response = _json(_encode(error.status()), error.code)
    retry = error.details.get("retryAfterSeconds")
    if retry:
        response.headers[hdrs.RETRY_AFTER] = str(retry)
    return response


def _number(query: dict[str, str], name: str) -> int:
    return int(query.get(name) or "0")


def _list_query(route: Route, query: dict[str, str]) -> ListQuery:
    fields = query.get("fieldSelector", "")
    if route.name:
        fields = f"metadata.name={route.name}"
    return ListQuery(
        route.namespace,
        query.get("labelSelector", ""),
        fields,
        max(_number(query, "limit"), 0),
        query.get("continue", ""),
        query.get("resourceVersion", ""),
        query.get("resourceVersionMatch", ""),
    )


def _watch_query(resource: Resource, route: Route, query: dict[str, str]) -> WatchQuery:
    initial: bool | None = None
    if "sendInitialEvents" in query:
        initial = flag(query, "sendInitialEvents")
    seconds = _number(query, "timeoutSeconds")
    return WatchQuery(
        resource,
        _list_query(route, query),
        bookmarks=flag(query, "allowWatchBookmarks"),
        initial_events=initial,
        timeout_s=float(seconds) if seconds > 0 else DEFAULT_TIMEOUT_S,
    )


def _abort(request: web.BaseRequest) -> None:
    """Cut the connection without the end of the body."""
    if request.transport is not None:
        request.transport.abort()


async def _trickled(request: web.BaseRequest, response: web.Response, effect: Trickle) -> web.StreamResponse:
    body = response.body if isinstance(response.body, bytes) else b""
    slow = web.StreamResponse(status=response.status, headers=response.headers)
    await slow.prepare(request)
    for start in range(0, len(body), effect.piece_bytes):
        await slow.write(body[start : start + effect.piece_bytes])
        await asyncio.sleep(effect.pause_s)
    await slow.write_eof()
    return slow
