"""The transcripts of docs/install.md, in a clean environment with what it says to install."""

import os
import re
import subprocess
import sys
import sysconfig

import programs
import pytest
from repository import ROOT

INSTALL = (ROOT / "docs" / "install.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", INSTALL, re.DOTALL)
NAMES = ["cell", "test", "script", "host", "program of fastaudit"]
PROMPT = re.compile(r"^(?:In \[\d+\]: | {3}\.\.\.: ?)")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """`clean(command, stdin)`: run it in an environment where the page was followed."""
    base = tmp_path_factory.mktemp("clean")
    home = base / "home"
    home.mkdir()
    project = base / "project"
    (project / "out").mkdir(parents=True)
    kept = {"LANG": "C.UTF-8", "HOME": str(home), "COLUMNS": "80", "TERM": "dumb"}
    path = os.pathsep.join([str(base / "venv" / "bin"), os.environ["PATH"]])

    def run(command, stdin="", cwd=project, **more):
        done = programs.run(
            ["bash", "-c", command],
            input=stdin,
            cwd=cwd,
            env={**kept, "PATH": path, **more},
            timeout=600,
        )
        return done.stdout.replace(str(project), "/project") + done.stderr

    subprocess.run([sys.executable, "-m", "venv", base / "venv"], check=True)
    # The settings of others for pip and Rust are needed to reach them; builds are used again.
    tools = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "CARGO_", "RUSTUP_", "HTTP", "http", "SSL_"))
    }
    tools.setdefault("CARGO_HOME", os.path.expanduser("~/.cargo"))
    tools.setdefault("RUSTUP_HOME", os.path.expanduser("~/.rustup"))
    tools["CARGO_TARGET_DIR"] = os.environ.get("BUILDS", str(ROOT / "target" / "transcripts"))
    installs = [*re.findall(r"`(pip install [a-z]+)`", INSTALL)]
    assert installs == ["pip install ipython", "pip install pytest"]
    assert "\n    pip install .\n" in INSTALL
    this = "pip install ."
    if "BUILDS" in os.environ:
        # `pip install .` builds all anew in each environment: once, in the working tree, will do.
        command = [sys.executable, "-m", "maturin", "build", "--release", "--quiet"]
        where = ["--interpreter", sys.executable, "--out", base / "wheels"]
        subprocess.run([*command, *where], cwd=ROOT, env={**os.environ, **tools}, check=True)
        [wheel] = (base / "wheels").iterdir()
        this = f"pip install {wheel}"
    for install in [this, *installs]:
        said = run(f"{install} --disable-pip-version-check --quiet", cwd=ROOT, **tools)
        assert "ERROR" not in said.upper(), said
    return run


def without_times(text):
    # On a busy machine pytest adds the minutes.
    return re.sub(r"in \d+\.\d+s( \(\d+:\d+:\d+\))?", "in 0.00s", text)


def typed_in(block):
    """The lines that somebody types, those of a file included."""
    cell = re.findall(r"^(?:In \[\d+\]: | {3}\.\.\.: )(\S.*)", block, re.MULTILINE)
    commands = re.findall(r"^\$ (?!ipython|cat )(.*)", block, re.MULTILINE)
    file = re.search(r"^\$ cat .*\n((?:(?!\$ ).*\n)*)", block)
    return cell + commands + (file[1].splitlines() if file else [])


def test_each_is_five_lines_or_fewer():
    assert [len(typed_in(block)) for block in BLOCKS] == [3, 3, 3, 5, 3]


def test_a_cell(clean):
    command, *lines = BLOCKS[0].splitlines()
    assert command == "$ ipython"
    typed = [PROMPT.sub("", line) for line in lines if PROMPT.match(line)]
    shown = [line for line in lines if line.strip() and not PROMPT.match(line)]
    options = "--simple-prompt --no-banner --colors=NoColor"
    said = clean(f"ipython {options}", "\n".join(typed) + "\n")
    said = re.sub(r"^(?:In \[\d+\]: | {3}\.\.\.: ?)+", "", said, flags=re.MULTILINE)
    found = [line for line in said.splitlines() if line.strip()]
    assert found[: len(shown)] == shown, said


@pytest.mark.parametrize("block", BLOCKS[1:], ids=NAMES[1:])
def test_a_command(clean, block):
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    (show, content), (command, expected) = steps
    name = show.removeprefix("cat ")
    directory = clean("pwd").strip()
    assert directory == "/project"
    clean(f"cat > {name}", content)
    assert without_times(clean(command)) == without_times(expected)


def test_nothing_else_was_needed(clean):
    """It is the package of the working tree, and nothing that it needs came with it."""
    said = clean("pip show fastaudit-rs --disable-pip-version-check")
    assert "Requires: \n" in said or "Requires:\n" in said
    assert sysconfig.get_path("purelib") not in said
