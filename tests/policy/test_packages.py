"""Packages that are named as one installs or imports them, with the native code that is theirs."""

import ctypes
import os
import subprocess
import sys
import threading

import at_once
import cython_modules
import programs
import pytest
import toml_tables
from repository import ROOT

from fastaudit_rs import AuditDenied, Policy, mk_audit, v02

PYDANTIC = """
from pydantic import BaseModel
class M(BaseModel):
    x: int
M(x='3').model_dump_json()
"""
CIPHERS = """
from cryptography.fernet import Fernet
f = Fernet(Fernet.generate_key())
f.decrypt(f.encrypt(b'x'))
"""
RSA = """
from cryptography.hazmat.primitives.asymmetric import rsa
rsa.generate_private_key(65537, 1024)
"""
JINJA = """
import jinja2
jinja2.Environment(autoescape=True).from_string('{{ x }}').render(x='<')
"""
MSGPACK = """
import msgpack
msgpack.packb([1])
"""


def imported(source):
    """The source, with what it needs imported before."""
    try:
        exec(source, {"__name__": "guest"})
    except ImportError as error:
        pytest.skip(f"needs {error.name}")
    return source


def run(source, **fields):
    with Policy(threads="inherit", **fields).guard()():
        exec(source, {"__name__": "guest"})


class TestNativeCodeIsOfItsPackage:
    @pytest.mark.parametrize(
        ("source", "package"),
        [
            (PYDANTIC, "pydantic"),  # `_pydantic_core` and `pydantic_core`, which it requires
            (CIPHERS, "cryptography"),
            (RSA, "cryptography"),
            (JINJA, "jinja2"),  # markupsafe, which it requires
            (JINJA, "Jinja2"),
            (MSGPACK, "msgpack"),
        ],
        ids=lambda given: given if "\n" not in given else "",
    )
    def test_named_as_it_is_installed_or_imported(self, source, package):
        imported(source)
        run(source, native=[package])

    @pytest.mark.parametrize(
        ("source", "package"),
        [
            (PYDANTIC, "jinja2"),
            (CIPHERS, "pydantic_core"),
            (RSA, "rsa_of_another"),
            (JINJA, "msgpack"),
            (MSGPACK, "pydantic"),
            (MSGPACK, "msgpack.fallback"),  # a part is no package
        ],
        ids=lambda given: given if "\n" not in given else "",
    )
    def test_others_stay_denied(self, source, package):
        imported(source)
        with pytest.raises(AuditDenied) as caught:
            run(source, native=[package])
        assert caught.value.rule == "native"

    @pytest.mark.parametrize(
        ("source", "package"),
        [(CIPHERS, "cryptography"), (PYDANTIC, "pydantic_core"), (MSGPACK, "msgpack")],
    )
    def test_a_hint_names_the_package(self, source, package):
        imported(source)
        with pytest.raises(AuditDenied) as caught:
            run(source, native=["orjson"])
        assert package in caught.value.hint

    def test_a_recording_names_the_package(self):
        imported(CIPHERS)
        with Policy(native=False).observe()() as recording:
            exec(CIPHERS, {"__name__": "guest"})
        assert "cryptography" in recording.suggest().native
        assert "ciphers" not in recording.suggest().native

    def test_a_class_of_the_guests_own_is_of_no_package(self):
        imported(MSGPACK)
        source = """
import msgpack
class Packer(msgpack.Packer):
    __module__ = 'orjson'
Packer().pack(1)
"""
        with pytest.raises(AuditDenied):
            run(source, native=["cryptography"])
        run(source, native=["msgpack"])


def guarded(source, packages, make=mk_audit, **options):
    """Run it under `mk_audit` with these packages, where all was imported before."""
    imported(source)
    with make(["."], packages=packages, **options)() as guard:
        exec(source, {"__name__": "guest"})
    return guard


MAKERS = pytest.mark.parametrize("make", [mk_audit, v02.mk_audit], ids=["0.1", "0.2"])


