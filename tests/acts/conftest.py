"""Native code that acts."""

import importlib.util

import cython_modules
import pytest


@pytest.fixture(scope="module")
def acts(tmp_path_factory):
    """The module `native_acts`: its `act()` calls a function of the C library."""
    pytest.importorskip("Cython")
    directory = tmp_path_factory.mktemp("acts")
    cython_modules.build("native_acts", directory)
    [file] = directory.glob("native_acts.*.so")
    spec = importlib.util.spec_from_file_location("native_acts", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
