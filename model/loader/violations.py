"""Pydantic's errors -> problems in the words of the person who wrote the file."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from model.hints import did_you_mean, listing
from model.kinds.base import Spec
from model.loader.known_keys import known_keys, models_at
from model.loader.scalars import explain_text
from model.loader.tree import Document, Path, YamlNode, text_path
from model.problem import Code, Problem

Details = Any
"""One entry of `ValidationError.errors()`."""

_FORMS = {
    r"^(100|[0-9]{1,2})%$": "a percentage like 10%",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "the name of an environment variable",
}
"""What the patterns of the kinds mean."""

_MESSAGES: dict[str, Callable[[dict[str, Any]], str]] = {
    "string_type": lambda _: "must be text",
    "int_type": lambda _: "must be a whole number",
    "int_from_float": lambda _: "must be a whole number",
    "float_type": lambda _: "must be a number",
    "finite_number": lambda _: "must be a finite number",
    "bool_type": lambda _: "must be true or false",
    "dict_type": lambda _: "must be a mapping",
    "model_type": lambda _: "must be a mapping",
    "model_attributes_type": lambda _: "must be a mapping",
    "tuple_type": lambda _: "must be a list",
    "greater_than": lambda ctx: f"must be more than {_number(ctx['gt'])}",
    "greater_than_equal": lambda ctx: f"must be at least {_number(ctx['ge'])}",
    "less_than_equal": lambda ctx: f"must be at most {_number(ctx['le'])}",
    "too_short": lambda ctx: f"needs at least {ctx['min_length']} item{'s' if ctx['min_length'] > 1 else ''}",
    "too_long": lambda ctx: f"takes at most {ctx['max_length']} items",
    "string_too_short": lambda _: "must not be empty",
    "string_too_long": lambda ctx: f"takes at most {ctx['max_length']} characters",
    "literal_error": lambda ctx: f"must be {ctx['expected']}",
    "string_pattern_mismatch": lambda ctx: f"must be {_FORMS.get(ctx['pattern'], ctx['pattern'])}",
    "value_error": lambda ctx: str(ctx["error"]),
    **dict.fromkeys(("below", "unsupported"), lambda ctx: str(ctx["reason"])),
}


_MOST_ERRORS = 200
"""Of one document; each costs an excerpt."""


class _Violation(NamedTuple):
    path: Path
    """As far as it exists in the document."""
    branch: bool
    """The error belongs to one alternative of a union."""
    details: Details


def problems_of(document: Document, model: type[BaseModel], error: ValidationError) -> list[Problem]:
    """Every violation as a problem; the alternatives of a union become one."""
    every = (_violation(document, details) for details in error.errors(include_url=False)[:_MOST_ERRORS])
    found = [one for one in every if not _is_echo(document, one)]
    plain = [_problem(document, model, one) for one in found if not one.branch]
    branches = sorted((one for one in found if one.branch), key=lambda one: (text_path(one.path), -len(one.path)))
    return plain + [_either(document, list(group)) for group in _alternatives(branches)]


def _violation(document: Document, details: Details) -> _Violation:
    """Follows pydantic's location, leaving out what is not in the document: union tags and the missing key itself."""
    location: tuple[str | int, ...] = details["loc"]
    path: list[str | int] = []
    skipped = 0
    for step in location:
        node = document.find(tuple(path))
        if _holds(node, step):
            path.append(step)
        else:
            skipped += 1
    missing = details["type"] == "missing"
    key_error = bool(location) and location[-1] == "[key]"
    return _Violation(tuple(path), skipped > int(missing) + int(key_error), details)


def _is_echo(document: Document, violation: _Violation) -> bool:
    """Pydantic calls a list too short when its items are wrong; the items' own errors say it better."""
    items = document.find(violation.path).children
    return violation.details["type"] == "too_short" and bool(items)


def _holds(node: YamlNode, step: str | int) -> bool:
    if isinstance(node.children, dict):
        return step in node.children
    return isinstance(node.children, list) and isinstance(step, int) and step < len(node.children)


