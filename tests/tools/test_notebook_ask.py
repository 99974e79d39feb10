"""`%%audit --ask`: the question in a real kernel."""

import os

import pytest
from kernels import TIMEOUT


@pytest.fixture
def run(shared_kernel, tmp_path):
    """`run(cell, *answers)`: the questions, and the result."""
    kernel = shared_kernel
    kernel(f"import os; os.chdir({str(tmp_path)!r})\n%load_ext fastaudit_rs")

    def run(cell, *answers):
        request = kernel.client.execute(cell, allow_stdin=bool(answers))
        questions = []
        for answer in answers:
            message = kernel.client.get_stdin_msg(timeout=TIMEOUT)
            questions.append(message["content"]["prompt"])
            kernel.client.input(answer)
        return questions, kernel.finish(request)

    yield run
    kernel("%audit off")


WRITE = "open('a', 'w').close(); open('a', 'w').close(); print('done')"


@pytest.mark.slow
def test_once_and_no(run, tmp_path):
    questions, ran = run(f"%%audit --ask\n{WRITE}", "y", "n")
    assert f"┌ The program asks to write {tmp_path}/a\n│ open, at Cell In[" in questions[0]
    assert "], line 2, the rule write\n" in questions[0]
    assert questions[0].endswith("└ Allow it? [y]es once / [a]lways / [n]o / ne[v]er / [?]: ")
    assert len(questions) == 2
    assert ran.status == "error" and ran.out == ""
    assert os.listdir(tmp_path) == ["a"]


def test_always_holds_for_the_session_and_in_a_file(run, tmp_path):
    run("%audit on --ask --approvals kept.toml")
    questions, ran = run(WRITE, "?", "a")
    assert "a: write = [" in questions[1]
    assert "│ n: deny it (end of input does the same); an interrupt ends the cell\n" in questions[1]
    assert ran.out == "done\n"
    assert run(WRITE)[1].out == "done\n"
    run("%audit off")
    assert run(f"%%audit --approvals kept.toml\n{WRITE}")[1].out == "done\n"
    (tmp_path / "kept.toml").write_text("write = 3")
    assert "write must be" in run(f"%%audit --approvals kept.toml\n{WRITE}")[1].err


def test_a_file_in_the_home_directory(run, home):
    (home / "kept.toml").write_text("write = ['a']")
    assert run(f"%%audit --approvals ~/kept.toml\n{WRITE}")[1].out == "done\n"


def test_a_frontend_without_input_is_told(run, tmp_path):
    _, ran = run(f"%%audit --ask\ntry: {WRITE}\nexcept OSError as e: print(e)")
    assert (
        "Asked for approval: on_ask raised RuntimeError: this frontend has no way to ask" in ran.out
    )
    _, ran = run(f"%%audit --ask\n{WRITE}")
    told = "Asked for approval: on_ask raised RuntimeError: this frontend has no way to ask"
    assert ran.error.splitlines()[-2] == told
    assert os.listdir(tmp_path) == []
