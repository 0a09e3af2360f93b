"""Lists: which rows, at which resource version, and where the next page begins.

Source: the resource-version semantics table of the API concepts page; `continue` tokens as in etcd3 `store.go`.
"""

import base64
import binascii
from dataclasses import dataclass

import msgspec

from providers.sim.store.errors import StoreBadRequest, StoreExpired, StoreTimeout
from providers.sim.store.ledger import Key, ObjectTables
from providers.sim.store.registry import Resource
from providers.sim.store.selectors import selection
from providers.sim.store.watchlog import Revision


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What a list asks for, in the words of the API; `limit` 0 is no limit."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    match: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows at one resource version; `token` is empty on the last page, `remaining` is None when it is not known."""

    rows: list[Revision]
    resource_version: int
    token: str = ""
    remaining: int | None = None


def read_page(ledger: ObjectTables, resource: Resource, query: ListQuery) -> Page:
    """The page `query` asks for. BadRequest, Expired or Timeout as the API answers them."""
    wanted = selection(resource, query.label_selector, query.field_selector)
    version, after = _start(ledger, query)
    table = ledger.table(resource)
    exact = version is not None and version != ledger.resource_version
    found = table.scan_at(version, query.namespace, after) if exact and version else table.scan(query.namespace, after)
    shown = version if version is not None else ledger.resource_version
    rows: list[Revision] = []
    last: Key = after
    limit = 0 if query.resource_version == "0" else query.limit  # answered from the watch cache, whole
    for key, revision in found:
        if wanted is not None and not wanted(revision.obj):
            continue
        if limit and len(rows) == limit:
            remaining = None if wanted else 1 + sum(1 for _ in found)
            return Page(rows, shown, _encode_token(shown, last), remaining)
        rows.append(revision)
        last = key
    return Page(rows, shown)


def _start(ledger: ObjectTables, query: ListQuery) -> tuple[int | None, Key]:
    """The version to read at (None for the newest) and the key to go on after."""
    if query.match and not query.resource_version:
        raise StoreBadRequest("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if query.match not in ("", "Exact", "NotOlderThan"):
        raise StoreBadRequest(f'resourceVersionMatch: Unsupported value: "{query.match}"')
    if query.token:
        if query.match or query.resource_version not in ("", "0"):
            raise StoreBadRequest("specifying resource version is not allowed when using continue")
        return _decode_token(ledger, query.token)
    asked = parsed_version(query.resource_version)
    if query.match == "Exact" and asked == 0:
        raise StoreBadRequest('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    if asked > ledger.resource_version:
        raise too_large(asked, ledger.resource_version)
    exact = query.match == "Exact" or (asked and query.limit and not query.match)
    if exact and asked < ledger.floor:
        raise StoreExpired("The resourceVersion for the provided list is too old.")
    return (asked if exact else None), ("", "")


def too_large(asked: int, current: int) -> StoreTimeout:
    """The refusal of a version that is not there yet."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    text = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StoreTimeout(text, {"causes": causes, "retryAfterSeconds": 1})


def parsed_version(text: str) -> int:
    """A resource version as a number, "" as 0. BadRequest when it is none."""
    if not well_formed(text):
        raise StoreBadRequest(f"invalid resource version: {malformed(text)}")
    return int(text or 0)


def well_formed(text: str) -> bool:
    """Whether a text can be a resource version."""
    return not text or (text.isascii() and text.isdigit() and len(text) < 19)


def malformed(text: str) -> str:
    """The words for a text that is no resource version."""
    return f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def _encode_token(version: int, last: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "after": last})).decode()


def _decode_token(ledger: ObjectTables, token: str) -> tuple[int, Key]:
    try:
        said = msgspec.json.decode(base64.urlsafe_b64decode(token))
        version, (namespace, name) = int(said["rv"]), said["after"]
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise StoreBadRequest(f"invalid continue token: continue key is not valid: {error}") from error
    if version < ledger.floor or version > ledger.resource_version:
        raise StoreExpired("The provided continue parameter is too old to display a consistent list result.")
    return version, (str(namespace), str(name))
