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
    import kernels

    kept = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    return {**kept, "TMPDIR": str(home / "temporary"), **kernels.home_of(home)}


@pytest.fixture(scope="module")
def shared_kernel(home, environment):
    import kernels

    with kernels.started(home, environment) as kernel:
        yield kernel
