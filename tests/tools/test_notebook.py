"""The magics `%audit` and `%%audit`, in a real kernel and in IPython in a terminal."""

import importlib.util
import os
import sqlite3
import time
from pathlib import Path

import kernels
import programs
import pytest
from kernels import ANSI
from repository import ROOT

from fastaudit_rs import AuditDenied, Policy

FINAL = "This is a decision of policy: the same operation will be denied again."


@pytest.fixture
def run(shared_kernel, tmp_path):
    """`run(cell)`: what it gave; the current directory is `tmp_path`."""
    shared_kernel(f"import os; os.chdir({str(tmp_path)!r})")
    shared_kernel("%load_ext fastaudit_rs")
    yield shared_kernel
    shared_kernel("%audit off")
    shared_kernel("%xmode Context")


class TestCell:
    @pytest.mark.slow
    def test_a_denial_is_short(self, run, tmp_path):
        ran = run("%%audit\nx = 1\nopen('out.txt', 'w')\nprint('not reached')")
        assert ran.error.splitlines()[1].strip().startswith("Cell In[")
        assert ran.error.splitlines()[1].endswith(", line 3")
        assert ran.error.splitlines()[:1] + ran.error.splitlines()[2:] == [
            "AuditDenied: Denied: open the file 'out.txt' for writing: nothing may be written",
            "    open('out.txt', 'w')",
            f"To allow it: %%audit --write {tmp_path}/out.txt",
            FINAL,
        ]
        assert (ran.status, ran.out, ran.err) == ("error", "", "")
        assert not (tmp_path / "out.txt").exists()
        assert run("x").value == "1"

    def test_only_this_cell(self, run, tmp_path):
        assert run("%%audit\n1").value == "1"
        assert run("open('out.txt', 'w').close()").status == "ok"
        assert (tmp_path / "out.txt").exists()

    def test_in_code_that_it_calls(self, run, tmp_path):
        run("import os\ndef save():\n    os.mkdir('/srv/data')")
        ran = run("%%audit\n\nsave()")
        lines = ran.error.splitlines()
        assert (
            lines[0]
            == "AuditDenied: Denied: make the directory '/srv/data': nothing may be written"
        )
        assert lines[1].endswith(", line 3, in save")
        assert lines[2] == "    os.mkdir('/srv/data')"
        assert len(lines) == 5

    def test_a_task_that_is_denied_after_its_cell(self, run):
        """It is told below the cell that started it."""
        code = """%%audit
import asyncio
async def later():
    await asyncio.sleep(0.1)
    open('/srv/x', 'w')
task = asyncio.create_task(later())
"""
        request = run.client.execute(code)
        assert run.finish(request).status == "ok"
        told = run.wait_for_output(request)
        assert told.startswith("denied: open /srv/x, at Cell In[")
        assert told.endswith(", line 5; to allow it: %%audit --write /srv/x\n")
        run("await asyncio.wait([task]); task.exception()")

    def test_a_traceback_shows_its_line_as_it_was_written(self, run):
        ran = run("%%audit --write out\n1 / 0")
        assert "1 %%audit --write out\n" in ran.error and "run_line_magic" not in ran.error

    def test_a_place_that_is_not_there(self, run, tmp_path):
        ran = run("%%audit --write none/a\n1")
        assert ran.err == f"%%audit: write: there is no '{tmp_path}/none/a'\n"

    def test_names_in_its_line(self, run, tmp_path):
        """They stand for texts and paths of the notebook; nothing is evaluated."""
        run("from pathlib import Path\nPLACE, OTHER = 'made', Path('other')\nPLACES = []")
        ran = run("%%audit --write {PLACE} --write $OTHER\nimport os\nos.mkdir('made')")
        assert ran.status == "ok" and (tmp_path / "made").is_dir()
        for name in ("{NONE}", "$NO_SUCH", "{PLACES}"):
            ran = run(f"%%audit --write {name}\nos.mkdir('b')")
            assert f"{name}: there is no text or path of this name" in ran.err
        assert not (tmp_path / "b").exists()

    def test_all_frames_where_they_are_asked_for(self, run):
        run("%xmode Verbose")
        ran = run("%%audit\nimport shutil\nshutil.copyfile('/etc/hosts', '/srv/hosts')")
        assert "Traceback (most recent call last)" in ran.error
        assert "shutil.py" in ran.error
        assert "notebook.py" not in ran.error

    def test_other_exceptions_are_shown_as_ever(self, run):
        run("def divide():\n    return 1 / 0")
        bare = run("# bare\ndivide()")
        guarded = run("%%audit\ndivide()")
        assert "ZeroDivisionError: division by zero" in guarded.error
        assert "hidden" not in guarded.error and "notebook.py" not in guarded.error
        places = [
            [row.split(", ", 1)[1] for row in ran.error.splitlines() if row.startswith("Cell")]
            for ran in (bare, guarded)
        ]
        assert places == [["line 2", "line 2, in divide()"]] * 2

    def test_relative_directories_stay(self, run, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        ran = run("%%audit --write a\nimport os\nos.chdir('a')\nopen('x', 'w').close()")
        assert ran.status == "ok"
        ran = run("%%audit --write . --read /\nos.chdir('..')\nos.chdir('b')\nopen('x', 'w')")
        assert ran.error.startswith(
            (
                "AuditDenied: Denied: open the file 'x'",
                "AuditDenied: Denied: change to the directory",
            )
        )

    def test_statements_of_a_cell_share_what_they_looked_up(self, run):
        """IPython runs each statement of its own."""
        ran = run(
            "%%audit --net localhost\nimport socket\n"
            "address = socket.gethostbyname('localhost')\n"
            "try:\n    socket.create_connection((address, 9))\nexcept ConnectionRefusedError:\n"
            "    print('reached')"
        )
        assert ran.out == "reached\n"

    @pytest.mark.parametrize(
        ("cell", "says"),
        [
            ("%%audit --bad\n{}", "unrecognized arguments: --bad"),
            ("%%audit --write\n{}", "argument --write: expected one argument"),
            ("%%audit --write 'a\n{}", "%%audit: No closing quotation"),
            ("%%audit --policy none.toml\n{}", "%%audit: [Errno 2] No such file"),
            ("%%audit --net a/b/c\n{}", "%%audit: "),
            ("%%audit", "%%audit guards the cell below it, which is empty"),
            ("%%time\n%%audit\n{}", "%%audit has to be the first line of a cell"),
            ("x = 1\nget_ipython().run_cell_magic('audit', '', '1')\n{}", "%%audit has to be"),
            ("%audit maybe", "%audit takes 'on', 'off' or nothing; %%audit guards a cell"),
            ("%audit off now", "%audit takes 'on', 'off' or nothing"),
            ("%audit on --bad", "unrecognized arguments: --bad"),
        ],
    )
    def test_mistakes_run_nothing(self, run, tmp_path, cell, says):
        ran = run(cell.format("open('out.txt', 'w').close()"))
        assert ran.err.startswith("UsageError: ") and says in ran.err
        # The magic `%%time` of older versions shows exceptions itself.
        assert ran.error == "" and (ran.status == "error" or "%%time" in cell)
        assert list(tmp_path.iterdir()) == []


WRAPPED = {
    "urllib": (
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9')",
        "URLError from AuditDenied: Denied: connect to the address",
        "--net 127.0.0.1:9",
    ),
    "a direct one": (
        "import zipfile\nzipfile.ZipFile('/srv/a.zip', 'w')",
        "AuditDenied: Denied: open the file '/srv/a.zip' for writing: nothing may be written",
        "--write /srv/a.zip",
    ),
}


class TestWrapped:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", WRAPPED)
    def test_it_is_as_short_as_a_direct_one(self, run, name):
        code, first, option = WRAPPED[name]
        lines = run(f"%%audit\n{code}").error.splitlines()
        assert lines[0].startswith(first)
        assert lines[1].endswith(", line 3")
        assert lines[2:] == [
            f"    {code.splitlines()[1]}", f"To allow it: %%audit {option}", FINAL,
        ]  # fmt: skip

    def test_a_message_of_its_own_stays(self, run, tmp_path):
        (tmp_path / "wrapping.py").write_text(
            "def save():\n    try:\n        open('/srv/x', 'w')\n    except OSError as error:\n"
            "        raise_it(error)\n"
        )
        run(
            "import sys, types\nlibrary = types.ModuleType('library')\n"
            "exec(compile('def fail(error):\\n    raise RuntimeError(\"no cache\") from error',"
            " '/x/site-packages/library.py', 'exec'), vars(library))\n"
            f"sys.path.insert(0, {str(tmp_path)!r})\nimport wrapping\n"
            "wrapping.raise_it = library.fail"
        )
        lines = run("%%audit\nwrapping.save()").error.splitlines()
        assert lines[:2] == [
            "RuntimeError: no cache",
            "from AuditDenied: Denied: open the file '/srv/x' for writing: nothing may be written",
        ]
        assert lines[4:] == ["To allow it: %%audit --write /srv/x", FINAL]

    def test_an_error_of_the_users_has_its_frames(self, run):
        ran = run("%%audit\ntry:\n    open('x', 'w')\nexcept OSError:\n    1 / 0")
        assert "Traceback (most recent call last)" in ran.error
        assert ran.error.endswith("ZeroDivisionError: division by zero")
        assert ran.err == ""


class TestSwallowed:
    SWALLOWING = "try:\n    open('/srv/{}', 'w')\nexcept OSError:\n    pass\n"

    def test_it_is_told_at_the_end(self, run):
        for start in ("%%audit", "%audit on"):
            code = self.SWALLOWING.format("x")
            if start == "%audit on":
                run(start)
                ran = run(code)
            else:
                ran = run(f"{start}\n{code}")
            number = 2 if start == "%audit on" else 3
            assert ran.status == "ok"
            assert ran.err.startswith("denied: open /srv/x, at Cell In[")
            assert ran.err.endswith(f"], line {number}; to allow it: {start} --write /srv/x\n"), (
                ran.err
            )

    def test_beside_an_error(self, run):
        ran = run("%%audit\n" + self.SWALLOWING.format("x") + "open('/srv/y', 'w')")
        assert ran.error.startswith("AuditDenied: Denied: open the file '/srv/y'")
        assert ran.err.count("denied: ") == 1 and "open /srv/x, " in ran.err

    def test_no_more_than_three(self, run):
        ran = run("%%audit\n" + "".join(self.SWALLOWING.format(name) for name in "abcde"))
        lines = ran.err.splitlines()
        assert [line.split(",")[0] for line in lines[:3]] == [
            f"denied: open /srv/{name}" for name in "abc"
        ]
        assert lines[3:] == ["and 2 more; %audit shows them"]
        told = run("%audit").out.splitlines()
        assert told[:2] == ["off", "5 operations denied in the last guarded cell"]
        assert len(told) == 7

    def test_nothing_was(self, run):
        assert run("%%audit\n1").err == ""
        assert run("%audit").out == "off\n"


class TestOptions:
    @pytest.mark.parametrize("cell", ["%%audit --help", "%%audit -h\nprint('ran')\nprint('ran')"])
    def test_help_runs_nothing(self, run, cell):
        for _ in range(2):
            ran = run(cell)
            assert (ran.status, ran.err) == ("ok", "")
            assert ran.out.startswith("usage: %%audit [--write DIR]")
            assert ran.out.count("usage: ") == 1 and "ran\n" not in ran.out
            assert "a directory that may be written" in ran.out
            run("%audit on")

    @pytest.mark.parametrize("line", ["%audit --help", "%audit on --help", "%audit -h"])
    def test_help_of_the_line(self, run, line):
        assert run(line).out.startswith("usage: %audit on [--write DIR]")
        assert run("%audit").out == "off\n"

    @pytest.mark.parametrize(
        ("line", "near"),
        [
            ("%%audit --wirte x\n1", "--write"),
            ("%audit on --record --polcy x", "--policy"),
            ("%audit on --network x", "--net"),
            ("%%audit --nonsense x\n1", None),
            ("%%audit --writ x\n1", "--write"),
        ],
    )
    def test_typos(self, run, line, near):
        ran = run(line)
        first, usage, *_ = ran.err.splitlines()
        assert first.startswith("UsageError: unrecognized arguments: --")
        assert first.endswith(f"(did you mean {near}?)") == (near is not None)
        assert usage.startswith(f"usage: {line.split(' --')[0]} [--write DIR]")

    def test_a_value_that_is_missing(self, run):
        first, *_ = run("%%audit --write\n1").err.splitlines()
        assert first == "UsageError: argument --write: expected one argument"

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("code", "matches"),
        [
            ("%%audit --w", ["--write"]),
            ("%%audit --write out --re", ["--read", "--record"]),
            ("x = 1\n%%audit --pol", ["--policy"]),
            ("%audit on --ne", ["--net"]),
            ("%audit o", ["on", "off"]),
            ("%%sandbox --w", ["--write"]),
            ("%%sandbox --timeout 1 --re", ["--read", "--reset"]),
            ("%%audit --policy pol", ["policy.toml"]),
        ],
    )
    def test_completion(self, run, shared_kernel, tmp_path, code, matches):
        (tmp_path / "policy.toml").touch()
        client = shared_kernel.client
        found = shared_kernel.reply(client.complete(code))["matches"]
        assert set(matches) <= set(found)
        assert all(word.startswith("--") == matches[0].startswith("--") for word in found)

    @pytest.mark.parametrize("magic", ["%%audit", "%audit on", "%%sandbox", "%sandbox"])
    def test_completion_of_all_options(self, run, shared_kernel, magic):
        """Without the names of Python, which Jedi finds after an operator."""
        found = shared_kernel.reply(shared_kernel.client.complete(f"{magic} --"))["matches"]
        assert "--write" in found
        assert all(word.startswith("--") and word.islower() for word in found)
        assert "--any" not in found

    def test_no_completion_without_the_extension(self, run, shared_kernel):
        run("%unload_ext fastaudit_rs")
        found = shared_kernel.reply(shared_kernel.client.complete("%%audit --w"))["matches"]
        run("%load_ext fastaudit_rs")
        assert "--write" not in found


