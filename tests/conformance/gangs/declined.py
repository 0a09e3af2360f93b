"""What the translation of a row does not know, or the agent has no words for: the row is declined by name."""

from collections.abc import Mapping
from typing import Any


class RowDeclined(Exception):
    """A row says something that no declaration and no object of a cluster the agent runs could say."""


def known_words(where: str, entry: Mapping[str, Any], *known: str) -> None:
    """Declines a row in which an entry has a key that the translation does not read."""
    for key, value in sorted(entry.items()):
        if key not in known and value not in (None, "", [], {}, False):
            raise RowDeclined(f"{where}.{key}")


def decline_if(said: object, reason: str) -> None:
    """Declines the row where something is said."""
    if said:
        raise RowDeclined(reason)
