"""The executor for agents of smolagents, with the package itself and a scripted model."""

import sys

import pytest

from fastaudit_rs import Limits, Policy

smolagents = pytest.importorskip("smolagents")

from fastaudit_rs.adapters.smolagents import (  # noqa: E402
    ExecutionTimeoutError,
    GuardedExecutor,
    InterpreterError,
)

pytestmark = pytest.mark.slow

POLICY = Policy.preset("workspace")
MAKE = GuardedExecutor


@pytest.fixture
def executor(make):
    return make()


def final(executor, *, answer=lambda answer: answer, **tools):
    executor.send_tools({"final_answer": answer, **tools})
    return executor


class Scripted(smolagents.Model):
    """A model that answers with the next code, whatever it is told."""

    def __init__(self, *codes):
        super().__init__(model_id="scripted")
        self.codes = list(codes)
        self.told = []

    def generate(self, messages, **options):
        self.told.append(messages[-1].content[0]["text"])
        text = f"Thought: next.\n<code>\n{self.codes.pop(0)}\n</code>"
        role = smolagents.models.MessageRole.ASSISTANT
        return smolagents.ChatMessage(role=role, content=text)


def test_a_conversation_of_five_steps(executor, tmp_path):
    note = tmp_path / "kept"

    @smolagents.tool
    def save(text: str) -> int:
        """Save a note.

        Args:
            text: The note.
        """
        return note.write_text(text)

    model = Scripted(
        "primes = [n for n in range(2, limit) if all(n % d for d in range(2, n))]",
        "open('/srv/primes', 'w').write(str(primes))",
        "open('primes', 'w').write(str(primes))\nsaved = save(str(primes))\nprint('saved', saved)",
        "primes[len(primes)]",
        "final_answer({'last': primes[-1], 'file': open('primes').read()})",
    )
    agent = smolagents.CodeAgent(
        [save], model, executor=executor, additional_authorized_imports=["*"], verbosity_level=0
    )
    answer = agent.run("Save the primes.", additional_args={"limit": 8})
    assert answer == {"last": 7, "file": "[2, 3, 5, 7]"}
    told = model.told[1:]
    assert "[2, 3, 5, 7]" in told[0]
    assert (
        "open the file '/srv/primes' for writing: not in " in told[1]
        and "To allow it: write = [" in told[1]
    )
    assert "saved 12" in told[2] and note.read_text() == "[2, 3, 5, 7]"
    assert "at line 'primes[len(primes)]' due to: IndexError: list index out of range" in told[3]
    assert len(told) == 4
    agent.cleanup()
    with pytest.raises(RuntimeError, match="closed"):
        executor("1")


def test_figures_are_images_of_an_observation(executor):
    pytest.importorskip("matplotlib")
    model = Scripted(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])", "1", "final_answer('It is drawn.')"
    )
    agent = smolagents.CodeAgent(
        [],
        model,
        executor=executor,
        additional_authorized_imports=["*"],
        instructions=executor.rules_for_model(),
        step_callbacks=[executor.observe_images],
        verbosity_level=0,
    )
    assert agent.run("Draw.") == "It is drawn."
    drawn, other, _ = (step for step in agent.memory.steps if hasattr(step, "observations_images"))
    [image] = drawn.observations_images
    assert image.format == "PNG" and image.size[0] > 100
    assert other.observations_images is None
    assert "- Write files in: the working directory" in agent.system_prompt


def test_images_that_are_none(executor):
    """The step goes on: what the code shows does not end the agent's run."""
    executor("display({'image/png': b'\\x89PNG\\r\\n\\x1a\\n' + bytes(99)}, raw=True)")
    step = smolagents.ActionStep(step_number=1, timing=smolagents.memory.Timing(0))
    executor.observe_images(step)
    assert step.observations_images is None