class TestWhatKernelsDo:
    def test_await(self, run):
        ran = run(
            "%%audit\nimport asyncio\nasync def later():\n    await asyncio.sleep(0.01)\n"
            "    return 7\nawait later()"
        )
        assert ran.value == "7"

    def test_await_is_guarded(self, run, tmp_path):
        ran = run(
            "%%audit\nimport asyncio\nasync def later():\n    await asyncio.sleep(0.01)\n"
            "    open('out.txt', 'w')\nawait asyncio.gather(later(), later())"
        )
        assert ran.error.startswith(
            "AuditDenied: Denied: open the file 'out.txt' for writing: nothing may be written"
        )
        assert list(tmp_path.iterdir()) == []

    def test_tasks_keep_the_guard(self, run, tmp_path):
        """The kernel itself, and cells that run meanwhile, are not under it."""
        run(
            "%%audit\nimport asyncio\nasync def later():\n    await asyncio.sleep(0.2)\n"
            "    open('out.txt', 'w')\ntask = asyncio.create_task(later())"
        )
        assert run("open('mine.txt', 'w').close()").status == "ok"
        ran = run("await asyncio.sleep(0.4)\ntask.exception()")
        reason = "open the file 'out.txt' for writing: nothing may be written"
        assert ran.value.startswith(f'fastaudit_rs.AuditDenied("Denied: {reason}')
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

    def test_time(self, run):
        ran = run("%%audit\n%%time\nprint('timed')")
        assert ran.out.startswith("timed\n") and "Wall time" in ran.out
        ran = run("%%audit\n%%time\nopen('out.txt', 'w')")
        assert ran.error.startswith("AuditDenied")

    def test_line_magics_and_names_of_the_shell(self, run):
        ran = run("%%audit\n%timeit -n1 -r1 pass\n_ = 5\nIn[-1] and Out is not None")
        assert (ran.status, ran.value) == ("ok", "True")

    def test_system_commands(self, run):
        ran = run("%%audit\n!echo hello")
        assert ran.error.startswith("AuditDenied: Denied: ")
        for code in ("!echo hello", "said = !echo hello", "%sx echo hello", "%system echo hello"):
            lines = run(f"%%audit\n{code}").error.splitlines()
            assert lines[2:4] == [f"    {code}", "To allow it: %%audit --run /bin/sh"]
        lines = run("%%audit\n%%bash\necho hello").error.splitlines()
        assert lines[2:4] == ["    %%bash", "To allow it: %%audit --run bash"]
        # IPython's thread for them is under no guard of the cell that came first.
        assert run("%%audit --run bash\n%%bash\necho hello").out == "hello\n"
        assert run("%%bash\necho hello").out == "hello\n"
        assert "AuditDenied" in run("%%audit\n%%bash\necho hello").error
        for allowed in ("any", "/bin/sh"):
            run("name = 'hello'")
            ran = run(f"%%audit --run {allowed}\n!echo $name; exit 3\nprint(_exit_code)")
            assert ran.out == "hello\n3\n", ran.error
        for allowed in ("any", "/bin/sh"):
            ran = run(
                f"%%audit --run {allowed}\nsaid = !echo $name {{1 + 1}}; exit 4\n"
                "[*said, _exit_code]"
            )
            assert ran.value == "['hello 2', 4]"

    @pytest.mark.slow
    def test_figures(self, run):
        ran = run("%%audit\nimport matplotlib.pyplot as plt\nplt.plot([1, 2]);")
        assert ran.status == "ok", ran.error
        assert "image/png" in ran.data[-1]

    def test_input(self, run):
        ran = run("%%audit\nname = input('Who? ')\nname", stdin="Ada")
        assert ran.value == "'Ada'"

    def test_displays(self, run):
        ran = run("%%audit\nfrom IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))")
        assert ran.data[-1]["text/html"] == "<b>x</b>"

    def test_completion(self, run, shared_kernel):
        run("%audit on")
        run("class Thing:\n    colour = 1\nthing = Thing()")
        client = shared_kernel.client
        found = shared_kernel.reply(client.complete("thing.col"))
        assert found["matches"] in (["colour"], ["thing.colour"])
        assert "%%audit" in shared_kernel.reply(client.complete("%%aud"))["matches"]

    @pytest.mark.parametrize(
        ("code", "status"),
        [
            ("%%audit", "incomplete"),
            ("%%audit\nx = 1", "incomplete"),
            ("%%audit\nx = 1\n\n", "complete"),
            ("%audit on", "complete"),
        ],
    )
    def test_it_is_complete_as_any_magic_is(self, run, shared_kernel, code, status):
        for name in ("audit", "time"):
            request = shared_kernel.client.is_complete(code.replace("audit", name))
            assert shared_kernel.reply(request)["status"] == status

    def test_history_and_caches_are_not_the_cells(self, run, home):
        run("%audit on")
        mark = f"number_{time.time_ns()}"
        assert run(f"{mark} = 1\n{mark}").value == "1"
        state = run("%audit").out
        assert "1 cells guarded, 0 operations denied" in state
        assert mark in run("%history -l 3").out
        database = home / "ipython" / "profile_default" / "history.sqlite"
        run("get_ipython().history_manager.writeout_cache()")
        run("%audit off")
        run("get_ipython().history_manager.writeout_cache()")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with sqlite3.connect(database) as connection:
                rows = connection.execute("select source_raw from history").fetchall()
            if any(mark in row for (row,) in rows):
                break
            time.sleep(0.1)
        else:
            pytest.fail("the cell is not in the history")

    def test_an_interrupt(self, run, shared_kernel):
        request = shared_kernel.client.execute(
            "%%audit\nimport time\nprint('begun', flush=True)\ntime.sleep(60)"
        )
        shared_kernel.wait_for_output(request)
        shared_kernel.manager.interrupt_kernel()
        assert "KeyboardInterrupt" in shared_kernel.finish(request).error
        assert run("open('out.txt', 'w').close()").status == "ok"

    def test_exit_is_an_error_as_ever(self, run):
        ran = run("%%audit\nimport sys\nsys.exit(3)")
        assert "SystemExit: 3" in ran.error


