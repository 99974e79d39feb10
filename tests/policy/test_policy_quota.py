"""`Policy(max_bytes=...)`: how much may be written to files under one guard."""

import csv
import functools
import gzip
import io
import os
import shutil
import socket
from collections import UserList
from pathlib import Path

import at_once
import pytest

from fastaudit_rs import AuditDenied, Policy


@pytest.fixture
def guard(places):
    def make(max_bytes, **fields):
        policy = Policy(write=[places.ok], max_bytes=max_bytes, **fields)
        return policy.guard(monitor_calls=False)()

    return make


def size(path):
    return os.path.getsize(path)


#: A position in a file that no limit here reaches.
FAR = 1 << 20


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class TestPythonFiles:
    def test_up_to_the_limit(self, guard, places):
        with guard(100), open(places.ok + "/a", "wb", buffering=0) as file:
            file.write(b"x" * 60)
            file.write(b"x" * 40)
            with pytest.raises(AuditDenied) as caught:
                file.write(b"x")
            file.write(b"")
        assert size(places.ok + "/a") == 100
        denied = caught.value
        assert (denied.rule, denied.effect, denied.event) == (
            "max_bytes", "write", "fastaudit.write",
        )  # fmt: skip
        assert denied.event_args[1:] == (1, 100)
        assert denied.hint == "max_bytes = 200"

    def test_over_all_files(self, guard, places):
        with guard("1K"):
            Path(places.ok, "a").write_bytes(b"x" * 1000)
            with pytest.raises(AuditDenied):
                Path(places.ok, "b").write_text("x" * 25)
            Path(places.ok, "c").write_text("x" * 24)
        assert [size(f"{places.ok}/{name}") for name in "abc"] == [1000, 0, 24]

    def test_each_guard_begins_anew(self, guard, places):
        for _ in range(3):
            with guard(10):
                Path(places.ok, "a").write_bytes(b"x" * 10)

    def test_buffered_and_text_files(self, guard, places):
        with guard(10), pytest.raises(AuditDenied):
            with open(places.ok + "/a", "w") as file:
                print("x" * 20, file=file)
        assert size(places.ok + "/a") == 0
        with guard(10), pytest.raises(AuditDenied), open(places.ok + "/a", "wb") as file:
            file.write(b"x" * 100_000)
        assert size(places.ok + "/a") == 0

    def test_what_is_written_again_counts_again(self, guard, places):
        with guard(10), open(places.ok + "/a", "w+b", buffering=0) as file:
            file.write(b"x" * 8)
            file.seek(0)
            with pytest.raises(AuditDenied):
                file.write(b"x" * 8)

    def test_a_bound_method_and_a_specialised_call(self, guard, places):
        """However the interpreter calls it."""
        with guard(5000), open(places.ok + "/a", "wb", buffering=0) as file:
            write = file.write
            for _ in range(2000):
                write(b"x")
                file.write(b"x")
            io.FileIO.write(file, b"x" * 1000)
            for call in (write, file.write, lambda data: io.FileIO.write(file, data)):
                with pytest.raises(AuditDenied):
                    call(b"x")
        assert size(places.ok + "/a") == 5000

    def test_a_subclass_that_lies(self, guard, places):
        class Liar(io.FileIO):
            def fileno(self):
                return 1

        with guard(5), Liar(places.ok + "/a", "w") as file, pytest.raises(AuditDenied):
            file.write(b"x" * 6)

    def test_growing(self, guard, places):
        with guard(100), open(places.ok + "/a", "wb", buffering=0) as file:
            file.truncate(60)
            file.truncate(10)
            with pytest.raises(AuditDenied):
                file.truncate(10**12)
        assert size(places.ok + "/a") == 10

    def test_a_gap(self, guard, places):
        for buffering in (0, -1):
            with guard("10K"), pytest.raises(AuditDenied):
                with open(places.ok + "/a", "wb", buffering) as file:
                    file.seek(FAR)
                    file.write(b"x")
            assert size(places.ok + "/a") == 0

    def test_libraries(self, guard, places):
        def write_csv():
            with open(places.ok + "/c", "w", newline="") as file:
                csv.writer(file).writerows([["x"] * 100] * 100)

        def write_gzip():
            with gzip.open(places.ok + "/d", "wb") as file:
                file.write(os.urandom(10_000))

        for work in (write_csv, write_gzip):
            with guard(1000), pytest.raises(AuditDenied):
                work()
            with guard("1M"):
                work()


