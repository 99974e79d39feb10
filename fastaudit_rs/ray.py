"""Ray: guarded functions as its tasks, and pools of sandboxes on the nodes of a cluster."""

import asyncio
import functools
import inspect
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

try:
    import ray
    from ray.exceptions import RayActorError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    raise ImportError("Ray needs: pip install 'fastaudit-rs[ray]'") from None

from . import Policy
from ._threads import Closing, submit
from .guarded_functions import Guarded, set_worker_policy
from .results import Result
from .sandbox import Sandbox
from .sandbox.host.runner import RunRequest
from .sandbox.host.setup import module_names
from .sessions.arguments import count, text_of
from .sessions.errors import SandboxError

#: The time between two looks for nodes that have joined, in seconds.
INTERVAL = 5.0

#: The time for an actor to end its processes, in seconds.
PATIENCE = 5.0

CLOSED = "the pool is closed"


def task(function: Guarded[Any, Any], **options: Any) -> Any:
    """Make a task of Ray of a guarded function: `ray.remote` itself takes plain functions alone.

    Args:
        function: What `guarded` made.
        options: Options of ``ray.remote``, such as ``num_cpus``.

    Returns:
        What ``ray.remote`` returns. A denial is raised by ``ray.get`` as an `AuditDenied`.

    Raises:
        TypeError: The function is not guarded.

    Examples:
        >>> import os
        >>> from fastaudit_rs import guarded
        >>> make = task(guarded(Policy(write=["."]))(os.mkdir))  # doctest: +SKIP
        >>> ray.get(make.remote("notes"))  # doctest: +SKIP
    """
    if not isinstance(function, Guarded):
        kind = type(function).__name__
        raise TypeError(f"task takes a guarded function, not {kind}: write task(guarded(function))")
    # A guarded function is pickled by its name, which the main module of a worker does not have.
    guard = functools.partial(Guarded, function.function, function.policy)

    @functools.wraps(function.function)
    def run(*args: Any, **kwargs: Any) -> Any:
        made = guard()(*args, **kwargs)
        # Ray awaits no task.
        return asyncio.run(made) if inspect.iscoroutine(made) else made

    return ray.remote(**options)(run) if options else ray.remote(run)


def setup_hook(policy: Policy) -> Callable[[], None]:
    """Give the workers of a job a policy, for the functions that are `guarded` without one.

    Args:
        policy: The policy.

    Returns:
        A function for ``worker_process_setup_hook`` of a runtime environment.

    Examples:
        >>> hook = setup_hook(Policy(write=["/data"]))
        >>> ray.init(runtime_env={"worker_process_setup_hook": hook})  # doctest: +SKIP
    """

    def set_policy() -> None:
        set_worker_policy(policy)

    return set_policy


class SandboxActor:
    """An actor with a pool of one sandbox, which has a directory on its node."""

    def __init__(self, make: Callable[[], Sandbox], size: int, preload: Sequence[str]) -> None:
        self._sandbox = make()
        self._pool = self._sandbox.pool(size, preload=preload)

    def ready(self) -> None:
        """Return once it can run code."""

    def run(self, code: str, options: Mapping[str, Any]) -> Result:
        """Run code in a process of the pool."""
        return self._pool.run(code, **options)

    def close(self) -> None:
        """End its processes, and remove its directory."""
        self._pool.close()
        self._sandbox.close()


#: Code that waits for a node, its options, and the future of its result.
_Waiting: TypeAlias = tuple[str, dict[str, Any], "Future[Result]"]


