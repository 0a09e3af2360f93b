"""The part of JSONPath that printer columns and wait conditions use: fields, indexes, wildcards, equality filters.

Source: client-go `util/jsonpath`.
"""

import re
from functools import lru_cache
from typing import Any

import msgspec

_STEP = re.compile(
    r"""\.?(?:
        \[\?\(\s*@\.(?P<field>[\w.\\/-]+)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[\w.-]+)\s*\)\]
      | \[(?P<index>-?\d+)\]
      | \[['"](?P<quoted>[^'"]+)['"]\]
      | (?P<all>\[\*\]|\*)
      | (?P<name>(?:[\w/-]|\\.)+)
    )""",
    re.VERBOSE,
)
_NOTHING = object()


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[re.Match[str], ...]:
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps, position = [], 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None or match.end() == position:
            raise ValueError(f"not a JSONPath: {path!r}")
        steps.append(match)
        position = match.end()
    return tuple(steps)


def find(value: Any, path: str) -> list[Any]:
    """The values at `path`, without nulls; [] when there are none. ValueError when the path does not parse."""
    found = [value]
    for step in _steps(path):
        found = [below for held in found for below in _below(held, step)]
    return [held for held in found if held is not None]


def _below(value: Any, step: re.Match[str]) -> list[Any]:
    if name := step["name"] or step["quoted"]:
        key = re.sub(r"\\(.)", r"\1", name)
        return [value[key]] if isinstance(value, dict) and key in value else []
    if step["index"] is not None:
        position = int(step["index"])
        return [value[position]] if isinstance(value, list) and -len(value) <= position < len(value) else []
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [item for item in items if not step["field"] or _chosen(item, step)]


def _chosen(item: Any, step: re.Match[str]) -> bool:
    held = find(item, f".{step['field']}")
    wanted = step["value"]
    literal: Any = wanted[1:-1] if wanted[0] in "\"'" else _scalar(wanted)
    return ((held[0] if held else _NOTHING) == literal) is (step["op"] == "==")


def _scalar(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
