"""Tests of this directory once more, as an ordinary user where root runs them all."""

import os
from pathlib import Path

import pytest
import pytest_runs
from repository import ROOT
from users import run_as

#: What differs most by the user: all that the kernel holds, files, the network through the host,
#: sessions and questions.
TESTS = """
test_sandbox_ask.py::test_an_answer_opens_no_more_than_the_kernel
test_sandbox_ask.py::test_answers
test_sandbox_defaults.py::TestNoPolicy::test_a_plot
test_sandbox_defaults.py::TestReading
test_sandbox_egress.py::TestClients::test_without_a_guard
test_sandbox_egress_tls.py::TestSecrets::test_reach_the_server_alone
test_sandbox_fields.py
test_sandbox_files.py
test_sandbox_filter.py
test_sandbox_memory.py
test_sandbox_names.py
test_sandbox_namespace.py
test_sandbox_native_limits.py
test_sandbox_review.py::test_discard
test_sandbox_session.py::TestEnds::test_a_limit_that_is_ignored
test_sandbox_session.py::TestTools
test_sandbox_session.py::TestUndo
test_sandbox_shared.py
test_sandbox_snapshots.py::test_a_process_that_ended
test_sandbox_sockets.py
test_sandbox_unix.py
""".split()


@pytest.mark.slow
@pytest.mark.parametrize(
    "which", ["not slow", pytest.param("not nightly", marks=pytest.mark.nightly)]
)
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs all tests")
def test_as_an_ordinary_user(which):
    options = ["-qpno:cacheprovider", f"-m{which}", f"--rootdir={ROOT}"]
    options += [f"-c{ROOT}/pyproject.toml", *pytest_runs.without_others()]
    options += [str(Path(__file__).with_name(name)) for name in TESTS]
    run_as("ordinary", f"import pytest\nraise SystemExit(pytest.main({options}))", timeout=600)
