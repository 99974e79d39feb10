"""The fields of a policy in a sandbox: the parts of the guard and of the kernel."""

import ctypes
import os

import promises
import pytest
from raw_code import on_x86_64

from fastaudit_rs import Policy


@pytest.fixture
def guarded(make_sandbox):
    """`guarded(code, files, **fields)`: the rules of the denials, the files in the end, the run."""

    def run(code, files=(), **fields):
        sandbox = make_sandbox(Policy(**fields))
        for name, text in dict(files).items():
            sandbox.write_file(name, text)
        ran = sandbox.run(code)
        found = {name: sandbox.read_file(name).decode() for name in sandbox.list_files()}
        return [denied.rule for denied in ran.violations], found, ran

    return run


#: Tries to write to a file by Python, in some ways.
OVERWRITE = """
import os
kept = KEPT
for act in (
    lambda: open(kept, "w").write("changed"),
    lambda: os.truncate(kept, 0),
    lambda: os.remove(kept),
    lambda: os.rename(kept, "other"),
    lambda: os.replace("own", kept),
):
    try:
        act()
    except PermissionError:
        pass
"""


@pytest.mark.holds("guard", promises.BLOCK)
def test_block(guarded, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("x")
    code = OVERWRITE.replace("KEPT", repr(str(kept)))
    rules, found, ran = guarded(code, {"own": "y"}, write=[tmp_path], block=[kept])
    assert (rules, found) == (["block"] * 5, {"own": "y"}), ran
    assert kept.read_text() == "x"


@pytest.mark.holds("guard", promises.MAX_BYTES)
def test_max_bytes(guarded):
    code = (
        "with open('made', 'w') as file:\n    for _ in range(20):\n        file.write('x' * 9000)"
    )
    rules, found, ran = guarded(code, max_bytes=30_000)
    assert set(rules) == {"max_bytes"} and len(found["made"]) <= 30_000, ran


STARTED = """
import os, subprocess
for act in (
    lambda: subprocess.run(["touch", "one"]),
    lambda: os.system("touch two"),
    lambda: os.execv("/bin/sh", ["sh", "-c", "touch three"]),
    lambda: os.posix_spawn("/bin/sh", ["sh", "-c", "touch four"], {}),
):
    try:
        act()
    except PermissionError:
        pass
subprocess.run(["true"], check=True)
"""
THREAD = """
import threading
try:
    threading.Thread(target=open, args=("made", "w")).start()
except (RuntimeError, PermissionError):
    pass
"""
#: A module that the code wrote itself is not the package that is named.
OWN_NUMPY = "open('numpy.py', 'w').write('import os; os.environ[\"A\"] = \"b\"')\nimport numpy"

#: Promises of the guard, with the fields of a policy, the rule that denies, and code.
HELD = [
    (
        pytest.mark.holds("guard", promises.PROTECT),
        {"protect": ["kept"]},
        "protect",
        OVERWRITE.replace("KEPT", "'kept'"),
    ),
    (pytest.mark.holds("guard", promises.COMMANDS), {"commands": ["true"]}, "commands", STARTED),
    (
        pytest.mark.holds("guard", promises.ENV),
        {"env": ["A"]},
        "env",
        "import os\nos.environ['A'] = os.environ['B'] = 'x'",
    ),
    (
        pytest.mark.holds("guard", promises.IMPORTS),
        {"imports": ["module"]},
        "imports",
        "import module\nimport sqlite3",
    ),
    (
        pytest.mark.holds("guard", promises.IMPORT_ALLOW),
        {"import_allow": ["numpy"]},
        "env",
        OWN_NUMPY,
    ),
    # No rule of a policy is about it.
    (
        pytest.mark.holds("guard", promises.NATIVE),
        {},
        None,
        "import ctypes\nctypes.CDLL(None).truncate(b'kept', 0)",
    ),
    (pytest.mark.holds("guard", promises.THREADS), {"threads": "deny"}, "threads", THREAD),
    (
        pytest.mark.holds("guard", promises.UNKNOWN),
        {"unknown_events": "deny"},
        "unknown_events",
        "import sys; sys.audit('a.b')",
    ),
]


@pytest.mark.parametrize(
    ("fields", "rule", "code"), [pytest.param(*row, marks=mark) for mark, *row in HELD]
)
def test_fields_that_the_guard_holds(guarded, fields, rule, code):
    files = {"kept": "x", "own": "y", "module.py": ""}
    rules, found, ran = guarded(code, files, **{"env": False, **fields})
    assert set(rules) == {rule}, ran
    assert {name: found[name] for name in {*found} - {"numpy.py"}} == files, ran


#: Opens, replaces and removes what the policy blocks, by system calls.
BLOCKED = """
base = sys.argv[1]
def text(path):
    return ctypes.create_string_buffer(os.fsencode(path))
def at(name):
    return text(f"{base}/{name}")
O_PATH, HERE = 0o10000000, -100
def again(descriptor, flags):
    # By another name of what is open without a right to it.
    return descriptor >= 0 and call(2, text(f"/proc/self/fd/{descriptor}"), flags, 0)
def inside(descriptor):
    return descriptor >= 0 and call(257, descriptor, text("key"), 0, 0)
kept, private = at("kept"), at("private")
for flags in (0, 1, 2, 0o1001, 0o101, 0o1102):
    attempt(f"open {flags}", lambda: call(2, kept, flags, 0))
    attempt(f"openat {flags}", lambda: call(257, HERE, kept, flags, 0))
    attempt(f"openat2 {flags}", lambda: call(437, HERE, kept, (ctypes.c_ulong * 3)(flags), 24))
    attempt(f"again {flags}", lambda: again(call(2, kept, O_PATH, 0), flags))
attempt("inside", lambda: inside(call(2, private, O_PATH, 0)))
attempt("below", lambda: call(2, at("private/key"), 0, 0))
attempt("list", lambda: os.listdir(base + "/private"))
attempt("creat", lambda: call(85, kept, 0o600))
attempt("creat below", lambda: call(85, at("private/key"), 0o600))
attempt("truncate", lambda: call(76, kept, 0))
attempt("execve", lambda: call(59, kept, 0, 0))
attempt("link", lambda: call(86, kept, at("linked")))
attempt("linkat", lambda: call(265, HERE, at("private/key"), HERE, at("linked2"), 0))
attempt("link of a link", lambda: call(88, kept, at("soft")) or call(2, at("soft"), 0, 0))
attempt("rename", lambda: call(82, kept, at("moved")))
attempt("rename of the directory", lambda: call(82, private, at("moved2")))
attempt("renameat", lambda: call(264, HERE, at("private/key"), HERE, at("moved3")))
attempt("renameat2", lambda: call(316, HERE, private, HERE, at("moved4"), 0))
attempt("exchange", lambda: call(316, HERE, at("own"), HERE, kept, 2))
attempt("rename onto it", lambda: call(82, at("other"), kept))
attempt("unlink", lambda: call(87, kept))
attempt("unlinkat", lambda: call(263, HERE, at("private/key"), 0))
attempt("rmdir", lambda: call(84, at("empty")))
attempt("mkdir", lambda: call(83, at("private/made"), 0o700))
attempt("symlink", lambda: call(88, kept, at("private/soft")))
attempt("mknod", lambda: call(133, at("private/pipe"), 0o010600, 0))
attempt("chmod", lambda: call(90, kept, 0o777))
attempt("utimensat", lambda: call(280, HERE, kept, 0, 0))
attempt("setxattr", lambda: call(188, kept, text("user.a"), text("b"), 1, 0))
attempt("rename of what is above", lambda: call(82, at("above"), at("beside")))
attempt("below what was above", lambda: call(2, at("beside/kept"), 0, 0))
attempt("metadata below what was above", lambda: call(90, at("beside/kept"), 0o777))
attempt("own", lambda: call(2, at("own"), 2, 0))
"""


@pytest.fixture
def kept(tmp_path):
    """The files that are to be kept, and what tells what has become of them."""
    files = ("kept", "private/key", "above/kept")
    for name in (*files, "own", "other", "empty/.keep"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        path.chmod(0o644)
    (tmp_path / "empty/.keep").unlink()
    yield tmp_path
    if (tmp_path / "beside").exists():
        (tmp_path / "beside").rename(tmp_path / "above")
    for name in files:
        path = tmp_path / name
        assert (path.read_text(), path.stat().st_mode & 0o777) == (name, 0o644)


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.BLOCK)
def test_block_by_system_calls(raw, kept):
    """Files stay as they are and closed, also where a directory above them is moved.

    The names of new ones that are made in a blocked directory are not held.
    """
    blocked = [f"{kept}/{each}" for each in ("kept", "private", "above/kept", "empty")]
    told = raw(BLOCKED, kept, write=[kept], block=blocked).told
    assert {*told} - {"mkdir", "symlink", "mknod", "rename of what is above"} == {"own"}, told


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.BLOCK)
def test_block_where_all_may_be_written(raw, kept):
    code = """
path = ctypes.create_string_buffer(os.fsencode(sys.argv[1] + "/kept"))
attempt("creat", lambda: call(85, path, 0o600))
attempt("open", lambda: call(2, path, 1, 0))
"""
    assert raw(code, kept, write=None, block=[f"{kept}/kept"]).told == []


