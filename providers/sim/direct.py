"""The API server without a wire: the agent's transport and its reflectors straight on a store, for virtual time.

Requests take the same verbs, bodies and refusals as over HTTP (`apiserver.verbs`), so that what runs here runs there.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NoReturn, TypeVar

import msgspec

from providers.clock import Clock
from providers.kube.batches import Batch, Changes, Replace, Undecodable
from providers.kube.errors import KubeError, Unreachable, from_status
from providers.kube.reading import Reader, Watched
from providers.kube.transport import FIELD_MANAGER, READ_S, Body, KubeTransport, Query
from providers.sim.apiserver.faults import Effect, FaultRules, LoseAnswer
from providers.sim.apiserver.routes import Route, parse_route
from providers.sim.apiserver.verbs import Call, perform
from providers.sim.store import (
    ApiError,
    ListQuery,
    Resource,
    Store,
    StoreConflict,
    StoreExpired,
    StoreInternalError,
    StoreNoSuchPage,
    StoreNotFound,
    StoreTooManyRequests,
)
from providers.sim.store.crds import CRD_KEY
from providers.sim.store.objects import Obj
from providers.sim.store.selectors import field_predicate

T = TypeVar("T")

_JSON: Final = "application/json"
_METHODS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

Fault = Literal["conflicts", "throttled", "errors", "lost_answers"]


@dataclass(slots=True)
class ApiFaults:
    """What goes wrong with the next writes; each count is spent by one of them.

    - `conflicts`: refused with 409, `throttled`: with 429, `errors`: with 500; nothing has happened.
    - `lost_answers`: the write happens, and the connection breaks before the answer.
    """

    conflicts: int = 0
    throttled: int = 0
    errors: int = 0
    lost_answers: int = 0

    def spend(self, fault: Fault) -> bool:
        """Whether the fault strikes this write; counts it off if so."""
        left: int = getattr(self, fault)
        if left <= 0:
            return False
        setattr(self, fault, left - 1)
        return True

    def refusal(self) -> ApiError | None:
        """The refusal of this write, if it is to be refused."""
        for fault, error in _REFUSALS.items():
            if self.spend(fault):
                return error()
        return None


_REFUSALS: Final[dict[Fault, Callable[[], ApiError]]] = {
    "conflicts": lambda: StoreConflict("the object has been modified; please apply your changes to the latest version"),
    "throttled": lambda: StoreTooManyRequests("too many requests, please try again later"),
    "errors": lambda: StoreInternalError("etcdserver: request timed out"),
}


class DirectTransport(KubeTransport):
    """Every verb of `KubeTransport` but `watch` (see `Feed`), carried out on the store at once.

    `faults` are spent by the next writes; `rules` strike those requests that they describe, reads as well.
    `wrote` is called around each write with "before" or "after"; what it raises comes through, so that a caller can end
    a simulated process between two writes.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        faults: ApiFaults | None = None,
        rules: FaultRules | None = None,
        wrote: Callable[[Literal["before", "after"]], None] = lambda _moment: None,
    ) -> None:
        # No connection: the base class is never asked to open one.
        self.faults = faults or ApiFaults()
        self.rules = rules or FaultRules()
        self._store = store
        self._clock = clock
        self._wrote = wrote

    def apart(self) -> "DirectTransport":
        """Itself: there are no connections to keep apart."""
        return self

    def close(self) -> None:
        """Nothing is open."""

    def _open(self, method: str, path: str, **_options: object) -> NoReturn:
        raise NotImplementedError(f"{method} {path}: there is no wire; use a Feed instead of a watch")

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
        context = f"{method} {path}"
        if self._server_clock is not None:
            second_s = float(int(self._clock.now()))  # as the header `Date` says
            self._server_clock.told_s(second_s, self._server_clock.monotonic())
        try:
            if method == "GET":
                return self._get(path, query or {})
            self._wrote("before")
            refusal = self.faults.refusal()
            if refusal is not None:
                raise refusal
            answer, effects = self._write(method, path, query or {}, body, content_type)
        except ApiError as error:
            raise refused(error, context) from error
        self._wrote("after")
        if self.faults.spend("lost_answers") or any(isinstance(effect, LoseAnswer) for effect in effects):
            raise Unreachable(f"{context}: the answer broke off")
        return answer

    def _get(self, path: str, query: Query) -> bytes:
        resource, route = self._route(path)
        self.rules.refuse("get" if route.name else "list", resource.key)
        if route.name:
            return self._store.read(resource, route.name, route.namespace).json
        wanted = ListQuery(
            route.namespace,
            str(query.get("labelSelector", "")),
            str(query.get("fieldSelector", "")),
            int(query.get("limit", 0)),
            str(query.get("continue", "")),
        )
        page = self._store.page(resource, wanted)
        head = msgspec.json.encode({"resourceVersion": str(page.resource_version), "continue": page.token})
        return b'{"metadata":' + head + b',"items":[' + b",".join(row.json for row in page.rows) + b"]}"

    def _write(
        self, method: str, path: str, query: Query, body: Body | None, content_type: str
    ) -> tuple[bytes, tuple[Effect, ...]]:
        resource, route = self._route(path)
        effects = self.rules.refuse(route.verb(method, {}), resource.key)
        raw = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        words = {
            "fieldValidation": "Ignore",
            **{name: str(value) for name, value in query.items()},
        }  # nobody reads warnings
        call = Call(_METHODS[method], resource, route, words, raw, content_type, FIELD_MANAGER)
        return self._encoded(resource, route, perform(self._store, self._clock, call).obj), effects

    def _encoded(self, resource: Resource, route: Route, answer: Obj) -> bytes:
        """An object as JSON: where it is what is stored now, its one encoding, which its watches need as well."""
        held = self._store.held(resource, route.name, route.namespace)
        return held.json if held is not None and held.obj is answer else msgspec.json.encode(answer)

    def _route(self, url: str) -> tuple[Resource, Route]:
        path, _, _ = url.partition("?")
        route = parse_route(path)
        resource = self._store.served(route.group, route.version, route.plural) if route else None
        if route is None or resource is None:
            groups = {served.group for served in self._store.resources()}
            if route is None or route.group not in groups:
                raise StoreNoSuchPage
            raise StoreNotFound("the server could not find the requested resource")
        return resource, route


