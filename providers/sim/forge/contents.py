"""The files of a pretended forge's repository, as its API gives and takes them: in memory, or in a bare repository."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import pygit2

from providers.git.opening import open_repository

_HEADS: Final = "refs/heads/"


class ForgeErrorAnswer(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ForgeContents(Protocol):
    """Branches, and the files on them. A ref is a branch by its short or full name, or a commit."""

    def commit_of(self, ref: str) -> str:
        """Returns the commit of a ref; empty where there is none."""
        ...

    def read(self, ref: str, path: str) -> bytes | None:
        """Returns a file's content; None where there is none, or no such ref."""
        ...

    def branch(self, name: str, commit: str) -> None:
        """Makes a branch. ForgeErrorAnswer where there is one of that name, or no such commit."""
        ...

    def write(self, branch: str, path: str, content: bytes, words: str) -> str:
        """Commits a file to a branch and returns the commit. ForgeErrorAnswer where there is no such branch."""
        ...


def blob_of(content: bytes) -> str:
    """Returns the id of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324 - as git does


@dataclass(slots=True)
class MemoryContents:
    """Keeps whole trees by commit; whoever sets one up puts files into `trees` and heads into `heads`."""

    trees: dict[str, dict[str, bytes]] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)

    def commit_of(self, ref: str) -> str:
        """See ForgeContents."""
        name = ref.removeprefix(_HEADS)
        return self.heads.get(name, name if name in self.trees else "")

    def read(self, ref: str, path: str) -> bytes | None:
        """See ForgeContents."""
        return self.trees.get(self.commit_of(ref), {}).get(path)

    def branch(self, name: str, commit: str) -> None:
        """See ForgeContents."""
        if name in self.heads:
            raise ForgeErrorAnswer(422, "Reference already exists")
        if commit not in self.trees:
            raise ForgeErrorAnswer(422, "Object does not exist")
        self.heads[name] = commit

    def write(self, branch: str, path: str, content: bytes, words: str) -> str:
        """See ForgeContents."""
        if branch not in self.heads:
            raise ForgeErrorAnswer(404, f"Branch {branch} not found")
        before = self.heads[branch]
        made = hashlib.sha1(repr((before, path, content, words)).encode()).hexdigest()  # noqa: S324 - a name
        self.trees[made] = {**self.trees[before], path: content}
        self.heads[branch] = made
        return made


@dataclass(frozen=True, slots=True)
class GitContents:
    """Reads and writes a bare repository, in the name of the forge's App."""

    path: Path
    now_s: Callable[[], float]
    """Gives the time (epoch seconds) of commits."""
    pushed: Callable[[], object]
    """Is called when a branch has moved."""

    def commit_of(self, ref: str) -> str:
        """See ForgeContents."""
        repository = open_repository(self.path)
        found = repository.references.get(ref if ref.startswith("refs/") else f"{_HEADS}{ref}")
        if found is not None:
            return str(found.peel(pygit2.Commit).id)
        return ref if len(ref) == 40 and ref in repository else ""

    def read(self, ref: str, path: str) -> bytes | None:
        """See ForgeContents."""
        repository, commit = open_repository(self.path), self.commit_of(ref)
        try:
            return bytes(repository[commit].peel(pygit2.Tree)[path].data) if commit else None
        except (KeyError, AttributeError):
            return None

    def branch(self, name: str, commit: str) -> None:
        """See ForgeContents."""
        repository = open_repository(self.path)
        if commit not in repository:
            raise ForgeErrorAnswer(422, "Object does not exist")
        try:
            repository.references.create(f"{_HEADS}{name}", commit)
        except (pygit2.GitError, ValueError) as error:
            raise ForgeErrorAnswer(422, "Reference already exists") from error

    def write(self, branch: str, path: str, content: bytes, words: str) -> str:
        """See ForgeContents."""
        repository, before = open_repository(self.path), self.commit_of(branch)
        if not before:
            raise ForgeErrorAnswer(404, f"Branch {branch} not found")
        index = pygit2.Index()
        index.read_tree(repository[before].peel(pygit2.Tree))
        index.add(pygit2.IndexEntry(path, repository.create_blob(content), pygit2.enums.FileMode.BLOB))
        at = pygit2.Signature("muster[bot]", "muster@example.com", int(self.now_s()), 0)
        made = repository.create_commit(f"{_HEADS}{branch}", at, at, words, index.write_tree(repository), [before])
        self.pushed()
        return str(made)
