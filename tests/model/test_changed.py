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


def test_a_copy_has_the_changes_and_all_else() -> None:
    waits = gang("g")
    assert changed(waits, message="waits", priority=7) == replace(waits, message="waits", priority=7)
    assert changed(Snapshot(now_s=1.0), now_s=2.0) == replace(Snapshot(now_s=1.0), now_s=2.0)
    assert waits == gang("g")


def test_a_field_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="massage"):
        changed(gang("g"), massage="waits")


def test_what_looks_at_itself_is_not_copied_so() -> None:
    with pytest.raises(TypeError, match="Checked"):
        changed(Checked(), one=0)
