"""What a piece of work calls: the same on every machine, as seconds are not."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def each_call(note: Callable[[FrameType, str], None]) -> Iterator[None]:
    """Tells `note` of each call and return within, by its frame and the event's name as `sys.setprofile` has it."""
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _argument: note(frame, event))
    try:
        yield
    finally:
        sys.setprofile(before)
