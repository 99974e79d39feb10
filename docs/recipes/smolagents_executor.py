"""smolagents with a session as the executor of its Python code."""

from collections.abc import Callable
from typing import Any, Literal

from smolagents import CodeAgent
from smolagents.local_python_executor import CodeOutput, PythonExecutor

from fastaudit_rs import Policy, Sandbox


class GuardedExecutor(PythonExecutor):  # type: ignore[misc]
    """Runs an agent's code under a policy: all of Python, and tools with the host's rights.

    Args:
        policy: The policy for the code.
        place: In this process, or in a sandbox: a process that the kernel confines.
    """

    def __init__(self, policy: Policy, place: Literal["here", "sandbox"] = "here") -> None:
        """Make one, with names of its own."""
        self.sandbox = Sandbox(policy) if place == "sandbox" else None
        self.session = policy.session() if self.sandbox is None else self.sandbox.session()
        #: The agent reads here what code printed that failed.
        self.state: dict[str, Any] = {"_print_outputs": ""}
        self.answers: list[Any] = []

    def send_variables(self, variables: dict[str, Any]) -> None:
        """Take the variables of a run."""
        self.session.run("", inputs=variables)

    def send_tools(self, tools: dict[str, Callable[..., Any]]) -> None:
        """Take the tools; the code ends where it calls `final_answer`."""

        def final_answer(*args: Any, **kwargs: Any) -> None:
            self.answers.append(tools["final_answer"](*args, **kwargs))
            self.session.interrupt()

        self.session.run("", functions={**tools, "final_answer": final_answer})

    def __call__(self, code_action: str) -> CodeOutput:
        """Run code; what its last expression is, and what it printed."""
        self.answers.clear()
        ran = self.session.run(code_action)
        self.state["_print_outputs"] = ran.stdout
        if self.answers:
            return CodeOutput(output=self.answers[0], logs=ran.stdout, is_final_answer=True)
        if ran.error is not None:
            raise RuntimeError(f"line {ran.error.line}: {ran.error}")
        return CodeOutput(output=ran.value, logs=ran.stdout, is_final_answer=False)

    def cleanup(self) -> None:
        """End it."""
        self.session.close()
        if self.sandbox is not None:
            self.sandbox.close()


def make_agent(model: Any) -> CodeAgent:
    """An agent that may write below the current directory."""
    executor = GuardedExecutor(Policy.preset("workspace"))
    return CodeAgent(tools=[], model=model, executor=executor, max_steps=5)
