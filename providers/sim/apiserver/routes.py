"""A request line as what it asks of the store: verb, resource path, query."""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qsl, unquote

from aiohttp import hdrs

_ITEM_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}
_SET_VERBS = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
_TRUE = frozenset({"", "1", "t", "true", "True", "TRUE"})


@dataclass(frozen=True, slots=True)
class Route:
    """The path of a resource request. `name` is empty for a collection, `namespace` when none is on the path."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def verb(self, method: str, query: dict[str, str]) -> str:
        """The API verb (get, list, watch, create, update, patch, delete, deletecollection); "" if there is none."""
        verb = (_ITEM_VERBS if self.name else _SET_VERBS).get(method, "")
        return "watch" if verb == "list" and flag(query, "watch") else verb


@lru_cache(maxsize=4096)
def parse_route(path: str) -> Route | None:
    """The resource route of a URL path, or None when it is not one (discovery, health, nonsense)."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or not all(rest):
        return None
    return Route(group, version, rest[0], namespace, *rest[1:])


def parse_query(text: str) -> dict[str, str]:
    """The query parameters; of a repeated one the last."""
    return dict(parse_qsl(text, keep_blank_values=True)) if text else {}


def flag(query: dict[str, str], name: str) -> bool:
    """Whether a boolean parameter is set (present without a value counts)."""
    return name in query and query[name] in _TRUE


def media_type(headers_value: str) -> str:
    """A content type without its parameters."""
    return headers_value.partition(";")[0].strip().lower()


USER_AGENT = hdrs.USER_AGENT
