"""A guard that is entered holds, whatever guarded code does with contexts."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import contextvars
import gc
import os
import signal
import sys

import pytest

from fastaudit_rs import AuditLog


@pytest.fixture
def audit_perms(mk_audit, places):
    return mk_audit([places.ok], monitor_calls=False)


@pytest.fixture
def pool():
    """A pool of the host whose thread runs already."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        yield pool


def guard_variable():
    [variable] = [var for var in contextvars.copy_context() if var.name.startswith("fastaudit")]
    return variable


class TestContexts:
    @pytest.mark.original_fails()
    def test_one_made_before(self, audit_perms, guarded):
        empty, copied = contextvars.Context(), contextvars.copy_context()
        with audit_perms():
            assert empty.run(guarded)
            assert copied.run(guarded)
            assert copied.copy().run(guarded)
        assert not empty.run(guarded)
        assert not copied.run(guarded)

    @pytest.mark.original_fails()
    def test_one_inside_another(self, audit_perms, guarded):
        one, other = contextvars.Context(), contextvars.Context()
        with audit_perms():
            assert one.run(lambda: other.run(guarded))
            assert one.run(other.run, guarded)
            assert list(map(one.run, [guarded])) == [True]
        assert not one.run(other.run, guarded)

    def test_what_a_context_holds_stays(self, audit_perms):
        variable = contextvars.ContextVar("mine")
        context = contextvars.Context()
        with audit_perms():
            assert context.run(variable.set, 1).var is variable
            with pytest.raises(RuntimeError, match="already entered"):
                context.run(context.run, print)
            with pytest.raises(ZeroDivisionError):
                context.run(lambda: 1 / 0)
        assert context[variable] == 1
        assert len(context) == 1

    @pytest.mark.original_fails()
    def test_a_fresh_one_that_is_used_later(self, audit_perms, guarded):
        with audit_perms():
            context = contextvars.Context()
        assert context.run(guarded)

    def test_what_is_started_in_another_one(self, audit_perms, guarded):
        before = contextvars.Context()

        async def task():
            return guarded()

        async def main():
            with audit_perms():
                started = before.run(asyncio.ensure_future, task())
            return await started

        assert asyncio.run(main())

    def test_two_guards_hold_both(self, mk_audit, places):
        """Code under one guard runs a context that another is in force in."""
        first = mk_audit([places.ok, places.out], monitor_calls=False)
        second = mk_audit([places.ok, places.cwd], monitor_calls=False)
        with first():
            under_first = contextvars.copy_context()

        def allowed():
            found = set()
            for name in ("ok", "out", "cwd"):
                with contextlib.suppress(PermissionError):
                    open(getattr(places, name) + "/file", "w").close()
                    found.add(name)
            return found

        assert under_first.run(allowed) == {"ok", "out"}
        with second():
            assert under_first.run(allowed) == {"ok"}
            assert contextvars.copy_context().run(under_first.run, allowed) == {"ok"}
        assert under_first.run(allowed) == {"ok", "out"}

    def test_entered_and_left_in_another_one(self, audit_perms, guarded):
        context, cm = contextvars.Context(), audit_perms()
        with audit_perms():
            context.run(cm.__enter__)
        assert context.run(guarded)
        with audit_perms():
            context.run(cm.__exit__, None, None, None)
            assert context.run(guarded)
        assert not context.run(guarded)
        assert not guarded()


