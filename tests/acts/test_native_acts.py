"""Native code is judged by what it does to files, on each kind of thread."""

import contextlib
import ctypes
import errno
import os
import tempfile
import threading

import denied_calls
import programs
import pytest

from fastaudit_rs import AuditDenied, Policy

THREADS = ("attached", "released", "native", "native, waited for")

#: The functions that change a file which is there, and those that make an entry.
CHANGE = (
    *("open", "open64", "openat", "creat", "fopen", "fopen to append", "freopen", "unlink"),
    *("unlinkat", "remove", "rename", "renameat", "renameat2", "truncate", "chmod", "fchmodat"),
    *("chown", "lchown", "fchownat", "utime", "utimes", "utimensat", "setxattr", "dlsym"),
    *("syscall open", "syscall unlink", "syscall rename", "syscall renameat", "syscall chmod"),
    *("syscall chown", "syscall setxattr", "syscall chmod with flags", "syscall removexattr"),
)
MAKE = (
    *("open", "open64", "openat", "creat", "fopen", "fopen to append", "freopen", "mkstemp"),
    *("mkostemp", "mkdtemp", "rename here", "link", "linkat", "symlink", "symlinkat", "mkdir"),
    *("mkdirat", "mkfifo", "mknod", "dlsym", "syscall open", "syscall mkdir", "syscall mknod"),
    *("__xmknod", "__xmknodat"),
)


def on_threads(functions):
    """The first function on each kind of thread, and the others on one."""
    first, *others = functions
    return [*((first, thread) for thread in THREADS), *((other, "released") for other in others)]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A root with a file, which is the current directory, and a directory with one beside it."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for directory in (root, outside):
        directory.mkdir()
        (directory / "file").write_text("before")
        os.setxattr(directory / "file", "user.b", b"b")
    monkeypatch.chdir(root)
    return root, outside


def tree(directory):
    return {
        path.relative_to(directory): (path.lstat().st_mode, path.lstat().st_mtime_ns)
        for path in directory.rglob("*")
    }


def guard():
    return Policy(write=["."], native=True, env=True, threads="inherit")


@pytest.mark.parametrize(("function", "thread"), on_threads(CHANGE))
def test_changes(acts, places, function, thread):
    root, outside = places
    before = tree(outside)
    with guard().guard()() as entered:
        error = acts.act(function, outside / "file", outside / "other", thread)
        said = [str(denial) for denial in entered.violations]
    assert (error, tree(outside)) == (errno.EACCES, before)
    assert len(said) == 1 and str(outside / "file") in said[0], said
    with guard().guard()() as entered:
        error = acts.act(function, root / "file", root / "other", thread)
        # fchmodat2 came with Linux 6.6.
        is_missing = error == errno.ENOSYS and function == "syscall chmod with flags"
        assert (error if not is_missing else 0, entered.violations) == (0, [])


@pytest.mark.parametrize(("function", "thread"), on_threads(MAKE))
def test_makes(acts, places, function, thread):
    root, outside = places
    (root / "old").write_text("")
    before = tree(outside)
    with guard().guard()() as entered:
        error = acts.act(function, outside / "new", root / "old", thread)
        said = [str(denial) for denial in entered.violations]
    assert (error, tree(outside)) == (errno.EACCES, before)
    # A link leads to where its text says.
    assert len(said) == 1 and str(outside) in said[0], said
    with guard().guard()() as entered:
        error = acts.act(function, root / "new", root / "old", thread)
        assert (error, entered.violations) == (0, [])


@pytest.mark.alone
def test_reading_needs_a_policy_that_restricts_it(acts, places, thread):
    root, outside = places
    with guard().guard()() as entered:
        assert acts.act("open to read", outside / "file", thread=thread) == 0
        assert entered.violations == []
    policy = Policy(write=[], read=["."], native=True)
    with policy.guard()() as entered:
        assert acts.act("open to read", root / "file", thread=thread) == 0
        assert acts.act("open to read", outside / "file", thread=thread) == errno.EACCES
        [denial] = entered.violations
    assert (denial.rule, denial.path) == ("read", str(outside / "file"))


@pytest.mark.alone
def test_what_describes_the_machine_may_be_read(acts, thread):
    """Libraries ask how many threads they may have, and a denial would be noise."""
    with Policy(write=[], read=[], native=True).guard()() as entered:
        assert acts.act("open to read", "/proc/cpuinfo", thread=thread) == 0
        assert acts.act("open to read", "/sys/fs/cgroup/.", thread=thread) in {0, errno.ENOENT}
        assert entered.violations == []
        assert acts.act("open to read", "/proc/self/environ", thread=thread) == errno.EACCES
        assert acts.act("open to read", "/sys/fs/../../etc/passwd", thread=thread) == errno.EACCES
    with Policy(write=[], block=["/proc/cpuinfo"], native=True).guard()():
        assert acts.act("open to read", "/proc/cpuinfo", thread=thread) == errno.EACCES