class TestOsFunctions:
    @pytest.fixture
    def fd(self, places):
        fd = os.open(places.ok + "/a", os.O_RDWR | os.O_CREAT)
        yield fd
        os.close(fd)

    @pytest.mark.parametrize(
        "write",
        [
            lambda fd, n: os.write(fd, b"x" * n),
            lambda fd, n: os.pwrite(fd, b"x" * n, 0),
            lambda fd, n: os.writev(fd, [b"x" * (n - 1), bytearray(1)]),
            lambda fd, n: os.pwritev(fd, (b"x" * n,), 0),
            lambda fd, n: os.ftruncate(fd, n),
            lambda fd, n: os.truncate(fd, n),
            lambda fd, n: os.posix_fallocate(fd, 0, n),
        ],
    )
    def test_each_counts(self, guard, fd, write):
        with guard(99):
            with pytest.raises(AuditDenied) as caught:
                write(fd, 100)
            assert caught.value.rule == "max_bytes"
            assert os.fstat(fd).st_size == 0
            write(fd, 99)
        assert os.fstat(fd).st_size == 99

    @pytest.mark.parametrize(
        "grow",
        [
            lambda fd, _: os.lseek(fd, FAR, 0) and os.write(fd, b"x"),
            lambda fd, _: os.lseek(fd, FAR, 0) and os.writev(fd, [b"x"]),
            lambda fd, _: os.pwrite(fd, b"x", FAR),
            lambda fd, _: os.pwritev(fd, [b"x"], FAR),
            lambda fd, _: os.lseek(fd, FAR, 0) and os.pwritev(fd, [b"x"], -1),
            lambda fd, _: os.posix_fallocate(fd, FAR, 1),
            lambda fd, source: os.lseek(fd, FAR, 0) and os.sendfile(fd, source, 0, 1),
            lambda fd, source: os.copy_file_range(source, fd, 1, 0, FAR),
            lambda fd, source: os.copy_file_range(source, fd, 1, offset_dst=FAR),
            lambda fd, _: os.truncate(path=f"/proc/self/fd/{fd}", length=FAR),
            lambda fd, _: os.ftruncate(fd, Index(FAR)),
            lambda fd, _: os.posix_fallocate(fd, Index(FAR), 1),
            lambda fd, _: os.pwrite(Index(fd), b"x", Index(FAR)),
            lambda fd, _: os.writev(fd, UserList([b"x" * FAR])),
        ],
    )
    def test_growing_by_a_gap(self, guard, places, fd, grow):
        """Bytes that nobody wrote make a file longer, too."""
        Path(places.out, "source").write_bytes(b"x")
        with open(places.out + "/source", "rb") as source, guard("10K"):
            with pytest.raises(AuditDenied) as caught:
                grow(fd, source.fileno())
        assert caught.value.rule == "max_bytes"
        assert os.fstat(fd).st_size <= 10 * 1024
        with open(places.out + "/source", "rb") as source, guard(FAR + 1):
            grow(fd, source.fileno())
        assert os.fstat(fd).st_size >= FAR

    def test_a_position_that_leaves_no_gap(self, guard, places, fd):
        with guard(20):
            os.pwrite(fd, b"x" * 8, 0)
            os.pwrite(fd, b"x", 7)
            os.lseek(fd, FAR, 0)
            os.pwrite(fd, b"", FAR)
            with pytest.raises(OSError, match="Invalid argument"):
                os.pwrite(fd, b"x", -2)
            with open(places.ok + "/a", "ab") as file:
                file.seek(FAR)
                file.write(b"x")
            os.pwrite(fd, b"x" * 4, 15)
        assert os.fstat(fd).st_size == 19

    def test_truncating_by_path(self, guard, places):
        Path(places.ok, "a").write_bytes(b"x")
        with guard(10):
            os.truncate(places.ok + "/a", 11)
            with pytest.raises(AuditDenied):
                os.truncate(places.ok + "/a", 12)

    def test_copying(self, guard, places, fd):
        Path(places.out, "big").write_bytes(b"x" * 10_000)
        with guard(5000):
            with pytest.raises(AuditDenied):
                shutil.copyfile(places.out + "/big", places.ok + "/copy")
            assert size(places.ok + "/copy") == 0
        with guard(10_000):
            shutil.copyfile(places.out + "/big", places.ok + "/copy")
        assert size(places.ok + "/copy") == 10_000
        with open(places.out + "/big", "rb") as source, guard(5000):
            for copy in (
                lambda: os.sendfile(fd, source.fileno(), 0, 2**30),
                lambda: os.sendfile(out_fd=fd, in_fd=source.fileno(), offset=0, count=2**30),
                lambda: os.copy_file_range(source.fileno(), fd, 2**30),
            ):
                with pytest.raises(AuditDenied):
                    copy()
            os.sendfile(fd, source.fileno(), 0, 5000)
        assert os.fstat(fd).st_size == 5000

    def test_what_is_no_file_does_not_count(self, guard):
        read, write = os.pipe()
        first, second = socket.socketpair()
        with guard(0), first, second:
            os.write(write, b"x" * 100)
            first.sendall(b"x" * 100)
            with open(write, "wb") as file:
                file.write(b"x" * 100)
        os.close(read)

    def test_less_than_asked_for(self, guard, places, fd):
        """Only what was written counts."""
        Path(places.out, "small").write_bytes(b"x" * 10)
        with open(places.out + "/small", "rb") as source, guard(100):
            assert os.sendfile(fd, source.fileno(), 5, 100) == 5
            os.write(fd, b"x" * 95)
            with pytest.raises(OSError, match="Bad file"):
                os.write(source.fileno(), b"")
            with pytest.raises(AuditDenied):
                os.write(fd, b"x")


class TestRest:
    def test_without_a_limit_and_without_a_guard(self, guard, places):
        with guard(None):
            Path(places.ok, "a").write_bytes(b"x" * 100_000)
        Path(places.ok, "a").write_bytes(b"x" * 100_000)

    def test_arguments_that_are_wrong(self, guard, places):
        """Raise what they always did."""
        with guard(10), open(places.ok + "/a", "wb", buffering=0) as file:
            for call in (
                lambda: file.write(),
                lambda: file.write(1),
                lambda: file.write("x"),
                lambda: os.write(file.fileno()),
                lambda: os.write("a", b""),
                lambda: os.writev(file.fileno(), b"x"),
                lambda: file.truncate("x"),
            ):
                with pytest.raises(TypeError):
                    call()
            with pytest.raises(OSError, match="Bad file"):
                os.write(-1, b"x")

    def test_threads_share_it(self, guard, places):
        results = []

        def write(name):
            try:
                Path(places.ok, name).write_bytes(b"x" * 60)
            except AuditDenied as denied:
                results.append(denied.rule)

        with guard(100, threads="inherit"):
            at_once.run(*(functools.partial(write, name) for name in "ab"))
        assert results == ["max_bytes"]