def refused(error: ApiError, context: str) -> KubeError:
    """The transport's error for a refusal of the store, by way of the Status it would have sent."""
    if error.text:
        wait = error.details.get("retryAfterSeconds")
        return from_status(error.code, error.text.encode(), None if wait is None else float(wait), context)
    return from_status(error.code, msgspec.json.encode(error.status()), context=context)


class Feed(Generic[T]):
    """What a reflector would hand over, in the store's order: a `Replace`, then `Changes`; nothing is lost between.

    A field selector is one by what never changes, such as the name.
    """

    def __init__(self, store: Store, watched: Watched[T]) -> None:
        self._store = store
        self._watched = watched
        self._reader = Reader(watched)
        path = watched.resource
        self.key = f"{path.plural}.{path.group}" if path.group else path.plural
        """Of the resource, as the store has it."""
        if not watched.optional and self._served() is None:
            raise LookupError(f"the store does not serve {watched.resource}")
        self._version: int | None = None
        self._looked_at = -1

    @staticmethod
    def watched_keys(feeds: Iterable["Feed[Any]"]) -> frozenset[str]:
        """The resources (keys) of which these feeds have something to tell when something happens to them."""
        return frozenset((CRD_KEY, *(feed.key for feed in feeds)))

    def concerns(self, moved: Container[str]) -> bool:
        """Whether there may be something new when something happened to these resources (keys)."""
        return self.key in moved or CRD_KEY in moved

    def take(self) -> list[Batch[T]]:
        """Everything new since the last call, most often nothing or one batch."""
        version = self._store.resource_version
        if self._looked_at == version:
            return []
        first, self._looked_at = self._looked_at < 0, version
        resource = self._served()
        if resource is None:
            gone, self._version = self._version is not None, None
            return [Replace({}, "0")] if first or gone else []
        if self._version is None:
            return [self._everything(resource)]
        return list(self._changes(resource, self._version))

    def expire(self) -> None:
        """The version watched from is forgotten (410): the next call lists everything."""
        self._version, self._looked_at = None, -1

    def _served(self) -> Resource | None:
        path = self._watched.resource
        return self._store.served(path.group, path.version, path.plural)

    def _everything(self, resource: Resource) -> Replace[T]:
        watched = self._watched
        page = self._store.page(resource, ListQuery(watched.namespace, watched.label_selector, watched.field_selector))
        skipped: list[Undecodable] = []
        objects = dict(self._reader.objects((msgspec.Raw(row.json) for row in page.rows), skipped))
        self._version = page.resource_version
        return Replace(objects, str(page.resource_version), tuple(skipped))

    def _changes(self, resource: Resource, since: int) -> Iterator[Batch[T]]:
        try:
            entries = self._store.changes(resource, since, established=True)
        except StoreExpired:  # it was not looked at for too long
            yield self._everything(resource)
            return
        if not entries:
            return
        wanted = field_predicate(resource, self._watched.field_selector)
        told = [it for it in entries if wanted is None or wanted(it.revision.obj)]
        lines = b"".join(b'{"type":"%s","object":%s}\n' % (it.type.encode(), it.revision.json) for it in told)
        reading = self._reader.events(lines)
        self._version = entries[-1].revision.resource_version
        if reading.deltas:
            yield Changes(reading.deltas, reading.version)
        if reading.trouble is not None:  # as a reflector does: only a list shows what is left
            yield self._everything(resource)
