"""RFC 6902 (JSON Patch) and RFC 7386 (JSON Merge Patch). Inputs are never changed; untouched parts are shared."""

from typing import Any

from providers.sim.store.errors import StoreBadRequest, StoreInvalid

MAX_OPERATIONS = 10_000  # the limit of the real API server


class StorePatchTestFailed(StoreInvalid):
    """A `test` of a JSON patch that does not hold."""


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386 section 2: maps merge, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902: all operations or none. BadRequest for a malformed one, Invalid when one does not apply."""
    if not isinstance(operations, list):
        raise StoreBadRequest("a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise StoreBadRequest(f"a JSON patch may have at most {MAX_OPERATIONS} operations")
    for operation in operations:
        target = _apply(target, operation)
    return target


def _apply(target: Any, operation: Any) -> Any:
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        raise StoreBadRequest(f"not a JSON patch operation: {operation!r}")
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            return _put(target, path, _value(operation), insert=True)
        case "replace":
            _get(target, path)
            return _put(target, path, _value(operation), insert=False)
        case "remove":
            return _remove(target, path)
        case "test":
            if not _same(_get(target, path), _value(operation)):
                raise StorePatchTestFailed(f"testing value {operation['path']} failed")
            return target
        case "copy":
            return _put(target, path, _get(target, _from(operation)), insert=True)
        case "move":
            return _move(target, _from(operation), path)
        case other:
            raise StoreBadRequest(f"unknown JSON patch operation {other!r}")


def _move(target: Any, source: list[str], path: list[str]) -> Any:
    if path[: len(source)] == source:
        if path == source:
            return target
        raise StoreInvalid("a location cannot be moved into one of its children")
    return _put(_remove(target, source), path, _get(target, source), insert=True)


def _same(left: Any, right: Any) -> bool:
    """Equality of JSON values, where true is not 1 (RFC 6902 section 4.6)."""
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise StoreBadRequest(f"JSON patch operation without a value: {operation!r}")
    return operation["value"]


def _from(operation: dict[str, Any]) -> list[str]:
    if not isinstance(operation.get("from"), str):
        raise StoreBadRequest(f"JSON patch operation without from: {operation!r}")
    return _pointer(operation["from"])


def _pointer(text: str) -> list[str]:
    """RFC 6901: the reference tokens of a JSON pointer."""
    if not text:
        return []
    if not text.startswith("/"):
        raise StoreBadRequest(f"not a JSON pointer: {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _position(items: list[Any], index: str, *, end: bool) -> int:
    if end and index == "-":
        return len(items)
    if not index.isascii() or not index.isdigit() or (len(index) > 1 and index[0] == "0"):
        raise StoreInvalid(f"invalid array index: {index}")
    if len(index) > 9 or int(index) >= len(items) + end:
        raise StoreInvalid(f"array index out of bounds: {index}")
    return int(index)


def _get(node: Any, path: list[str]) -> Any:
    for token in path:
        if isinstance(node, dict) and token in node:
            node = node[token]
        elif isinstance(node, list):
            node = node[_position(node, token, end=False)]
        else:
            raise StoreInvalid(f"the path /{'/'.join(path)} does not exist")
    return node


def _put(node: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    token, rest = path[0], path[1:]
    if isinstance(node, dict) and (not rest or token in node):
        return {**node, token: _put(node.get(token), rest, value, insert=insert)}
    if isinstance(node, list):
        position = _position(node, token, end=insert and not rest)
        if rest or not insert:
            return [*node[:position], _put(node[position], rest, value, insert=insert), *node[position + 1 :]]
        return [*node[:position], value, *node[position:]]
    raise StoreInvalid(f"the path to {token!r} does not exist")


def _remove(node: Any, path: list[str]) -> Any:
    if not path:
        raise StoreInvalid("the whole document cannot be removed")
    token, rest = path[0], path[1:]
    if isinstance(node, dict) and token in node:
        if rest:
            return {**node, token: _remove(node[token], rest)}
        return {key: value for key, value in node.items() if key != token}
    if isinstance(node, list):
        position = _position(node, token, end=False)
        kept = [_remove(node[position], rest)] if rest else []
        return [*node[:position], *kept, *node[position + 1 :]]
    raise StoreInvalid(f"the path to {token!r} does not exist")
