"""How the bytes of a watched resource become objects: one that cannot be read is reported and hides no other."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog
from msgspec import Raw

from providers.kube import wire
from providers.kube.batches import Delta, DeltaKind, Undecodable
from providers.kube.errors import Expired, KubeError, from_status
from providers.kube.resources import ResourcePath

T = TypeVar("T")

log = structlog.get_logger(__name__)

_KINDS: Final = {kind.value: kind for kind in DeltaKind}
_RAW_KEPT: Final = 4096


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """What to reflect: a resource, narrowed by namespace and selectors, and how to read its objects.

    `decode` takes the JSON of one object (items of a list carry no kind) and raises whatever it likes; `key` names an
    object among its kind: `namespace/name`, `name` or uid; `on_undecodable` hears of each object that was skipped.
    """

    resource: ResourcePath
    decode: Callable[[Raw], T]
    key: Callable[[T], str]
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    on_undecodable: Callable[[Undecodable], None] | None = None
    optional: bool = False
    """A cluster need not serve it: then there are none."""


@dataclass(frozen=True, slots=True)
class WatchReading(Generic[T]):
    """What some lines of a watch say: changes, the version after them (empty if none can be read), then a complaint."""

    deltas: tuple[Delta[T], ...]
    version: str
    trouble: KubeError | None


class Reader(Generic[T]):
    """Decodes for one watched resource; keeps nothing."""

    def __init__(self, watched: Watched[T]) -> None:
        self._watched = watched

    def objects(self, items: Iterable[Raw], skipped: list[Undecodable]) -> Iterator[tuple[str, T]]:
        """Key and object of each item; what cannot be read is added to `skipped`."""
        decode, key = self._watched.decode, self._watched.key
        for raw in items:
            try:
                found = decode(raw)
                name = key(found)
            except Exception as error:  # noqa: BLE001 - decoders are the caller's; one bad object must not hide the rest
                skipped.append(self._skip(raw, error))
                continue
            yield name, found

    def events(self, lines: bytes) -> WatchReading[T]:
        """Whole lines of a watch, up to the first ERROR event."""
        events, deltas, trouble = self._events(lines), list[Delta[T]](), None
        for at, event in enumerate(events):
            if (kind := _KINDS.get(event.type)) is not None:
                trouble = self._add(kind, event.object, deltas)
            elif event.type == "ERROR":
                trouble = from_status(0, event.object, context=f"watch {self._watched.resource}")
            if trouble is not None:
                del events[at:]
                break
        return WatchReading(tuple(deltas), _last_version(events), trouble)

    def _add(self, kind: DeltaKind, raw: Raw, deltas: list[Delta[T]]) -> KubeError | None:
        try:
            found = self._watched.decode(raw)
            deltas.append(Delta(kind, self._watched.key(found), found))
        except Exception as error:  # noqa: BLE001 - see `objects`
            self._skip(raw, error)
            if kind is DeltaKind.DELETED:
                return Expired("an object that cannot be read was deleted: only a list shows what is left")
        return None

    def _events(self, lines: bytes) -> list[wire.WatchEvent]:
        try:
            return wire.decode_events(lines)
        except wire.MALFORMED:
            return list(self._sound(lines.splitlines()))

    def _sound(self, lines: list[bytes]) -> Iterator[wire.WatchEvent]:
        for line in lines:
            try:
                yield wire.decode_event(line)
            except wire.MALFORMED as error:
                self._skip(line, error)

    def _skip(self, raw: Raw | bytes, error: Exception) -> Undecodable:
        who, why = wire.identity(raw), f"{type(error).__name__}: {error}"
        found = Undecodable(who.namespace, who.name, who.uid, bytes(raw)[:_RAW_KEPT], why)
        log.warning("undecodable_object", resource=str(self._watched.resource), name=found.name, error=why)
        if self._watched.on_undecodable is not None:
            self._watched.on_undecodable(found)
        return found


def _last_version(events: list[wire.WatchEvent]) -> str:
    """Versions of one watch only grow, so the last that can be read stands for all (bookmarks carry nothing else)."""
    for event in reversed(events):
        if version := wire.identity(event.object).resource_version:
            return version
    return ""
