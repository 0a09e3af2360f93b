"""Lists and watches in fair weather and foul; each fault of the field's clients has its test."""

import random
import threading

import msgspec
import pytest

from providers.clock import VirtualClock
from providers.kube.batches import Changes, DeltaKind, Replace
from providers.kube.config import from_url
from providers.kube.errors import Expired, KubeError, TooManyRequests, Unreachable
from providers.kube.pace import Pacing
from providers.kube.reading import Watched
from providers.kube.reflector import Reflector, Timing
from providers.kube.resources import PODS
from providers.kube.transport import KubeTransport
from tests.providers.kube.reflecting import Reflection, ReflectorPod, key, reflecting
from tests.providers.kube.scripted import (
    Asked,
    Peer,
    Step,
    bookmark,
    die,
    event,
    page,
    pod,
    reply,
    routed,
    scripted,
    silence,
    status,
    status_body,
    watch,
)

LIST = reply(page(pod("a", 3), pod("b", 99), version=100))
IDLE = watch(then="hang")
DEEP = b'{"type":"ADDED","object":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001 + b"\n"
BROKEN = {"metadata": {"name": "x", "namespace": "default", "uid": "u", "resourceVersion": "101"}, "spec": 3}


def names(batch: object) -> list[tuple[str, str]]:
    assert isinstance(batch, Changes)
    return [(delta.kind.value, delta.key) for delta in batch.deltas]


def versions(asked: list[Asked]) -> list[str | None]:
    """Of each request: the version watched from, or None for a list."""
    return [request.query.get("resourceVersion") if "watch" in request.query else None for request in asked]


# -- fair weather -----------------------------------------------------------------------------------------------------


def test_a_list_then_its_changes() -> None:
    lines = [event("ADDED", pod("c", 101)), event("MODIFIED", pod("a", 102)), event("DELETED", pod("b", 103))]
    with scripted(LIST, watch(*lines, then="hang")) as server, reflecting(server.url) as reflection:
        first = reflection.next()
        assert isinstance(first, Replace)
        assert (set(first.objects), first.resource_version) == ({"default/a", "default/b"}, "100")
        assert reflection.reflector.synced.wait(5)
        seen = reflection.until(lambda objects: "default/b" not in objects)
        assert {name: found.metadata.version for name, found in seen.items()} == {
            "default/a": "102",
            "default/c": "101",
        }
        assert versions(server.asked) == [None, "100"]


def test_the_watch_begins_at_the_lists_version_not_at_the_newest_item() -> None:
    with scripted(reply(page(pod("a", 999), version=500)), IDLE) as server, reflecting(server.url):
        assert versions(server.wait_for(2)) == [None, "500"]


def test_pages_are_one_replace() -> None:
    pages = (reply(page(pod("a", 1), version=50, token="t")), reply(page(pod("b", 2), version=50)), IDLE)
    with scripted(*pages) as server, reflecting(server.url, Timing(page_limit=2)) as reflection:
        first = reflection.next()
        assert isinstance(first, Replace)
        assert set(first.objects) == {"default/a", "default/b"}


def test_of_pages_that_disagree_the_older_version_is_safe() -> None:
    pages = (reply(page(pod("a", 1), version=50, token="t")), reply(page(pod("b", 2), version=70)), IDLE)
    with scripted(*pages) as server, reflecting(server.url, Timing(page_limit=2)):
        assert versions(server.wait_for(3)) == [None, None, "50"]


def test_one_read_is_one_batch() -> None:
    def burst(peer: Peer, asked: Asked) -> bool:
        lines = [event("ADDED", pod(f"p{n}", 200 + n)) for n in range(50)]
        peer.head(200, {"Transfer-Encoding": "chunked"})
        peer.send(b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines))
        peer.hang()
        return False

    with scripted(LIST, burst) as server, reflecting(server.url) as reflection:
        reflection.next()
        batch = reflection.next()
        assert len(names(batch)) == 50
        assert batch.resource_version == "249"


def test_batches_are_immutable() -> None:
    with scripted(LIST, IDLE) as server, reflecting(server.url) as reflection:
        first = reflection.next()
        assert isinstance(first, Replace)
        with pytest.raises(TypeError):
            first.objects["x"] = None  # type: ignore[index]
        with pytest.raises(AttributeError):
            first.resource_version = "7"  # type: ignore[misc]


