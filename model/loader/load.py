"""The loader's one function: decode, parse, read each document, check them together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from model.fleet import Fleet, default_policy, implied_flavor
from model.loader.checks import CHECKS
from model.loader.declarations import Declarations, Declared
from model.loader.parse import DEFAULT_LIMITS, Limits, parse
from model.loader.source import Source, decode
from model.loader.tree import Document
from model.problem import Code, InvalidFleet, Problem

_SUFFIXES = (".yaml", ".yml")
_MOST_PROBLEMS = 1000
"""More than anyone reads; keeps a hostile repository from costing memory."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a repository says: the fleet, unless there are errors, and every problem by place."""

    fleet: Fleet | None
    problems: tuple[Problem, ...]
    """Errors and warnings."""


def load(files: Mapping[str, bytes], limits: Limits = DEFAULT_LIMITS) -> Fleet:
    """The fleet that `files` (path -> content) declare; raises `InvalidFleet` with every problem.

    Only `.yaml` and `.yml` are read; paths with a component that starts with a dot (`.github/`) are not. Warnings do
    not raise: ask `inspect` for them.
    """
    loaded = inspect(files, limits)
    if loaded.fleet is None:
        raise InvalidFleet(loaded.problems)
    return loaded.fleet


def inspect(files: Mapping[str, bytes], limits: Limits = DEFAULT_LIMITS) -> Loaded:
    """The fleet and all problems, without raising."""
    declarations = Declarations()
    problems: list[Problem] = []
    total = documents = 0
    for file in sorted(filter(is_fleet_file, files)):
        total += len(files[file])
        if total > limits.total_bytes:
            message = f"the fleet's files hold more than {limits.total_bytes} bytes together"
            problems.append(Source(file, "").problem(1, 1, message, Code.TOO_LARGE))
            declarations.complete = False
            break
        read, found = _read(file, files[file], limits)
        declarations.complete &= not found
        problems += found
        documents += len(read)
        if documents > limits.documents:
            message = f"the fleet has more than {limits.documents} documents"
            problems.append(Source(file, "").problem(1, 1, message, Code.TOO_LARGE))
            declarations.complete = False
            break
        for document in read:
            problems += declarations.add(document)
    problems += _check(declarations)
    ordered = tuple(sorted(problems, key=Problem.sort_key)[:_MOST_PROBLEMS])
    failed = any(problem.severity == "error" for problem in problems)
    return Loaded(None if failed else _fleet(declarations), ordered)


def is_fleet_file(path: str) -> bool:
    """Whether the loader reads `path`."""
    return path.endswith(_SUFFIXES) and not any(part.startswith(".") for part in path.split("/"))


def _read(file: str, content: bytes, limits: Limits) -> tuple[list[Document], list[Problem]]:
    if len(content) > limits.file_bytes:
        message = f"the file has {len(content)} bytes; at most {limits.file_bytes} are read"
        return [], [Source(file, "").problem(1, 1, message, Code.TOO_LARGE)]
    source = decode(file, content)
    if isinstance(source, Problem):
        return [], [source]
    return parse(source, limits)


def _check(declarations: Declarations) -> Iterator[Problem]:
    for check in CHECKS:
        yield from check(declarations)


def _values(table: Mapping[str, Declared[Any]]) -> dict[str, Any]:
    return {name: table[name].value for name in sorted(table)}


def _fleet(declarations: Declarations) -> Fleet:
    """Everything by name, sorted; pools without a namesake flavor get the one they imply."""
    pools = _values(declarations.node_pools)
    flavors = {name: implied_flavor(pool) for name, pool in pools.items()} | _values(declarations.flavors)
    policy = next((declared.value for declared in declarations.policies.values()), None)
    return Fleet(
        node_pools=pools,
        mig_layouts=_values(declarations.mig_layouts),
        flavors=dict(sorted(flavors.items())),
        teams=_values(declarations.teams),
        queues=_values(declarations.queues),
        priority_classes=_values(declarations.priority_classes),
        topologies=_values(declarations.topologies),
        policy=policy if policy is not None else default_policy(),
    )