class TestRecord:
    def test_a_table(self, run, tmp_path):
        ran = run("%%audit --record\nopen('out.txt', 'w').close()\nimport os\nos.system('true');")
        assert ran.status == "ok"
        assert (tmp_path / "out.txt").exists()
        [shown] = ran.data
        assert "<table>" in shown["text/html"]
        lines = shown["text/plain"].splitlines()
        assert [line.split()[:3] for line in lines] == [
            ["needs", "effect", "times"],
            ["--write", "write", "1"],
            ["--run", "process", "1"],
        ]
        for text in shown.values():
            assert "out.txt" in text and "/sh" in text
        assert ran.out.startswith(f"%%audit --write {tmp_path}/out.txt --run ")
        assert ran.out.endswith(" would allow it\n")
        assert (
            run(f"{ran.out.removesuffix(' would allow it' + chr(10))}\nos.system('true');").out
            == ""
        )

    def test_all_of_it(self, run):
        ran = run("%%audit --record\nimport wave")
        assert ran.out.endswith("modules imported: %%audit --record --all shows all\n")
        ran = run("%%audit --record --all\nimport wave")
        assert "verdict" in ran.data[0]["text/plain"] and ran.out == ""

    def test_nothing_more_to_allow(self, run):
        ran = run("%%audit --record --write .\nopen('out.txt', 'w').close()")
        assert (len(ran.data), ran.out) == (1, "")


