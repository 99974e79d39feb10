"""Adapters in each place where code can run, in a directory of their own."""

import pytest


@pytest.fixture(params=["here", "sandbox"])
def place(request, tmp_path, monkeypatch):
    if request.param == "sandbox":
        pytest.importorskip("sandlock")
    monkeypatch.chdir(tmp_path)
    return request.param
