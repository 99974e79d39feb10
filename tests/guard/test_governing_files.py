"""The files by which a host governs code are kept from that code: policies, answers, logs."""

import os
import shutil

import programs
import pytest

from fastaudit_rs import Approvals, AuditLog, Policy, mk_audit

POLICY = 'write = ["."]\nprotect = false\n'


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("conf")
    return tmp_path


def of_file(path):
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write(POLICY)
    return Policy.from_toml(path).guard()


GUARDS = {
    "policy": of_file,
    "replaced": lambda path: Policy.from_toml(of_file(path) and path).replace(read=None).guard(),
    "answers": lambda path: Policy(write=["."]).guard(on_ask=Approvals(path)),
    "mk_audit": lambda path: mk_audit(["."], on_ask=Approvals(path)),
    "log": lambda path: Policy(write=["."], protect=False).guard(log=path),
    "of another": lambda path: (of_file(path), mk_audit(["."]))[1],
}


def write(path):
    with open(path, "w") as file:
        file.write('write = ["/"]')


def swap(path):
    """Puts another directory in the place of that of the file."""
    os.mkdir("other")
    write(f"other/{os.path.basename(path)}")
    os.rename(os.path.dirname(path), "old")
    os.rename("other", os.path.dirname(path))


def by_descriptor(path):
    with open(path) as file:
        write(f"/proc/self/fd/{file.fileno()}")


WAYS = {
    "open": write,
    "append": lambda path: open(path, "a").close(),
    "remove": os.remove,
    "rename": lambda path: os.rename(path, "other"),
    "replace": lambda path: (write("other"), os.replace("other", path)),
    "link": lambda path: (os.link(path, "other"), write("other")),
    "symlink": lambda path: (os.symlink(path, "other"), write("other")),
    "swap": swap,
    "rmtree": lambda path: shutil.rmtree(os.path.dirname(path)),
    "next": lambda path: write(f"{path}.{os.getpid()}.new"),
    "truncate": lambda path: os.truncate(path, 0),
    "chmod": lambda path: os.chmod(path, 0o666),
    "descriptor": by_descriptor,
}


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
def test_each_is_kept(guard, here):
    path = str(here / "conf" / "file.toml")
    made = guard(path)
    for way in (write, swap):
        with made(), pytest.raises(PermissionError):
            way(path)
    with made():
        write("conf/another.toml")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_way_to_write_it(way, here):
    path = str(here / "conf" / "file.toml")
    with of_file(path)(), pytest.raises(PermissionError):
        way(path)
    assert open(path).read() == POLICY


def test_the_denial_says_protect_and_gives_no_hint(here):
    with of_file("conf/file.toml")(), pytest.raises(PermissionError, match="protected") as denied:
        write("conf/file.toml")
    assert denied.value.rule == "protect"
    assert denied.value.hint.startswith("nothing would")


def test_a_link_on_the_way_is_not_replaced(here):
    os.symlink("conf", "link")
    guard = of_file("link/file.toml")
    with guard():
        os.remove("link")
        os.mkdir("link")
        with pytest.raises(PermissionError):
            write("link/file.toml")
        os.rmdir("link")
        os.mkdir("made")
        write("made/file.toml")
        with pytest.raises(PermissionError):
            os.symlink("made", "link")
        with pytest.raises(PermissionError):
            os.rename("made", "link")


def test_a_name_that_it_has_besides(here):
    here.joinpath("conf/file.toml").write_text(POLICY)
    os.link("conf/file.toml", "besides")
    with of_file("conf/file.toml")(), pytest.raises(PermissionError):
        write("besides")


def test_answers_are_kept_all_the_same(here):
    with Policy(write=["conf"]).guard(on_ask=Approvals("conf/answers.toml", lambda _: "guard"))():
        write("elsewhere")
    assert "elsewhere" in open("conf/answers.toml").read()


def test_what_is_no_file_stays_free(here):
    with Policy(write=["."]).guard(log=AuditLog("/dev/null"))(), open("/dev/null", "w") as null:
        null.write("x")


def test_guarded_code_names_none(here):
    here.joinpath("mine.toml").write_text(POLICY)
    with mk_audit(["."])():
        Policy.from_toml("mine.toml")
    with mk_audit(["."])():
        write("mine.toml")


def test_a_worker_of_a_pool(here):
    here.joinpath("program.py").write_text("""
import multiprocessing
from fastaudit_rs import Policy

def work(path):
    try:
        open(path, "a").close()
    except PermissionError:
        return "denied"

if __name__ == "__main__":
    open("policy.toml", "w").write('write = ["."]\\nthreads = "inherit"\\n')
    with Policy.from_toml("policy.toml").guard()():
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(work, ["policy.toml", "other"]))
""")
    ran = programs.python("program.py")
    assert ran.stdout == "['denied', None]\n", ran.stderr


@pytest.mark.parametrize("named", [["--policy", "policy.toml"], ["--policy", "pyproject.toml"]])
def test_the_command(here, named):
    here.joinpath("policy.toml").write_text(POLICY)
    here.joinpath("pyproject.toml").write_text(f"[tool.fastaudit]\n{POLICY}")
    here.joinpath("program.py").write_text(f"open({named[1]!r}, 'a').write('#')")
    ran = programs.python("-m", "fastaudit_rs", "run", *named, "program.py")
    assert "protect" in ran.stderr, ran.stderr
    assert not open(named[1]).read().endswith("#")
