"""`python -m providers.git.worker`: the process that touches what strangers push, so that the agent does not.

It confines itself before it opens anything, answers questions from its standard input on its standard output, one after
the other, and ends with its input. Credentials come by the pipe: neither its arguments nor its environment have any.
"""

import gc
import os
import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import IO

import structlog

from providers.clock import SystemClock
from providers.git.errors import MergeConflict, RepositoryTooLarge, SourceError
from providers.git.limits import confine, start_watch, stop_watch
from providers.git.messages import (
    Answer,
    Question,
    QuestionRefused,
    ReaderStart,
    encode_answer,
    read_frame,
    write_frame,
)
from providers.git.reader import RepositoryReader

_MOST_ASKED = 16 * 1024 * 1024


def serve(inbox: IO[bytes], outbox: IO[bytes]) -> None:
    """Answer until the agent is gone."""
    asked = read_frame(inbox, _MOST_ASKED)
    if asked is None:
        return
    start: ReaderStart = pickle.loads(asked)  # noqa: S301 - from the agent, our parent
    confine(start.reader, start.mirror)

    def say(answer: Answer) -> None:
        write_frame(outbox, encode_answer(answer))

    made: list[RepositoryReader] = []

    def answered(question: Question) -> Answer:
        if not made:
            made.append(RepositoryReader(start, SystemClock(), say))
        return made[0].answer(question)

    gc.freeze()
    while (asked := read_frame(inbox, _MOST_ASKED)) is not None:
        question: Question = pickle.loads(asked)  # noqa: S301 - from the agent, our parent
        start_watch(start.reader)
        answer = _guarded(partial(answered, question), start)
        stop_watch()
        say(answer)
        # A pygit2.Repository is a circle that holds its packs open, and what is left of one answer fills no generation:
        # after some hundred of them the next merge finds no file descriptor.
        gc.collect()


def _guarded(answered: Callable[[], Answer], start: ReaderStart) -> Answer:
    try:
        return answered()
    except MergeConflict as error:
        return QuestionRefused(type(error).__name__, str(error), list(error.paths))
    except MemoryError:
        return QuestionRefused(RepositoryTooLarge.__name__, f"{start.remote.shown} takes more memory than reading may")
    except SourceError as error:
        return QuestionRefused(type(error).__name__, str(error))


def _main() -> None:
    # Whatever prints must not end up among the answers.
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.nice(5)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    serve(inbox, outbox)


if __name__ == "__main__":
    _main()
