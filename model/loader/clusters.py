"""Repositories of several clusters: which there are, and which files each of them is made of.

A Cluster stands alone in a file `cluster.yaml`. What it is made of follows from it and from where it stands: its bases,
its patches, and whatever else is in its folder. Where no file holds a Cluster, a repository is one fleet, as it stands.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from posixpath import dirname, normpath

from pydantic import ValidationError

from model.hints import did_you_mean, listing
from model.kinds import API_VERSION, Cluster
from model.kinds.base import FROM_YAML
from model.loader.declarations import Declared
from model.loader.parse import DEFAULT_LIMITS, LoaderLimits
from model.loader.reading import is_fleet_file, read_file
from model.loader.source import SourceFile
from model.loader.tree import Document, Path
from model.loader.violations import problems_of
from model.problem import Code, Problem

MOST_CLUSTERS = 500
CLUSTER_FILES = ("cluster.yaml", "cluster.yml")
_MEANT = re.compile(rb"""\bkind["']?\s*:\s*["']?Cluster\b""")
"""What a file has to have to count where it cannot be read to its end."""


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """What one cluster is made of."""

    declared: Declared[Cluster]
    file: str
    """Where the Cluster stands."""
    declarations: tuple[str, ...]
    """Files of its bases and of its folder, in order."""
    patches: tuple[str, ...]
    """In the order in which they are applied."""

    @property
    def every(self) -> tuple[str, ...]:
        """All files that are read for the cluster."""
        return (self.file, *self.declarations, *self.patches)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters of a repository."""

    files: Mapping[str, bytes]
    stand: Mapping[str, Declared[Cluster]]
    """Those that can be read, by name."""
    problems: Mapping[str, tuple[Problem, ...]]
    """Why others, by name, cannot be."""
    unnamed: tuple[Problem, ...] = ()
    """Of files that hold a Cluster without saying which."""

    @property
    def names(self) -> tuple[str, ...]:
        """Returns all that have a name."""
        return tuple(sorted({*self.stand, *self.problems}))

    @property
    def any(self) -> bool:
        """Returns whether the repository holds a Cluster, be it one that cannot be read."""
        return bool(self.stand or self.problems or self.unnamed)

    def files_of(self, name: str) -> ClusterFiles | tuple[Problem, ...]:
        """Returns what a cluster is made of, or why that cannot be told. Without a name: of the only one."""
        name = name or (self.names[0] if len(self.names) == 1 and not self.unnamed else "")
        if name in self.problems or not self.stand:
            return self.problems.get(name, ()) or self.unnamed or next(iter(self.problems.values()))
        if name in self.stand:
            return _Layout(self.stand[name], self).made()
        first = next(iter(self.stand.values()))
        if name:
            words = f"no Cluster is named {name!r}; there are {listing(self.names)}"
            hint = did_you_mean(name, self.names) or "the agent of a cluster has the name in `cluster` of its settings"
        else:
            words = f"the repository holds several clusters: {listing(self.names)}"
            hint = "give the folder of one of them, or its name with --cluster where the command takes that"
        return (first.problem(("metadata", "name"), words, Code.DANGLING_REFERENCE, hint=hint), *self.unnamed)

    def unread(self) -> Iterator[Problem]:
        """Yields a warning for each file that could declare something and that none of the clusters reads."""
        made = [self.files_of(name) for name in self.names]
        known = [it for it in made if isinstance(it, ClusterFiles)]
        read = {file for it in known for file in it.every}
        for file in sorted(filter(is_fleet_file, self.files)):
            if known and file not in read and len(known) == len(made) and not self.unnamed:
                hint = "name its folder in the bases of a Cluster, or list it in .musterignore"
                words = (1, 1, "no cluster reads this file", Code.UNUSED)
                yield SourceFile(file, "").problem(*words, hint=hint, severity="warning")


def clusters_in(files: Mapping[str, bytes], limits: LoaderLimits = DEFAULT_LIMITS) -> Clusters:
    """Returns the clusters that files (path -> content) hold; none where no `cluster.yaml` holds a Cluster."""
    documents, unnamed = _declared(files, limits)
    stand: dict[str, Declared[Cluster]] = {}
    problems: dict[str, tuple[Problem, ...]] = {}
    for document in documents:
        name = document.find(("metadata", "name")).data
        try:
            value = Cluster.model_validate(document.root.data, context=FROM_YAML, by_alias=True, by_name=False)
        except ValidationError as error:
            wrong = tuple(problems_of(document, Cluster, error))
            if isinstance(name, str):
                problems[name] = (*problems.get(name, ()), *wrong)
            else:
                unnamed += wrong
            continue
        if value.key in {*stand, *problems}:
            words = f"Cluster {value.key!r} is declared twice"
            twice = document.problem(("metadata", "name"), words, Code.DUPLICATE_NAME)
            problems[value.key] = (*problems.get(value.key, ()), twice)
            stand.pop(value.key, None)
        else:
            stand[value.key] = Declared(value, document)
    return Clusters(files, stand, problems, tuple(unnamed))


def cluster_digest(files: Mapping[str, bytes], cluster: str) -> str:
    """Returns what tells two states of a cluster's files apart; empty where no Cluster says which these are."""
    clusters = clusters_in(files)
    made = clusters.files_of(cluster) if clusters.any else ()
    return digest_of(files, made.every) if isinstance(made, ClusterFiles) else ""


def digest_of(files: Mapping[str, bytes], names: Sequence[str]) -> str:
    """Returns what tells two states of these files apart."""
    whole = sha256()
    for name in sorted(names):
        whole.update(f"{name}\0{sha256(files[name]).hexdigest()}\n".encode())
    return whole.hexdigest()


def _declared(files: Mapping[str, bytes], limits: LoaderLimits) -> tuple[list[Document], list[Problem]]:
    """Every Cluster, and the problems of files that hold one and cannot be taken as they are."""
    stand: list[Document] = []
    unnamed: list[Problem] = []
    size = 0
    for file in sorted(it for it in files if is_fleet_file(it) and it.rpartition("/")[2] in CLUSTER_FILES):
        if not _MEANT.search(files[file]):
            continue
        size += len(files[file])
        if len(stand) >= MOST_CLUSTERS or size > limits.total_bytes:
            words = f"the repository has more than {MOST_CLUSTERS} clusters, or more than can be read of them"
            unnamed.append(SourceFile(file, "").problem(1, 1, words, Code.TOO_LARGE))
            break
        documents, problems = read_file(file, files[file], limits)
        ours = [it for it in documents if _is_cluster(it)]
        if problems and (ours or b"muster.dev" in files[file]):
            unnamed += problems
        elif len(documents) > 1 and ours:
            other = next(it for it in documents if it is not ours[0])
            hint = "give it a file of its own; what is declared for this cluster stands beside it in the same folder"
            unnamed.append(other.problem((), "a Cluster stands alone in its file", Code.MISPLACED, hint=hint))
        elif ours:
            stand.append(ours[0])
    return stand, unnamed


def _is_cluster(document: Document) -> bool:
    data = document.root.data
    return bool(data.get("kind") == "Cluster" and data.get("apiVersion") == API_VERSION)


class _Layout:
    """Where a cluster's bases and patches are, and what is wrong with how they lie to each other."""

    def __init__(self, declared: Declared[Cluster], among: Clusters) -> None:
        self._declared = declared
        self._problems: list[Problem] = []
        self._file = declared.document.source.file
        self._own = dirname(self._file)
        self._folders = {dirname(it.document.source.file) for it in among.stand.values()}
        self._files = sorted(filter(is_fleet_file, among.files))
        self._bases: list[str] = []
        self._patches: list[str] = []

    def made(self) -> ClusterFiles | tuple[Problem, ...]:
        """Returns what the cluster is made of, or what is wrong with that."""
        spec = self._declared.value.spec
        for index, text in enumerate(spec.bases):
            self._base(("spec", "bases", index), text)
        for index, text in enumerate(spec.patches):
            self._patch(("spec", "patches", index), text)
        if inner := self._clusters_below(self._own) - {self._own}:
            self._refuse(("metadata", "name"), f"another cluster stands in this one's folder: {min(inner)}")
        if self._problems:
            return tuple(self._problems)
        left = {self._file, *self._patches}
        files = {it for folder in (self._own, *self._bases) for it in self._below(folder)} - left
        return ClusterFiles(self._declared, self._file, tuple(sorted(files)), tuple(self._patches))

    def _below(self, folder: str) -> list[str]:
        """The files in a folder, at any depth."""
        if not folder:
            return self._files
        first, after = bisect_left(self._files, f"{folder}/"), bisect_left(self._files, f"{folder}0")
        return self._files[first:after]  # "0" follows "/"

    def _base(self, path: Path, text: str) -> None:
        folder = self._place(path, text)
        if folder is None:
            return
        if _is_below(self._own, folder, itself=True):
            self._refuse(path, "a base that holds this cluster's own folder would hold itself")
        elif _is_below(folder, self._own, itself=True):
            self._refuse(path, "this is in the cluster's own folder, which is read anyway: take it out")
        elif other := next((it for it in self._bases if _overlap(it, folder)), None):
            self._refuse(path, f"it is read already, as it overlaps with the base {other}")
        elif inner := self._clusters_below(folder):
            self._refuse(path, f"a base holds no cluster of its own; there is one in {min(inner)}")
        elif not self._below(folder):
            hint = "paths count from the folder of this file, and only what is below `source.path` is read"
            self._refuse(path, f"there is no .yaml or .yml file in {folder or 'the repository'}", hint)
        else:
            self._bases.append(folder)

    def _patch(self, path: Path, text: str) -> None:
        file = self._place(path, text)
        if file is None:
            return
        if file not in self._files:
            self._refuse(path, f"there is no file {file}", did_you_mean(file, self._files))
        elif file in self._patches or file == self._file:
            self._refuse(path, "it is read already")
        elif base := next((it for it in self._bases if _is_below(file, it)), None):
            self._refuse(
                path, f"a patch stands in no base, and this is in {base}", "move it, into the cluster's folder say"
            )
        else:
            self._patches.append(file)

    def _place(self, path: Path, text: str) -> str | None:
        """Where a path leads, from the root; None where that is outside."""
        found = normpath(f"{self._own}/{text}" if self._own else text)
        if found == ".." or found.startswith("../"):
            hint = "paths count from the folder of this file; validate the repository from its root"
            self._refuse(path, f"{text!r} leads out of what is read", hint)
            return None
        return "" if found == "." else found

    def _clusters_below(self, folder: str) -> set[str]:
        return {it for it in self._folders if _is_below(it, folder, itself=True)}

    def _refuse(self, path: Path, message: str, hint: str = "") -> None:
        self._problems.append(self._declared.problem(path, message, Code.MISPLACED, hint=hint))


def _is_below(path: str, folder: str, *, itself: bool = False) -> bool:
    return not folder or path.startswith(f"{folder}/") or (itself and path == folder)


def _overlap(one: str, other: str) -> bool:
    return _is_below(one, other, itself=True) or _is_below(other, one, itself=True)
