"""Jobs that guarded code hands to threads that run already."""

import asyncio
import gc
import os
import queue
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool

import pytest

import fastaudit_rs
from fastaudit_rs import AuditDenied, Policy, v02


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as executor:
        executor.submit(int).result()
        yield executor


@pytest.fixture(params=["mk_audit", "v02", "policy"])
def perms(request, places):
    return {
        "mk_audit": lambda: fastaudit_rs.mk_audit([places.ok], monitor_calls=False),
        "v02": lambda: v02.mk_audit([places.ok], monitor_calls=False),
        "policy": lambda: Policy(write=[places.ok]).guard(monitor_calls=False),
    }[request.param]()


def test_a_job_has_the_guard_of_who_submits_it(executor, perms, places):
    with perms():
        with pytest.raises(AuditDenied):
            executor.submit(os.mkdir, places.out + "/a").result()
        executor.submit(os.mkdir, places.ok + "/a", mode=0o700).result()
        with pytest.raises(AuditDenied):
            list(executor.map(os.mkdir, [places.ok + "/b", places.out + "/b"]))
    executor.submit(os.mkdir, places.out + "/host").result()
    assert os.listdir(places.out) == ["host"]
    assert sorted(os.listdir(places.ok)) == ["a", "b"]


def test_a_job_that_runs_after_the_block(executor, perms, places):
    may_run = threading.Event()
    with perms():
        executor.submit(may_run.wait)
        late = executor.submit(os.mkdir, places.out + "/late")
    host = executor.submit(os.mkdir, places.out + "/host")
    may_run.set()
    with pytest.raises(AuditDenied):
        late.result()
    host.result()
    assert os.listdir(places.out) == ["host"]


def test_event_loops(executor, perms, places):
    async def main():
        loop = asyncio.get_running_loop()
        # One thread, which runs already: a guard that denies threads lets none start.
        loop.set_default_executor(ThreadPoolExecutor(1))
        await loop.run_in_executor(None, int)
        with perms():
            for used in (None, executor):
                with pytest.raises(AuditDenied):
                    await loop.run_in_executor(used, os.mkdir, places.out + "/a")
                assert await loop.run_in_executor(used, int, "4") == 4
        await loop.run_in_executor(None, os.mkdir, places.out + "/host")

    asyncio.run(main())
    assert os.listdir(places.out) == ["host"]


def test_a_thread_that_enters_a_guard_itself_keeps_it(places):
    both = places.ok + "/both"
    os.mkdir(both)
    outer = Policy(write=[places.ok, places.out], threads="inherit").guard(monitor_calls=False)
    inner = Policy(write=[both, places.cwd]).guard(monitor_calls=False)
    with ThreadPoolExecutor(1, initializer=outer().__enter__) as executor:
        executor.submit(int).result()
        with inner():
            executor.submit(os.mkdir, both + "/a").result()
            for path in (places.out + "/a", places.cwd + "/a"):
                with pytest.raises(AuditDenied):
                    executor.submit(os.mkdir, path).result()
        executor.submit(os.mkdir, places.out + "/b").result()
    assert os.listdir(places.out) == ["b"]
    assert os.listdir(places.cwd) == []


def test_what_a_job_gives_and_raises(executor, perms):
    with perms():
        assert executor.submit(divmod, 7, 2).result() == (3, 1)
        assert executor.submit(lambda *args, **kwargs: (args, kwargs), 1, a=2).result() == (
            (1,),
            {"a": 2},
        )
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
        with pytest.raises(TypeError):
            executor.submit(None).result()


def test_jobs_do_not_keep_what_they_were_given(executor, perms):
    class Given:
        pass

    given = Given()
    gone = threading.Event()
    weakref.finalize(given, gone.set)
    with perms():
        executor.submit(repr, given).result()
    executor.submit(int).result()
    del given
    assert gone.wait(5)


def test_other_things_in_the_same_kind_of_queue(perms):
    passed = queue.SimpleQueue()
    with perms():
        passed.put(len)
        passed.put(item=int, block=False)
        passed.put((1, 2), True, 5)
        with pytest.raises(TypeError):
            passed.put()
    assert [passed.get() for _ in range(3)] == [len, int, (1, 2)]


