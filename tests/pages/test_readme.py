"""The examples of the README and of the docs print what is said there."""

import os
import re
from pathlib import Path

import programs
import pytest
from repository import ROOT

from fastaudit_rs.sandbox.host import cgroup

NAMES = (
    "README.md",
    "docs/compatibility.md",
    "docs/faq.md",
    "docs/hosts.md",
    "docs/index.md",
    "docs/install.md",
    "docs/packages.md",
    "docs/policy.md",
    "docs/recording.md",
    "docs/sandbox.md",
)
PAGES = {name: (ROOT / name).read_text() for name in NAMES}
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
EXAMPLES = [
    pytest.param(*example, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, example in enumerate(EXAMPLE.findall(page))
]


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_example(code, output, tmp_path):
    if "Sandbox" in code:
        pytest.importorskip("sandlock")
    if "memory=" in code and not cgroup.are_there():
        pytest.skip("no control groups: code that takes too much memory gets a MemoryError")
    result = programs.python("-c", code, cwd=tmp_path)
    assert result.stderr == ""
    assert result.stdout == output


def readme(language):
    return re.search(rf"```{language}\n(.*?)```", PAGES["README.md"], re.DOTALL)[1]


def test_cells_of_the_readme(tmp_path):
    pytest.importorskip("IPython")
    code = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in sys.argv[1:]:
    ran = shell.run_cell(cell)
    print(type(ran.error_in_exec).__name__)
"""
    cells = [*readme("ipython").splitlines(), "open('a', 'w')", "import os; os.mkdir('out/a')"]
    (tmp_path / "out").mkdir()
    done = programs.python(
        "-c",
        code,
        *cells,
        cwd=tmp_path,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")},
    )
    ends = [line for line in done.stdout.splitlines() if line in ("NoneType", "AuditDenied")]
    assert ends == ["NoneType", "NoneType", "AuditDenied", "NoneType"]
    assert "To allow it: %audit on --write out --write " in done.stdout


def test_the_test_of_the_readme(pytester):
    pytester.makepyfile(readme("py"))
    ran = pytester.runpytest_subprocess("-pno:xdist")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["*To allow it: @pytest.mark.audit(write=[[]'/srv/notes'[]])*"])


def test_every_example_is_tested():
    assert len(EXAMPLES) == sum(page.count("```python") for page in PAGES.values()) > 30


#: Where the blocks of code of other pages are run, and those of these that are no examples.
ELSEWHERE = {
    ("README.md", "ipython"): "test_readme.py",
    ("README.md", "py"): "test_readme.py",
    ("docs/adapters.md", "python"): "test_page.py",
    ("docs/adapters.md", "text"): "test_page.py",
    ("docs/agents.md", "python"): "test_agents.py",
    ("docs/agents.md", "text"): "test_agents.py",
    ("docs/install.md", "console"): "test_transcripts.py",
    ("docs/notebook.md", "console"): "test_guarded_kernel.py",
    ("docs/notebook.md", "python"): "test_notebook.py",
    ("docs/policy.md", "toml"): "test_policy_lint.py",
    ("docs/pytest.md", "console"): "test_pytest_plugin.py",
    ("docs/pytest.md", "python"): "test_pytest_plugin.py",
    ("docs/pytest.md", "text"): "test_pytest_plugin.py",
    ("docs/recipes/index.md", "python"): "test_recipes.py",
    ("docs/recipes/index.md", "text"): "test_recipes.py",
    ("docs/shell.md", "console"): "test_cli.py",
    ("docs/shell.md", "json"): "test_mcp_command.py",
    ("docs/shell.md", "sh"): "test_serve.py",
    ("docs/shell.md", "text"): "test_cli_ask.py",
}


def test_every_block_of_every_page_is_run():
    found = set()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        name = path.relative_to(ROOT).as_posix()
        languages = set(re.findall(r"^```(\w+)", path.read_text(), re.MULTILINE))
        found |= {(name, language) for language in languages}
    own = {(name, language) for name in NAMES for language in ("python", "text")}
    assert found - own == set(ELSEWHERE)
    for (name, _), test in ELSEWHERE.items():
        assert Path(name).name in next((ROOT / "tests").rglob(test)).read_text(), (name, test)
