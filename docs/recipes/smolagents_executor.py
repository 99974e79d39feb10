"""smolagents with a guard as the executor of its Python code."""

import ast
import contextlib
import io
from collections.abc import Callable
from typing import Any, NoReturn

from smolagents import CodeAgent, Tool
from smolagents.local_python_executor import CodeOutput, PythonExecutor

from fastaudit_rs import Policy


class _Answered(BaseException):
    """Ends the code where it calls `final_answer`."""


class GuardedExecutor(PythonExecutor):  # type: ignore[misc]
    """Runs an agent's code in this process: all of Python, under a guard.

    Args:
        policy: The policy for the code.
    """

    def __init__(self, policy: Policy) -> None:
        """Make one, with names of its own."""
        self.audit_perms = policy.guard(monitor_calls=False)
        #: The agent reads here what code printed that failed.
        self.state: dict[str, Any] = {"_print_outputs": ""}
        self.names: dict[str, Any] = {"__name__": "__agent__"}

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Take the variables of a run."""
        self.names.update(variables)

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """Take the tools."""
        self.names.update(tools)
        if "final_answer" in tools:
            self.names["final_answer"] = _ending(tools["final_answer"])

    def __call__(self, code_action: str) -> CodeOutput:
        """Run code; what its last expression is, and what it printed."""
        tree = ast.parse(code_action)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        value: Any = None
        answered = False
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), self.audit_perms():
                exec(compile(tree, "<agent>", "exec"), self.names)
                if isinstance(last, ast.Expr):
                    expression = compile(ast.Expression(last.value), "<agent>", "eval")
                    value = eval(expression, self.names)
        except _Answered as end:
            value, answered = end.args[0], True
        finally:
            self.state["_print_outputs"] = printed.getvalue()
        return CodeOutput(output=value, logs=printed.getvalue(), is_final_answer=answered)


def _ending(final_answer: Callable[..., Any]) -> Callable[..., NoReturn]:
    def end(*args: Any, **kwargs: Any) -> NoReturn:
        raise _Answered(final_answer(*args, **kwargs))

    return end


def make_agent(model: Any) -> CodeAgent:
    """An agent that may write below the current directory."""
    executor = GuardedExecutor(Policy.preset("workspace"))
    return CodeAgent(tools=[], model=model, executor=executor, max_steps=5)