class TestSession:
    def test_every_cell(self, run, tmp_path):
        assert run("%audit").out == "off\n"
        run("%audit on --write ok")
        (tmp_path / "ok").mkdir()
        assert run("open('ok/a', 'w').close()").status == "ok"
        for _ in range(2):
            ran = run("open('out.txt', 'w')")
            hint = f"To allow it: %audit on --write ok --write {tmp_path}/out.txt"
            assert hint in ran.error.splitlines()
            said = ran.error.splitlines()[1].strip()
        assert run("%audit").out == (
            "on --write ok\n3 cells guarded, 2 operations denied\n"
            f"    open out.txt, 2 times, at {said}; to allow it: %audit on --write ok "
            f"--write {tmp_path}/out.txt\n"
        )
        assert run("%audit off").out == "Cells are guarded no longer.\n"
        assert run("%audit off").out == "Cells were not guarded.\n"
        assert run("open('out.txt', 'w').close()").status == "ok"
        assert run("%audit").out.startswith("off\n")

    def test_it_says_what_holds(self, run, tmp_path):
        held = f"they may write {tmp_path}/a, reach no host and start git"
        said = run("%audit on --write a --run git").out
        assert said == f"Cells are guarded from now on: {held}. %audit off ends that.\n"

    def test_it_says_that_cells_are_recorded(self, run):
        ran = run("%audit on --record")
        assert ran.out.startswith("Cells are recorded from now on: nothing is stopped.")

    def test_changing_the_directory(self, run, tmp_path):
        (tmp_path / "ok").mkdir()
        run("%audit on --write ok")
        ran = run("%cd /")
        # Older versions of IPython warn of a package that would keep the directories.
        assert (ran.out, ran.status) == ("/\n", "ok") and "denied" not in ran.err
        assert run("open('out.txt', 'w')").error.startswith("AuditDenied")
        # An expression in it is the cell's, and guarded. IPython swallows its error.
        assert "denied: open x, at " in run("%cd -q {open(chr(120), chr(119)).name}").err
        ran = run("x = 1\n%cd /srv")
        assert (ran.out, ran.status) == ("/srv\n", "ok")
        assert run("open('out.txt', 'w')").error.startswith("AuditDenied")

    def test_profiling(self, run):
        run("%audit on")
        for magic in ("%prun sum([1])", "%%prun\nsum([1])"):
            assert run(magic).status == "ok", magic

    def test_storing(self, run):
        if importlib.util.find_spec("IPython.external.pickleshare") is None:
            pytest.importorskip("pickleshare")
        run("%audit on")
        ran = run("kept = 1\n%store kept")
        lines = ran.error.splitlines()
        assert lines[2] == "    %store kept"
        assert lines[3].startswith("To allow it: %audit on --write ") and len(lines) == 5
        assert run(lines[3].removeprefix("To allow it: ")).status == "ok"
        assert run("%store kept").out == "Stored 'kept' (int)\n"

    def test_a_cell_cannot_end_it(self, run, tmp_path):
        run("%audit on")
        for code in (
            "%audit off\nopen('out.txt', 'w')",
            "get_ipython().run_line_magic('audit', 'off')",
            "get_ipython().run_line_magic('audit', 'on --write any')",
            "get_ipython().run_line_magic('unload_ext', 'fastaudit_rs')",
        ):
            ran = run(code)
            assert "has to be alone in its cell" in ran.err, code
        assert run("get_ipython().run_cell(\"open('out.txt', 'w')\");").error.startswith("Audit")
        assert run("get_ipython().run_cell('%audit off');").err.startswith("UsageError")
        assert run("open('out.txt', 'w')").error.startswith("AuditDenied")
        assert list(tmp_path.iterdir()) == []

    def test_a_cell_has_one_guard(self, run, tmp_path):
        """A guard is not entered under another one, whose place it would take."""
        run("%audit on --write a")
        for options in ("--write b", "--record"):
            ran = run(f"%%audit {options}\nopen('b', 'w')")
            assert ran.err == (
                "UsageError: %audit on --write a guards this cell already: %audit off ends that\n"
            )
        assert list(tmp_path.iterdir()) == []
        run("%audit on --record")
        assert run("%%audit --write a\nopen('b', 'w')").error.startswith(
            "AuditDenied: Denied: open the file 'b'"
        )
        assert run("%%audit --write a\nopen('a', 'w').close()").status == "ok"

    def test_silent_cells(self, run, tmp_path):
        run("%audit on")
        run("open('out.txt', 'w').close()", silent=True)
        assert list(tmp_path.iterdir()) == []

    def test_recording_every_cell(self, run):
        run("%audit on --record")
        for name in "ab":
            ran = run(f"open('{name}', 'w').close()")
            assert f"/{name}" in ran.data[-1]["text/plain"]

    def test_unload(self, run):
        run("%audit on")
        run("%unload_ext fastaudit_rs")
        assert run("open('out.txt', 'w').close()").status == "ok"
        assert "not found" in run("%%audit\n1").err
        run("%load_ext fastaudit_rs")
        assert run("%audit").out == "off\n"


