"""The private file beside a secret: its key, how far each of its streams went, and what all of them spent.

A ledger is public, and whoever may write it may cut it. What must not be undone is therefore kept here as
well, where only the owner can read and write: for every stream the last step that was released, the head of
its chain and its spending. A ledger that ends before the mark was cut back, and is refused. The account of
the secret is the sum over its streams: processes that share the same secret take a short lock per charge.

What this does not see: a copy of the secret in another folder has an account of its own, and whoever may
write this file and the ledger may put back older copies of both.
"""

import fcntl
import hashlib
import hmac
import math
import os
import secrets
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

OWNER_ONLY = 0o600

PATIENCE = 20.0  # seconds that another process may hold the lock, which usually takes microseconds

_MAGIC = b"VEIL ACCOUNT 2\n\0"

_HEADER = struct.Struct("<16s32s32s32s")  # magic, key, digest of the secret, checksum

_COUNT = struct.Struct("<Q")  # of writes, so that others need not look where nothing changed

_COUNT_AT = 2048

_BLOCK = 4096

_REGION = 3 * _BLOCK  # of a stream: a reservation, and two marks that are written in turn

_MARK = struct.Struct("<16s32sQQ32sddqI")  # see `Mark`; the last number is the length of its notes

_RESERVED = struct.Struct("<Qd")  # number of the mark to come, nats spent with it

_DIGEST = 32

MOST_NOTES = _BLOCK - _MARK.size - _DIGEST  # bytes


class AccountError(ValueError):
    """An account that cannot be used, or that contradicts a ledger; the text says what to do."""


@dataclass(frozen=True)
class Mark:
    """How far a stream went: all of this is on the disk before the release of its step goes out.

    Attributes:
        stream: the random name in the first line of the ledger.
        place: digest of the ledger's path.
        number: of marks of this stream, counted from 0.
        step: the last one that was released.
        head: of the chain at that step.
        spent: nats of this stream.
        lost: rest of the compensated sum.
        alarmed: step of the alarm; 0 without one.
        notes: what the stream must remember privately, e.g. the evidence of its alarm.
    """

    stream: bytes
    place: bytes
    number: int
    step: int
    head: bytes
    spent: float
    lost: float = 0.0
    alarmed: int = 0
    notes: bytes = b""


