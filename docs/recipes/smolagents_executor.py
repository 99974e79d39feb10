"""An agent of smolagents whose code runs under a policy: in this process, or in a sandbox."""

from typing import Any

from smolagents import CodeAgent

from fastaudit_rs import Policy
from fastaudit_rs.adapters.smolagents import GuardedExecutor
from fastaudit_rs.adapters.steps import Place


def make_agent(model: Any, place: Place = "here") -> CodeAgent:
    """An agent that may write below its directory; the prompt says that it may import anything."""
    return CodeAgent(
        tools=[],
        model=model,
        executor=GuardedExecutor(Policy.preset("workspace"), place),
        additional_authorized_imports=["*"],
        max_steps=5,
    )