def _problem(document: Document, model: type[BaseModel], violation: _Violation) -> Problem:
    path, details = violation.path, violation.details
    kind = details["type"]
    if kind == "missing":
        key = str(details["loc"][-1])
        hint = did_you_mean(key, _strangers(document, model, path))
        return document.problem(path, f"the key {key!r} is required", Code.MISSING_KEY, hint=hint)
    if kind == "extra_forbidden":
        if advice := _unsupported(model, path):
            return document.problem(path, f"{path[-1]!r} is not supported", Code.UNSUPPORTED, hint=advice, key=True)
        known = known_keys(model, path[:-1])
        hint = did_you_mean(str(path[-1]), known) or f"known here: {listing(known, most=12)}"
        return document.problem(path, f"unknown key {path[-1]!r}", Code.UNKNOWN_KEY, hint=hint, key=True)
    if kind == "quantity":
        path = (*path, str(details["ctx"]["resource"]))
    path += details.get("ctx", {}).get("below", ())
    if kind == "unsupported":
        return document.problem(path, _message(details), Code.UNSUPPORTED, hint=details["ctx"]["advice"])
    at_key = bool(details["loc"]) and details["loc"][-1] == "[key]"
    node = document.find(path)
    return document.problem(path, _message(details), Code.INVALID_VALUE, hint=_hint(details, node), key=at_key)


def _unsupported(model: type[BaseModel], path: Path) -> str:
    """What to do instead of the key at the end of `path`, if it is one that others write there."""
    classes = (cls for cls in models_at(model, path[:-1]) if issubclass(cls, Spec))
    return next((cls.unsupported[str(path[-1])] for cls in classes if path[-1] in cls.unsupported), "")


def _strangers(document: Document, model: type[BaseModel], path: Path) -> list[str]:
    """Keys at `path` that the model does not know: one of them may be the misspelt required key."""
    node = document.find(path)
    return sorted(set(node.children) - set(known_keys(model, path))) if isinstance(node.children, dict) else []


def _message(details: Details) -> str:
    render = _MESSAGES.get(details["type"])
    return render(details.get("ctx", {})) if render else str(details["msg"]).removeprefix("Input ")


def _hint(details: Details, node: YamlNode) -> str:
    """How to write what was probably meant."""
    kind, value, plain = details["type"], node.data, node.plain
    if plain is not None and value is None:
        return "it has no value; remove the key to get the default"
    if plain is not None and value == plain and kind != "quantity" and (explained := explain_text(plain)):
        return explained
    hint = _HINTS.get(kind)
    return hint(details, node) if hint else ""


def _unquote(_: Details, node: YamlNode) -> str:
    return "remove the quotes" if isinstance(node.data, str) and node.plain is None else ""


_HINTS: dict[str, Callable[[Details, YamlNode], str]] = {
    "string_type": lambda _, node: f'quote it: "{node.plain}"' if node.plain else "",
    "literal_error": lambda details, node: did_you_mean(str(node.data), _literals(details["ctx"]["expected"])),
    "tuple_type": lambda _, node: f"write [{node.plain or node.data}]" if node.children is None else "",
    **dict.fromkeys(("int_type", "float_type", "bool_type"), _unquote),
}


def _literals(expected: str) -> list[str]:
    """The values in pydantic's "'a', 'b' or 'c'"."""
    return expected.replace("' or '", "', '").strip("'").split("', '")


def _number(value: float) -> str:
    return str(value).removesuffix(".0")


def _alternatives(branches: Iterable[_Violation]) -> Iterable[list[_Violation]]:
    """Groups by the place of the union; what went wrong deepest inside is closest to what was meant."""

    def base(violation: _Violation) -> Path:
        return violation.path[:-1] if violation.path and isinstance(violation.path[-1], int) else violation.path

    for _, group in groupby(branches, key=lambda one: text_path(base(one))):
        members = list(group)
        deepest = max(len(one.path) for one in members)
        yield [one for one in members if len(one.path) == deepest]


def _either(document: Document, group: list[_Violation]) -> Problem:
    first = group[0]
    messages = dict.fromkeys(_message(one.details) for one in group)
    text = " or ".join([next(iter(messages)), *(message.removeprefix("must be ") for message in list(messages)[1:])])
    hints = (_hint(one.details, document.find(one.path)) for one in group)
    return document.problem(first.path, text, Code.INVALID_VALUE, hint=next((hint for hint in hints if hint), ""))
