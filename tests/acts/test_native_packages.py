"""Real packages that act in native code: where it is allowed they do, elsewhere they are denied."""

import native_packages
import pytest

CASES = native_packages.cases()

#: Packages whose errors show the reason.
SHOW = ("duckdb", "h5py", "lxml", "polars", "pyarrow")


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_it_acts_only_where_it_may(case):
    answer = native_packages.run(case)
    if "missing" in answer:
        pytest.skip(answer["missing"])
    assert "error" not in answer, answer
    assert (answer["inside"], answer["outside"]) == (True, False), answer
    if case["kind"] == "start":
        # It is denied in a copy of the process, which tells nobody.
        return
    assert answer["recorded"] and answer["hint"], answer
    told = answer["told"][0]
    assert told["package"] in (case["package"], case.get("install")), answer
    where = told["path"] or told["host"]
    assert where.startswith(native_packages.OUTSIDE) or "/outside" in where, answer
    if case["kind"] == "write" and case["package"] in SHOW:
        assert answer["shown"], answer
