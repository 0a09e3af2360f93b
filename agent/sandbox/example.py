"""The example fleet that sandbox and demo start from: in a checkout `examples/sandbox`, installed as package data."""

from pathlib import Path


def example_fleet() -> Path:
    """The folder of the example fleet's files."""
    return Path(__file__).parent / "fleet"
