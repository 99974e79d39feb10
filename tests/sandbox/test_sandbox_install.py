"""Packages that a host installs for the code of a sandbox, and those that the code asks for."""

import os
import tempfile

import pytest
from wheels import wheel

from fastaudit_rs import Policy, Sandbox
from fastaudit_rs.sandbox import Install, SandboxError
from fastaudit_rs.sandbox.host import packages

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheels")
    wheel(directory, "base", "1.0")
    wheel(directory, "base", "2.0")
    wheel(directory, "upper", needs=["base"])
    wheel(directory, "other", needs=["base<2"])
    # Lines of such a file run where an interpreter takes its directory for one of packages.
    mark = directory.parent / "ran"
    wheel(directory, "odd", files=[("odd.pth", f"import os; os.mkdir({str(mark)!r})\n")])
    source = directory.parent / "source"
    source.mkdir()
    (source / "backend.py").write_text(f"import os; os.mkdir({str(mark)!r})")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    wheel(directory, "evil", needs=[f"source @ file://{source}"])
    (directory / "archive-1.0.tar.gz").write_bytes(b"")
    wheel(directory, "elsewhere", needs=[f"base @ file://{directory}/base-1.0-py3-none-any.whl"])
    made = ("script-1.0.data/scripts/made", "#!python\n")
    for name, place in (("script", "../../../outside-the-packages"), ("absolute", mark)):
        points = f"[console_scripts]\nfirst = os:getcwd\n{place} = os:getcwd\n"
        files = [made, (f"{name}-1.0.dist-info/entry_points.txt", points)]
        wheel(
            directory,
            name,
            files=[(path.replace("script-", f"{name}-"), text) for path, text in files],
        )
    # Packages of data look at the processor as they are imported.
    looks = "import ctypes\nnumber = ctypes.CDLL(None).getpid()\n"
    wheel(directory, "polars", files=[("polars/__init__.py", looks)])
    beside = "spoilt-1.0.data/purelib"
    files = [
        (f"{beside}/bare-1.dist-info/RECORD", ""),
        (f"{beside}/odd-2.dist-info/METADATA", b"\xff"),
    ]
    wheel(directory, "spoilt", files=files)
    return directory


def test_what_a_package_does_as_it_is_imported(index):
    with Sandbox(install=Install(["polars"], index=str(index))) as sandbox:
        ran = sandbox.run("import os, polars; polars.number == os.getpid()", value=True)
        assert ran.value is True, ran.for_model()
        assert sandbox.run("import ctypes; ctypes.CDLL(None).getpid()").violations


def test_packages_from_the_start(index):
    with Sandbox(install=Install(["upper", "base<2"], index=str(index))) as sandbox:
        code = "import upper, base; print(base.version, base.__file__)"
        ran = sandbox.run(code)
        assert ran.stdout.startswith("1.0 ")
        file = ran.stdout.split()[1]
        for act in (f"open({file!r}, 'w')", f"import os; os.unlink({file!r})"):
            assert sandbox.run(act).violations
        assert sandbox.run("%pip install base").error.kind == "SyntaxError"
    assert not os.path.exists(os.path.dirname(file))


@pytest.fixture(scope="module")
def box(index):
    names = [
        "upper",
        "Other",
        "odd",
        "evil",
        "archive",
        "elsewhere",
        "script",
        "absolute",
        "spoilt",
    ]
    install = Install(on_demand=names, index=str(index))
    with Sandbox(install=install) as made:
        yield made


@pytest.fixture
def session(box):
    with box.session() as made:
        yield made


def test_code_installs_what_it_may(session):
    assert session.run("import upper").error.kind == "ModuleNotFoundError"
    ran = session.run("%pip install -q upper\nimport upper, base\nbase.version")
    assert (ran.error, ran.stdout, ran.value) == (None, "Installed upper\n", "2.0")
    assert session.names == ["upper", "base"]
    # A package that is there stays, and so one that needs another version cannot come.
    ran = session.run("try:\n    !pip install other\nexcept Exception as error:\n    print(error)")
    assert "pip cannot install other" in ran.stdout
    session.reset()
    assert session.run("import upper; upper.version").value == "1.0"


