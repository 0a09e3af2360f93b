"""A look into a pack while it arrives (gitformat-pack(5)), so that an object too large is met before libgit2 loads it.

libgit2 streams whole objects but loads both ends of a delta; the sizes stand in the first bytes of each. Nothing is
kept here but what has not been looked at yet.
"""

import hashlib
import zlib
from collections.abc import Callable, Generator

from providers.git.errors import CorruptRepository, RepositoryTooLarge

_KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFFSET_DELTA, _REFERENCE_DELTA = 6, 7
_SLICE = 4096
_INFLATED = 256 * 1024
_DELTA_HEAD = 20
_LONGEST_NUMBER = 63

Steps = Generator[None, None, None]
Taken = Generator[None, None, bytes]


class PackScan:
    """Fed with a pack piece by piece. Raises RepositoryTooLarge with the object's name once it has been seen whole.

    `suspect` hears of the object as soon as its size is known: reading on may cost the process its time.
    """

    def __init__(self, max_object_bytes: int, suspect: Callable[[str], None] = lambda _words: None) -> None:
        self._most = max_object_bytes
        self._suspect = suspect
        self._waiting = bytearray()
        self._steps = self._pack()
        next(self._steps)

    def feed(self, piece: bytes) -> None:
        """Look at the next bytes. Errors: RepositoryTooLarge, CorruptRepository."""
        self._waiting += piece
        next(self._steps)

    def _pack(self) -> Steps:
        yield
        head = yield from self._take(12)
        if head[:4] != b"PACK":
            raise CorruptRepository("what the remote sent is not a pack")
        count = int.from_bytes(head[8:])
        for number in range(1, count + 1):
            yield from self._object(f"object {number} of {count}")
        while True:
            self._waiting.clear()
            yield

    def _take(self, count: int) -> Taken:
        while len(self._waiting) < count:
            yield
        taken = bytes(self._waiting[:count])
        del self._waiting[:count]
        return taken

    def _object(self, place: str) -> Steps:
        byte = (yield from self._take(1))[0]
        kind, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 0x80 and shift < _LONGEST_NUMBER:
            byte = (yield from self._take(1))[0]
            size |= (byte & 0x7F) << shift
            shift += 7
        if kind == _OFFSET_DELTA:
            while (yield from self._take(1))[0] & 0x80:
                pass
        elif kind == _REFERENCE_DELTA:
            yield from self._take(20)
        if kind in _KINDS:
            yield from self._whole(place, _KINDS[kind], size)
        else:
            yield from self._delta(place, size)

    def _whole(self, place: str, kind: str, size: int) -> Steps:
        if size <= self._most:
            yield from self._inflate(size, lambda _part: None)
            return
        words = f"a {kind} of {size:,} bytes ({place} that the remote sent)"
        self._suspect(words)
        digest = hashlib.sha1(b"%s %d\0" % (kind.encode(), size), usedforsecurity=False)
        yield from self._inflate(size, digest.update)
        raise self._too_large(f"{digest.hexdigest()}, {words},")

    def _delta(self, place: str, size: int) -> Steps:
        head = bytearray()
        if size > self._most:
            raise self._too_large(f"a delta of {size:,} bytes ({place} that the remote sent)")

        def look(part: bytes) -> None:
            if len(head) < _DELTA_HEAD:
                head.extend(part[:_DELTA_HEAD])
                if max(_sizes(head)) > self._most:
                    raise self._too_large(f"an object of {max(_sizes(head)):,} bytes ({place} that the remote sent)")

        yield from self._inflate(size, look)

    def _inflate(self, size: int, look: Callable[[bytes], None]) -> Steps:
        """Pass over one zlib stream; `look` sees what is in it, a piece at a time."""
        stream, seen = zlib.decompressobj(), 0
        while not stream.eof:
            while not self._waiting:
                yield
            piece = bytes(self._waiting[:_SLICE])
            del self._waiting[:_SLICE]
            while piece and not stream.eof:
                try:
                    part = stream.decompress(piece, _INFLATED)
                except zlib.error as error:
                    raise CorruptRepository("the pack that the remote sent is damaged") from error
                piece = stream.unconsumed_tail
                seen += len(part)
                if seen > size:
                    raise CorruptRepository("the pack that the remote sent lies about the size of an object")
                look(part)
            self._waiting[:0] = stream.unused_data

    def _too_large(self, what: str) -> RepositoryTooLarge:
        return RepositoryTooLarge(f"{what} is larger than an object may be ({self._most:,} bytes)")


def _sizes(head: bytes | bytearray) -> tuple[int, int]:
    """The size of a delta's base and of what comes of it, as far as `head` goes."""
    sizes, at = [0, 0], 0
    for which in range(2):
        shift = 0
        while at < len(head):
            byte = head[at]
            at += 1
            sizes[which] |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
    return sizes[0], sizes[1]
