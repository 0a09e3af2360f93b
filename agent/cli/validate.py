"""`muster validate`."""

import sys
from pathlib import Path

from agent.cli import exits
from model import report
from model.loader import inspect


def run_validate(path: Path, output: str) -> int:
    """Read, check, print; the exit code."""
    try:
        files = read_folder(path)
    except OSError as error:
        exits.complain(f"{path}: {error.strerror or error}")
        return exits.ERROR
    if not files:
        exits.complain(f"{path}: no .yaml or .yml file there")
        return exits.ERROR
    loaded = inspect(files)
    render = report.FORMATS[output]
    text = render(loaded.problems) if output != "text" else report.text(loaded.problems, colour=sys.stdout.isatty())
    if text:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    if output == "text":
        verdict = "valid" if loaded.fleet is not None else "invalid"
        sys.stdout.write(f"{len(files)} file{'' if len(files) == 1 else 's'} read: the fleet is {verdict}.\n")
    return exits.OK if loaded.fleet is not None else exits.INVALID


def read_folder(path: Path) -> dict[str, bytes]:
    """The YAML files of a folder (or one file), by path relative to it; links and hidden folders are not followed."""
    if path.is_file():
        return {_shown(path.parent) + path.name: path.read_bytes()}
    if not path.exists():
        raise FileNotFoundError(2, "no such file or folder", str(path))
    found = {}
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        hidden = any(part.startswith(".") for part in inside.parts)
        if not hidden and file.suffix in {".yaml", ".yml"} and file.is_file() and not file.is_symlink():
            found[_shown(path) + inside.as_posix()] = file.read_bytes()
    return found


def _shown(folder: Path) -> str:
    """How files of the folder begin in messages: from where the user stands, as editors and forges expect."""
    try:
        relative = folder.resolve().relative_to(Path.cwd())
    except ValueError:
        return ""
    return (
        "" if relative == Path() or any(part.startswith(".") for part in relative.parts) else f"{relative.as_posix()}/"
    )
