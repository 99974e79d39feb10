"""A kernel of a user who has never run IPython."""

import os

import pytest


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "temporary").mkdir()
    return home


@pytest.fixture(scope="module")
def environment(home):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home / "temporary"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "MPLCONFIGDIR": str(home / "matplotlib"),
        "PYTHONWARNINGS": "",
    }


@pytest.fixture(scope="module")
def shared_kernel(home, environment):
    from kernels import Kernel

    kernel = Kernel(home, environment)
    yield kernel
    kernel.stop()