class TestLeaving:
    """A guard that a `with` statement enters is left by the end of that statement alone."""

    def found(self):
        """Whatever of guards the frames on the stack hold."""
        frame = sys._getframe()
        while frame:
            for held in gc.get_referents(frame) + list(frame.f_locals.values()):
                if getattr(held, "__name__", "") in ("__exit__", "__aexit__"):
                    yield held
                elif type(held).__name__ == "Guard":
                    yield held.__exit__
            frame = frame.f_back

    def leave_all(self):
        for leave in list(self.found()):
            with contextlib.suppress(RuntimeError, TypeError):
                leave(None, None, None)

    def test_by_what_it_guards(self, audit_perms, guarded):
        with audit_perms() as guard:
            assert list(self.found())
            with pytest.raises(RuntimeError, match="end of that statement alone"):
                self.leave(guard)
            self.leave_all()
            assert guarded()
        assert not guarded()

    def leave(self, guard):
        guard.__exit__(None, None, None)

    def test_in_a_context_manager(self, audit_perms, guarded):
        @contextlib.contextmanager
        def manager():
            with audit_perms() as guard:
                yield guard

        with manager() as guard:
            with pytest.raises(RuntimeError, match="end of that statement alone"):
                guard.__exit__(None, None, None)
            assert guarded()
        assert not guarded()

    def test_in_coroutines(self, audit_perms, guarded):
        async def main():
            async with audit_perms() as guard:
                with pytest.raises(RuntimeError, match="end of that statement alone"):
                    self.leave(guard)
                await asyncio.sleep(0)
                assert guarded()
            with audit_perms() as guard:
                with pytest.raises(RuntimeError, match="end of that statement alone"):
                    self.leave(guard)
                await asyncio.sleep(0)
                assert guarded()
            assert not guarded()

        asyncio.run(main())

    def test_a_decorator(self, audit_perms, guarded):
        @audit_perms()
        def function():
            self.leave_all()
            return guarded()

        assert function()
        assert not guarded()

    def test_by_who_entered_it_by_a_call(self, audit_perms, guarded):
        guard = audit_perms()
        guard.__enter__()
        assert guarded()
        self.leave(guard)
        assert not guarded()
        with contextlib.ExitStack() as stack:
            stack.enter_context(audit_perms())
            assert guarded()
        assert not guarded()
        stack.enter_context(audit_perms())
        (lambda: stack.close())()
        assert not guarded()


class TestTheVariable:
    @pytest.mark.original_fails()
    def test_set_to_something_else_it_denies_all_that_it_judges(self, audit_perms, places):
        directory = places.ok + "/made"
        with audit_perms():
            variable = guard_variable()
            for value in (None, False, object()):
                token = variable.set(value)
                with pytest.raises(PermissionError, match="context variable was changed"):
                    os.mkdir(directory)
                with pytest.raises(PermissionError, match="context variable was changed"):
                    contextvars.Context().run(os.mkdir, directory)
                with pytest.raises(PermissionError, match="context variable was changed"):
                    contextvars.Context()
                variable.reset(token)
                os.mkdir(directory)
                os.rmdir(directory)

    def test_set_to_something_else_no_log_is_made(self, audit_perms, places):
        """A log is opened without asking a guard: only the host makes one."""
        with audit_perms():
            guard_variable().set(None)
            with pytest.raises(PermissionError, match="context variable was changed"):
                AuditLog(places.out + "/log")
        assert os.listdir(places.out) == []

    @pytest.mark.original_fails()
    @pytest.mark.parametrize("later", ["atexit", "signal", "fork", "executor"])
    def test_set_to_something_else_nothing_is_put_off(self, audit_perms, pool, later):
        """A function that is kept for later would run there as the host's."""
        ran = []
        keep = {
            "atexit": lambda: atexit.register(ran.append, 1),
            "signal": lambda: signal.signal(signal.SIGUSR1, lambda *_: ran.append(1)),
            "fork": lambda: os.register_at_fork(before=lambda: ran.append(1)),
            "executor": lambda: pool.submit(ran.append, 1).result(),
        }
        with audit_perms():
            guard_variable().set(None)
            with pytest.raises(PermissionError, match="context variable was changed"):
                keep[later]()
        assert ran == []

    def test_what_was_put_there_goes_with_the_guard(self, audit_perms, guarded):
        with audit_perms():
            guard_variable().set(None)
        assert not guarded()
        with audit_perms():
            assert guarded()
        assert not guarded()

    def test_is_never_another_guards(self, mk_audit, audit_perms, guarded, places):
        with mk_audit([places.ok, places.out], monitor_calls=False)():
            lax = guard_variable().get()
        with audit_perms():
            variable = guard_variable()
            own = variable.get()
            for value in (lax, own):
                with pytest.raises(PermissionError, match="context variable"):
                    variable.set(value)
                with pytest.raises(PermissionError, match="context variable"):
                    contextvars.ContextVar.set(variable, value)
            assert guarded()
            token = variable.set(None)
            with pytest.raises(PermissionError, match="context variable"):
                variable.set(lax)
            variable.reset(token)
            assert guarded()

    @pytest.mark.original_fails()
    def test_cannot_be_reset(self, mk_audit, audit_perms, guarded, places):
        with mk_audit([places.ok, places.out], monitor_calls=False)():
            variable = guard_variable()
            lax = variable.set(None)
        one, other = audit_perms(), audit_perms()
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        other.__exit__(None, None, None)
        no_guard = variable.get()
        empty = variable.set(no_guard)
        assert not guarded()
        with audit_perms() as guard:
            referents = gc.get_referents(guard)
            tokens = [held for held in referents if isinstance(held, contextvars.Token)]
            tokens += [lax, empty]
            for changed in (False, True):
                if changed:
                    own = variable.set(None)
                for token in tokens:
                    with pytest.raises(PermissionError, match="context variable"):
                        variable.reset(token)
                    if sys.version_info >= (3, 14):
                        with pytest.raises(PermissionError, match="context variable"):
                            token.__exit__(None, None, None)
            variable.reset(own)
            assert guarded()

    def test_others_can(self, audit_perms):
        variable = contextvars.ContextVar("mine")
        with audit_perms():
            token = variable.set(1)
            assert variable.get() == 1
            variable.reset(token)
            with pytest.raises(TypeError):
                variable.set()
            with pytest.raises(TypeError):
                variable.reset(1)
            with pytest.raises(LookupError):
                variable.get()

    def test_carried_to_where_it_was_not(self, audit_perms, guarded, elsewhere):
        """As libraries do that take context variables from thread to thread."""
        with audit_perms():
            variable = guard_variable()
            value = variable.get()

        def other():
            variable.set(value)
            return guarded()

        assert elsewhere(other)
        assert not guarded()

    def test_the_guard_in_it_is_opaque(self, audit_perms):
        with audit_perms():
            value = guard_variable().get()
            assert [name for name in dir(value) if not name.startswith("__")] == []
            with pytest.raises(AttributeError):
                value.anything = 1
            with pytest.raises(TypeError, match="pickle"):
                value.__reduce_ex__(2)
            with pytest.raises(TypeError, match="cannot create"):
                type(value)()


