"""The envelopes of lists, watches and failures; the objects inside stay raw until the caller's decoder sees them.

Scanning an envelope around `msgspec.Raw` allocates nothing per field, so a page of 500 pods costs little more than the
caller's own Struct. Go writes nil slices and unset structs as `null`: every field here accepts it.
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct, field


class ListMeta(Struct, frozen=True, gc=False):
    """`metadata` of a list."""

    resource_version: str = field(default="", name="resourceVersion")
    continue_token: str = field(default="", name="continue")


class ListPage(Struct, frozen=True):
    """One page of a list: raw objects in the server's order."""

    metadata: ListMeta | None = None
    items: list[Raw] | None = None

    @property
    def resource_version(self) -> str:
        """The version the whole list stands for; all pages of one list share it."""
        return self.metadata.resource_version if self.metadata else ""

    @property
    def continue_token(self) -> str:
        """What asks for the next page; empty on the last one."""
        return self.metadata.continue_token if self.metadata else ""


class WatchEvent(Struct, frozen=True, gc=False):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR (then `object` is a Status)."""

    type: str
    object: Raw


class ObjectMeta(Struct, frozen=True, gc=False):
    """The part of an object's metadata that says which object, and which version of it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = field(default="", name="resourceVersion")


class Identified(Struct, frozen=True, gc=False):
    """Any object, seen only as its identity."""

    metadata: ObjectMeta = ObjectMeta()


class Cause(Struct, frozen=True, gc=False):
    """One reason in a Status: `field` is a path such as `spec.replicas`, `reason` e.g. `FieldValueInvalid`."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Struct, frozen=True):
    """`details` of a Status."""

    causes: list[Cause] | None = None
    retry_after_s: int = field(default=0, name="retryAfterSeconds")


class Status(Struct, frozen=True):
    """A `v1.Status`, the body of every failure."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What reading foreign JSON may raise; the last where somebody nests a thousand objects."""

_page = msgspec.json.Decoder(ListPage)
_event = msgspec.json.Decoder(WatchEvent)
_identified = msgspec.json.Decoder(Identified)
_status = msgspec.json.Decoder(Status)


def decode_page(body: bytes) -> ListPage:
    """A list body; raises `msgspec.MsgspecError` when it is not one."""
    return _page.decode(body)


def decode_events(lines: bytes) -> list[WatchEvent]:
    """Whole lines of a watch; raises `msgspec.MsgspecError` if a single one is malformed (see `decode_event`)."""
    return _event.decode_lines(lines)


def decode_event(line: bytes) -> WatchEvent:
    """One line of a watch; raises `msgspec.MsgspecError`."""
    return _event.decode(line)


def identity(raw: Raw | bytes) -> ObjectMeta:
    """Which object this is; empty fields where even that cannot be read. Never raises."""
    try:
        return _identified.decode(raw).metadata
    except MALFORMED:
        return ObjectMeta()


def status(raw: Raw | bytes) -> Status:
    """The Status in a failure's body; an empty one where a proxy answered with something else. Never raises."""
    try:
        return _status.decode(raw)
    except MALFORMED:
        return Status()