def test_an_agent_that_another_one_manages(executor, place):
    for inner in ("here", place):
        helper = smolagents.CodeAgent(
            [],
            Scripted("open('/srv/a', 'w')", "final_answer('found 3')"),
            executor=GuardedExecutor(POLICY, inner),
            name="helper",
            description="Helps.",
            verbosity_level=0,
        )
        model = Scripted("found = helper('Look.')\nfound", "final_answer(found)")
        agent = smolagents.CodeAgent(
            [], model, managed_agents=[helper], executor=executor, verbosity_level=0
        )
        assert agent.run("Ask.").endswith("found 3")
        assert "AuditDenied" in str(helper.memory.steps[1].error)
        helper.cleanup()


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("6 * 7", 42),
        ("x = y = 3", 3),
        ("a, [b, c] = 1, (2, 3)", None),
        ("a, b = 1, 2", (1, 2)),
        ("n: int = 4", 4),
        ("n: int", None),
        ("n = 1\nn += 4", 5),
        ("import collections\nd = {}\nd['k'] = 1", None),
        ("x = 1\nif x:\n    x = 2", None),
        ("x = 5  # the end", 5),
        ("x = '''\n'''\n", "\n"),
        ("", None),
        ("print('a')", None),
        ("len", "<built-in function len>"),
    ],
)
def test_the_value_of_a_step(here, code, value):
    assert here(code).output == value


@pytest.fixture(scope="module")
def here():
    with GuardedExecutor(POLICY) as executor:
        yield executor


def test_variables_and_state(executor):
    executor.send_variables({"x": 20, "text": "a"})
    executor.send_variables({})
    assert executor("y = x * 2\nprint(text)\ndef f(): pass").logs == "a\n"
    state = executor.state
    assert (state["y"], state["__name__"]) == (40, "__main__")
    assert str(state["_print_outputs"]) == "a\n"
    assert {*state} == {"__name__", "_print_outputs", "x", "text", "y", "f"} and len(state) == 6
    assert "f" in state and "z" not in state and 1 not in state
    with pytest.raises(KeyError):
        state["z"]
    with pytest.raises(TypeError, match=r"variables\['x'\] is an object"):
        executor.send_variables({"x": object()})


def test_output_and_denials_that_code_swallows(executor):
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n"
    code += "try: open('/srv/a', 'w')\nexcept OSError: pass"
    lines = executor(code).logs.splitlines()
    assert lines[:2] == ["out", "err"]
    assert lines[2].startswith("Denied: open the file '/srv/a' for writing: not in ")
    assert any(line.startswith("To allow it: ") for line in lines)
    with pytest.raises(InterpreterError):
        executor("print('before')\nopen('/srv/a', 'w')")
    assert str(executor.state["_print_outputs"]) == "before\n"


def test_long_output_is_cut(make):
    logs = make(max_print_outputs_length=100)("print('a' * 1000)").logs
    assert len(logs) < 300 and "truncated" in logs


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\n1 / 0", r"^Code execution failed at line '1 / 0' due to: ZeroDivisionError: div"),
        ("def f(:", r"^Code parsing failed on line 1 due to: .*SyntaxError: invalid syntax"),
        ("if 1:\npass", r"^Code parsing failed on line 2 due to: .*IndentationError"),
        ("raise SystemExit(3)", r"SystemExit: 3"),
        ("'a\0'", r"null bytes"),
        ("-" * 100_000 + "1", r"Code .* failed .*due to: "),
    ],
)
def test_a_step_that_fails(here, code, message):
    with pytest.raises(InterpreterError, match=f"(?s){message}"):
        here(code)
    assert here("1").output == 1


def test_values_that_the_agent_cannot_show(here):
    final(here)
    assert str(here("10 ** 5000").output).startswith("<int: ")
    assert str(here("final_answer([10 ** 5000])").output).startswith("<list: ")


def test_halves_of_characters(here):
    here("print(half := chr(0xD800))").logs.encode()
    here("half").output.encode()
    with pytest.raises(InterpreterError) as caught:
        here("raise ValueError(half)")
    str(caught.value).encode()


def test_a_step_that_does_not_end(make):
    executor = make(timeout=1)
    with pytest.raises(ExecutionTimeoutError, match="exceeded the maximum execution time of 1 s"):
        executor("x = 1\nwhile True: pass")
    assert executor("x").output == 1


def test_a_step_that_ends_its_process(tmp_path, monkeypatch):
    pytest.importorskip("sandlock")
    monkeypatch.chdir(tmp_path)
    with GuardedExecutor(POLICY, "sandbox", limits=Limits(memory="200M")) as executor:
        executor("x = 1")
        with pytest.raises(InterpreterError, match="MemoryError: the step took more memory"):
            executor("data = b'x' * (500 << 20)")
        assert executor("x").output == 1