@pytest.mark.slow
def test_the_recipe_for_all_notebooks(environment, tmp_path):
    """The lines of docs/notebook.md, as the configuration of a real kernel."""
    page = ROOT / "docs" / "notebook.md"
    [recipe] = [
        block.removeprefix("python\n")
        for block in page.read_text(encoding="utf-8").split("```")
        if block.startswith("python\n# ipython_config.py\n")
    ]
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_config.py").write_text(recipe)
    work = tmp_path / "work"
    (work / "out").mkdir(parents=True)
    with kernels.started(work, {**environment, "IPYTHONDIR": str(tmp_path / "ipython")}) as kernel:
        assert kernel("%audit").out == "on --write out\n0 cells guarded, 0 operations denied\n"
        assert kernel("open('out/a', 'w').close()").status == "ok"
        error = kernel("open('b', 'w').close()").error
        assert error.startswith("AuditDenied: Denied: open the file 'b'")
    assert [str(path.relative_to(work)) for path in work.rglob("*")] == ["out", "out/a"]


@pytest.mark.slow
def test_a_denial_is_short_without_the_extension(home, environment, tmp_path):
    with kernels.started(tmp_path, environment) as kernel:
        kernel("from fastaudit_rs import mk_audit")
        kernel("audit_perms = mk_audit(['/ok'], monitor_calls=False)")
        ran = kernel("import pathlib\nwith audit_perms():\n    pathlib.Path('/x').touch()")
    assert ran.error.splitlines() == [
        "AuditDenied: open '/x' not in ('/ok',)",
        "  Cell In[3], line 3",
        "    pathlib.Path('/x').touch()",
        "To allow it: Policy.preset('fastaudit-0.1').replace(write=['/ok', '/x']).guard()",
        FINAL,
    ]


