"""The loader's one function: decode, parse, read each document, check them together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

from model.fleet import Fleet, default_policy, implied_flavor
from model.kinds.approval import OwnedKind
from model.loader.checks import CHECKS, Check
from model.loader.declarations import Declarations, Declared
from model.loader.joining import join_pools
from model.loader.parse import DEFAULT_LIMITS, LoaderLimits, parse
from model.loader.source import SourceFile, decode
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


def load(files: Mapping[str, bytes], limits: LoaderLimits = DEFAULT_LIMITS, *, further: Sequence[Check] = ()) -> Fleet:
    """The fleet that `files` (path -> content) declare; raises `InvalidFleet` with every problem.

    Only `.yaml` and `.yml` are read; paths with a component that starts with a dot (`.github/`) are not. Warnings do
    not raise: ask `inspect` for them. `further` checks are of those who know more than the files, such as what is on
    sale (`fleet.offerings.declared`); they follow the loader's own.
    """
    loaded = inspect(files, limits, further=further)
    if loaded.fleet is None:
        raise InvalidFleet(loaded.problems)
    return loaded.fleet


def inspect(
    files: Mapping[str, bytes], limits: LoaderLimits = DEFAULT_LIMITS, *, further: Sequence[Check] = ()
) -> Loaded:
    """The fleet and all problems, without raising."""
    declarations = Declarations()
    problems = list(islice(_problems(files, limits, declarations), _MOST_PROBLEMS))
    problems += islice(_further(problems, further, declarations), _MOST_PROBLEMS - len(problems))
    failed = any(problem.severity == "error" for problem in problems)
    ordered = tuple(sorted(problems, key=Problem.sort_key))
    return Loaded(None if failed else _fleet(declarations), ordered)


def _problems(files: Mapping[str, bytes], limits: LoaderLimits, declarations: Declarations) -> Iterator[Problem]:
    """Fills `declarations` and yields what is wrong, as it is found; errors come before all warnings."""
    size = documents = values = 0
    for file in sorted(filter(is_fleet_file, files)):
        size += len(files[file])
        read, found = ([], []) if size > limits.total_bytes else _read(file, files[file], limits)
        documents += len(read)
        values += sum(document.root.weight for document in read)
        if excess := _excess(limits, size, documents, values):
            yield SourceFile(file, "").problem(1, 1, f"the fleet has more than {excess}", Code.TOO_LARGE)
            declarations.complete = False
            return
        declarations.complete &= not found
        yield from found
        for document in read:
            yield from declarations.add(document)
    yield from join_pools(declarations)
    for check in CHECKS:
        yield from check(declarations)


def _further(problems: Sequence[Problem], further: Sequence[Check], declarations: Declarations) -> Iterator[Problem]:
    """What the further checks say of places that nothing has been said of yet: a slip is told of once."""
    told = {(problem.file, problem.line, problem.column) for problem in problems if problem.severity == "error"}
    for check in further:
        for problem in check(declarations):
            if (problem.file, problem.line, problem.column) not in told:
                yield problem


def _excess(limits: LoaderLimits, size: int, documents: int, values: int) -> str:
    """The limit of the whole fleet that is passed with this file, if one is."""
    table = (
        (size, limits.total_bytes, "bytes"),
        (documents, limits.documents, "documents"),
        (values, limits.total_values, "values, aliases expanded"),
    )
    return next((f"{limit} {what}" for amount, limit, what in table if amount > limit), "")


def is_fleet_file(path: str) -> bool:
    """Whether the loader reads `path`."""
    return path.endswith(_SUFFIXES) and not any(part.startswith(".") for part in path.split("/"))


def _read(file: str, content: bytes, limits: LoaderLimits) -> tuple[list[Document], list[Problem]]:
    if len(content) > limits.file_bytes:
        message = f"the file has {len(content)} bytes; at most {limits.file_bytes} are read"
        return [], [SourceFile(file, "").problem(1, 1, message, Code.TOO_LARGE)]
    source = decode(file, content)
    if isinstance(source, Problem):
        return [], [source]
    return parse(source, limits)


def _values(table: Mapping[str, Declared[Any]]) -> dict[str, Any]:
    return {name: table[name].value for name in sorted(table)}


def _files(declarations: Declarations) -> dict[str, str]:
    """Address -> the file of every declaration that somebody may own."""
    found: dict[str, str] = {}
    for kind in get_args(OwnedKind):
        table = declarations.table("CorePodTemplate" if kind == "PodTemplate" else kind)
        for key, it in table.items():
            found[f"{kind.lower()}/{'policy' if kind == 'FleetPolicy' else key}"] = it.document.source.file
    return found


def _fleet(declarations: Declarations) -> Fleet:
    """Everything by name, sorted; pools without a namesake flavor get the one they imply."""
    pools = _values(declarations.node_pools)
    flavors = {name: implied_flavor(pool) for name, pool in pools.items()} | _values(declarations.flavors)
    policy = next((declared.value for declared in declarations.policies.values()), None)
    return Fleet(
        node_pools=pools,
        node_overlays=_values(declarations.node_overlays),
        mig_layouts=_values(declarations.mig_layouts),
        flavors=dict(sorted(flavors.items())),
        teams=_values(declarations.teams),
        queues=_values(declarations.queues),
        priority_classes=_values(declarations.priority_classes),
        topologies=_values(declarations.topologies),
        policy=policy if policy is not None else default_policy(),
        cluster_queues=_values(declarations.cluster_queues),
        cohorts=_values(declarations.cohorts),
        local_queues=_values(declarations.local_queues),
        resource_flavors=_values(declarations.resource_flavors),
        admission_checks=_values(declarations.admission_checks),
        volcano_queues=_values(declarations.volcano_queues),
        capacity_buffers=_values(declarations.capacity_buffers),
        pod_templates=_values(declarations.pod_templates),
        files=_files(declarations),
    )