#: Starts programs and threads by system calls, each of which writes where it may and where not.
STARTS = """
import mmap, time
here, outside = os.getcwd(), sys.argv[1]
texts = []
def text(value):
    texts.append(ctypes.create_string_buffer(value.encode()))
    return ctypes.addressof(texts[-1])
for number, name in ((59, "execve"), (322, "execveat")):
    script = f"echo x > {outside}/{name}; echo x > {here}/{name}"
    line = (ctypes.c_void_p * 4)(text("sh"), text("-c"), text(script), None)
    program = text("/bin/sh")
    if call(57) == 0:
        if number == 59:
            call(59, program, ctypes.addressof(line), 0)
        call(322, -100, program, ctypes.addressof(line), 0, 0)
        os._exit(1)
    os.wait()
area = mmap.mmap(-1, 1 << 15, prot=7)
at = ctypes.addressof(ctypes.c_char.from_buffer(area))
def opens(path):
    # mov edi, path; mov esi, O_CREAT | O_WRONLY; mov edx, 0600; mov eax, 2; syscall
    return (b"\\x48\\xbf" + struct.pack("<Q", text(path)) + b"\\xbe\\x41\\0\\0\\0"
            b"\\xba\\x80\\x01\\0\\0" b"\\xb8\\x02\\0\\0\\0\\x0f\\x05")
code = opens(f"{outside}/thread") + opens(f"{here}/thread")
# mov eax, 34; syscall; jmp back: pause(2) for ever
area.write(code + bytes.fromhex("b8220000000f05ebf7"))
ctypes.c_ulong.from_address(at + (1 << 15) - 64).value = at
assert call(56, 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000, at + (1 << 15) - 64, 0, 0, 0) > 0
time.sleep(0.3)
print(json.dumps(True), flush=True)
os._exit(0)
"""