def test_the_call_chain_is_the_users(run):
    ran = run(
        "%%audit\nimport os\ndef work():\n    os.mkdir('/srv/x')\ntry:\n    work()\n"
        "except PermissionError as error:\n    print(error)"
    )
    assert ran.out.splitlines()[1] == "Call chain: __main__.<module> -> __main__.work"


@pytest.mark.slow
def test_in_a_terminal(environment, tmp_path):
    cells = "%load_ext fastaudit_rs\n%audit on\nopen('out.txt', 'w')\n%audit\n"
    done = programs.python(
        "-m",
        "IPython",
        "--simple-prompt",
        "--no-banner",
        "--colors=NoColor",
        input=cells,
        env=environment,
        cwd=tmp_path,
    )
    shown = ANSI.sub("", done.stdout)
    assert (
        "AuditDenied: Denied: open the file 'out.txt' for writing: nothing may be written" in shown
    )
    assert f"To allow it: %audit on --write {tmp_path}/out.txt" in shown
    assert "1 cells guarded, 1 operations denied" in shown
    assert list(tmp_path.iterdir()) == []


def test_what_cells_build_on(places):
    """A recording and a guard that are asked to go on when they are entered again."""
    recording = Policy().observe(monitor_calls=False)()._keep()
    for name in ("/a", "/b", "/a"):
        with recording:
            open(places.out + name, "w").close()
    counts = {done.path: done.count for done in recording.effects}
    assert counts == {places.out + "/a": 2, places.out + "/b": 1}

    guard = Policy(write=[places.ok], max_bytes=10).guard(monitor_calls=False)()._keep()
    with guard:
        Path(places.ok, "a").write_bytes(b"x" * 6)
    with guard:
        with pytest.raises(AuditDenied, match="max_bytes"):
            Path(places.ok, "b").write_bytes(b"x" * 6)
        with pytest.raises(AuditDenied):
            os.mkdir(places.out + "/c")
    assert guard.violation_count == 2