class TestFinalAnswer:
    def test_it_ends_the_step(self, executor):
        hits = []
        final(executor, hit=hits.append)
        ended = executor("print('a')\nfinal_answer({'b': (1, 2)})\nhit(1)\nprint('c')")
        assert (ended.output, ended.logs, ended.is_final_answer) == ({"b": (1, 2)}, "a\n", True)
        assert hits == []
        assert executor("1 + 1").output == 2

    @pytest.mark.parametrize("name", ["Exception", "BaseException"])
    def test_code_does_not_keep_it_from_ending(self, executor, name):
        final(executor)
        code = f"try: final_answer(1)\nexcept {name}: pass\nwhile True:\n"
        code += f"    try: final_answer(2)\n    except {name}: pass"
        assert executor(code).output == 1

    def test_it_may_be_another(self, executor):
        final(executor, answer=lambda answer, factor=2: answer * factor)
        assert executor("final_answer(answer=4)").output == 8
        assert executor("final_answer(4, factor=3)").output == 12

    def test_an_answer_that_is_no_data_is_an_error(self, executor):
        final(executor)
        with pytest.raises(InterpreterError, match="pass data"):
            executor("final_answer(print)")
        assert executor("final_answer(1)").is_final_answer

    def test_it_may_fail(self, executor):
        def answer(answer):
            raise ValueError("not that")

        final(executor, answer=answer)
        with pytest.raises(InterpreterError, match="ValueError: not that"):
            executor("final_answer(1)")

    def test_code_that_takes_its_name_has_it_for_a_step(self, executor):
        final(executor)
        assert executor("final_answer = 3").is_final_answer is False
        assert executor("final_answer(1)").is_final_answer is True


class TestAuthorizedImports:
    def test_other_modules_are_denied(self, make):
        # A module of the standard library that nothing else imports.
        executor = make(authorized_imports=["wave"])
        executor("import wave, statistics")
        sys.modules.pop("mailbox", None)
        with pytest.raises(InterpreterError, match="import the module 'mailbox'"):
            executor("import mailbox")

    def test_all(self, make):
        make(authorized_imports=["*"])("import wave")


def test_a_session_of_the_host():
    with POLICY.session() as session:
        with GuardedExecutor(session) as executor:
            assert executor("x = 1").output == 1
        assert session.get("x") == 1
        for wrong in ({"authorized_imports": []}, {"place": "sandbox"}, {"tools": {}}):
            with pytest.raises(TypeError, match="session"):
                GuardedExecutor(session, **wrong)


def test_a_step_of_a_session_of_the_host_has_a_limit():
    with POLICY.session(timeout=60) as session:
        with pytest.raises(ExecutionTimeoutError, match="time of 0.5 seconds"):
            GuardedExecutor(session, timeout=0.5)("while True: pass")
    with POLICY.session(timeout=0.5) as session:
        with pytest.raises(ExecutionTimeoutError, match="time$"):
            GuardedExecutor(session, timeout=None)("while True: pass")


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"timeout": 0}, ValueError, "timeout must be positive"),
        ({"place": "there"}, ValueError, "place must be 'here' or 'sandbox', not 'there'"),
        ({"policy": "workspace"}, TypeError, "policy must be a Policy or a Session, not str"),
        ({"limits": 1}, TypeError, "limits"),
        ({"authorized_imports": "os"}, TypeError, r"write \['os'\]"),
        ({"authorized_imports": ["os.*", "no_such.part"]}, InterpreterError, "modules: no_such: "),
        ({"place": "sandbox", "no_such": 1}, TypeError, "no_such"),
    ],
)
def test_wrong_arguments(arguments, error, told):
    if arguments.get("place") == "sandbox":
        pytest.importorskip("sandlock")
    with pytest.raises(error, match=told):
        GuardedExecutor(**{"policy": POLICY, **arguments})


def test_a_class_that_raises_does_not_end_the_host(executor):
    code = (
        "class Meta(type):\n"
        "    def __getattribute__(cls, name): raise SystemExit(3)\n"
        "class Odd(Exception, metaclass=Meta): pass\n"
        "raise Odd('a')"
    )
    with pytest.raises(InterpreterError):
        executor(code)
    assert executor("1 + 1").output == 2