@MAKERS
class TestPackages:
    @pytest.mark.parametrize("packages", ["data", ["pydantic"], ["data", "hypothesis"]])
    def test_their_native_code_may_be_called(self, make, packages):
        assert guarded(PYDANTIC, packages, make).violations == []

    def test_one_guard_remembers_nothing_for_another(self, make):
        for _ in range(3):
            guarded(CIPHERS, ["cryptography"], make)
            with pytest.raises(AuditDenied):
                guarded(CIPHERS, ["pydantic"], make)

    def test_a_guard_in_another_thread_remembers_nothing_for_this_one(self, make):
        imported(CIPHERS)
        entered, done = threading.Event(), threading.Event()

        def other():
            with make(["."], packages=["cryptography"])():
                exec(CIPHERS, {"__name__": "guest"})
                entered.set()
                done.wait(30)
                exec(CIPHERS, {"__name__": "guest"})

        thread = threading.Thread(target=other)
        thread.start()
        try:
            assert entered.wait(30)
            with pytest.raises(AuditDenied):
                guarded(CIPHERS, ["pydantic"], make)
            with pytest.raises(AuditDenied):
                guarded(CIPHERS, (), make)
        finally:
            done.set()
            thread.join()

    def test_a_name_that_is_installed_but_not_declared(self, make):
        assert guarded("import capstone", ["capstone"], make).violations == []

    def test_a_name_that_nothing_has(self, make):
        with pytest.raises(ValueError, match=r'"pandsa" is neither .*is it "pandas"\?'):
            make(["."], packages=["pandsa"])
        with pytest.raises(ValueError, match='"data" names all'):
            make(["."], packages=["nothing_of_the_kind"])
        with pytest.raises(ValueError, match=r"packages\[0\] must be the name of a package"):
            make(["."], packages="numpy pandas")
        with pytest.raises(TypeError, match="packages must be 'data' or an iterable"):
            make(["."], packages=1)

    def test_variables_of_theirs_may_be_set(self, make, monkeypatch):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        with make(["."], packages=["numpy"])():
            os.environ["OMP_NUM_THREADS"] = "2"
            del os.environ["OMP_NUM_THREADS"]
            with pytest.raises(AuditDenied):
                os.environ["PATH"] = "/elsewhere"

    def test_with_all_of_them_all_harmless_variables_may(self, make, monkeypatch):
        monkeypatch.setenv("MY_FLAG", "1")
        with make(["."], packages="data")():
            os.environ["MY_FLAG"] = "2"
            for name in ("PATH", "PYTHONPATH"):
                with pytest.raises(AuditDenied):
                    os.environ[name] = "/elsewhere"
        if make is mk_audit:
            with make(["."], packages=["numpy"])(), pytest.raises(AuditDenied):
                os.environ["MY_FLAG"] = "3"

    def test_threads_start_under_the_same_guard(self, make, tmp_path):
        denied = []

        def overreach():
            try:
                open(tmp_path / "x", "w")
            except PermissionError as error:
                denied.append(error)

        with make(["."], packages="data")():
            at_once.run(overreach)
        assert len(denied) == 1

    def test_all_else_stays_denied(self, make, tmp_path):
        imported(MSGPACK)
        with make(["."], packages="data")():
            for overreach in (
                lambda: open(tmp_path / "x", "w"),
                lambda: os.system("true"),
                lambda: subprocess.run(["lscpu", "--parse=core"]),
                lambda: ctypes.string_at(0, 0),
                lambda: ctypes.CDLL("libc.so.6"),
                lambda: setattr(guarded, "__code__", imported.__code__),
            ):
                with pytest.raises(PermissionError):
                    overreach()


class TestPackagesOfAPolicy:
    def test_forms(self):
        assert Policy().packages == ()
        assert Policy(packages="data").packages == ("data",)
        assert Policy(packages=["numpy"]).packages == ("numpy",)
        assert Policy.parse_toml('packages = "data"') == Policy(packages="data")
        policy = Policy(packages=["numpy", "msgpack"])
        assert Policy.parse_toml(policy.to_toml()) == policy
        with pytest.raises(ValueError, match="packages must be"):
            Policy.parse_toml("packages = true")

    def test_they_are_beside_what_native_names(self):
        imported(MSGPACK)
        imported(CIPHERS)
        run(MSGPACK + CIPHERS, native=["msgpack"], packages=["cryptography"])
        with pytest.raises(AuditDenied):
            run(MSGPACK + CIPHERS, packages=["cryptography"])

    def test_on_call_is_not_asked_of_them(self):
        imported(MSGPACK)
        imported(CIPHERS)
        asked = []

        def on_call(caller, callee, *_):
            asked.append(callee)
            return False

        with mk_audit(["."], on_call=on_call, packages=["cryptography"])():
            exec(MSGPACK + CIPHERS, {"__name__": "guest"})
        assert any("msgpack" in callee for callee in asked)
        assert not any("cryptography" in callee or "ciphers" in callee for callee in asked)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory of installed modules, from which `package` can be imported."""
    site = tmp_path / "site-packages"
    (site / "package").mkdir(parents=True)
    (site / "package" / "__init__.py").write_text(PACKAGE)
    metadata = site / "package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text("package/__init__.py,,\n")
    monkeypatch.syspath_prepend(str(site))
    yield site
    sys.modules.pop("package", None)


PACKAGE = """
import ctypes, subprocess

