"""`tempfile` under guards: each has a directory of its own, and denials come out as such."""

import os
import shutil
import subprocess
import textwrap

import programs
import pytest

BEGIN = """
import asyncio, contextlib, gc, os, stat, subprocess, sys, threading
from fastaudit_rs import AuditDenied, Policy, mk_audit, v02
HOST, WORK = os.environ["TMPDIR"], os.getcwd()

def is_own(place):
    return os.path.dirname(place) == HOST and os.path.basename(place).startswith("fastaudit_")

def denied(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except AuditDenied as error:
        return error
    raise AssertionError("it was not denied")
"""

#: All that `tempfile` makes; the directory that it makes it in.
EVERYTHING = """
def everything():
    import tempfile
    with tempfile.TemporaryDirectory() as place:
        os.makedirs(place + "/a/b")
        with open(place + "/a/b/c", "w") as file:
            file.write("c")
        assert os.listdir(place) == ["a"]
        assert open(place + "/a/b/c").read() == "c"
    assert not os.path.exists(place)
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
        file.flush()
        assert open(file.name, "rb").read() == b"x"
    with tempfile.SpooledTemporaryFile(max_size=1) as file:
        file.write(b"xx")
    fd, name = tempfile.mkstemp(b".txt")
    os.close(fd)
    assert isinstance(name, bytes)
    os.rename(name, name + b"2")
    made = tempfile.mkdtemp()
    with tempfile.TemporaryDirectory(dir=made) as inner:
        assert os.path.dirname(inner) == made
    assert os.path.dirname(made) == tempfile.gettempdir() == os.fsdecode(tempfile.gettempdirb())
    return tempfile.gettempdir()
"""

GUARDS = {
    "mk_audit": "mk_audit(['.'])",
    "v02": "v02.mk_audit(['.'])",
    "policy": "Policy(write=['.']).guard()",
    "reading": "Policy(write=['.'], read=['/etc']).guard()",
    "blocking": "Policy(write=['.'], block=['/srv']).guard()",
    "importing": "Policy(write=['.'], imports={'allow': ['tempfile']}).guard()",
    "workspace": "Policy.preset('workspace').guard()",
    "notebook": "Policy.preset('notebook').guard()",
    "enforcing": "Policy(write=['.']).observe(enforce=True)",
    "learning": "Policy().observe()",
}

#: The host's knowledge of temporary files before, and the value of `tempfile.tempdir` then.
KNOWN = {
    "nothing": ("", "None"),
    "the module": ("import tempfile", "None"),
    "the directory": ("import tempfile; tempfile.gettempdir()", "HOST"),
}


@pytest.fixture
def run(tmp_path):
    """`run(program, *arguments)`: what it prints, with `host` for temporary files, in `work`."""
    for name in ("host", "work", "out"):
        (tmp_path / name).mkdir()

    def run(program, *arguments, error=""):
        code = BEGIN + EVERYTHING + textwrap.dedent(program)
        environment = {**os.environ, "TMPDIR": str(tmp_path / "host")}
        done = programs.python(
            "-B", *(arguments or ("-c", code)), cwd=tmp_path / "work", env=environment
        )
        assert done.returncode == 0, done.stderr
        if error:
            assert error in done.stderr
        else:
            assert done.stderr == ""
        left = [name for name in os.listdir(tmp_path / "host") if not name.startswith("kept")]
        assert left == []
        assert os.listdir(tmp_path / "work") == []
        return done.stdout

    run.base = tmp_path
    yield run
    # The files that a failed test leaves may be deeper than pytest can remove before 3.13, which
    # then ends in a RecursionError in place of its report, here and in each later run.
    subprocess.run(["rm", "-rf", *(tmp_path / name for name in ("host", "work", "out"))])