def test_what_has_no_effect_fails_as_it_would(acts, places, thread):
    """Libraries remove what may not be there, and make what may be there already."""
    _, outside = places
    with guard().guard()() as entered:
        assert acts.act("unlink", outside / "none", thread=thread) == errno.ENOENT
        assert acts.act("rmdir", outside / "none", thread=thread) == errno.ENOENT
        assert acts.act("rename", outside / "none", outside / "o", thread) == errno.ENOENT
        assert acts.act("mkdir", outside, thread=thread) == errno.EEXIST
        assert entered.violations == []


FILTERED = """
import errno, os, sys
sys.path[:0] = [{directory!r}, {support!r}]
import denied_calls, native_acts
from fastaudit_rs import Policy
os.chdir({root!r})
denied_calls.deny(denied_calls.FACCESSAT2, errno.{error})
with Policy(write=["."], native=True).guard()():
    for function in ("unlink", "rmdir", "rename", "mkdir"):
        print(native_acts.act(function, {outside!r} + "/" + function, {outside!r} + "/other"))
"""


@pytest.mark.parametrize("error", ["EPERM", "ENOSYS"])
def test_where_a_filter_lets_nobody_ask_whether_a_file_is_there(acts, places, error):
    """Filters of containers that are older than the C library."""
    root, outside = places
    for name in ("unlink", "rename"):
        (outside / name).write_text("")
    (outside / "rmdir").mkdir()
    before = tree(outside)
    directory, support = os.path.dirname(acts.__file__), os.path.dirname(denied_calls.__file__)
    given = {"directory": directory, "root": str(root), "outside": str(outside)}
    code = FILTERED.format(**given, support=support, error=error)
    done = programs.ran(code)
    assert (done.stdout, tree(outside)) == (f"{errno.EACCES}\n" * 4, before), done.stderr


def test_a_denial_says_who_asked_and_what_allows_it(acts, places, thread):
    _, outside = places
    target = outside / "file"
    with guard().guard()() as entered:
        acts.act("open", target, thread=thread)
        [denial] = entered.violations
    assert isinstance(denial, AuditDenied)
    assert (denial.event, denial.path, denial.resolved) == ("open", str(target), str(target))
    assert denial.library.endswith(".so") and "native_acts" in denial.library
    assert denial.place.startswith(__file__)
    assert f"To allow it: write = ['.', '{target}']" in str(denial)
    with Policy(write=denial.suggestion["write"], native=True).guard()() as entered:
        assert acts.act("open", target, thread=thread) == 0
        assert entered.violations == []


def test_the_hint_for_a_temporary_file_names_its_directory(acts, places, thread):
    """Its name is another one the next time."""
    _, outside = places
    with guard().guard()() as entered:
        acts.act("mkstemp", outside / "new", thread=thread)
        with contextlib.suppress(AuditDenied):
            tempfile.mkstemp(dir=outside)
        suggested = [denial.suggestion["write"] for denial in entered.violations]
    assert suggested == [[".", str(outside)]] * 2


def test_packages_keep_directories_among_temporary_files(acts, places, thread, monkeypatch):
    """polars copies what it reads over a URL to `polars-…` there, and panics where it may not."""
    _, outside = places
    monkeypatch.setenv("TMPDIR", str(outside))
    kept = outside / "polars-0"
    policy = Policy(write=["."], native=True, packages=["polars"])
    with policy.guard()() as entered:
        assert acts.act("mkdir", kept, thread=thread) == 0
        assert acts.act("open", kept / "new", thread=thread) == 0
        assert acts.act("chmod", kept / "new", thread=thread) == 0
        assert acts.act("utime", kept, thread=thread) == 0
        assert entered.violations == []
    (kept / "out").symlink_to(outside)
    with policy.guard()():
        for elsewhere in (outside / "other-0", kept / ".." / "new", kept / "out" / "new"):
            assert acts.act("mkdir", elsewhere, thread=thread) == errno.EACCES
        for of_python in (outside / "polars-1", kept / "made"):
            with pytest.raises(AuditDenied):
                of_python.mkdir()
    for narrower in (policy.replace(packages=[]), policy.replace(write=[])):
        with narrower.guard()():
            assert acts.act("open", kept / "newer", thread=thread) == errno.EACCES


def test_relative_names_keep_the_directory_that_they_start_from(acts, places, thread):
    root, outside = places
    (root / "deep").mkdir()
    with guard().guard()() as entered:
        acts.act("open", "../outside/new", thread=thread)
        os.chdir("deep")
        [denial] = entered.violations
    assert denial.resolved == str(outside / "new")


@contextlib.contextmanager
def in_another_thread(policy):
    """A guard of the policy is in force in another thread."""
    inside, done = threading.Event(), threading.Event()

    def guarded():
        with policy.guard()():
            inside.set()
            done.wait(60)

    worker = threading.Thread(target=guarded)
    worker.start()
    inside.wait(60)
    try:
        yield
    finally:
        done.set()
        worker.join()