#: What code may not have pip do, and words of the error.
REFUSED = {
    "install base": "'base' may not be installed here; these may: absolute, archive, elsewhere,",
    "install upper base": "'base' may not be installed here",
    "install --index-url=http://example.com upper": "is no package",
    "install -r requirements.txt": "is no package",
    "install -e .": "is no package",
    "install ./upper": "is no package",
    "install upper@file:///tmp/upper": "is no package",
    "install 'upper @ https://example.com/upper.whl'": "is no package",
    "install https://example.com/upper.whl": "is no package",
    "install upper.whl": "'upper-whl' may not be installed",
    "install 'upper; python_version > 3'": "is no package",
    "install 'upper\u0301'": "is no package",
    "install": "needs the names of 1 to 20 packages",
    "install " + "upper " * 21: "needs the names of 1 to 20 packages",
    "install 'upper": "No closing quotation",
    "uninstall upper": "can install packages, and nothing else",
    "install " + "x" * 2000: "at most 1000 characters",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_code_may_not_install(session, monkeypatch, text):
    monkeypatch.setattr(packages.subprocess, "run", None)
    ran = session.run(f"%pip {text}")
    assert not ran.success and REFUSED[text] in ran.error.message


def test_nothing_of_a_package_runs(session, index):
    for name in ("evil", "archive"):
        ran = session.run(f"%pip install {name}")
        assert f"pip cannot install {name}" in ran.error.message
    assert session.run("%pip install odd\nimport odd").success
    assert not (index.parent / "ran").exists()


def test_what_a_package_does_to_the_host(session, index):
    """It comes from the index, and is written where packages are."""
    assert "pip cannot install elsewhere" in session.run("%pip install elsewhere").error.message
    for name in ("script", "absolute"):
        # Versions of pip differ in what they make of such a name.
        session.run(f"%pip install {name}")
    outside = os.path.join(tempfile.gettempdir(), "outside-the-packages")
    assert not (os.path.exists(outside) or (index.parent / "ran").exists())
    # What it puts beside itself keeps no other one away.
    assert session.run("%pip install spoilt").success
    assert session.run("%pip install upper").success


def test_a_session_without_packages(shared):
    with shared.session() as session:
        message = session.run("%pip install upper").error.message
        assert "the host installs packages (Sandbox(install=…))" in message
    with Policy().session() as session:
        assert "the host installs packages" in session.run("!pip install upper").error.message


def test_places_are_those_of_the_host_as_it_named_them(tmp_path, monkeypatch):
    """Packages may be installed much later, when it is in another directory."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for index, cache in (("wheels", "kept"), ("~/wheels", "~/kept")):
        install = Install(["base"], index=index, cache=cache)
        assert install.index == f"{tmp_path}/wheels" and install.cache == f"{tmp_path}/kept"
    assert Install(index="https://example.com/~me").index == "https://example.com/~me"


def test_what_a_host_cannot_install(index):
    with pytest.raises(SandboxError, match="pip cannot install nosuch: .*nosuch"):
        Sandbox(install=Install(["nosuch"], index=str(index)))


def test_code_that_could_write_there(index, tmp_path):
    """pip would follow the links that it puts there."""
    preset = Policy.preset("sandbox")
    for write, cache in (
        ([str(tmp_path)], None),
        (None, None),
        ([f"{tmp_path}/c"], tmp_path / "c"),
    ):
        open_one = preset.replace(write=write)
        install = Install(["base"], index=str(index), cache=cache)
        parent = tmp_path if cache is None else None
        for given in ({"policy": open_one}, {"policy": preset, "approvable": open_one}):
            with pytest.raises(ValueError, match="a place that code cannot write"):
                Sandbox(install=install, parent=parent, on_ask=lambda _: None, **given)
    assert os.listdir(tmp_path) == []


#: Wrong arguments of a host.
WRONG = (
    (lambda: Sandbox(install="upper"), TypeError, "write \\['upper'\\]"),
    (lambda: Sandbox(install=3), TypeError, "install must be packages or Install"),
    (lambda: Sandbox(packages=["upper"]), TypeError, "Did you mean 'install'"),
    (lambda: Sandbox(libraries=["upper"]), TypeError, "Did you mean 'install'"),
    (lambda: Install([3]), TypeError, "a package must be a str, not int"),
    (lambda: Install(["../x"]), ValueError, "'../x' is no package"),
    (lambda: Install(["--pre"]), ValueError, "'--pre' is no package"),
    (lambda: Install(on_demand=["a>1"]), ValueError, "must be a name alone"),
    (lambda: Install(index="/none"), ValueError, "an address or a directory of wheels"),
    (lambda: Install(timeout=0), ValueError, "timeout must be positive"),
)


@pytest.mark.parametrize(("use", "error", "match"), WRONG)
def test_wrong_arguments(use, error, match):
    with pytest.raises(error, match=match):
        use()