@pytest.mark.slow
@on_x86_64
@pytest.mark.holds("kernel", promises.STARTED)
def test_what_is_started(raw, tmp_path):
    sandbox = raw(STARTS, tmp_path).sandbox
    assert os.listdir(tmp_path) == []
    assert sandbox.list_files() == ["execve", "execveat", "raw.py", "thread"]


#: All places in which variables can be seen.
LOOK = """
host = int(sys.argv[1])
parent = int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])
seen = [os.fsdecode(name + b"=" + value) for name, value in os.environb.items()]
for process in ("self", os.getppid(), parent, host, 1):
    for name in ("environ", "cmdline", "mem", "maps"):
        try:
            with open(f"/proc/{process}/{name}", "rb") as file:
                seen.append(file.read(1 << 16).decode(errors="replace"))
        except OSError:
            pass
answer = "\\n".join(seen)
"""


@pytest.mark.slow
@pytest.mark.holds("host", promises.HOST_ENV)
@pytest.mark.holds("kernel", promises.HOST_ENV)
def test_variables_of_the_host(raw, monkeypatch):
    """Also by its own files in /proc, which the kernel closes."""
    monkeypatch.setenv("API_KEY", "SECRET")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    seen = raw(LOOK, os.getpid()).told
    assert "LC_TIME=C.UTF-8" in seen and "SECRET" not in seen and "API_KEY" not in seen
    assert not any(f"{name}=" in seen for name in ("USER", "LOGNAME", "SSH_AUTH_SOCK", "OLDPWD"))


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.HOST_ENV)
def test_memory_of_the_host(raw):
    """The host tells where a secret of its own is."""
    code = """
host, place = map(int, sys.argv[1:])
found = ctypes.create_string_buffer(6)
part = (ctypes.c_ulong * 2)(ctypes.addressof(found), 6)
there = (ctypes.c_ulong * 2)(place, 6)
attempt("process_vm_readv", lambda: call(310, host, part, 1, there, 1, 0))
attempt("ptrace", lambda: call(101, 16, host, 0, 0))
attempt("seize", lambda: call(101, 0x4206, host, 0, 0))
def read():
    with open(f"/proc/{host}/mem", "rb", 0) as file:
        return file.seek(place) and file.read(6)
attempt("mem", read)
answer = [passed, found.raw.decode(errors="replace")]
"""
    secret = ctypes.create_string_buffer(b"SECRET")
    passed, found = raw(code, os.getpid(), ctypes.addressof(secret)).told
    assert passed == [] and found != "SECRET"
