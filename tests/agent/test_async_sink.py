"""The async sink: nobody waits, nothing raises, and what is dropped is told."""

import threading

from agent.async_sink import AsyncSink


def test_what_is_sent_is_done_and_a_failure_harms_nobody() -> None:
    drops: list[int] = []
    done = threading.Event()
    sink = AsyncSink(lambda: drops.append(1))
    sink.send(lambda: 1 / 0)
    sink.send(lambda word: done.set() if word == "go" else None, "go")
    assert done.wait(10)
    sink.close()
    assert drops == [1], "what could not be sent is given up, and counted"


def test_beyond_the_room_things_are_dropped_and_told() -> None:
    drops: list[int] = []
    sent: list[str] = []
    gate = threading.Event()
    sink = AsyncSink(lambda: drops.append(1), most=1)

    def slow() -> None:
        gate.wait(10)
        sent.append("slow")

    sink.send(slow)
    sink.send(sent.append, "too much")
    sink.send(sent.append, "too much")
    gate.set()
    sink.close()
    assert (sent, len(drops)) == (["slow"], 2)
