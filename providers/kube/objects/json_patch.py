"""Operations of RFC 6902 that several patches are made of."""

from typing import Any

from providers.kube.objects.shapes import JsonObject


def pointer(*parts: str | int) -> str:
    """The JSON pointer (RFC 6901) to a field; `~` and `/` inside a part are escaped."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def at_version(raw: JsonObject) -> JsonObject:
    """Makes the server answer Conflict unless the object is still the one in `raw`.

    Writing the resourceVersion is the precondition the API documents; a failing `test` would come back as Invalid.
    """
    return {"op": "add", "path": "/metadata/resourceVersion", "value": raw["metadata"]["resourceVersion"]}


def became(path: str, before: Any, after: Any) -> list[JsonObject]:
    """Set a field from `before` to `after`; None or something empty means that it is not there."""
    if (before or None) == (after or None):
        return []
    if not after:
        return [{"op": "remove", "path": path}]
    return [{"op": "add", "path": path, "value": after}]


def put(raw: JsonObject, path: tuple[str, ...], value: Any) -> list[JsonObject]:
    """Set a field of `raw`; the objects on the way to it are made where they are missing."""
    held: Any = raw
    for depth, part in enumerate(path[:-1], start=1):
        held = held.get(part)
        if held is None:
            for name in reversed(path[depth:]):
                value = {name: value}
            return [{"op": "add", "path": pointer(*path[:depth]), "value": value}]
    return [{"op": "add", "path": pointer(*path), "value": value}]