def give(function, body):
    function.__code__ = body.__code__

def defaults(function):
    function.__kwdefaults__ = {'x': 1}

def address():
    return ctypes.addressof(ctypes.c_int(1))

def load(path):
    return ctypes.CDLL(path)

def run(*command):
    return subprocess.run(command, capture_output=True).returncode
"""


@pytest.mark.parametrize("named", [True, False])
def test_native_code_that_calls_python_as_it_is_imported(site, named):
    """It has no frame between the import system and what it calls."""
    pytest.importorskip("Cython")
    cython_modules.build("native_import", site)
    metadata = site / "native_import-1.0.dist-info"
    metadata.mkdir()
    [file] = site.glob("native_import.*.so")
    (metadata / "RECORD").write_text(f"{file.name},,\n")
    sys.modules.pop("native_import", None)
    with mk_audit(["."], packages=["native_import" if named else "package"])():
        if named:
            import native_import
        else:
            with pytest.raises(AuditDenied):
                import native_import  # noqa: F401


GUARDS = {
    "mk_audit": lambda: mk_audit(["."], packages=["package"]),
    "v02": lambda: v02.mk_audit(["."], packages=["package"]),
    "native": lambda: Policy(native=["package"]).guard(),
    "all native": lambda: Policy(native=True).guard(),
}
#: Guards that name another package.
OTHERS = {
    "mk_audit": lambda: mk_audit(["."], packages=["msgpack"]),
    "v02": lambda: v02.mk_audit(["."], packages=["msgpack"]),
    "native": lambda: Policy(native=["msgpack"]).guard(),
}


class TestActsOfPackages:
    @pytest.mark.parametrize("guard", [*GUARDS.values(), *OTHERS.values()])
    def test_a_package_sets_code_and_defaults(self, site, guard):
        import package

        def f(*, x=0):
            return x

        def g(*, x=0):
            return x + 1

        with guard()():
            package.give(f, g)
            package.defaults(f)
            with pytest.raises(AuditDenied):
                exec("f.__code__ = body", {"f": f, "body": g.__code__})
        assert f() == 2

    @pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
    def test_a_package_calls_by_ctypes(self, site, guard):
        import package

        with guard()():
            assert package.address()
            with pytest.raises(AuditDenied):
                ctypes.addressof(ctypes.c_int(1))

    @pytest.mark.parametrize("guard", OTHERS.values(), ids=OTHERS)
    def test_another_package_does_not(self, site, guard):
        import package

        with guard()(), pytest.raises(AuditDenied):
            package.address()

    @pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
    def test_a_package_loads_its_own_library_alone(self, site, guard):
        import package

        own = site / "package" / "library.so"
        own.write_bytes(b"")
        with guard()():
            with pytest.raises(OSError) as caught:
                package.load(str(own))
            assert not isinstance(caught.value, PermissionError)
            for other in ("libc.so.6", str(site / "package" / ".." / ".." / "x.so")):
                with pytest.raises(AuditDenied):
                    package.load(other)
            with pytest.raises(AuditDenied):
                ctypes.CDLL(str(own))

    def test_none_runs_programs_that_it_is_not_declared_to(self, site):
        import package

        with mk_audit(["."], packages=["data", "package"])():
            for command in (("lscpu", "-x"), ("cat", "/etc/passwd"), ("true",)):
                with pytest.raises(AuditDenied):
                    package.run(*command)


def test_what_they_do_is_judged(tmp_path):
    pa = pytest.importorskip("pyarrow")
    csv = pytest.importorskip("pyarrow.csv")
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    table = pa.table({"a": [1]})
    with mk_audit([inside], packages="data")() as guard:
        csv.write_csv(table, str(inside / "x"))
        with pytest.raises(OSError, match="denied"):
            csv.write_csv(table, str(outside))
        [denial] = guard.violations
    assert (denial.event, denial.package) == ("open", "pyarrow")
    assert not outside.exists()


def test_the_page_lists_them():
    script = ROOT / "scripts" / "packages-page.py"
    done = programs.python(script, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_each_package_is_used_by_an_ordinary_snippet():
    """Or used by one that is: that each runs under `packages="data"` is seen by `make ordinary`."""
    table = toml_tables.load(ROOT / "src/policy/packages.toml")
    used = set()
    for file in (ROOT / "tests/ordinary").glob("*.toml"):
        for snippet in toml_tables.load(file)["snippet"]:
            used.update(snippet["packages"])
    used.update(other for name in used & {*table} for other in table[name].get("with", ()))
    assert {*table} - used == set()
