"""Things of the user and of the machine that no path names, against system calls of native code.

Each is judged by what a host finds, which first shows that the attempts work without a sandbox.
"""

import os
import subprocess
import sys

import promises
import pytest
from raw_code import SYSTEM_CALLS, by_number, program, raw
from users import USERS, directory_of

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("user", USERS),
    by_number,
]

#: Removes the message queue of its argument, and makes and uses another one.
QUEUES = """
name = sys.argv[1].encode()
theirs, own = (ctypes.create_string_buffer(name + end) for end in (b"", b"-own"))
attempt("mq_unlink", lambda: call(241, theirs))
attempt("mq_open", lambda: call(240, own, os.O_CREAT | os.O_RDWR, 0o600, 0))
for number in (242, 243, 244, 245):
    # There is no such descriptor: any other error says that the call was denied.
    attempt(number, lambda: call(number, 999, 0, 0, 0, 0) != -1 or ctypes.get_errno() == 9)
"""

#: The functions of a host for its queues: it makes one, and tells which there are.
HOST_QUEUES = """
def queue(name, flags):
    found = call(240, ctypes.create_string_buffer(name.encode()), flags, 0o600, 0)
    if found != -1:
        os.close(found)
    return found != -1
def queues():
    return [queue(name, os.O_RDONLY) for name in (given, given + "-own")]
def removed():
    for name in (given, given + "-own"):
        call(241, ctypes.create_string_buffer(name.encode()))
assert queue(given, os.O_CREAT | os.O_RDWR)
subprocess.run([sys.executable, "-I", "-c", code, given], check=True, capture_output=True)
before = queues()
removed()
assert queue(given, os.O_CREAT | os.O_RDWR)
"""


@pytest.mark.holds("kernel", promises.WRITE)
def test_message_queues(user):
    name = f"fastaudit-{os.getpid()}"
    after = "after = queues(); removed()"
    ran = raw(user, QUEUES, name, before=SYSTEM_CALLS + HOST_QUEUES, after=after)
    assert (ran["before"], ran["after"]) == ([False, True], [True, False]), ran
    assert ran["told"] == [], ran


#: Watches a directory, in each way.
WATCH = """
place = ctypes.create_string_buffer(sys.argv[1].encode())
attempt("inotify_init", lambda: call(253))
attempt("inotify_init1", lambda: call(294, 0))
watches = call(294, 0)
# Without a sandbox the process has it already.
attempt("inotify_add_watch", lambda: call(254, watches if watches > 0 else 0, place, 0xfff) != -1)
FID, NAME, DFID = 0x200, 0x800, 0x400
marks = call(300, FID | NAME | DFID, 0)
attempt("fanotify_init", lambda: marks)
attempt("fanotify_mark", lambda: call(301, marks, 1, 0x40000100, -100, place))
directory = os.open(sys.argv[1], os.O_PATH if len(sys.argv) > 2 else 0)
attempt("F_NOTIFY", lambda: call(72, directory, 1026, 0x80000004))
context = (ctypes.c_ulong * 1)()
attempt("io_setup", lambda: call(206, 1, context))
"""


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.READ)
def test_nothing_is_watched(user):
    before = """
        done = subprocess.run([sys.executable, "-I", "-c", code, given], capture_output=True)
        before = json.loads(done.stdout)
    """
    with directory_of(user) as outside:
        ran = raw(user, WATCH, outside, before=before)
    assert ran["told"] == [], ran
    assert {"inotify_init", "inotify_add_watch", "F_NOTIFY", "io_setup"} <= {*ran["before"]}, ran


#: Changes the attributes of a file that it may read alone, and has others wait for it.
ATTRIBUTES = """
file = os.open(sys.argv[1], os.O_RDONLY)
def asked(request, data):
    return call(16, file, request, ctypes.create_string_buffer(data, len(data)))
attempt("SETFLAGS", lambda: asked(0x40086602, struct.pack("=Q", 0x40)))
attempt("SETVERSION", lambda: asked(0x40087602, struct.pack("=Q", 77)))
attempt("FSSETXATTR", lambda: asked(0x401c5820, struct.pack("=5I8x", 0x80, 0, 0, 0, 0)))
attempt("F_SETLEASE", lambda: call(72, file, 1024, 0))
# Requests that no file system knows: any error but EPERM says that they were not denied.
for request in (0x40806685, 0x50009401, 0xc0189436, 0xf502, 0x40047211):
    attempt(hex(request), lambda: asked(request, bytes(128)) != -1 or ctypes.get_errno() != 1)
told = ctypes.create_string_buffer(8)
attempt("GETFLAGS", lambda: call(16, file, 0x80086601, told) == 0 or ctypes.get_errno() != 1)
"""

#: The flags and the version of the file, as the host sees them.
SEEN = """
import ctypes
def seen():
    found = []
    with open(given) as file:
        for request in (0x80086601, 0x80087601):
            told = ctypes.create_string_buffer(8)
            ctypes.CDLL(None).ioctl(file.fileno(), ctypes.c_ulong(request), told)
            found.append(told.raw[0])
    return found
before = seen()
"""


@pytest.mark.holds("kernel", promises.WRITE)
def test_attributes_by_a_descriptor(user):
    with directory_of(user) as outside:
        path = f"{outside}/theirs"
        with open(path, "w") as file:
            os.fchown(file.fileno(), os.stat(outside).st_uid, -1)
        ran = raw(user, ATTRIBUTES, path, before=SEEN, after="after = seen()")
        done = subprocess.run(
            [sys.executable, "-c", program(ATTRIBUTES), path], capture_output=True
        )
    assert ran["after"] == ran["before"], ran
    assert ran["told"] == ["GETFLAGS"], ran
    assert b"F_SETLEASE" in done.stdout, done.stderr