def test_time_outs_differ_between_watches_and_are_twice_the_base_at_most() -> None:
    with scripted(routed(LIST, watch())) as server:
        reflection = Reflection(server.url, pauses=30)
        reflection.reflector.run()
        limits = [int(asked.query["timeoutSeconds"]) for asked in server.asked if "watch" in asked.query]
    assert all(300 <= limit <= 600 for limit in limits)
    assert len(set(limits)) > 10


# -- where the next watch begins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "resumes_at"),
    [
        ([], "100"),
        ([event("ADDED", pod("c", 101)), event("ADDED", pod("d", 102))], "102"),
        ([bookmark(150)], "150"),
        ([event("ADDED", pod("c", 101)), bookmark(150)], "150"),
        ([event("ADDED", pod("c", 101)), event("BOOKMARK", {"metadata": {}})], "101"),
        ([event("HELLO", {"metadata": {"resourceVersion": "120"}})], "120"),
    ],
)
@pytest.mark.parametrize("then", ["end", "cut"])
def test_a_watch_resumes_where_the_last_one_ended(lines: list[bytes], resumes_at: str, then: str) -> None:
    with scripted(LIST, watch(*lines, then=then), IDLE) as server, reflecting(server.url):
        assert versions(server.wait_for(3)) == [None, "100", resumes_at]


def test_a_line_cut_in_the_middle_is_dropped_and_comes_again() -> None:
    half = event("ADDED", pod("d", 102))[:40]
    script = (
        LIST,
        watch(event("ADDED", pod("c", 101)), tail=half, then="cut"),
        watch(event("ADDED", pod("d", 102)), then="hang"),
    )
    with scripted(*script) as server, reflecting(server.url) as reflection:
        reflection.until(lambda objects: "default/d" in objects)
        assert versions(server.asked) == [None, "100", "101"]
        assert reflection.undecodable == []
        assert [type(error) for error in reflection.troubles] == [Unreachable]


def test_a_half_open_watch_is_given_up_and_resumed() -> None:
    script = (
        LIST,
        watch(event("ADDED", pod("c", 101)), then="hang"),
        watch(event("ADDED", pod("d", 102)), then="hang"),
    )
    timing = Timing(watch_s=0, grace_s=0.2)
    with scripted(*script) as server, reflecting(server.url, timing) as reflection:
        reflection.until(lambda objects: "default/d" in objects)
        assert versions(server.asked)[:3] == [None, "100", "101"]
        assert "half-open" in str(reflection.troubles[0])


def test_a_server_that_accepts_a_watch_and_says_nothing_is_given_up_too() -> None:
    timing = Timing(watch_s=0, grace_s=0.2)
    with scripted(LIST, silence, IDLE) as server, reflecting(server.url, timing):
        assert versions(server.wait_for(3))[:3] == [None, "100", "100"]


def test_duplicates_come_in_order_and_do_no_harm() -> None:
    lines = b"".join((event("ADDED", pod("c", 101)), event("DELETED", pod("c", 102)), event("ADDED", pod("d", 103))))
    script = (LIST, watch(lines, then="cut"), watch(lines, then="hang"))
    with scripted(*script) as server, reflecting(server.url) as reflection:
        got: list[tuple[str, str]] = []
        reflection.next()
        while len(got) < 6:
            got += names(reflection.next())
        assert got == [("ADDED", "default/c"), ("DELETED", "default/c"), ("ADDED", "default/d")] * 2
        assert set(reflection.objects) == {"default/a", "default/b", "default/d"}


@pytest.mark.parametrize("line", [bookmark(7), event("ADDED", pod("c", 7)), event("DELETED", pod("a", 99))])
def test_a_version_that_falls_back_means_another_history_and_a_new_list(line: bytes) -> None:
    script = (LIST, watch(line, then="hang"), reply(page(pod("z", 5), version=8)), IDLE)
    with scripted(*script) as server, reflecting(server.url) as reflection:
        assert set(reflection.until(lambda objects: "default/z" in objects)) == {"default/z"}
        assert versions(server.wait_for(4)) == [None, "100", None, "8"]


