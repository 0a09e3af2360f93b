"""`muster validate`."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agent.cli import exits
from agent.clouds import cloud_provider
from model import report
from model.loader import CLUSTER_FILES, ClusterFiles, Clusters, InvalidFleet, clusters_in, inspect
from model.plain_text import plain
from model.problem import Code, Problem

if TYPE_CHECKING:  # commands that only read files need no rules of what is sold
    from fleet.offerings.listing import CatalogListing

_ZONE = re.compile(rb"\b[a-z]{2}(?:-[a-z]+)+-[0-9][a-z]\b")
DEFAULT_REGION = "us-east-1"


def run_validate(path: Path, output: str, region: str = "", cluster: str = "") -> int:
    """Read, check, print; the exit code. Without a region it is the one that the fleet's zones are in.

    Where the repository holds Clusters: that of the name, or without one each of them, and what none of them reads.
    """
    try:
        files = read_folder(path)
    except InvalidFleet as invalid:
        _print(invalid.problems, output)
        return exits.INVALID
    except OSError as error:
        exits.complain(f"{path}: {error.strerror or error}")
        return exits.ERROR
    if not files:
        exits.complain(f"{path}: no .yaml or .yml file there")
        return exits.ERROR
    clusters = clusters_in(files)
    if cluster and not clusters.any:
        exits.complain(f"{path}: no file cluster.yaml there holds a Cluster, so there is none named {cluster!r}")
        return exits.ERROR
    verdicts = [_judged(files, name, clusters, region) for name in ([cluster] if cluster else clusters.names or [""])]
    found = [it for verdict in verdicts for it in verdict.problems]
    if not cluster:
        found += (*clusters.unnamed, *clusters.unread())
    problems = sorted(dict.fromkeys(found), key=Problem.sort_key)
    _print(problems, output)
    if output == "text":
        read = f"{len(files)} file{'' if len(files) == 1 else 's'} read"
        sys.stdout.write(plain(f"{read}: {', '.join(map(str, verdicts))}.") + "\n")
    return exits.INVALID if any(it.severity == "error" for it in problems) else exits.OK


class _Verdict(NamedTuple):
    """What there is to say of one fleet."""

    cluster: str
    region: str
    problems: tuple[Problem, ...]
    valid: bool

    def __str__(self) -> str:
        what = f"cluster {self.cluster}" if self.cluster else "the fleet"
        return f"{what} is {'valid' if self.valid else 'invalid'} for {self.region}"


def _judged(files: Mapping[str, bytes], name: str, clusters: Clusters, region: str) -> _Verdict:
    """Checks one cluster (or the whole, where there are none) against what is sold where its own files say it is."""
    from fleet.offerings.declared import catalog_checks
    from fleet.policy.checks import unreadable_checks

    made = clusters.files_of(name) if clusters.any else ()
    listing = listing_for(region, own_files(files, name))
    if region and not listing.zones:
        exits.complain(f"nothing is known of what is sold in {region}: zones and offers go unchecked")
    loaded = inspect(files, further=(*catalog_checks(listing), unreadable_checks), cluster=name)
    shown = name or (made.declared.value.key if isinstance(made, ClusterFiles) else "")
    return _Verdict(shown, listing.region, loaded.problems, loaded.fleet is not None)


def _print(problems: Sequence[Problem], output: str) -> None:
    text = (
        report.text(problems, colour=exits.coloured(sys.stdout))
        if output == "text"
        else report.FORMATS[output](problems)
    )
    if text:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def listing_for(region: str, files: Mapping[str, bytes]) -> "CatalogListing":
    """What is sold in the region; without one, in that of the zones that the files name, if it is one."""
    return cloud_provider().listing(region_for(region, files))


def region_for(region: str, files: Mapping[str, bytes]) -> str:
    """The region; where none is named, that of the zones in the files, if they are of one."""
    if region:
        return region
    words = {word.decode() for content in files.values() for word in _ZONE.findall(content)}
    found = {cloud_provider().region_of(word) for word in words} - {""}
    return found.pop() if len(found) == 1 else DEFAULT_REGION


def read_folder(path: Path) -> dict[str, bytes]:
    """The YAML files of a folder (or one file), as the agent would read them of a commit; by path relative to it.

    Of the folder of a Cluster in a repository they are the cluster's files, wherever they stand.
    Errors: OSError, also for what is too large; InvalidFleet for entries that could declare and cannot be read.
    """
    from providers.git.errors import EntryNotRead, SourceError

    shown = shown_folder(path.parent if path.is_file() else path)
    if path.is_file():
        return {shown + path.name: path.read_bytes()}
    if not path.exists():
        raise FileNotFoundError(2, "no such file or folder", str(path))
    try:
        return _of_cluster(path) or _of_folder(path)
    except EntryNotRead as error:
        hint = "commit a plain file or folder in its place, or list it in .musterignore"
        entries = error.entries.items()
        problems = tuple(Problem(shown + name, 1, 1, "", why, Code.NOT_READ, hint) for name, why in entries)
        raise InvalidFleet(problems) from error
    except SourceError as error:
        raise OSError(str(error)) from error


def _of_folder(folder: Path) -> dict[str, bytes]:
    from providers.git.disk import read_directory

    shown = shown_folder(folder)
    return {shown + name: content for name, content in read_directory(folder).files.items()}


def _of_cluster(folder: Path) -> dict[str, bytes]:
    """The files of the Cluster that stands in a folder of a repository; empty where none does that could be read."""
    found = cluster_at(folder)
    return dict(found.files) if found else {}


class PlacedCluster(NamedTuple):
    """A Cluster of a repository on this machine, which stands in a folder that somebody names."""

    root: Path
    name: str
    files: Mapping[str, bytes]
    """All that it is made of, wherever it stands in the repository."""


class WrongCluster(Exception):
    """Another cluster is meant than the one that is there; or Muster is installed where it should not be, or is not."""


def cluster_meant(repository: Path, path: str, cluster: str) -> tuple[Path, str, str]:
    """The same, but of the folder of a Cluster the whole repository and its name: what it shares stands elsewhere.

    Errors: OSError; `WrongCluster` where another one is named.
    """
    found = cluster_at(repository / path)
    if found is None:
        return repository, path, cluster
    if cluster not in ("", found.name):
        raise WrongCluster(f"{repository / path} is the folder of cluster {found.name}, and {cluster} is asked for")
    return found.root, "", found.name


def declared_in(folder: Path, cluster: str) -> tuple[dict[str, bytes], str]:
    """The files that declare the fleet of a folder, and the name of the Cluster that is meant; empty = the only one.

    Errors: as of `read_folder`; `WrongCluster` where one is named and none is there, or another one is.
    """
    root, _, meant = cluster_meant(folder, "", cluster)
    files = read_folder(root)
    if cluster and not clusters_in(files).any:
        raise WrongCluster(f"{folder}: no file cluster.yaml there holds a Cluster, so there is none named {cluster!r}")
    return files, meant


def own_files(files: Mapping[str, bytes], cluster: str) -> Mapping[str, bytes]:
    """The files of one cluster, where there are several; all of them else."""
    clusters = clusters_in(files)
    made = clusters.files_of(cluster) if clusters.any else ()
    return {it: files[it] for it in made.every} if isinstance(made, ClusterFiles) else files


def is_absent(files: Mapping[str, bytes], cluster: str) -> bool:
    """Whether files declare other clusters and not yet this one."""
    clusters = clusters_in(files)
    return bool(cluster) and clusters.any and not clusters.unnamed and cluster not in clusters.names


def cluster_at(folder: Path) -> PlacedCluster | None:
    """The Cluster that stands in a folder of a repository; None where none does that could be read. Errors: OSError."""
    inside = folder.resolve()
    root = next((it for it in inside.parents if (it / ".git").exists()), None)
    if root is None or not any((inside / name).is_file() for name in CLUSTER_FILES):
        return None
    files, place = _of_folder(root), shown_folder(root) + inside.relative_to(root).as_posix()
    clusters = clusters_in(files)
    for name in clusters.names:
        made = clusters.files_of(name)
        if isinstance(made, ClusterFiles) and made.file.rpartition("/")[0] == place:
            return PlacedCluster(root, name, {file: files[file] for file in made.every})
    return None


def shown_folder(folder: Path) -> str:
    """Returns how files of the folder begin in messages: from where the user stands, as editors and forges expect."""
    try:
        relative = folder.resolve().relative_to(Path.cwd())
    except ValueError:
        return ""
    return (
        "" if relative == Path() or any(part.startswith(".") for part in relative.parts) else f"{relative.as_posix()}/"
    )
