"""`muster schema`: the JSON schemas of the kinds, for editors and other tools."""

import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from agent.cli import exits
from model.hints import did_you_mean, listing

ANY = "fleet"
"""The schema of a document of any kind."""


def run_schema(kind: str, output_dir: Path | None) -> int:
    """Print one schema, or write it or all of them below a folder; the exit code."""
    known = {file.name.removesuffix(".json"): file for file in _folder().iterdir() if file.name.endswith(".json")}
    name = kind.lower() or ANY
    if name not in known:
        hint = did_you_mean(name, known) or f"there are {listing(known, most=40)}"
        exits.complain(f"there is no kind {kind!r}; {hint}")
        return exits.ERROR
    if output_dir is None:
        sys.stdout.write(known[name].read_text(encoding="utf-8"))
        return exits.OK
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        for each in sorted(known) if not kind else [name]:
            (output_dir / f"{each}.json").write_text(known[each].read_text(encoding="utf-8"), encoding="utf-8")
    except OSError as error:
        exits.complain(f"{output_dir}: {error.strerror or error}")
        return exits.ERROR
    return exits.OK


def _folder() -> Traversable:
    """The schemas: part of the package where it is installed, beside it in a checkout."""
    packed = files("model").joinpath("schemas")
    return packed if packed.is_dir() else Path(str(files("model"))).parent / "schemas"
