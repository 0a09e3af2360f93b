"""Which files are read, and one file's documents."""

from model.loader.parse import DEFAULT_LIMITS, LoaderLimits, parse
from model.loader.source import SourceFile, decode
from model.loader.tree import Document
from model.problem import Code, Problem

_SUFFIXES = (".yaml", ".yml")


def is_fleet_file(path: str) -> bool:
    """Whether the loader reads `path`."""
    return path.endswith(_SUFFIXES) and not any(part.startswith(".") for part in path.split("/"))


def read_file(file: str, content: bytes, limits: LoaderLimits) -> tuple[list[Document], list[Problem]]:
    """The documents of a file, and what is wrong with it."""
    if len(content) > limits.file_bytes:
        message = f"the file has {len(content)} bytes; at most {limits.file_bytes} are read"
        return [], [SourceFile(file, "").problem(1, 1, message, Code.TOO_LARGE)]
    source = decode(file, content)
    if isinstance(source, Problem):
        return [], [source]
    return parse(source, limits)


def unreadable_in(file: str, content: bytes) -> list[str]:
    """Returns, with its places, what a file of YAML has that this reader refuses, such as a key that is given twice.

    For files that are no declarations, such as the agent's settings: other readers keep the last of two in silence.
    """
    _, problems = read_file(file, content, DEFAULT_LIMITS)
    return [str(it) for it in problems if it.code is not Code.NOT_A_DECLARATION]