class TestThreadsThatGuardedCodeBrings:
    """Its threads serve others too, and are not under the guard of the first who needed them."""

    @pytest.fixture
    def guard(self, places):
        return Policy(write=[places.ok], threads="inherit").guard(monitor_calls=False)

    @pytest.fixture
    def attempt(self, places):
        """Overreaches; the denials that stopped it are in `attempt.denied`."""

        def attempt():
            try:
                os.mkdir(places.out + "/a")
            except AuditDenied as error:
                attempt.denied.append(error)

        attempt.denied = []
        return attempt

    def test_an_initializer_is_guarded(self, guard, places, attempt):
        with guard():
            with ThreadPoolExecutor(1, initializer=attempt) as executor:
                executor.submit(int).result()
        assert len(attempt.denied) == 1 and os.listdir(places.out) == []

    @pytest.mark.parametrize("initializer", [None, int])
    @pytest.mark.parametrize("fields", [{}, {"imports": {"block": ["x"]}}, {"import_allow": ["*"]}])
    def test_whatever_the_guard_and_the_pool(self, places, fields, initializer):
        guard = Policy(write=[places.ok], threads="inherit", **fields).guard(monitor_calls=False)
        other = Policy(write=[places.cwd], threads="inherit").guard(monitor_calls=False)
        with ThreadPoolExecutor(1, initializer=initializer) as executor:
            with guard(), pytest.raises(AuditDenied):
                executor.submit(os.mkdir, places.out + "/a").result()
            executor.submit(os.mkdir, places.out + "/host").result()
            with other():
                executor.submit(os.mkdir, places.cwd + "/a").result()
                with pytest.raises(AuditDenied):
                    executor.submit(os.mkdir, places.ok + "/a").result()
        assert os.listdir(places.out) == ["host"]

    def test_callbacks_of_jobs(self, guard, places):
        """They run in the same thread: those of a job of the host's without a guard."""
        may_go = threading.Event()
        with ThreadPoolExecutor(1) as executor:
            with guard():
                executor.submit(may_go.wait)
                guarded = executor.submit(int)
                guarded.add_done_callback(lambda _: os.mkdir(places.out + "/guarded"))
            free = executor.submit(int)
            free.add_done_callback(lambda _: os.mkdir(places.out + "/host"))
            may_go.set()
        assert os.listdir(places.out) == ["host"]

    def test_jobs_that_are_cancelled(self, guard):
        may_go = threading.Event()
        executor = ThreadPoolExecutor(1)
        with guard():
            executor.submit(may_go.wait)
            waiting = executor.submit(int)
        free = executor.submit(int)
        executor.shutdown(wait=False, cancel_futures=True)
        may_go.set()
        executor.shutdown()
        assert waiting.cancelled() and free.cancelled()

    @pytest.mark.parametrize("module", ["asyncio", "trio", "anyio"])
    def test_to_thread(self, guard, places, module):
        library = pytest.importorskip(module)
        in_thread = getattr(library.to_thread, "run_sync", library.to_thread)

        async def main():
            async with guard():
                with pytest.raises(AuditDenied):
                    await in_thread(os.mkdir, places.out + "/a")
                await in_thread(os.mkdir, places.ok + "/a")
            await in_thread(os.mkdir, places.out + "/host")

        if module == "trio":
            library.run(main)
        else:
            asyncio.run(main())
        assert (os.listdir(places.ok), os.listdir(places.out)) == (["a"], ["host"])

    @pytest.mark.parametrize("kind", ["made before", "made under the guard"])
    def test_joblib_and_thread_pools(self, guard, places, kind):
        """Pools that are made for a call, and one whose threads the host started."""
        joblib = pytest.importorskip("joblib")

        def use(name, parallel):
            parallel([joblib.delayed(os.mkdir)(f"{places.out}/{name}{i}") for i in range(2)])

        def parallel():
            return joblib.Parallel(n_jobs=2, backend="threading")

        if kind == "made before":
            with parallel() as made, ThreadPool(1) as pool:
                made([joblib.delayed(int)()])
                with guard():
                    pool.apply(int)
                    made([joblib.delayed(int)()])
                use("host", made)
                pool.apply(os.mkdir, (places.out + "/pool",))
            assert sorted(os.listdir(places.out)) == ["host0", "host1", "pool"]
            return
        with guard(), pytest.raises(AuditDenied):
            use("a", parallel())
        use("host", parallel())
        assert sorted(os.listdir(places.out)) == ["host0", "host1"]

    def test_other_threads_keep_it(self, guard, places, attempt):
        class WorkerThread(threading.Thread):
            def run(self):
                attempt()

        WorkerThread.__module__ = "anyio._backends._asyncio"

        def _worker(*args):
            attempt()

        with guard():
            for thread in (
                WorkerThread(),
                threading.Thread(target=_worker, args=(None, None, None, ())),
            ):
                thread.start()
                thread.join()
        assert len(attempt.denied) == 2 and os.listdir(places.out) == []

    def test_a_job_of_the_host_in_other_hands(self, guard, places):
        """It is run without a guard by the thread of its pool alone."""
        may_go = threading.Event()
        with ThreadPoolExecutor(1) as executor:
            with guard():
                executor.submit(may_go.wait)
            late = executor.submit(int)
            with guard():
                job = executor._work_queue.get()
                taken = next(found for found in gc.get_referents(job) if hasattr(found, "future"))
                if sys.version_info < (3, 14):
                    taken.fn, taken.args = os.mkdir, (places.out + "/a",)
                else:
                    taken.task = (os.mkdir, (places.out + "/a",), {})
                thread = threading.Thread(
                    target=job.run, args=[None] * (sys.version_info >= (3, 14))
                )
                thread.start()
                thread.join()
            may_go.set()
        assert os.listdir(places.out) == []
        assert sys.version_info >= (3, 14) or type(late.exception()) is AuditDenied
