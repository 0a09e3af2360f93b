"""The CustomResourceDefinitions. The YAML files beside this one are the source; `deploy/crds/` holds copies of them.

`python -m tools.crds deploy/crds` writes the copies anew.
"""

from functools import cache
from importlib.resources import files
from typing import Any, Final

NAMES: Final = ("fleetsyncs", "nodeclaims", "nodepools", "queues", "workloads")
"""Plurals, one file each."""


def text_of(plural: str) -> str:
    """The YAML of one definition."""
    return files(__name__).joinpath(f"{plural}.yaml").read_text("utf-8")


@cache
def definitions() -> tuple[dict[str, Any], ...]:
    """All definitions, to be created on an API server; nobody changes them."""
    import yaml

    return tuple(yaml.load(text_of(plural), yaml.CSafeLoader) for plural in NAMES)
