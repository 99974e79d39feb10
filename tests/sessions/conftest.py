"""Sessions in each place where code can run."""

import pytest

from fastaudit_rs import Policy

#: The places: in this process under a guard, and in a sandbox.
PLACES = ("here", "sandbox")


@pytest.fixture(params=PLACES)
def place(request):
    return request.param


@pytest.fixture
def make(place, tmp_path):
    """Make a session whose code may write below its directory."""
    made = []
    directory = tmp_path / "session"
    directory.mkdir()

    def make(**options):
        if place == "here":
            options.setdefault("directory", directory)
            policy = Policy(write=[str(directory)], packages=["numpy", "pandas"])
            session = policy.session(**options)
        else:
            sandboxes = pytest.importorskip("fastaudit_rs").Sandbox
            if not hasattr(sandboxes, "session"):
                pytest.skip("sandboxes have no sessions yet")
            sandbox = sandboxes(directory=directory)
            session = sandbox.session(**options)
        made.append(session)
        return session

    yield make
    for session in made:
        session.close()


@pytest.fixture
def session(make):
    return make()
