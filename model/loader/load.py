"""The loader's one function: decode, parse, read each document, check them together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, get_args

from model.fleet import Fleet, default_policy, implied_flavor
from model.kinds.approval import OwnedKind
from model.loader.checks import CHECKS, Check
from model.loader.clusters import ClusterFiles, clusters_in, digest_of
from model.loader.declarations import Declarations, Declared, read_into
from model.loader.envelope import kind_of
from model.loader.joining import join_pools
from model.loader.parse import DEFAULT_LIMITS, LoaderLimits
from model.loader.patching import apply_patches, identity_of
from model.loader.reading import is_fleet_file, read_file
from model.loader.source import SourceFile
from model.loader.tree import Document
from model.problem import Code, InvalidFleet, Problem

_MOST_PROBLEMS = 1000
"""More than anyone reads; keeps a hostile repository from costing memory."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a repository says: the fleet, unless there are errors, and every problem by place."""

    fleet: Fleet | None
    problems: tuple[Problem, ...]
    """Errors and warnings."""


def load(
    files: Mapping[str, bytes],
    limits: LoaderLimits = DEFAULT_LIMITS,
    *,
    further: Sequence[Check] = (),
    cluster: str = "",
) -> Fleet:
    """The fleet that `files` (path -> content) declare; raises `InvalidFleet` with every problem.

    Only `.yaml` and `.yml` are read; paths with a component that starts with a dot (`.github/`) are not. Warnings do
    not raise: ask `inspect` for them. `further` checks are of those who know more than the files, such as what is on
    sale (`fleet.offerings.declared`); they follow the loader's own. Where the repository holds Clusters, the fleet is
    that of `cluster`, or of the only one; where it holds none, `cluster` says nothing.
    """
    loaded = inspect(files, limits, further=further, cluster=cluster)
    if loaded.fleet is None:
        raise InvalidFleet(loaded.problems)
    return loaded.fleet


def inspect(
    files: Mapping[str, bytes],
    limits: LoaderLimits = DEFAULT_LIMITS,
    *,
    further: Sequence[Check] = (),
    cluster: str = "",
) -> Loaded:
    """The fleet and all problems, without raising."""
    declarations = Declarations()
    problems = list(islice(declared_in(files, limits, declarations, cluster), _MOST_PROBLEMS))
    problems += islice(_further(problems, further, declarations), _MOST_PROBLEMS - len(problems))
    failed = any(problem.severity == "error" for problem in problems)
    ordered = tuple(sorted(problems, key=Problem.sort_key))
    return Loaded(None if failed else _fleet(declarations), ordered)


def declared_in(
    files: Mapping[str, bytes], limits: LoaderLimits, declarations: Declarations, cluster: str
) -> Iterator[Problem]:
    """Fills `declarations` and yields what is wrong, as it is found; errors come before all warnings."""
    clusters = clusters_in(files, limits)
    if not clusters.any:
        names = tuple(sorted(filter(is_fleet_file, files)))
        yield from _add(_read(files, names, limits, declarations), declarations)
    elif isinstance(made := clusters.files_of(cluster), ClusterFiles):
        declarations.cluster, declarations.digest = made.declared, digest_of(files, made.every)
        yield from _add(_patched(files, made, limits, declarations), declarations)
    else:
        declarations.complete = False
        yield from made
        return
    if declarations.stopped:
        return
    yield from join_pools(declarations)
    for check in CHECKS:
        yield from check(declarations)


def _add(read: Iterator[Document | Problem], declarations: Declarations) -> Iterator[Problem]:
    for it in read:
        if isinstance(it, Problem):
            yield it
        else:
            yield from declarations.add(it)


def _read(
    files: Mapping[str, bytes], names: Sequence[str], limits: LoaderLimits, declarations: Declarations
) -> Iterator[Document | Problem]:
    """Each document of the files in order, and what is wrong with them; ends where they pass a limit together."""
    size = documents = values = 0
    for file in names:
        size += len(files[file])
        read, found = ([], []) if size > limits.total_bytes else read_file(file, files[file], limits)
        documents += len(read)
        values += sum(document.root.weight for document in read)
        if excess := _excess(limits, size, documents, values):
            declarations.complete, declarations.stopped = False, True
            yield SourceFile(file, "").problem(1, 1, f"the fleet has more than {excess}", Code.TOO_LARGE)
            return
        declarations.complete &= not found
        yield from found
        yield from read


def _patched(
    files: Mapping[str, bytes], made: ClusterFiles, limits: LoaderLimits, declarations: Declarations
) -> Iterator[Document | Problem]:
    """The documents of a cluster with its patches, which count towards the same limits."""
    bases: list[Document] = []
    patches: list[Document] = []
    of_patches = frozenset(made.patches)
    for it in _read(files, (*made.declarations, *made.patches), limits, declarations):
        if isinstance(it, Problem):
            yield it
        else:
            (patches if it.source.file in of_patches else bases).append(it)
    if declarations.stopped:
        return
    patched = apply_patches(bases, patches, limits, complete=declarations.complete)
    declarations.complete &= not patched.problems
    declarations.removed = patched.removed
    yield from patched.problems
    yield from patched.documents


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


def _values(table: Mapping[str, Declared[Any]]) -> dict[str, Any]:
    return {name: table[name].value for name in sorted(table)}


def _files(declarations: Declarations) -> dict[str, Mapping[str, str]]:
    """Address -> the files of every declaration that somebody may own, with what tells apart what they say of it."""
    found = {address: it.parts for it in declarations.removed if (address := _address_of(it))}
    for kind in get_args(OwnedKind):
        if kind == "Cluster":
            continue
        table = declarations.table("CorePodTemplate" if kind == "PodTemplate" else kind)
        for key, it in table.items():
            parts = it.document.parts or {it.document.source.file: ""}
            found[f"{kind.lower()}/{'policy' if kind == 'FleetPolicy' else key}"] = parts
    if declarations.cluster is not None:
        found[f"cluster/{declarations.cluster.value.key}"] = {declarations.cluster.document.source.file: ""}
    return found


def _address_of(removed: Document) -> str:
    """The address of what a patch has removed; empty where it has none."""
    identity, kind = identity_of(removed), kind_of(removed)
    if identity is None or not isinstance(kind, type):
        return ""
    name = read_into(kind).__name__.lower().removeprefix("karpenter").removeprefix("core").removesuffix("v1beta1")
    key = "policy" if name == "fleetpolicy" else identity.name
    return f"{name}/{identity.namespace}/{key}" if identity.namespace else f"{name}/{key}"


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
        cluster=declarations.cluster.value if declarations.cluster is not None else None,
        digest=declarations.digest,
        files=_files(declarations),
    )
