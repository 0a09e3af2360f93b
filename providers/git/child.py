"""The agent's side of the reader process: started when needed, asked over pipes, ended when it goes wrong."""

import contextlib
import os
import pickle
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from providers.git import errors
from providers.git.errors import CacheUnavailable, MergeConflict, RemoteUnreachable, RepositoryTooLarge, SourceError
from providers.git.limits import why_ended
from providers.git.messages import (
    Answer,
    Question,
    QuestionRefused,
    ReaderStart,
    SuspectObject,
    Tip,
    decode_answer,
    write_frame,
)

_GRACE_S = 5.0
"""The kernel ends a reader whose time is up; one that is not gone this much later is killed."""
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "SUDO_UID")
_ROOT = Path(__file__).resolve().parents[2]
_PIECE = 1024 * 1024


class ReaderProcess:
    """One reader, asked by one thread at a time. What it dies of becomes a SourceError; then another is started.

    `tip` is what it was working on last, `None` before it knew.
    """

    def __init__(self, start: ReaderStart) -> None:
        self._start = start
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._suspect = ""
        self._closed = False
        self.tip: Tip | None = None

    def ask(self, question: Question, start: ReaderStart | None = None) -> Answer:
        """The answer. A `start` that differs from the last one (other credentials) begins a new process.

        Errors: any SourceError; RepositoryTooLarge names the bound that ended the process.
        """
        with self._turn:
            if self._closed:
                raise CacheUnavailable("the reader of the repository has been closed")
            if start is not None and start != self._start:
                self._end()
                self._start = start
            self.tip, self._suspect = None, ""
            answered = False
            try:
                answer = self._answer(question)
                answered = True
                return answer
            finally:
                # Out of memory once, it is no good any more; after any other trouble a new one costs little.
                if not answered:
                    self._end()

    def close(self) -> None:
        """End the process for good, also in the middle of a question; the cache folder is free then."""
        self._closed = True
        if self._turn.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._turn.release()
        elif (process := self._process) is not None:
            _kill(process)  # whoever asked is told that it ended
            process.wait()

    def _answer(self, question: Question) -> Answer:
        process = self._process or self._begin()
        inbox, outbox = _pipes(process)
        end_s = time.monotonic() + self._start.reader.wall_s + _GRACE_S
        try:
            write_frame(inbox, pickle.dumps(question))
            while True:
                answer = decode_answer(self._frame(process, outbox, end_s))
                if isinstance(answer, Tip):
                    self.tip = answer
                elif isinstance(answer, SuspectObject):
                    self._suspect = answer.words
                elif isinstance(answer, QuestionRefused):
                    raise _raised(answer)
                else:
                    return answer
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._ended(process) from error
        except msgspec.DecodeError as error:
            raise RepositoryTooLarge("the reader of the repository gave an answer that is none") from error

    def _frame(self, process: "subprocess.Popen[bytes]", outbox: IO[bytes], end_s: float) -> bytes:
        length = int.from_bytes(self._exactly(process, outbox, 8, end_s))
        most = self._start.reader.answer_bytes
        if length > most:
            raise RepositoryTooLarge(f"what was read takes {length:,} bytes; {most:,} are allowed")
        return self._exactly(process, outbox, length, end_s)

    def _exactly(self, process: "subprocess.Popen[bytes]", outbox: IO[bytes], count: int, end_s: float) -> bytes:
        got = bytearray()
        with selectors.DefaultSelector() as ready:
            ready.register(outbox, selectors.EVENT_READ)
            while len(got) < count:
                if not ready.select(max(0.0, end_s - time.monotonic())):
                    raise self._too_much(f"longer than {self._start.reader.wall_s:g} s")
                piece = os.read(outbox.fileno(), min(_PIECE, count - len(got)))
                if not piece:
                    raise self._ended(process)
                got += piece
        return bytes(got)

    def _begin(self) -> "subprocess.Popen[bytes]":
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment["HOME"] = "/nonexistent"
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "providers.git.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                cwd="/",
                bufsize=0,
                start_new_session=True,
            )
            self._process = process
            write_frame(_pipes(process)[0], pickle.dumps(self._start))
        except OSError as error:
            raise CacheUnavailable(f"the reader of the repository cannot be started: {error.strerror}") from error
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        for pipe in _pipes(process):
            with contextlib.suppress(OSError):
                pipe.close()
        process.wait()

    def _ended(self, process: "subprocess.Popen[bytes]") -> SourceError:
        """What became of a process that went without an answer."""
        try:
            status = process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            status = 0
        why = why_ended(status, self._start.reader)
        return (
            self._too_much(why) if why else CacheUnavailable(f"the reader of the repository ended with status {status}")
        )

    def _too_much(self, bound: str) -> SourceError:
        shown = self._start.remote.shown
        if self.tip is None:  # nothing of the repository has been touched yet: the remote hangs
            return RemoteUnreachable(f"{shown} took {bound} to answer")
        of_what = f"{self._suspect}, or what comes with it" if self._suspect else f"commit {self.tip.oid}"
        return RepositoryTooLarge(f"reading {of_what} took {bound}")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _pipes(process: "subprocess.Popen[bytes]") -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise CacheUnavailable("the reader of the repository has no pipes")
    return process.stdin, process.stdout


def _raised(refused: QuestionRefused) -> SourceError:
    """The error of the class that the reader names; of no class that is not a SourceError."""
    if refused.error == MergeConflict.__name__:
        return MergeConflict(refused.message, refused.paths)
    kind: object = getattr(errors, refused.error, None)
    made: Callable[[str], SourceError] = (
        kind if isinstance(kind, type) and issubclass(kind, SourceError) else SourceError
    )
    return made(refused.message)
