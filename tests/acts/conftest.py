"""Native code that acts."""

import importlib.util
import subprocess

import cython_modules
import pytest


@pytest.fixture(params=["attached", "released", "native", "native, waited for"])
def thread(request):
    """A kind of thread that native code acts on."""
    return request.param


@pytest.fixture(scope="module")
def acts(tmp_path_factory):
    """The module `native_acts`: its `act()` calls a function of the C library."""
    return _built("native_acts", tmp_path_factory)


def _built(name, tmp_path_factory, *options):
    pytest.importorskip("Cython")
    directory = tmp_path_factory.mktemp("acts")
    cython_modules.build(name, directory, *options)
    [file] = directory.glob(f"{name}.*.so")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def loading(tmp_path, tmp_path_factory):
    """`loading(source)`: a function that calls `make` of a library, which is loaded then.

    What loads it does not say that `dlopen` is the C library's, as objects do that were linked
    without libdl.
    """
    loader = _built("native_loader", tmp_path_factory, "-nodefaultlibs", "-lm")

    def load(text, *options):
        source, library = tmp_path / "maker.c", tmp_path / "maker.so"
        source.write_text(text)
        compiler = cython_modules.compiler()
        subprocess.run([*compiler, "-shared", "-fPIC", source, "-o", library, *options], check=True)
        return lambda path: loader.make(library, path, 1.0)

    return load


@pytest.fixture(params=["open", "open64"])
def make_by_loading(request, loading):
    """A function that has a library, which is loaded then, make a file.

    musl's symbols have no versions, and those of the library do: of another one.
    """
    return loading(
        "#include <fcntl.h>\n"
        f"int {request.param}(const char *, int, ...);\n"
        f"int make(const char *path) {{ return {request.param}(path, O_CREAT | O_RDWR, 0600); }}\n"
        "void *_Unwind_FindEnclosingFunction(void *);\n"
        "void *versioned(void) { return _Unwind_FindEnclosingFunction(versioned); }\n",
        "-lgcc_s",
    )