class TestEachGuardThatMayWrite:
    @pytest.mark.parametrize("known", KNOWN)
    @pytest.mark.parametrize("name", GUARDS)
    def test_has_a_directory_of_its_own(self, name, known, run):
        before, tempdir = KNOWN[known]
        run(f"""
        {before}
        with {GUARDS[name]}() as guard:
            assert is_own(everything())
        assert [str(denied) for denied in getattr(guard, "violations", ())] == []
        import tempfile
        assert tempfile.tempdir == {tempdir}
        assert tempfile.gettempdir() == HOST
        """)

    def test_has_it_in_that_of_the_installed_policy(self, run):
        used = run("""
        Policy(write=["."], read=["/etc"]).install()
        assert is_own(everything())
        audit_perms = mk_audit(["."], monitor_calls=False)
        with audit_perms() as guard:
            print(os.path.relpath(everything(), HOST))
        assert guard.violations == []
        """)
        assert used.count("fastaudit_") == 2

    def test_has_it_under_the_command(self, run):
        program = run.base / "program.py"
        program.write_text(f"import os\n{EVERYTHING}\nprint(everything())\n")
        used = run("", "-m", "fastaudit_rs", "run", "--write", ".", str(program))
        assert os.path.dirname(used.strip()) == str(run.base / "host")

    def test_has_it_where_the_module_is_imported_again(self, run):
        run("""
        import tempfile
        audit_perms = mk_audit(["."], monitor_calls=False)
        with audit_perms():
            place = tempfile.gettempdir()
        del sys.modules["tempfile"]
        with audit_perms():
            import tempfile
            assert is_own(place) and tempfile.gettempdir() == place
        """)

    def test_has_it_where_another_thread_imports_the_module(self, run):
        run("""
        started, done = threading.Event(), threading.Event()
        def work():
            started.wait()
            import tempfile
            done.set()
        thread = threading.Thread(target=work)
        thread.start()
        with mk_audit(["."], monitor_calls=False)():
            started.set()
            done.wait()
            import tempfile
            assert is_own(tempfile.gettempdir())
        thread.join()
        """)

    def test_has_it_in_tasks_and_nested_guards(self, run):
        run("""
        import tempfile
        one, other = (mk_audit(["."], monitor_calls=False) for _ in range(2))
        async def task():
            with tempfile.TemporaryDirectory() as place:
                await asyncio.sleep(0)
                return os.path.dirname(place)
        async def main():
            with one():
                inside = [asyncio.create_task(task()) for _ in range(2)]
            outside = asyncio.create_task(task())
            with other():
                another = asyncio.create_task(task())
            return await asyncio.gather(*inside, outside, another)
        first, second, outside, another = asyncio.run(main())
        assert is_own(first) and second == first
        assert outside == HOST
        assert is_own(another) and another != first
        with one(), one() as inner:
            assert everything() == first
        assert inner.violations == []
        """)

    def test_shares_it_with_no_other_thread(self, run):
        run("""
        import tempfile
        inside, outside = threading.Barrier(2), []
        def host():
            inside.wait()
            outside.append(tempfile.mkdtemp())
            inside.wait()
        thread = threading.Thread(target=host)
        thread.start()
        with mk_audit(["."], monitor_calls=False)():
            assert is_own(tempfile.gettempdir())
            inside.wait()
            inside.wait()
            own = tempfile.gettempdir()
            denied(os.mkdir, outside[0] + "/a")
        thread.join()
        assert os.path.dirname(outside[0]) == HOST != own
        os.rmdir(outside[0])
        """)


