"""Native code that acts."""

import importlib.util
import subprocess

import cython_modules
import pytest


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
        subprocess.run(["cc", "-shared", "-fPIC", *options, source, "-o", library], check=True)
        return lambda path: loader.make(library, path, 1.0)

    return load


@pytest.fixture
def make_by_loading(loading):
    """A function that has a library, which is loaded then, make a file."""
    return loading(
        "#include <fcntl.h>\n"
        "int make(const char *path) { return open(path, O_CREAT | O_WRONLY, 0600); }\n"
    )