@pytest.mark.alone
def test_threads_without_a_guard_are_not_judged(acts, places):
    _, outside = places
    with in_another_thread(guard()):
        for thread in ("attached", "released"):
            assert acts.act("open", outside / thread, thread=thread) == 0
        # Nobody can tell whose a thread of native code is.
        assert acts.act("open", outside / "native", thread="native") == errno.EACCES
    assert acts.act("open", outside / "native", thread="native") == 0


@pytest.mark.alone
def test_a_native_thread_may_do_what_one_of_the_guards_allows(acts, places):
    root, outside = places
    other = Policy(write=[str(outside)], native=True)
    with in_another_thread(other), guard().guard()():
        assert acts.act("open", outside / "new", thread="native") == 0
        assert acts.act("open", outside / "new", thread="released") == errno.EACCES
        assert acts.act("open", root.parent / "new", thread="native") == errno.EACCES


def test_the_host_is_asked_where_python_can_run(acts, places):
    _, outside = places
    asked = []

    def before_deny(denial, *_):
        asked.append(str(denial))
        return True

    with guard().guard(before_deny=before_deny)() as entered:
        assert acts.act("open", outside / "a", thread="attached") == 0
        assert acts.act("open", outside / "b", thread="released") == errno.EACCES
        assert len(entered.violations) == 1
    assert len(asked) == 1


def test_warnings_let_it_go_on(acts, places, thread):
    _, outside = places
    policy = Policy(write=["."], native=True, on_violation="warn")
    with policy.guard()() as entered:
        with pytest.warns(RuntimeWarning, match="open"):
            assert acts.act("open", outside / "new", thread=thread) == 0
            assert len(entered.violations) == 1
    assert (outside / "new").exists()


@pytest.mark.parametrize(
    ("function", "name", "event"),
    [
        ("open", "new", "open"),
        ("mkdir", "new", "os.mkdir"),
        ("unlink", "file", "os.remove"),
        ("rename", "file", "os.rename"),
    ],
)
def test_it_is_recorded(acts, places, function, name, event, thread):
    """It may be told when it has happened."""
    _, outside = places
    with Policy(write=["."], native=True).observe()() as seen:
        assert acts.act(function, outside / name, outside / "other", thread) == 0
        [effect] = [effect for effect in seen.effects if effect.path == str(outside / name)]
    assert (effect.event, effect.verdict) == (event, "write")


def test_what_is_loaded_under_a_guard_is_judged(make_by_loading, places):
    root, outside = places
    with guard().guard()():
        assert make_by_loading(outside / "new") == errno.EACCES
        assert make_by_loading(root / "new") == 0


def test_what_the_c_library_lacks_stays_missing(loading):
    """Libraries tell so by a weak import whose address is 0: pidfd_spawn() before glibc 2.39."""
    is_there = loading(
        "#include <errno.h>\n"
        "extern int pidfd_spawn(void) __attribute__((weak));\n"
        "int make(const char *path) { return pidfd_spawn ? 0 : (errno = ENOSYS, -1); }\n",
        "-nodefaultlibs",
    )
    expected = 0 if hasattr(ctypes.CDLL(None), "pidfd_spawn") else errno.ENOSYS
    with guard().guard()():
        assert is_there("") == expected


@pytest.mark.alone
def test_unjudged(acts, places, thread):
    _, outside = places
    policy = Policy(write=["."], native="unjudged")
    with policy.guard()() as entered:
        assert acts.act("open", outside / "new", thread=thread) == 0
        assert entered.violations == []
        with pytest.raises(AuditDenied):
            open(outside / "other", "w")
    with policy.observe()():
        assert acts.act("open", outside / "new", thread=thread) == 0


def test_unjudged_is_a_value_of_native():
    policy = Policy(native="unjudged")
    assert policy.native == "unjudged"
    assert 'native = "unjudged"' in policy.to_toml()
    assert Policy.parse_toml(policy.to_toml()) == policy != Policy(native=True)
    assert policy.replace(native=True).native is True
    with pytest.raises((TypeError, ValueError), match="'unjudged'"):
        Policy(native="unjugded")


INSTALLED = """
import os, sys
sys.path.insert(0, {directory!r})
from fastaudit_rs import Policy
import native_acts
os.chdir({root!r})
told = []
policy = Policy(write=["."], native=True, env=True, threads="inherit", import_allow=["*"])
policy.install(on_denied=lambda denial: told.append(denial.path))
for thread in {threads!r}:
    print(native_acts.act("open", {outside!r} + "/new", thread=thread), end=" ")
    print(native_acts.act("open", "inside", thread=thread))
print(len(told))
"""


def test_an_installed_policy_judges_all_threads(acts, places):
    root, outside = places
    directory = os.path.dirname(acts.__file__)
    given = {"directory": directory, "root": str(root), "outside": str(outside)}
    # What is refused on a thread without Python is told when some thread gets the lock again.
    code = INSTALLED.format(**given, threads=THREADS[::-1])
    done = programs.ran(code)
    assert done.stdout == f"{errno.EACCES} 0\n" * 4 + "4\n", done.stderr