class TestTheHostsDirectory:
    def test_is_used_where_the_guard_may_write_there(self, run):
        run("""
        import tempfile
        for make in (lambda: mk_audit([HOST], monitor_calls=False),
                     lambda: Policy(write=[HOST], read=["/etc"]).guard(monitor_calls=False),
                     lambda: Policy(write=None).guard(monitor_calls=False)):
            with make()() as guard, tempfile.TemporaryDirectory() as place:
                assert os.path.dirname(place) == HOST
                open(place + "/a", "w").close()
            assert guard.violations == [] and tempfile.tempdir is None
        """)

    def test_is_what_the_guarded_code_sets(self, run):
        run("""
        import tempfile
        with mk_audit(["."], monitor_calls=False)():
            tempfile.tempdir = WORK
            with tempfile.TemporaryDirectory() as place:
                assert os.path.dirname(place) == WORK
        """)

    def test_is_told_where_nothing_may_be_written_and_nothing_is_tried(self, run):
        run("""
        for make in (lambda: mk_audit([], monitor_calls=False),
                     lambda: v02.mk_audit([], monitor_calls=False),
                     lambda: Policy().guard(monitor_calls=False)):
            with make()() as guard:
                import tempfile
                assert tempfile.gettempdir() == HOST
                assert guard.violations == []
                for name in ("mkdtemp", "mkstemp", "TemporaryDirectory"):
                    error = denied(getattr(tempfile, name))
                    made = "mkstemp" if name == "mkstemp" else "mkdtemp"
                    assert error.event == f"tempfile.{made}"
                    assert os.path.dirname(error.path) == HOST, error.path
                assert denied(tempfile.TemporaryFile).path == HOST
                assert denied(tempfile.NamedTemporaryFile).path == HOST
            assert tempfile.tempdir is None
        assert tempfile.gettempdir() == HOST
        """)

    def test_is_passed_over_where_it_is_blocked(self, run):
        run("""
        import tempfile
        os.mkdir(WORK + "/temp")
        os.environ["TMP"] = WORK + "/temp"
        with Policy(write=["."], block=[HOST]).guard(monitor_calls=False)() as guard:
            assert os.path.dirname(everything()) == WORK + "/temp"
        assert guard.violations == []
        del guard
        os.rmdir(WORK + "/temp")
        """)


class TestDenials:
    """The handling of `PermissionError` by `tempfile` and `shutil` hides no denial."""

    def test_a_directory_that_may_be_written_and_not_read(self, run):
        # The cleanup of 3.10 to 3.12 tries again for ever where it may not read.
        run("""
        import tempfile
        outside = HOST + "/kept"
        os.mkdir(outside)
        try:
            with Policy(write=None, read=["/etc"]).guard(monitor_calls=False)():
                with tempfile.TemporaryDirectory(dir=outside):
                    pass
        except AuditDenied as error:
            assert error.event == "shutil.rmtree" and error.rule == "read", error
        else:
            raise AssertionError
        """)

    def test_the_cleanup_of_a_directory_of_the_host(self, run):
        run("""
        import tempfile
        for make in (lambda: mk_audit(["."], monitor_calls=False),
                     lambda: v02.mk_audit(["."], monitor_calls=False),
                     lambda: Policy(write=["."], read=["/etc"]).guard(monitor_calls=False)):
            place = tempfile.TemporaryDirectory()
            with make()():
                assert denied(place.cleanup).event == "shutil.rmtree"
            place.cleanup()
        """)

    def test_what_is_blocked_in_a_directory_that_is_cleaned_up(self, run):
        run("""
        import tempfile
        with tempfile.TemporaryDirectory() as host:
            blocked = host + "/a/keys"
            place = tempfile.TemporaryDirectory(dir=host)
            os.makedirs(place.name + "/a/keys/b")
            blocked = place.name + "/a/keys"
            with Policy(write=[host], block=[blocked]).guard(monitor_calls=False)():
                error = denied(place.cleanup)
                assert error.rule == "block" and "keys" in error.path, error
        """)

    def test_protected_names_in_it_can_be_removed_alone(self, run):
        run("""
        import shutil, subprocess, tempfile
        with Policy.preset("workspace").replace(commands=True).guard(monitor_calls=False)():
            with tempfile.TemporaryDirectory() as made:
                hooks = made + "/a/.git/hooks"
                subprocess.run(["mkdir", "-p", hooks], check=True)
                subprocess.run(["touch", hooks + "/b"], check=True)
                assert denied(open, hooks + "/a", "w").rule == "protect"
                assert denied(os.rename, hooks, WORK + "/hooks").rule == "protect"
                os.remove(hooks + "/b")
                os.rmdir(hooks)
                subprocess.run(["mkdir", "-p", hooks + "/c", WORK + "/.git/hooks"], check=True)
                os.symlink(WORK, made + "/work")
                assert denied(os.rmdir, made + "/work/.git/hooks").rule == "protect"
            assert not os.path.exists(made)
            assert denied(shutil.rmtree, WORK + "/.git/hooks").rule == "protect"
        shutil.rmtree(WORK + "/.git")
        """)

    def test_names_for_unnamed_files(self, run):
        # An unnamed file gets a name by `os.link`, which is an event of its own.
        run("""
        import tempfile
        out = os.path.dirname(HOST) + "/out"
        with Policy(write=["."]).guard(monitor_calls=False)():
            file = tempfile.TemporaryFile(dir=".")
            for target in (out + "/a", WORK + "/a"):
                denied(os.link, f"/proc/self/fd/{file.fileno()}", target, follow_symlinks=True)
        assert os.listdir(out) == []
        """)


