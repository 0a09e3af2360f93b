"""What reflectors bring, folded into a plain dict: what a consumer without assumptions would hold."""

from typing import TypeVar

from providers.kube.batches import Batch, told

T = TypeVar("T")


def fold(objects: dict[str, T], batch: Batch[T]) -> set[str]:
    """Bring `objects` up to date in place and return the keys that changed or went."""
    changed: set[str] = set()
    for key, value in told(batch, objects.keys()):
        if objects.get(key) == value:
            continue
        changed.add(key)
        if value is None:
            objects.pop(key)
        else:
            objects[key] = value
    return changed