def test_a_server_restored_from_a_backup_is_noticed_before_the_next_watch() -> None:
    """It would accept the watch and stay silent about all that happens until it catches up."""
    script = (LIST, watch(bookmark(150), then="cut"), reply(page(pod("z", 5), version=120)), IDLE)
    with scripted(*script) as server:
        server.probe = reply(page(pod("z", 5), version=120))
        with reflecting(server.url) as reflection:
            assert set(reflection.until(lambda objects: "default/z" in objects)) == {"default/z"}
            assert versions(server.wait_for(4)) == [None, "100", None, "120"]


def test_the_same_version_is_the_same_history() -> None:
    with scripted(LIST, watch(bookmark(150), then="cut"), IDLE) as server:
        server.probe = reply(page(version=150))
        with reflecting(server.url):
            assert versions(server.wait_for(3)) == [None, "100", "150"]


def test_versions_that_are_no_numbers_are_not_compared() -> None:
    script = (reply(page(version="b-2")), watch(bookmark("a-1")), IDLE)
    with scripted(*script) as server, reflecting(server.url):
        assert versions(server.wait_for(3)) == [None, "b-2", "a-1"]


# -- lists again ------------------------------------------------------------------------------------------------------

GONE = event("ERROR", status_body(410, "Expired", "too old resource version"))


@pytest.mark.parametrize("forgotten", [status(410, "Gone"), watch(GONE), watch(GONE, then="hang")])
def test_410_as_a_status_and_as_an_event_means_a_new_list(forgotten: Step) -> None:
    script = (LIST, forgotten, reply(page(pod("b", 99), pod("c", 300), version=400)), IDLE)
    with scripted(*script) as server, reflecting(server.url) as reflection:
        seen = reflection.until(lambda objects: "default/c" in objects)
        assert set(seen) == {"default/b", "default/c"}  # "a" went while nobody watched
        assert versions(server.wait_for(4)) == [None, "100", None, "400"]
        assert [type(error) for error in reflection.troubles] == [Expired]


def test_what_precedes_an_error_event_is_delivered() -> None:
    script = (LIST, watch(event("ADDED", pod("c", 101)) + GONE), reply(page(version=400)), IDLE)
    with scripted(*script) as server, reflecting(server.url) as reflection:
        reflection.next()
        assert names(reflection.next()) == [("ADDED", "default/c")]
        assert reflection.next() == Replace({}, "400")


def test_a_transient_error_event_resumes_after_what_was_delivered() -> None:
    lines = event("ADDED", pod("c", 101)), event("ERROR", status_body(500, "X")), event("ADDED", pod("d", 103))
    with scripted(LIST, watch(b"".join(lines)), IDLE) as server, reflecting(server.url):
        assert versions(server.wait_for(3)) == [None, "100", "101"]


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_a_watch_refused_for_good_is_doubted_down_to_the_list(code: int) -> None:
    with scripted(LIST, status(code, "X"), LIST, IDLE) as server, reflecting(server.url):
        assert versions(server.wait_for(4)) == [None, "100", None, "100"]


def test_an_expired_page_token_leaves_no_trace_of_the_first_attempt() -> None:
    script = (
        reply(page(pod("ghost", 1), BROKEN, version=50, token="t")),
        status(410, "Expired"),
        reply(page(pod("a", 2), version=60)),
        IDLE,
    )
    with scripted(*script) as server, reflecting(server.url, Timing(page_limit=2)) as reflection:
        first = reflection.next()
        assert isinstance(first, Replace)
        assert (set(first.objects), first.resource_version, first.undecodable) == ({"default/a"}, "60", ())


def test_a_version_that_leads_nowhere_is_given_up_after_a_few_attempts() -> None:
    script = (LIST, die, die, die, die, die, LIST, IDLE)
    with scripted(*script) as server, reflecting(server.url):
        assert versions(server.wait_for(8)) == [None, *["100"] * 5, None, "100"]


def test_a_version_that_advances_is_kept_however_short_the_watches() -> None:
    watches = [watch(bookmark(101 + n), then="cut") for n in range(12)]
    with scripted(LIST, *watches, IDLE) as server, reflecting(server.url):
        assert versions(server.wait_for(14)) == [None, *[str(100 + n) for n in range(13)]]