class TestItsEnd:
    def test_comes_with_the_object_that_makes_the_guards(self, run):
        run("""
        audit_perms = mk_audit(["."], monitor_calls=False)
        with audit_perms():
            import tempfile
            place = tempfile.mkdtemp()
        with audit_perms():
            assert os.path.isdir(place) and is_own(os.path.dirname(place))
            open(place + "/a", "w").close()
        audit_perms.set_data(1)
        with audit_perms():
            open(place + "/b", "w").close()
        assert stat.S_IMODE(os.stat(os.path.dirname(place)).st_mode) == 0o700
        del audit_perms
        assert not os.path.exists(os.path.dirname(place))
        """)

    def test_comes_with_the_process(self, run):
        run("""
        import atexit
        audit_perms = mk_audit(["."], monitor_calls=False)
        sys.audit_perms = audit_perms
        with audit_perms():
            import tempfile
            place = tempfile.mkdtemp()
            atexit.register(lambda: open(place + "/late", "w").close())
            kept = tempfile.TemporaryDirectory()
        """)

    @pytest.mark.slow
    def test_spares_nothing_and_follows_nothing(self, run):
        made = run("""
        import tempfile
        # Modes mean nothing to root, and others see nothing of the directories of these tests.
        HOST = os.environ["TMPDIR"] = tempfile.mkdtemp(dir="/tmp")
        os.makedirs(HOST + "/kept/work")
        open(HOST + "/kept/a", "w").close()
        os.chdir(HOST + "/kept/work")
        mk_audit([], monitor_calls=False)
        if os.getuid() == 0:
            os.chown(HOST, 65534, 65534)
            os.setuid(65534)
        audit_perms = mk_audit(["."], monitor_calls=False)
        with audit_perms():
            import tempfile
            place = tempfile.mkdtemp()
            os.makedirs(place + "/a/b/c")
            open(place + "/a/b/c/d", "w").close()
            os.mkfifo(place + "/fifo")
            for path in ("/a/b/c", "/a/b", "/a", ""):
                os.chmod(place + path, 0)
            place = tempfile.mkdtemp()
            with contextlib.suppress(AuditDenied):
                os.symlink(HOST + "/kept", place + "/link")
            with open(place + "/" + "n" * 255, "w"), open(place + "/\\\\n", "w"):
                pass
            place = tempfile.mkdtemp()
        fd = os.open(place, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("d", dir_fd=fd)
            inner = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(fd)
        del audit_perms
        assert os.listdir(HOST) == ["kept"], os.listdir(HOST)
        assert sorted(os.listdir(HOST + "/kept")) == ["a", "work"]
        print(HOST)
        """)
        shutil.rmtree(made.strip())

    def test_does_not_follow_links_of_the_host(self, run):
        run("""
        os.mkdir(HOST + "/kept")
        open(HOST + "/kept/a", "w").close()
        audit_perms = mk_audit(["."], monitor_calls=False)
        with audit_perms():
            import tempfile
            place = tempfile.mkdtemp()
        os.symlink(HOST + "/kept", place + "/link")
        os.symlink(HOST + "/kept", os.path.dirname(place) + "/link")
        del audit_perms
        assert os.listdir(HOST) == ["kept"] and os.listdir(HOST + "/kept") == ["a"]
        """)

    def test_is_the_parents_where_the_process_is_copied(self, run):
        run("""
        import tempfile
        audit_perms = Policy(write=["."]).guard(monitor_calls=False)
        with audit_perms():
            for _ in range(2):
                child = os.fork()
                if not child:
                    place = tempfile.mkdtemp()
                    os.mkdir(place + "/made")
                    del audit_perms
                    gc.collect()
                    sys.stdout.flush()
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            own = tempfile.gettempdir()
            assert len(os.listdir(own)) == 2
        assert os.listdir(HOST) == [os.path.basename(own)]
        """)

    def test_is_none_where_somebody_else_removes_it(self, run):
        run("""
        import shutil, tempfile
        audit_perms = Policy(write=["."]).guard(monitor_calls=False)
        with audit_perms():
            place = tempfile.gettempdir()
            denied(shutil.rmtree, place)
        os.rmdir(place)
        with audit_perms():
            assert everything() == place
        shutil.rmtree(place)
        os.mkdir(HOST + "/kept")
        os.symlink(HOST + "/kept", place)
        with audit_perms() as guard:
            assert everything() != place
        assert guard.violations == [] and os.listdir(HOST + "/kept") == []
        os.unlink(place)
        """)

    def test_a_directory_of_the_host_that_is_collected_under_a_guard(self, run):
        run(
            """
        import tempfile
        place = tempfile.TemporaryDirectory()
        name = place.name
        with mk_audit(["."], monitor_calls=False)() as guard:
            del place
            gc.collect()
        # Then the hook that is told of what goes wrong in a finalizer.
        events = [denied.event for denied in guard.violations]
        assert events == ["shutil.rmtree", "sys.unraisablehook"], events
        os.rmdir(name)
        """,
            error="shutil.rmtree",
        )


