"""A session in a notebook's kernel, whose streams and event loop are its own."""

import os

import pytest

pytest.importorskip("ipykernel")

from kernels import Kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("kernel"), dict(os.environ))
    kernel(
        "from fastaudit_rs import Policy\n"
        "session = Policy(packages=['matplotlib', 'numpy']).session()"
    )
    yield kernel
    kernel.stop()


@pytest.mark.slow
def test_output_and_figures_are_those_of_the_step(kernel):
    ran = kernel("print('host')\nresult = session.run('print(1)\\ndisplay(2)\\n3')\nprint('host')")
    assert (ran.status, ran.out, ran.data) == ("ok", "host\nhost\n", [])
    ran = kernel("result.stdout, result.display, result.value")
    assert ran.value == "('1\\n', [{'text/plain': '2'}], 3)"


def test_display_of_ipython_is_that_of_the_step(kernel):
    """Also where the host has imported it before; the host's own is shown by the kernel."""
    ran = kernel(
        "from IPython.display import HTML, display as host\nimport IPython\n"
        "code = 'from IPython.display import display, HTML\\ndisplay(HTML(\"<b>1</b>\"), 2)'\n"
        "result = session.run(code)\nprint(result.error)"
    )
    assert (ran.status, ran.out, ran.data) == ("ok", "None\n", [])
    ran = kernel("[thing.get('text/html', thing['text/plain']) for thing in result.display]")
    assert ran.value == "['<b>1</b>', '2']"
    ran = kernel("host(HTML('<i>3</i>')); IPython.display.display(HTML('<i>4</i>'))")
    assert [data.get("text/html") for data in ran.data] == ["<i>3</i>", "<i>4</i>"]


def test_a_step_is_awaited_in_the_loop_of_the_kernel(kernel):
    kernel("import asyncio\nasync def f(x):\n    await asyncio.sleep(0.01)\n    return x + 1")
    ran = kernel("(await session.arun('await f(1)', tools={'f': f})).value")
    assert ran.value == "2"
    assert kernel("session.run('await f(2)').value").value == "3"


@pytest.mark.slow
def test_pyplot_of_a_step_is_not_shown_by_the_kernel(kernel):
    pytest.importorskip("matplotlib")
    ran = kernel(
        "%matplotlib inline\nimport matplotlib.pyplot as plt\n"
        "result = session.run('import matplotlib.pyplot as plt\\nplt.plot([1, 2])\\nplt.show()')\n"
        "print([sorted(item) for item in result.display], result.error)"
    )
    assert ran.status == "ok"
    assert ran.out == "[['application/vnd.fastaudit.chart+json', 'image/png', 'text/plain']] None\n"
    assert ran.data == []


@pytest.mark.slow
def test_interrupting_the_kernel_ends_the_step(kernel):
    # Often: a signal that came as the host began to wait was lost.
    kernel("begun = lambda: print('begun', flush=True)")
    for _ in range(30):
        request = kernel.client.execute(
            "session.run('begun()\\nwhile True: pass', tools={'begun': begun})"
        )
        kernel.wait_for_output(request)
        kernel.manager.interrupt_kernel()
        ran = kernel.finish(request)
        assert (ran.status, "KeyboardInterrupt" in ran.error) == ("error", True)
    assert kernel("session.run('1').value").value == "1"