class _Node:
    """A node with an actor. It has room for some runs once the actor is ready."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self.actor = actor
        self.room = 0


class SandboxPool(Closing):
    """Runs code in sandboxes on all nodes of a Ray cluster, also on those that join later.

    Each node has an actor, with a `Sandbox` and a pool of its processes. A run whose node is lost
    ends with a `SandboxError`, and is not repeated: it may have reached hosts. Those that wait run
    on other nodes.

    Args:
        make: Makes the sandbox of a node, there. It is pickled.
        size: The processes of each node. By default as many as the node has processors.
        preload: Names of modules that each process imports in advance.
        options: Options of the actors, as ``ray.remote`` takes them, such as ``num_cpus``.

    Raises:
        RuntimeError: This process is not connected to a cluster.

    Examples:
        >>> from fastaudit_rs import Policy, Sandbox
        >>> ray.init()  # doctest: +SKIP
        >>> with SandboxPool(lambda: Sandbox(Policy())) as pool:  # doctest: +SKIP
        ...     futures = [pool.submit("n * n", value=True, variables={"n": n}) for n in range(3)]
        ...     print([future.result().value for future in futures])
        [0, 1, 4]
    """

    def __init__(
        self,
        make: Callable[[], Sandbox],
        size: int | None = None,
        preload: Iterable[str] = (),
        **options: Any,
    ) -> None:
        if not callable(make):
            kind = type(make).__name__
            raise TypeError(f"make must be a function that makes a Sandbox, not {kind}")
        if not ray.is_initialized():
            raise RuntimeError("this process is not connected to Ray: call ray.init() first")
        self._make = make
        self._size = None if size is None else count("size", size, 1)
        self._preload = module_names(preload)
        self._options = options
        self._lock = threading.RLock()
        self._nodes: dict[str, _Node] = {}
        self._waiting: deque[_Waiting] = deque()
        self._looked = -math.inf
        self._why = "the cluster has no nodes"
        self._closed = False
        self._go_on()

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<SandboxPool on {len(self._nodes)} nodes{closed}>"

    def submit(
        self,
        code: str,
        args: Sequence[str] = (),
        stdin: str | bytes = b"",
        *,
        value: bool = False,
        variables: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> "Future[Result]":
        """Have code run on the node with the most room. It gets the arguments of `Sandbox.run`.

        Tools of the host are not available.

        Returns:
            A future of its `Result`; coroutines await it by `asyncio.wrap_future`. It raises
            `SandboxError` if the node is lost meanwhile, or if no node is left; `RuntimeError` if
            the pool is closed meanwhile; and what `Sandbox.run` raises.

        Raises:
            RuntimeError: The pool is closed.
            TypeError: An argument has another type.
            ValueError: An argument has a wrong value.
        """
        options: dict[str, Any] = {
            "args": args,
            "stdin": stdin,
            "value": value,
            "variables": variables,
            "timeout": timeout,
        }
        # What is wrong is told here.
        RunRequest(text_of(code), **options)
        future: Future[Result] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError(CLOSED)
            self._waiting.append((code, options, future))
        self._go_on()
        return future

    def run(self, code: str, *args: Any, **options: Any) -> Result:
        """Run code, and wait for it: the result of `submit`, with its arguments."""
        return self.submit(code, *args, **options).result()

    def close(self) -> None:
        """End its actors. What they run and what waits raises `RuntimeError`."""
        with self._lock:
            self._closed = True
            nodes, self._nodes = [*self._nodes.values()], {}
            waiting, self._waiting = self._waiting, deque()
        _fail(waiting, RuntimeError(CLOSED))
        if not ray.is_initialized():
            return
        ending = [node.actor.close.remote() for node in nodes]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=PATIENCE)
        for node in nodes:
            ray.kill(node.actor)

    def _go_on(self) -> None:
        """Start what there is room for, and look for new nodes now and then."""
        with self._lock:
            if self._closed:
                return
            if time.monotonic() - self._looked >= INTERVAL:
                self._look()
            while self._waiting and self._nodes:
                node = max(self._nodes.values(), key=lambda node: node.room)
                if node.room <= 0:
                    return
                code, options, future = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    node.room -= 1
                    ended = functools.partial(self._ended, node, future)
                    _when_done(node.actor.run.remote(code, options), ended)
            waiting, self._waiting = self._waiting, deque()
        _fail(waiting, SandboxError(f"no node of the cluster is left: {self._why}"))

    def _look(self) -> None:
        """Start an actor on each node that has none."""
        self._looked = time.monotonic()
        for found in ray.nodes():
            name = found["NodeID"]
            if not found["Alive"] or name in self._nodes:
                continue
            size = self._size or max(1, int(found["Resources"].get("CPU", 1)))
            there = NodeAffinitySchedulingStrategy(name, soft=False)
            # One more, to end it.
            options = {"max_concurrency": size + 1, "scheduling_strategy": there}
            actor = ray.remote(**{**options, **self._options})(SandboxActor)
            handle = actor.remote(self._make, size, self._preload)
            node = _Node(found["NodeManagerHostname"], handle)
            self._nodes[name] = node
            _when_done(node.actor.ready.remote(), functools.partial(self._is_ready, node, size))

    def _is_ready(self, node: _Node, size: int, done: "Future[None]") -> None:
        error = done.exception()
        with self._lock:
            if error is None:
                node.room = size
            else:
                self._lose(node, error)
        self._go_on()

    def _ended(self, node: _Node, future: "Future[Result]", done: "Future[Result]") -> None:
        error = done.exception()
        with self._lock:
            if not isinstance(error, RayActorError):
                node.room += 1
            elif not self._closed:
                self._lose(node, error)
                # Where the node is there still, its actor is made anew.
                self._looked = -math.inf
        if error is None:
            future.set_result(done.result())
        elif isinstance(error, RayTaskError):
            future.set_exception(error.cause)
        elif self._closed:
            future.set_exception(RuntimeError(CLOSED))
        else:
            why = f"the node {node.name} was lost while it ran the code: {_said(error)}"
            future.set_exception(SandboxError(why))
        self._go_on()

    def _lose(self, node: _Node, error: BaseException) -> None:
        """Use an actor no more. Its other runs tell of its end themselves."""
        self._why = _said(error)
        for name in [name for name, known in self._nodes.items() if known is node]:
            del self._nodes[name]


def _fail(waiting: "Iterable[_Waiting]", error: Exception) -> None:
    for *_, future in waiting:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)


def _when_done(reference: Any, call: Callable[["Future[Any]"], None]) -> None:
    """Call a function with a future of the result, in a thread of ours: Ray's must not wait."""
    reference.future().add_done_callback(lambda done: submit(functools.partial(call, done)))


def _said(error: BaseException) -> str:
    """Shorten what Ray says of an error: what happened comes first, and the exception last."""
    lines = [line for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines() if line.strip()]
    return " ".join(line.strip()[:300] for line in dict.fromkeys((*lines[:1], *lines[-1:])))
