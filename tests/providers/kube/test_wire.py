import gc

import msgspec
import pytest

from providers.kube import wire
from providers.kube.memory import collection_paused, settle_heap


def test_objects_stay_raw() -> None:
    page = wire.decode_page(b'{"metadata":{"resourceVersion":"7","continue":"t"},"items":[{"a": 1}, {"b": 2}]}')
    assert (page.resource_version, page.continue_token) == ("7", "t")
    assert [bytes(item) for item in page.items or ()] == [b'{"a": 1}', b'{"b": 2}']


def test_events_are_lines() -> None:
    events = wire.decode_events(b'{"type":"ADDED","object":{"a":1}}\n\n{"object":{},"type":"BOOKMARK"}\n')
    assert [(event.type, bytes(event.object)) for event in events] == [("ADDED", b'{"a":1}'), ("BOOKMARK", b"{}")]


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"type":"ADDED"}', b'{"type":3,"object":{}}', b'{"object":{}}'])
def test_what_is_no_event_is_an_error(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        wire.decode_event(line)


@pytest.mark.parametrize(
    "raw", [b"", b"3", b'{"metadata":null}', b'{"metadata":{"name":3}}', b"\xff", b'{"metadata":{"name":"\xff"}}']
)
def test_identity_and_status_never_fail(raw: bytes) -> None:
    assert wire.identity(raw) == wire.ObjectMeta()
    assert wire.status(raw) == wire.Status()


def test_the_heap_settles() -> None:
    before = gc.get_threshold()
    gc.unfreeze()  # what the tests themselves have frozen
    try:
        settle_heap(50_000)
        assert gc.get_threshold()[0] == 50_000
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("was_on", [True, False])
def test_nothing_is_collected_meanwhile(was_on: bool) -> None:
    (gc.enable if was_on else gc.disable)()
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled() is was_on


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), collection_paused():
        _ = 1 / 0
    assert gc.isenabled()
