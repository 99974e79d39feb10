"""The examples of docs/adapters.md, and its list of smolagents' tests."""

import re

import pytest
from programs import printed
from repository import ROOT

PAGE = (ROOT / "docs" / "adapters.md").read_text()
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
EXAMPLES = EXAMPLE.findall(PAGE)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_example(code, output, tmp_path):
    for package in re.findall(r"^from ([\w.]+)", code, re.MULTILINE):
        pytest.importorskip(package)
    if "sandbox" in code:
        pytest.importorskip("sandlock")
    assert printed(code, cwd=tmp_path) == output


def test_every_example_is_run():
    assert len(EXAMPLES) == PAGE.count("```python")


def test_the_list_of_tests_is_that_of_the_comparison():
    told = (ROOT / "scripts" / "smolagents_tests.toml").read_text()
    reasons = re.findall(r'^reason = "(.*)"$', told, re.MULTILINE)
    assert len(reasons) > 10
    for reason in reasons:
        assert f"- {reason}" in PAGE
