"""How flexible a claim stays: `minValues` distinct values of a label among the types it may become.

`cloudprovider/types.go SatisfiesMinValues`: what counts are the values the types have, not those the claim allows.
"""

from bench.reference.karpenter.buy.rows import Bools, InstanceRows
from model.requirements import Requirements


def least(requirements: Requirements) -> dict[str, int]:
    """Key -> how many distinct values must stay possible."""
    return {key: value.min_values for key, value in requirements.items() if value.min_values is not None}


def unmet(wanted: dict[str, int], rows: InstanceRows, left: Bools) -> dict[str, int]:
    """Key -> the distinct values there are, for every key that has fewer than wanted."""
    there = {key: rows.distinct(key, left) for key in wanted}
    return {key: there[key] for key in sorted(wanted) if there[key] < wanted[key]}


def sentence(keys: dict[str, int]) -> str:
    """In upstream's words, which people search for."""
    return f"minValues requirement is not met for label(s) (label(s)=[{' '.join(sorted(keys))}])"
