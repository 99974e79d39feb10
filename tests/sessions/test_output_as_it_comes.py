"""Output of a step as it comes: `on_output` of `run` and `arun`, and the pieces of streams."""

import asyncio
import contextvars
import textwrap
import threading
import time

import pytest

CODE = """
import sys, time
print('a', 1, 'é')
print('err', file=sys.stderr)
print('10%', end='\\r', flush=True)
print('no end', end='')
"""


@pytest.fixture(params=["run", "arun"])
def run(request):
    """Run a step in both ways."""

    def run(session, code, **options):
        if request.param == "run":
            return session.run(code, **options)
        return asyncio.run(session.arun(code, **options))

    return run


def test_lines_are_told_in_order(session, run, place):
    heard = []
    ran = run(session, CODE, on_output=lambda output: heard.append((output.name, output.text)))
    of = {name: [text for one, text in heard if one == name] for name in ("stdout", "stderr")}
    assert "".join(of["stdout"]) == ran.stdout and of["stderr"] == ["err\n"] and ran.success
    if place == "here":
        # In a sandbox lines that come together are one piece, and streams are pipes.
        assert of["stdout"] == ["a 1 é\n", "10%\r", "no end"]
        assert [name for name, _ in heard] == ["stdout", "stderr", "stdout", "stdout"]


def test_it_comes_before_the_end(session, run):
    times = []
    code = "import time\nprint('first')\ntime.sleep(0.5)\nprint('second')"
    run(session, code, on_output=lambda output: times.append(time.monotonic()))
    assert times[1] - times[0] > 0.3


def test_it_is_told_where_the_host_waits(session, run):
    """With the rights of the host, in its thread and its context."""
    threads, contexts = [], []
    where = contextvars.ContextVar("where", default="elsewhere")
    where.set("host")

    def note(output):
        with open("/dev/null", "w") as file:
            file.write(output.text)
        threads.append(threading.current_thread())
        contexts.append(where.get())

    assert run(session, "print(1)", on_output=note).success
    assert threads == [threading.current_thread()] and contexts == ["host"]


def test_a_failure_of_it_ends_the_step(session, run):
    heard = []

    def fail(output):
        heard.append(output.text)
        raise LookupError(output.text)

    # The step writes on until it is interrupted.
    code = "n = 0\nwhile n < 10_000:\n    n += 1\n    print(n)\n    time.sleep(0.001)"
    with pytest.raises(LookupError, match="1"):
        run(session, f"import time\n{code}", on_output=fail)
    # On a busy machine more lines may have come by then; it is not called again.
    [first] = heard
    assert first.startswith("1\n") and first.endswith("\n")
    assert session.run("n < 10_000").value is True


def test_a_failure_of_it_is_the_last_call(session, run):
    """Nobody hears what comes until the step takes the interrupt, and the session lives on."""
    heard = []

    def fail(output):
        heard.append(output)
        raise LookupError

    code = """
        import time
        n = 0
        begun = time.monotonic()
        while time.monotonic() < begun + 0.3:
            try:
                print(n := n + 1)
                time.sleep(0.001)
            except KeyboardInterrupt:
                pass
    """
    with pytest.raises(LookupError):
        run(session, textwrap.dedent(code), on_output=fail)
    assert len(heard) == 1 and session.run("n > 1").value is True


@pytest.mark.slow
def test_a_flood_of_lines_is_few_pieces(session, run):
    """Each piece takes memory of the host, far more than a line of one character."""
    heard = []
    code = "for n in range(30_000): print(flush=True); print('e', file=sys.stderr)"
    ran = run(session, f"import sys\n{code}", on_output=heard.append)
    assert len(heard) < 25_000
    for name, text in (("stdout", "\n" * 30_000), ("stderr", "e\n" * 30_000)):
        told = "".join(output.text for output in heard if output.name == name)
        assert told == getattr(ran, name) == text


def test_it_is_for_one_step(session, run):
    heard = []
    run(session, "print(1)", on_output=heard.append)
    run(session, "print(2)")
    assert [output.text for output in heard] == ["1\n"]


def test_pieces_of_a_stream_are_lines(session):
    async def pieces():
        return [output.text async for output in session.stream("for i in range(3): print(i, i)")]

    assert "".join(asyncio.run(pieces())) == "0 0\n1 1\n2 2\n"
    assert all(text.endswith("\n") for text in asyncio.run(pieces()))


def test_a_stream_that_nobody_reads_to_its_end(session):
    """It interrupts its step, and the next one waits for that."""

    async def main():
        code = "import time\nfor i in range(200): print(i, flush=True); time.sleep(0.05)"
        for _ in range(3):
            async for _ in session.stream(code):
                break
        return (await session.arun("i < 199")).value

    assert asyncio.run(main()) is True


def test_a_step_while_a_stream_is_read(session):
    """It is refused, and does not wait for its own caller."""

    async def main():
        async for _ in session.stream("while True: print(1)"):
            with pytest.raises(RuntimeError, match="runs a step already"):
                await session.arun("1")
            break
        return (await session.arun("1 + 1")).value

    assert asyncio.run(main()) == 2


def test_a_stream_that_is_closed_before_its_step_begins(session):
    """Its step does not begin once the one before it has ended."""

    async def main():
        # The step of a stream that went away takes a while to end.
        left = threading.Event()
        left.set()
        earlier = asyncio.ensure_future(asyncio.sleep(1))
        session._streams[earlier] = left
        stream = session.stream("ran = True\nwhile True: pass")
        reader = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.1)
        await stream.aclose()
        with pytest.raises(RuntimeError, match="closed before its step began"):
            await reader
        del session._streams[earlier]
        return (await session.arun("'ran' in globals()")).value

    assert asyncio.run(main()) is False


def test_a_stream_whose_reader_is_cancelled(session):
    """Its step has ended by then, as that of `arun`."""

    async def read():
        async for _ in session.stream("while True: print(1)"):
            pass

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(read(), 0.5)
        return (await session.arun("1 + 1")).value

    assert asyncio.run(main()) == 2


async def coroutine(output):
    pass


@pytest.mark.parametrize(("given", "named"), [([], "list"), (coroutine, "a coroutine function")])
def test_wrong_functions(session, run, given, named):
    with pytest.raises(TypeError, match=f"on_output must be a plain function .*{named}"):
        run(session, "1", on_output=given)
    assert session.run("1").value == 1


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "code",
    ["sys.{0} = io.StringIO()", "sys.{0}.close()", "sys.{0} = None", "del sys.{0}"],
)
def test_a_step_that_replaces_or_closes_a_stream(session, stream, code):
    """The next one has output again."""
    session.run(f"import io, sys\n{code.format(stream)}")
    ran = session.run(f"print('seen', file=sys.{stream})")
    assert (ran.error, getattr(ran, stream)) == (None, "seen\n")
