"""The example fleet that sandbox and demo start from; it ships with the package."""

from pathlib import Path


def example_fleet() -> Path:
    """The folder of the example fleet's files."""
    return Path(__file__).parent / "fleet"