class TestTheModule:
    def test_is_as_before_without_a_guard(self, run):
        run("""
        import inspect, tempfile
        function = tempfile._gettempdir
        before = (id(function), repr(function), str(inspect.signature(function)),
                  function.__code__.co_filename, function.__code__.co_firstlineno, function.__doc__)
        names = set(vars(tempfile))
        audit_perms = mk_audit(["."], monitor_calls=False)
        with audit_perms():
            everything()
        function = tempfile._gettempdir
        assert set(vars(tempfile)) == names
        assert before[:-1] == (
            id(function), repr(function), str(inspect.signature(function)),
            function.__code__.co_filename, function.__code__.co_firstlineno)
        tempfile.tempdir = WORK
        assert tempfile.gettempdir() == WORK
        tempfile.tempdir = None
        assert tempfile.gettempdir() == HOST == tempfile.tempdir
        """)

    def test_gives_no_rights_away(self, run):
        run("""
        import tempfile
        with mk_audit(["."], monitor_calls=False)():
            place = tempfile.gettempdir()
            found = [one for one in tempfile._gettempdir.__code__.co_consts if callable(one)]
            for one in found:
                with contextlib.suppress(Exception):
                    one()
                for name in dir(one):
                    if not name.startswith("__"):
                        raise AssertionError(name)
            error = denied(setattr, tempfile._gettempdir, "__code__", (lambda: "/").__code__)
            assert error.event == "object.__setattr__"
            denied(os.rename, place, HOST + "/other")
            denied(os.symlink, HOST, place + "/link")
            denied(open, HOST + "/a", "w")
            denied(open, place + "x", "w")
            denied(open, place + "/../a", "w")
        """)