class TestTasks:
    @pytest.mark.original_fails()
    def test_of_a_loop_that_runs_in_the_block(self, audit_perms, guarded):
        loop = asyncio.new_event_loop()

        async def task():
            return guarded()

        before = loop.create_task(task())
        with audit_perms():
            assert loop.run_until_complete(before)
        loop.close()


class Task(asyncio.Task):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


def by_an_eager_factory(job, old):
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    return loop.create_task(job, context=old)


def eager(job, old):
    return asyncio.Task(job, loop=asyncio.get_running_loop(), context=old, eager_start=True)


MAKERS = {
    "loop": lambda job, old: asyncio.get_running_loop().create_task(job, context=old),
    "module": lambda job, old: asyncio.create_task(job, context=old),
    "class": lambda job, old: Task(job, context=old),
    "class of nothing new": lambda job, old: type("T", (asyncio.Task,), {})(job, context=old),
}
if sys.version_info >= (3, 12):
    MAKERS |= {"eager": eager, "eager factory": by_an_eager_factory}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tasks have the current context")
class TestTasksInOtherContexts:
    """A task that guarded code makes in a context from before has the guard all the same."""

    @pytest.fixture
    def found(self, audit_perms, guarded):
        """`found(make)`: what a task finds at once and later, whom guarded code has made."""

        async def job():
            at_once = guarded()
            await asyncio.sleep(0)
            return [at_once, guarded()]

        def found(make):
            async def main():
                old = contextvars.copy_context()
                async with audit_perms():
                    task = make(job(), old)
                    inside = await task
                assert not guarded()
                assert not old.run(guarded)
                return inside

            return asyncio.run(main())

        return found

    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    def test_made_in_any_way(self, found, make):
        assert found(make) == [True, True]

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="no eager tasks")
    def test_eager_ones_of_python_code(self, found):
        def make(job, old):
            loop = asyncio.get_running_loop()
            return asyncio.tasks._PyTask(job, loop=loop, context=old, eager_start=True)

        assert found(make)[0]

    def test_a_context_that_has_the_guard_stays(self, audit_perms, guarded):
        async def job():
            return guarded()

        async def main():
            async with audit_perms():
                context = contextvars.copy_context()
                task = asyncio.create_task(job(), context=context)
                assert not hasattr(task, "get_context") or task.get_context() is context
                return await task

        assert asyncio.run(main())

    def test_a_loop_that_runs_under_the_guard(self, audit_perms, guarded):
        """Variables that are set in the context of a runner stay."""
        variable = contextvars.ContextVar("variable")

        async def job(value):
            before = variable.get(0)
            variable.set(value)
            return before, guarded()

        with asyncio.Runner() as runner:
            runner.run(job(1))
            with audit_perms():
                assert runner.run(job(2)) == (1, True)
                assert runner.run(job(3)) == (2, True)
            assert runner.run(job(4)) == (3, False)
