"""The API server's verbs: dicts (or bytes) in, bytes out. No retries here (see `retry`), a time-out on every call."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from providers.clock import Clock, SteadyClock
from providers.kube import wire
from providers.kube.config import Connection
from providers.kube.errors import Expired, Unreachable, from_status
from providers.kube.resources import PODS, ResourcePath
from providers.kube.server_clock import ServerClock
from providers.kube.stream import LineStream

FIELD_MANAGER: Final = "muster"
CONNECT_S: Final = 5.0
READ_S: Final = 30.0
LIST_READ_S: Final = 60.0

Body = Mapping[str, Any] | Sequence[Mapping[str, Any]] | msgspec.Struct | bytes
Propagation = Literal["Background", "Foreground", "Orphan"]
Query = Mapping[str, str | int]

_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_PATCH: Final = "application/json-patch+json"


RequestTold = Callable[[str, int, float], None]
"""Hears of a request: method, status (0 = no answer), seconds until the answer began."""


class KubeTransport:
    """Requests over one `Connection`; thread-safe. Every method raises the `KubeError` subclasses."""

    _server_clock: ServerClock | None = None
    _hears: Sequence[RequestTold] = ()

    def __init__(self, connection: Connection, *, user_agent: str = "muster") -> None:
        self._connection = connection
        self._user_agent = user_agent

    def apart(self) -> "KubeTransport":
        """Returns a transport with connections of its own: it never waits behind, nor inherits, those of this one."""
        apart = KubeTransport(self._connection.apart(), user_agent=self._user_agent)
        apart._server_clock = self._server_clock
        apart._hears = self._hears
        return apart

    def tell(self, told: RequestTold) -> None:
        """Have every request told from now on."""
        self._hears = (told,)

    def clock(self, machine: Clock) -> SteadyClock:
        """Returns a clock that tells the server's time of day, steadily, from what its answers say from now on.

        `machine` is the clock here. The answers are told to the clock that was asked for last.
        """
        self._server_clock = ServerClock(machine)
        return self._server_clock.steady()

    def _told(self, method: str, code: int, began_s: float) -> None:
        for hears in self._hears:
            hears(method, code, time.perf_counter() - began_s)

    def close(self) -> None:
        """Close the idle connections; requests and watches under way go on."""
        self._connection.pool.clear()

    # -- reading ------------------------------------------------------------------------------------------------------

    def get(self, path: str, query: Query | None = None, *, read_s: float = READ_S) -> bytes:
        """Any path of the server, e.g. `/version`."""
        return self._call("GET", path, query=query, read_s=read_s)

    def read(self, resource: ResourcePath, name: str, namespace: str = "", *, read_s: float = READ_S) -> bytes:
        """One object."""
        return self._call("GET", resource.object(name, namespace), read_s=read_s)

    def list_pages(
        self,
        resource: ResourcePath,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        *,
        on_restart: Callable[[], None] | None = None,
    ) -> Iterator[wire.ListPage]:
        """A list's pages from a consistent read, the objects raw.

        A continue token lives about five minutes. Where it expires, `on_restart` is called, which must make the caller
        forget the pages so far, and the list begins anew in one page (as client-go's pager does: the next token would
        not fare better). Without `on_restart` the `Expired` is raised: pages of two attempts must not be mixed.
        """
        path, selectors = resource.collection(namespace), _selectors(label_selector, field_selector)
        token = ""
        while True:
            paging: Query = {"limit": limit} | ({"continue": token} if token else {}) if limit else {}
            try:
                body = self._call("GET", path, query={**selectors, **paging}, read_s=LIST_READ_S)
            except Expired:
                if not token or on_restart is None:
                    raise
                on_restart()
                limit, token = 0, ""
                continue
            page = _list_page(body)
            token = page.continue_token
            yield page
            if not token:
                return

    def watch(
        self,
        resource: ResourcePath,
        resource_version: str,
        timeout_s: int,
        *,
        bookmarks: bool = True,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        grace_s: float = 30.0,
    ) -> LineStream:
        """Batches of whole event lines after `resource_version`; use it in a `with`.

        The server ends the watch after `timeout_s`; silence of `grace_s` more means that nobody is there.
        """
        query: dict[str, str | int] = {"watch": "true", "timeoutSeconds": timeout_s}
        query |= {"resourceVersion": resource_version} if resource_version else {}
        query |= {"allowWatchBookmarks": "true"} if bookmarks else {}
        query |= _selectors(label_selector, field_selector)
        idle_s = timeout_s + grace_s
        # The headers come at once, events may take their time.
        response = self._open("GET", resource.collection(namespace), query=query, read_s=min(idle_s, READ_S))
        return LineStream(response, idle_s)

    # -- writing ------------------------------------------------------------------------------------------------------

    def create(self, resource: ResourcePath, obj: Body, namespace: str = "", *, read_s: float = READ_S) -> bytes:
        """A new object; `AlreadyExists` when the name is taken, also by an earlier try whose answer was lost."""
        query = {"fieldManager": FIELD_MANAGER}
        return self._call("POST", resource.collection(namespace), query=query, body=obj, read_s=read_s)

    def replace(
        self,
        resource: ResourcePath,
        name: str,
        obj: Body,
        namespace: str = "",
        subresource: str = "",
        *,
        read_s: float = READ_S,
    ) -> bytes:
        """The whole object; `Conflict` when `obj` carries a resourceVersion that is no longer the current one.

        Only for what was read as raw JSON: a field left out is a field deleted.
        """
        query = {"fieldManager": FIELD_MANAGER}
        path = resource.object(name, namespace, subresource)
        return self._call("PUT", path, query=query, body=obj, read_s=read_s)

    def apply(
        self,
        resource: ResourcePath,
        name: str,
        obj: Body,
        namespace: str = "",
        subresource: str = "",
        *,
        force: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> bytes:
        """Server-side apply of the fields we own; `Conflict` with causes when another manager owns one, unless `force`.

        Another `manager` owns its own fields: what we apply under either leaves those of the other.

        Never for lists the API calls atomic (Node taints, Pod tolerations): they would be taken over whole; use
        `patch_json` with a `test` operation.
        """
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        path = resource.object(name, namespace, subresource)
        return self._call("PATCH", path, query=query, body=obj, content_type=_APPLY)

    def patch_json(
        self, resource: ResourcePath, name: str, operations: Body, namespace: str = "", subresource: str = ""
    ) -> bytes:
        """RFC 6902 operations; `Invalid` when a `test` fails."""
        path = resource.object(name, namespace, subresource)
        return self._call("PATCH", path, query={"fieldManager": FIELD_MANAGER}, body=operations, content_type=_PATCH)

    def patch_strategic(
        self, resource: ResourcePath, name: str, patch: Body, namespace: str = "", subresource: str = ""
    ) -> bytes:
        """A strategic merge patch (built-in kinds only): keyed lists are merged, `$patch: delete` removes."""
        path = resource.object(name, namespace, subresource)
        query: dict[str, str | int] = {"fieldManager": FIELD_MANAGER}
        return self._call("PATCH", path, query=query, body=patch, content_type=_STRATEGIC)

    def delete(
        self,
        resource: ResourcePath,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
        propagation: Propagation | None = None,
    ) -> bytes:
        """Delete; `Conflict` unless the object is still the one with `uid` and `resource_version` (where given)."""
        options = _delete_options(uid, resource_version, grace_s) | (
            {"propagationPolicy": propagation} if propagation else {}
        )
        return self._call("DELETE", resource.object(name, namespace), body=options)

    def bind(self, name: str, namespace: str, node: str, *, uid: str = "") -> bytes:
        """Put a pod on a node; `Conflict` when it has one, or is no longer the pod with `uid`."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace} | ({"uid": uid} if uid else {}),
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return self._call("POST", PODS.object(name, namespace, "binding"), body=binding)

    def evict(self, name: str, namespace: str, *, uid: str = "", grace_s: int | None = None) -> bytes:
        """Ask a pod to leave; `TooManyRequests` while its disruption budget says no."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(uid, "", grace_s),
        }
        return self._call("POST", PODS.object(name, namespace, "eviction"), body=eviction)

    # -- the wire -----------------------------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Body | None = None,
        content_type: str = _JSON,
        read_s: float = READ_S,
    ) -> bytes:
        response = self._open(method, path, query=query, body=body, content_type=content_type, read_s=read_s)
        try:
            return response.read()
        except HTTPError as error:
            raise Unreachable(f"{method} {path}: the answer broke off: {error}") from error
        finally:
            response.release_conn()

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Body | None = None,
        content_type: str = _JSON,
        read_s: float = READ_S,
    ) -> urllib3.BaseHTTPResponse:
        """A successful response with its body unread; raises the error of any other."""
        url = f"{self._connection.base_url}{path}{'?' + urlencode(query) if query else ''}"
        headers = {"Accept": _JSON, "User-Agent": self._user_agent, **self._connection.auth_headers()}
        if body is not None:
            headers["Content-Type"] = content_type
        asked_s = self._server_clock.monotonic() if self._server_clock else 0.0
        began_s = time.perf_counter()
        try:
            response = self._connection.pool.request(
                method,
                url,
                body=body if body is None or isinstance(body, bytes) else msgspec.json.encode(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_S, read_s), read=read_s),
                retries=False,
                redirect=False,  # a redirect would carry the token elsewhere
                preload_content=False,
            )
        except (NewConnectionError, ConnectTimeoutError) as error:
            self._told(method, 0, began_s)
            raise Unreachable(f"{method} {path}: {error}", maybe_applied=False) from error
        except HTTPError as error:
            self._told(method, 0, began_s)
            raise Unreachable(f"{method} {path}: {error}") from error
        self._told(method, response.status, began_s)
        if self._server_clock:
            self._server_clock.told(response.headers.get("Date", ""), asked_s)
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            return response
        raise from_status(response.status, _refusal(response), _retry_after_s(response), f"{method} {path}")


def _refusal(response: urllib3.BaseHTTPResponse) -> bytes:
    try:
        return response.read()
    except HTTPError:
        return b""  # the status code says enough
    finally:
        response.release_conn()


def _retry_after_s(response: urllib3.BaseHTTPResponse) -> float | None:
    """Seconds; the header's date form is not one API servers send, and needs a clock both sides agree on."""
    text = response.headers.get("Retry-After", "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


def _list_page(body: bytes) -> wire.ListPage:
    try:
        return wire.decode_page(body)
    except wire.MALFORMED as error:
        raise Unreachable(f"the answer is not a list: {error}") from error


def _selectors(labels: str, fields: str) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    if labels:
        found["labelSelector"] = labels
    if fields:
        found["fieldSelector"] = fields
    return found


def _delete_options(uid: str, resource_version: str, grace_s: int | None) -> dict[str, Any]:
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options