class TestSharing:
    """Guards that share one directory, and have it where the kernel looks too."""

    def test_calls_that_the_kernel_confines(self, run):
        run("""
        for policy in (Policy(write=["."]), Policy(write=["."], read=["/etc"])):
            try:
                used = policy.call(everything)
            except OSError as error:
                if "cannot be confined" not in str(error):
                    raise
                continue
            assert is_own(used), used
            def step(place=None):
                import tempfile
                if place is None:
                    with tempfile.NamedTemporaryFile("w", delete=False) as file:
                        file.write("x")
                    return file.name
                return open(place).read()
            assert policy.call(step, policy.call(step)) == "x"
            def write_and_read():
                with open("a", "w") as file:
                    file.write("a")
                try:
                    return open("a").read()
                finally:
                    os.remove("a")
            assert policy.call(write_and_read) == "a"
        """)

    def test_cells_of_a_notebook(self, run):
        pytest.importorskip("IPython")
        run("""
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "fastaudit_rs")
        def cell(text):
            result = shell.run_cell(text, store_history=False)
            result.raise_error()
        cell("%%audit --write .\\nimport tempfile; place = tempfile.mkdtemp()")
        cell("%%audit --write . --env A\\nopen(place + '/a', 'w').close()")
        cell("%%audit --write . --read /etc\\nassert not open(place + '/a').read()")
        cell("%audit on --write .")
        cell("assert tempfile.gettempdir() + '/' in place; import os; os.remove(place + '/a')")
        cell("%audit off")
        assert is_own(os.path.dirname(shell.user_ns["place"]))
        """)


class TestSharedValues:
    """`multiprocessing.Value` and `Array`, whose memory is a file without a name."""

    @pytest.mark.parametrize("name", [name for name in GUARDS if name != "importing"])
    def test_are_made(self, name, run):
        run(f"""
        import ctypes
        with {GUARDS[name]}() as guard:
            import multiprocessing
            mp = multiprocessing.get_context("fork")
            value, array, raw = mp.Value("i", 3), mp.Array("d", [1, 2]), mp.RawArray("c", b"ab")
            value.value += 1
            array[0] = 5
            assert value.value == 4 and array[:] == [5, 2] and raw.value == b"ab"
        assert [str(denied) for denied in getattr(guard, "violations", ())] == []
        """)

    def test_are_nothing_that_guarded_code_may_do_itself(self, run):
        run("""
        import ctypes, mmap, multiprocessing.heap, multiprocessing.sharedctypes, tempfile
        kept = tempfile.NamedTemporaryFile(prefix="pym-", dir="/dev/shm")
        with Policy(write=["."], native=True).guard(monitor_calls=False)():
            denied(tempfile.mkstemp, prefix="pym-", dir="/dev/shm")
            denied(open, "/dev/shm/pym-a", "w")
            denied(os.remove, kept.name)
            memory = mmap.mmap(-1, 4096)
            denied(ctypes.c_int.from_buffer, memory)
            denied(ctypes.addressof, ctypes.c_int())
            class Heap(multiprocessing.heap.Arena):
                _dir_candidates = [HOST]
            denied(Heap, 4096)
            class Type:
                def from_buffer(self, memory):
                    ctypes.addressof(ctypes.c_int())
            memory = multiprocessing.heap.BufferWrapper(8)
            denied(multiprocessing.sharedctypes.rebuild_ctype, Type(), memory, None)
        """)


class TestLearning:
    def test_what_a_recording_tells(self, run):
        run("""
        with Policy().observe(monitor_calls=False)() as recording:
            everything()
        writes = [done for done in recording.effects if done.effect == "write"]
        assert writes and all(done.path.startswith(HOST + "/fastaudit_") for done in writes)
        assert {done.verdict for done in writes} == {"write"}
        with Policy(write=["."]).observe(monitor_calls=False)() as recording:
            everything()
        assert {done.verdict for done in recording.effects} == {"allowed"}
        assert recording.suggest().write == (HOST,)
        """)