def test_a_consumer_that_fails_gets_everything_again() -> None:
    script = (LIST, watch(event("ADDED", pod("c", 101)), then="hang"), reply(page(pod("c", 101), version=101)), IDLE)
    with scripted(*script) as server:
        reflection = Reflection(server.url)
        seen: list[object] = []
        relisted = threading.Event()

        def consume(batch: object) -> None:
            seen.append(batch)
            if len(seen) == 2:
                raise RuntimeError("the consumer's bug")
            if len(seen) == 3:
                relisted.set()

        reflection.on_batch = consume
        reflection.reflector.start()
        assert relisted.wait(10)
        assert reflection.reflector.stop()
    assert [type(batch) for batch in seen] == [Replace, Changes, Replace]
    assert [type(error) for error in reflection.troubles] == [RuntimeError]


# -- the rate of attempts ---------------------------------------------------------------------------------------------


def test_a_dead_server_is_not_hammered() -> None:
    with scripted(LIST) as server:
        url = server.url
    reflection = Reflection(url, pauses=60)
    began = reflection.clock.monotonic()
    reflection.reflector.run()
    assert all(0.8 <= gap <= 30.0 for gap in reflection.gaps)
    assert reflection.clock.monotonic() - began > 60 * 8
    assert all(isinstance(error, Unreachable) for error in reflection.troubles)


@pytest.mark.parametrize("step", [die, watch(), watch(then="cut"), reply(b""), watch(GONE), status(503, "X")])
def test_a_server_that_dies_in_the_watch_phase_is_not_hammered(step: Step) -> None:
    with scripted(routed(LIST, step)) as server:
        reflection = Reflection(server.url, pauses=30)
        reflection.reflector.run()
        assert len(server.asked) <= 30 * 2 + 1
    assert len(reflection.gaps) == 30
    assert all(0.8 <= gap <= 30.0 for gap in reflection.gaps)
    assert sum(reflection.gaps[10:]) / 20 > 8.0


def test_a_long_watch_forgives_and_its_orderly_end_costs_nothing() -> None:
    delivered = threading.Event()

    def lasting(version: int, end: bytes) -> Step:
        def step(peer: Peer, asked: Asked) -> bool:
            peer.head(200, {"Transfer-Encoding": "chunked"})
            peer.chunk(event("ADDED", pod("c", version)))
            assert delivered.wait(10)
            delivered.clear()
            reflection.clock.advance(400.0)
            peer.send(end)
            return bool(end)

        return step

    def consume(batch: object) -> None:
        if isinstance(batch, Changes):
            delivered.set()

    with scripted(LIST, *[die] * 4, lasting(101, b"0\r\n\r\n"), lasting(102, b""), IDLE) as server:
        reflection = Reflection(server.url)
        reflection.on_batch = consume
        reflection.reflector.start()
        assert versions(server.wait_for(8)) == [None, *["100"] * 5, "101", "102"]
        assert reflection.reflector.stop()
    assert len(reflection.gaps) == 5  # four deaths, none after the orderly end, one after the cut
    assert 0.8 <= reflection.gaps[4] <= 1.6


@pytest.mark.parametrize(("asked_s", "at_least_s"), [("7", 7.0), ("3600", 60.0)])
def test_retry_after_is_honoured_within_reason(asked_s: str, at_least_s: float) -> None:
    busy = status(429, "TooManyRequests", headers={"Retry-After": asked_s})
    with scripted(busy, LIST, IDLE) as server, reflecting(server.url) as reflection:
        reflection.next()
        assert at_least_s <= reflection.gaps[0] <= 60.0
        assert isinstance(reflection.troubles[0], TooManyRequests)


# -- objects that cannot be read --------------------------------------------------------------------------------------


def test_one_bad_object_hides_no_other() -> None:
    lines = [event("ADDED", BROKEN), event("ADDED", pod("c", 102))]
    script = (reply(page(BROKEN, pod("a", 1))), watch(b"".join(lines), then="hang"))
    with scripted(*script) as server, reflecting(server.url) as reflection:
        first = reflection.next()
        assert isinstance(first, Replace)
        assert set(first.objects) == {"default/a"}
        (skipped,) = first.undecodable
        assert (skipped.keys(), skipped.raw[:2]) == ({"default/x", "x", "u"}, b'{"')
        assert names(reflection.next()) == [("ADDED", "default/c")]
        assert [it.name for it in reflection.undecodable] == ["x", "x"]
        assert reflection.troubles == []


