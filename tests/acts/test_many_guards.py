"""Acts of native code in threads and tasks of different guards: no verdict is another guard's."""

import asyncio
import atexit
import contextvars
import errno
import threading

import pytest

from fastaudit_rs import Policy

TIMES = 300


def places(tmp_path, count):
    for number in range(count):
        place = tmp_path / str(number)
        place.mkdir()
        yield place


def wrong(act, own, other, thread, number):
    """The verdicts that are not those of a guard that may write in `own` alone."""
    path = own if number % 3 else other
    error = act("open", path / "file", thread=thread)
    return [] if error == (0 if path is own else errno.EACCES) else [(thread, path, error)]


@pytest.mark.parametrize("thread", ["attached", "released"])
def test_threads(acts, tmp_path, thread):
    own = [*places(tmp_path, 4)]
    found = []

    def work(index):
        policy = Policy(write=[str(own[index])], native=True)
        for number in range(TIMES):
            with policy.guard()() as guard:
                found.extend(wrong(acts.act, own[index], own[index - 1], thread, number))
                if len(guard.violations) != (number % 3 == 0):
                    found.append(guard.violations)

    workers = [threading.Thread(target=work, args=[index]) for index in range(len(own))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == []


@pytest.mark.parametrize("thread", ["attached", "released"])
def test_tasks(acts, tmp_path, thread):
    own = [*places(tmp_path, 4)]
    found = []

    async def work(index):
        with Policy(write=[str(own[index])], native=True).guard()():
            for number in range(TIMES):
                found.extend(wrong(acts.act, own[index], own[index - 1], thread, number))
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(*map(work, range(len(own))))

    asyncio.run(main())
    assert found == []


class TestWhatIsLeftOfAGuard:
    """Threads of native code act for the host again once a guard's block has ended."""

    @pytest.fixture
    def perms(self, tmp_path):
        return Policy(write=[str(tmp_path / "ok")], threads="inherit", native=True).guard()

    def test_a_context_that_is_kept(self, acts, perms, tmp_path):
        with perms():
            kept = contextvars.copy_context()
            assert acts.act("open", tmp_path / "a", thread="native") == errno.EACCES
        assert acts.act("open", tmp_path / "b", thread="native") == 0
        assert kept.run(acts.act, "open", tmp_path / "c", thread="attached") == errno.EACCES

    def test_another_guard_after_it(self, acts, perms, tmp_path):
        """What is kept for the end of the process gives the threads no rights, and no denials."""
        with perms() as before:
            atexit.register(int)
        strict = Policy(write=[], native=True)
        with strict.guard()() as guard:
            assert acts.act("open", tmp_path / "ok", thread="native") == errno.EACCES
        assert [denied.path for denied in guard.violations] == [str(tmp_path / "ok")]
        assert before.violations == []
        atexit.unregister(int)

    def test_a_thread_that_waits(self, acts, perms, tmp_path):
        """As the monitor of tqdm does, for as long as the process lasts."""
        end = threading.Event()
        with perms():
            thread = threading.Thread(target=end.wait)
            thread.start()
        assert acts.act("open", tmp_path / "a", thread="native") == 0
        end.set()
        thread.join()

    def test_code_that_goes_on_in_a_thread(self, acts, perms, tmp_path):
        begin, errors = threading.Event(), []

        def go_on():
            begin.wait()
            errors.append(acts.act("open", tmp_path / "a", thread="native"))

        with perms() as guard:
            thread = threading.Thread(target=go_on)
            thread.start()
        begin.set()
        thread.join()
        assert errors == [errno.EACCES]
        assert [denied.path for denied in guard.violations] == [str(tmp_path / "a")]

    def test_code_that_goes_on_in_a_task(self, acts, perms, tmp_path):
        async def go_on():
            await asyncio.sleep(0)
            return acts.act("open", tmp_path / "a", thread="native")

        async def main():
            with perms():
                task = asyncio.create_task(go_on())
            return await task

        assert asyncio.run(main()) == errno.EACCES