class SecretAccount:
    """The account of one secret, open for one stream of it.

    Args:
        path: the file; made if there is none.
        secret: values of the secret. Another secret than the one that the account was begun for is refused.

    Attributes:
        key: of the authentication of ledgers and memories.
        mark: that of the claimed stream.
    """

    def __init__(self, path: Path, secret: np.ndarray):
        self.path = path
        self._secret = np.ascontiguousarray(secret, np.float64).tobytes()
        self._place, self._seen, self._own, self._others = -1, -1, -1, 0.0
        self.mark = Mark(bytes(16), bytes(32), 0, 0, bytes(32), 0.0)
        self._file = self._opened()
        try:
            self.key = self._checked_header()
        except BaseException:
            self.close()
            raise

    def claim(self, ledger: Path, stream: str | None, begin: float = 0.0, limit: float = math.inf) -> Mark:
        """Find the mark of a ledger, or begin one; a second process on the same stream is refused.

        Args:
            ledger: its path.
            stream: the name in its first line; None where the ledger is yet to be begun.
            begin: nats that a new stream is charged before its first step.
            limit: nats of all streams together.
        """
        place, self._seen = hashlib.sha256(os.fsencode(ledger.resolve())).digest(), -1
        with self._locked():
            marks = list(self._marks())
            here = [i for i, mark in marks if mark is not None and mark.place == place]
            if stream is None:
                lost = [mark for i, mark in marks if i in here and mark is not None and mark.step > 0]
                if lost:
                    raise AccountError(
                        f"{ledger} is gone or empty, but {lost[0].step} steps of it were released: beginning "
                        "again would release them a second time. Begin a new stream in another file; what "
                        "was charged stays on the account of the secret."
                    )
                if begin > 0.0 and begin + self._spent_elsewhere() > limit:
                    raise AccountError(
                        f"The other streams of {self.path} have left less of the budget than an alarm can "
                        "tell. Choose `warn`, or a larger budget."
                    )
                free = [*here, *(i for i, mark in marks if mark is None)]
                number = free[0] if free else len(marks)
                self.mark = Mark(secrets.token_bytes(16), place, 0, 0, bytes(32), begin)
                self._take(number)
                self._begin_region()
            else:
                named = [i for i, mark in marks if mark is not None and mark.stream.hex() == stream]
                other = [i for i in here if i not in named and dict(marks)[i].step > 0]  # pyright: ignore[reportOptionalMemberAccess]
                if not named or other:
                    raise AccountError(
                        f"{ledger} is not the ledger that {self.path} knows: it was put in the place of "
                        "another one, or the account was. Begin a new stream in another file."
                    )
                self._take(named[0])
                mark = dict(marks)[named[0]]
                assert mark is not None  # it has a name
                self.mark = replace(mark, place=place)
        return self.mark

    def check(self, ledger: Path, heads: "list[tuple[str, bool]]", first: int) -> None:
        """Refuse a ledger that ends before its mark, or that went another way.

        Args:
            ledger: its path, for messages.
            heads: of the entries from step `first` on: the digest, and whether the entry is a gap.
            first: step of the first of them; the one of the mark, or 1 where the mark is at step 0.
        """
        mark, ahead = self.mark, heads
        if mark.step > 0:
            if not heads or first > mark.step:
                raise AccountError(behind(ledger, first - 1 if not heads else first, mark.step))
            if heads[0][0] != mark.head.hex():
                raise AccountError(
                    f"{ledger} went another way than the stream that was released: step {mark.step} is not "
                    "the one that went out. Begin a new stream in another file."
                )
            ahead = heads[1:]
        if any(not gap for _, gap in ahead[:-1]):
            raise AccountError(
                f"{self.path} is older than {ledger}: a crash leaves it one release behind, not more. An "
                "older copy was put in its place. Begin a new stream in another file."
            )
        if self._torn() and not ahead:
            raise AccountError(
                f"{self.path} is damaged, and no crash explains how: the mark after step {mark.step} cannot "
                "be read, but its release is not in the ledger. Begin a new stream in another file."
            )

    def spent_elsewhere(self) -> float:
        """Nats that the other streams of this secret spent, or have reserved."""
        with self._locked():
            return self._spent_elsewhere()

    def reserve(self, spent: float, limit: float) -> bool:
        """Make the others count a charge that is about to be made; False where they left too little.

        Args:
            spent: nats of this stream, the charge included.
            limit: nats of all streams together.
        """
        with self._locked():
            self._still_ours()
            if spent > self.mark.spent and spent + self._spent_elsewhere() > limit:
                return False
            content = _RESERVED.pack(self.mark.number + 1, spent)
            self._tell_others()  # first: whoever dies in between has made the others look, not look away
            self._put(content + self._digest(content), self._region)
            return True

    def commit(self, mark: Mark) -> None:
        """Make a mark durable; only then may the release go out."""
        if len(mark.notes) > MOST_NOTES:
            raise ValueError(f"A mark has room for {MOST_NOTES} bytes of notes; got {len(mark.notes)}.")
        mark = replace(mark, number=self.mark.number + 1)
        with self._locked():
            self._still_ours()
            self._tell_others()
            self._put(self._packed(mark), self._slot(mark.number))
        os.fdatasync(self._file)
        self.mark = mark

    def total(self) -> float:
        """Nats that all streams of this secret spent."""
        return self.mark.spent + self.spent_elsewhere()

    def close(self) -> None:
        """Give the file free; the locks end with it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _opened(self) -> int:
        """The file, made in one piece where there is none."""
        if not self.path.exists():
            key = secrets.token_bytes(32)
            head = _HEADER.pack(_MAGIC, key, self._bound(key), bytes(32))[:-32]
            content = head + hashlib.sha256(head).digest()
            new = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.new")
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
            try:
                os.write(file, content.ljust(_BLOCK, b"\0"))
                os.fsync(file)
                with suppress(FileExistsError):  # another process was quicker
                    os.link(new, self.path)
            finally:
                os.close(file)
                os.unlink(new)
            sync_folder(self.path.parent)
        file = os.open(self.path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        status = os.fstat(file)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            os.close(file)
            raise AccountError(f"{self.path} must belong to you alone. Protect it with `chmod 600`.")
        return file

    def _checked_header(self) -> bytes:
        content = os.pread(self._file, _HEADER.size, 0).ljust(_HEADER.size, b"\0")
        magic, key, bound, checksum = _HEADER.unpack(content)
        if magic != _MAGIC or hashlib.sha256(content[:-32]).digest() != checksum:
            raise AccountError(
                f"{self.path} is not the account of a secret, or was damaged. What was spent is not known: "
                "give the secret a new file, which begins an account of its own."
            )
        if not hmac.compare_digest(bound, self._bound(key)):
            raise AccountError(
                f"{self.path} is the account of another secret: the secret in its file was changed. Give "
                "every secret a file of its own."
            )
        return key

    def _bound(self, key: bytes) -> bytes:
        return hmac.digest(key, b"secret" + self._secret, "sha256")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the file, for microseconds; whoever dies with the lock gives it free."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise AccountError(
                        f"{self.path} is held by another process for more than {PATIENCE:.0f} seconds. Look "
                        "for a `veil share` of this secret that was stopped."
                    ) from None
                time.sleep(0.0002)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _take(self, number: int) -> None:
        """The region of a stream, for this process alone as long as the file is open."""
        self._region = _BLOCK + number * _REGION
        if hasattr(fcntl, "F_OFD_SETLK"):  # Linux; elsewhere the lock of the ledger has to do
            wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, self._region, 1, 0)
            try:
                fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, wanted)
            except OSError:
                raise AccountError(
                    "This stream is in use by another process. Stop that one, or give another ledger."
                ) from None
        self._place = number

    def _begin_region(self) -> None:
        """A new stream: no mark but its first, on the disk before the ledger is begun."""
        self._put(bytes(_REGION), self._region)
        self._put(self._packed(self.mark), self._slot(0))
        self._tell_others()
        os.fsync(self._file)

    def _slot(self, number: int) -> int:
        return self._region + _BLOCK * (1 + number % 2)

    def _packed(self, mark: Mark) -> bytes:
        content = _MARK.pack(
            mark.stream,
            mark.place,
            mark.number,
            mark.step,
            mark.head,
            mark.spent,
            mark.lost,
            mark.alarmed,
            len(mark.notes),
        )
        content += mark.notes
        return (content + self._digest(content)).ljust(_BLOCK, b"\0")

    def _parsed(self, block: bytes) -> Mark | None:
        if len(block) < _MARK.size + _DIGEST:
            return None
        *numbers, length = _MARK.unpack_from(block)
        end = _MARK.size + length
        if length > MOST_NOTES or block[end : end + _DIGEST] != self._digest(block[:end]):
            return None
        return Mark(*numbers, notes=block[_MARK.size : end])

    def _digest(self, content: bytes) -> bytes:
        return hmac.digest(self.key, content, "sha256")

    def _regions(self) -> int:
        return max(0, os.fstat(self._file).st_size - _BLOCK + _REGION - 1) // _REGION

    def _marks(self) -> Iterator[tuple[int, Mark | None]]:
        """The last mark of every stream; None where a region was never begun."""
        for number in range(self._regions()):
            yield number, self._last(number)[0]

    def _last(self, number: int) -> tuple[Mark | None, bool]:
        """The last mark of a region, and whether one of its two slots cannot be read."""
        start = _BLOCK + number * _REGION
        blocks = [os.pread(self._file, _BLOCK, start + k * _BLOCK) for k in (1, 2)]
        found = [self._parsed(block) for block in blocks]
        torn = any(one is None and any(block) for one, block in zip(found, blocks, strict=True))
        marks = [one for one in found if one is not None]
        if not marks and torn:
            raise AccountError(
                f"{self.path} was damaged: what stream {number + 1} of the secret spent cannot be read. Give "
                "the secret a new file, which begins an account of its own."
            )
        return max(marks, key=lambda one: one.number, default=None), torn

    def _torn(self) -> bool:
        return self._last(self._place)[1]

    def _spent_elsewhere(self) -> float:
        count = self._count()
        if count != self._seen:
            total = 0.0
            for number in range(self._regions()):
                if number != self._place and (mark := self._last(number)[0]) is not None:
                    total += max(mark.spent, self._reserved(number, mark))
            self._others, self._seen = total, count
        return self._others

    def _reserved(self, number: int, mark: Mark) -> float:
        """Nats of a stream with the charge that it is about to make; 0 where it is about to make none."""
        size = _RESERVED.size
        block = os.pread(self._file, size + _DIGEST, _BLOCK + number * _REGION)
        if len(block) < size + _DIGEST or block[size:] != self._digest(block[:size]):
            return 0.0
        coming, spent = _RESERVED.unpack(block[:size])
        return spent if coming == mark.number + 1 else 0.0

    def _count(self) -> int:
        return _COUNT.unpack(os.pread(self._file, _COUNT.size, _COUNT_AT))[0]

    def _tell_others(self) -> None:
        """One more write; our own does not make us look again."""
        count = self._count()
        self._put(_COUNT.pack(count + 1), _COUNT_AT)
        self._own = count + 1
        if self._seen == count:
            self._seen = count + 1

    def _still_ours(self) -> None:
        """Before each write: the file has not been replaced, and nobody else wrote our mark."""
        same_file(self.path, self._file, AccountError)
        if self._count() == self._own:  # nobody has written since we did
            return
        last = self._last(self._place)[0]
        if last is None or (last.stream, last.number) != (self.mark.stream, self.mark.number):
            raise AccountError("Another process has gone on with this stream. This one stops here.")

    def _put(self, content: bytes, offset: int) -> None:
        if os.pwrite(self._file, content, offset) < len(content):
            raise OSError(f"{self.path} cannot be written: the disk may be full. Make room and start again.")


def behind(ledger: Path, last: int, released: int) -> str:
    """What to say about a ledger that was cut back."""
    return (
        f"{ledger} ends at step {last}, but step {released} was released: going on from here would release "
        "steps a second time. Begin a new stream in another file; what was charged stays on the account of "
        "the secret."
    )


def same_file(path: Path, file: int, error: type[ValueError]) -> None:
    """Raise unless the path still leads to the file that is open."""
    try:
        there = os.stat(path)
    except OSError:
        there = None
    ours = os.fstat(file)
    if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
        raise error(f"{path} was moved or replaced while it was in use. Nothing more is released.")


def sync_folder(folder: Path) -> None:
    """A new file's name is durable once its folder is."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