@pytest.mark.parametrize(
    "garbage", [b"<html>\n", b'{"type":"ADDED"}\n', b"\xff\xfe\n", b'{"type":"ADDED","object":}\n', DEEP]
)
@pytest.mark.usefixtures("deep_texts")
def test_a_garbage_line_does_not_end_the_stream(garbage: bytes) -> None:
    lines = event("ADDED", pod("c", 102)) + garbage + event("ADDED", pod("d", 103))
    with scripted(LIST, watch(lines, then="hang")) as server, reflecting(server.url) as reflection:
        reflection.next()
        assert names(reflection.next()) == [("ADDED", "default/c"), ("ADDED", "default/d")]
        assert len(reflection.undecodable) == 1


def test_an_unreadable_object_still_moves_the_version() -> None:
    with scripted(LIST, watch(event("ADDED", BROKEN), then="end"), IDLE) as server, reflecting(server.url):
        assert versions(server.wait_for(3)) == [None, "100", "101"]


def test_the_deletion_of_an_unreadable_object_is_learnt_from_a_list() -> None:
    script = (LIST, watch(event("DELETED", BROKEN), then="hang"), reply(page(version=200)), IDLE)
    with scripted(*script) as server, reflecting(server.url) as reflection:
        reflection.next()
        assert reflection.next() == Replace({}, "200")


def test_a_listener_that_fails_does_not_end_the_reflector() -> None:
    with scripted(die, LIST, IDLE) as server:
        reflection = Reflection(server.url)
        reflection.reflector._on_trouble = lambda error, gap_s: 1 / 0
        reflection.reflector.start()
        assert isinstance(reflection.next(), Replace)
        assert reflection.reflector.stop(5)


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_stop_ends_an_idle_watch_at_once() -> None:
    with scripted(LIST, IDLE) as server:
        reflection = Reflection(server.url)
        reflection.reflector.start()
        server.wait_for(2)
        assert reflection.reflector.stop(5)
        assert reflection.troubles == []
        assert reflection.reflector.stop(5)  # twice is fine


def test_stop_ends_a_pause_at_once() -> None:
    with scripted(die) as server:
        reflector = Reflector(
            KubeTransport(from_url(server.url)),
            Watched(PODS, msgspec.json.Decoder(ReflectorPod).decode, key),
            lambda _: None,
            clock=VirtualClock(),
            rng=random.Random(1),
            timing=Timing(pacing=Pacing(min_s=600.0, max_s=600.0)),
        )
        reflector.start()
        server.wait_for(1)
        assert reflector.stop(5)


def test_stop_before_start_is_no_error_and_nothing_is_asked() -> None:
    with scripted(LIST) as server:
        reflection = Reflection(server.url)
        assert reflection.reflector.stop()
        reflection.reflector.start()
        assert reflection.reflector.stop(5)
        assert server.asked == []


def test_a_consumer_may_stop_the_reflector_itself() -> None:
    with scripted(LIST, IDLE) as server:
        reflection = Reflection(server.url)
        reflection.on_batch = lambda _: reflection.batches.put(reflection.reflector.stop())  # type: ignore[arg-type]
        reflection.reflector.start()
        assert reflection.batches.get(timeout=5) is False  # it still runs: this very call
        assert reflection.reflector.stop(5)


def test_stop_between_pages() -> None:
    def endless(peer: Peer, asked: Asked) -> bool:
        return reply(page(pod("a", 1), token="more"))(peer, asked)

    with scripted(endless) as server:
        reflection = Reflection(server.url)
        reflection.reflector.start()
        server.wait_for(3)
        assert reflection.reflector.stop(5)
        assert reflection.batches.empty()


def test_kinds_are_the_wire_names() -> None:
    assert [kind.value for kind in DeltaKind] == ["ADDED", "MODIFIED", "DELETED"]
    assert issubclass(Expired, KubeError)
