"""Problems for people and for machines: text, JSON, SARIF 2.1.0 and GitHub workflow commands."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from model.plain_text import plain, plain_block
from model.problem import DESCRIPTIONS, Code, Problem

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RESET = "\x1b[0m"
_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "place": "\x1b[1m", "hint": "\x1b[36m", "excerpt": "\x1b[2m"}

Render = Callable[[Sequence[Problem]], str]


def text(problems: Sequence[Problem], *, colour: bool = False) -> str:
    """Each problem with its excerpt, and the totals in the last line."""

    def paint(style: str, words: str) -> str:
        return f"{_STYLES[style]}{words}{_RESET}" if colour and words else words

    blocks = []
    for problem in problems:
        path = f" {plain(problem.path)}:" if problem.path else ""
        place, words = paint("place", plain(problem.place)), plain(problem.message)
        lines = [f"{place}: {paint(problem.severity, problem.severity)}:{path} {words}"]
        lines += [f"  {paint('excerpt', line)}" for line in plain_block(problem.excerpt).splitlines()]
        lines += [f"  {paint('hint', f'hint: {plain(problem.hint)}')}"] if problem.hint else []
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, totals(problems)])


def totals(problems: Sequence[Problem]) -> str:
    """`2 errors, 1 warning in 2 files`."""
    if not problems:
        return "no problems"

    def count(number: int, what: str) -> str:
        return f"{number} {what}{'' if number == 1 else 's'}"

    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    parts = [count(number, what) for number, what in ((errors, "error"), (warnings, "warning")) if number]
    return f"{', '.join(parts)} in {count(len({problem.file for problem in problems}), 'file')}"


def as_json(problems: Sequence[Problem]) -> str:
    """A JSON array of objects with every field but the excerpt."""
    return json.dumps([_fields(problem) for problem in problems], indent=2)


def _fields(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "severity": problem.severity,
        "code": problem.code.value,
        "message": problem.message,
        "hint": problem.hint,
    }


def sarif(problems: Sequence[Problem]) -> str:
    """A SARIF 2.1.0 log with one run, as code-scanning services read it."""
    driver = {"name": "muster", "rules": [_rule(code) for code in Code]}
    indexes = {code: index for index, code in enumerate(Code)}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, indexes[problem.code]) for problem in problems],
    }
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(code: Code) -> dict[str, Any]:
    return {
        "id": code.value,
        "shortDescription": {"text": DESCRIPTIONS[code]},
        "defaultConfiguration": {"level": "warning" if code is Code.UNUSED else "error"},
    }


def _result(problem: Problem, rule_index: int) -> dict[str, Any]:
    parts = (f"{problem.path}: " if problem.path else "", problem.message, f" ({problem.hint})" if problem.hint else "")
    location = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(problem.file), "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": problem.line, "startColumn": problem.column},
        }
    }
    return {
        "ruleId": problem.code.value,
        "ruleIndex": rule_index,
        "level": problem.severity,
        "message": {"text": plain("".join(parts))},
        "locations": [location],
    }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path)


def github(problems: Sequence[Problem]) -> str:
    """Workflow commands that GitHub Actions turns into annotations of a pull request's files."""
    return "\n".join(map(_command, problems))


def _command(problem: Problem) -> str:
    path = f"{problem.path}: " if problem.path else ""
    message = plain(f"{path}{problem.message}") + (f"\n{plain(problem.hint)}" if problem.hint else "")
    properties = {
        "file": plain(problem.file),
        "line": problem.line,
        "col": problem.column,
        "title": DESCRIPTIONS[problem.code],
    }
    listed = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{problem.severity} {listed}::{_data(message)}"


def _data(value: str) -> str:
    """Escapes as in actions/toolkit `command.ts`, so that a file cannot smuggle in a command of its own."""
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


FORMATS: Mapping[str, Render] = {"text": text, "json": as_json, "sarif": sarif, "github": github}
"""What the command line offers."""
