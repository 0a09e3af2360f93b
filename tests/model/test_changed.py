"""A copy with changes is what `dataclasses.replace` makes."""

from dataclasses import dataclass, replace

import pytest

from fleet.snapshot import Snapshot
from model.changed import changed
from tests.support.fleets import gang


@dataclass(frozen=True, slots=True)
class Checked:
    """Something that looks at itself once it is made."""

    one: int = 1
    two: int = 2

    def __post_init__(self) -> None:
        assert self.one


@dataclass(frozen=True, slots=True)
class OfOneField:
    """Something with one field."""

    one: int = 1


@dataclass(frozen=True)
class Slotless:
    """Something without slots."""

    one: int = 1
    two: int = 2


@dataclass(frozen=True, slots=True)
class OfSlotless(Slotless):
    """Something with slots that inherits from something without."""

    three: int = 3


@dataclass(frozen=True, slots=True, weakref_slot=True)
class WeaklyReferenced:
    """Something with one slot more than it has fields."""

    one: int = 1
    two: int = 2


@dataclass(frozen=True, slots=True)
class Inheriting(OfOneField):
    """Something whose slots are not all its own."""

    two: int = 2


def test_a_copy_has_the_changes_and_all_else() -> None:
    waits = gang("g")
    assert changed(waits, message="waits", priority=7) == replace(waits, message="waits", priority=7)
    assert changed(Snapshot(now_s=1.0), now_s=2.0) == replace(Snapshot(now_s=1.0), now_s=2.0)
    assert waits == gang("g")


def test_a_field_that_is_not_there() -> None:
    with pytest.raises(AttributeError):
        changed(gang("g"), massage="waits")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Checked(), "it has a __post_init__"),
        (OfOneField(), "it has fewer than two fields"),
        (Slotless(), "it, or a class that it inherits from, has no slots"),
        (OfSlotless(), "it, or a class that it inherits from, has no slots"),
        (WeaklyReferenced(), "it has a slot for weak references"),
        (Inheriting(), "it inherits slots"),
    ],
)
def test_what_cannot_be_copied_so_is_refused_by_name(value: object, reason: str) -> None:
    told = f"{type(value).__name__} is to be copied by dataclasses.replace: {reason}"
    for _ in range(2):
        with pytest.raises(TypeError, match=f"^{told}$"):
            changed(value, one=0)
