"""A real kernel shows output under a guard, and guarded code gains nothing by that."""

import os
import sys

import kernels
import peers
import pytest
from kernels import ANSI

GUARDS = {"0.1": "mk_audit(['.'])", "0.2": "v02.mk_audit(['.'])"}

PREPARED = """
import asyncio, functools, logging, os, pathlib, sys, threading, time, traceback, types, warnings
import ipywidgets, rich, tornado.speedups, tqdm, tqdm.notebook, zmq
import ipykernel.iostream
import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import HTML, clear_output, display, update_display
from fastaudit_rs import Policy, mk_audit, v02
%matplotlib inline
frame = pd.DataFrame({'column': [1, 2]})
series = frame.column
native = tornado.speedups.websocket_mask
idle = zmq.Context.instance().socket(zmq.PUSH)
figure, axes = plt.subplots()
axes.plot([1, 2])
plt.close(figure)
tqdm.tqdm.monitor_interval = 0
print(ipykernel.__version__)
"""


@pytest.fixture(scope="module", params=["", "6"][: 1 + (sys.version_info >= (3, 12))])
def kernel(request, tmp_path_factory):
    """A kernel of the ipykernel that is installed, and one of version 6."""
    home = tmp_path_factory.mktemp("home")
    (home / "link").mkdir()
    python = peers.python() if request.param else sys.executable
    environment = peers.environment(home / "link", **kernels.home_of(home))
    with kernels.started(home, environment, python) as kernel:
        ran = kernel(PREPARED)
        assert (ran.status, ran.error) == ("ok", "")
        assert ran.out.startswith(request.param)
        yield kernel


@pytest.fixture(params=GUARDS)
def guarded(kernel, request):
    """`guarded(code)`: what a cell gives that runs the code under a guard."""

    def run(code, **options):
        block = "".join(f"    {line}\n" for line in code.splitlines())
        return kernel(f"with {GUARDS[request.param]}() as guard:\n{block}", **options)

    return run


class TestOutput:
    def test_both_streams(self, guarded):
        ran = guarded(
            "sys.stdout.write('a\\n')\nsys.stdout.flush()\nprint('b', file=sys.stderr)\n"
            "sys.stdout.writelines(['c', 'd'])\nsys.stderr.flush()"
        )
        assert (ran.out, ran.err, ran.error) == ("a\ncd", "b\n", "")

    def test_logging_and_warnings(self, guarded):
        ran = guarded(
            "print(1)\nlogging.warning('first')\nlogging.getLogger('x').error('second')\n"
            "warnings.warn('third')\nprint(2)"
        )
        assert (ran.out, ran.error) == ("1\n2\n", "")
        told = [line for line in ran.err.splitlines() if not line.startswith(" ")]
        assert [line.rsplit(":", 1)[1].strip() for line in told] == ["first", "second", "third"]

    def test_logging_that_guarded_code_sets_up(self, guarded):
        ran = guarded("logging.basicConfig(level=10, force=True)\nlogging.info('said')\nprint(1)")
        assert (ran.out, ran.err, ran.error) == ("1\n", "INFO:root:said\n", "")
        guarded("logging.basicConfig(level=30, force=True)")

    def test_tracebacks(self, guarded):
        ran = guarded("print(1)\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()")
        assert ran.err.endswith("ZeroDivisionError: division by zero\n")
        ran = guarded("try:\n    1 / 0\nexcept Exception:\n    get_ipython().showtraceback()")
        assert ran.error.endswith("ZeroDivisionError: division by zero")
        assert ran.status == "ok"
        ran = guarded("print(1)\n1 / 0")
        assert ran.error.endswith("ZeroDivisionError: division by zero")

    def test_display(self, guarded):
        ran = guarded(
            "print(1)\nshown = display(HTML('<b>x</b>'), display_id='shown')\ndisplay(2)\n"
            "shown.update(HTML('new'))\nupdate_display(3, display_id='shown')\nclear_output()"
        )
        assert (ran.status, ran.error) == ("ok", "")
        assert [data.get("text/html") for data in ran.data] == ["<b>x</b>", None, "new", None]
        assert ran.data[-1]["text/plain"] == "3"

    def test_a_table(self, guarded):
        ran = guarded("print(1)\ndisplay(frame)\ndisplay(series)")
        assert (ran.status, ran.error) == ("ok", "")
        assert "<th>column</th>" in ran.data[0]["text/html"]
        assert "Name: column" in ran.data[1]["text/plain"]

    def test_figures(self, guarded, kernel):
        ran = guarded("print(1)\ndisplay(figure)")
        assert (ran.status, ran.error) == ("ok", "")
        assert "image/png" in ran.data[0]

    def test_a_figure_at_the_end_of_the_cell(self, kernel):
        ran = kernel(f"plt.plot([1, 2])\nwith {GUARDS['0.1']}():\n    print(1)")
        assert (ran.status, ran.error) == ("ok", "")
        assert "image/png" in ran.data[-1]

    def test_input(self, guarded):
        ran = guarded("print(1)\nname = input('Who? ')\nprint(name)", stdin="Ada")
        assert (ran.out, ran.error) == ("1\nAda\n", "")
        ran = guarded("import getpass\nprint(getpass.getpass())", stdin="secret")
        assert (ran.out, ran.error) == ("secret\n", "")

    def test_progress(self, guarded):
        ran = guarded("for number in tqdm.tqdm(range(30), mininterval=0):\n    print(number)")
        assert ran.error == ""
        assert "30/30" in ran.err and ran.out.endswith("29\n")
        ran = guarded("for number in tqdm.notebook.tqdm(range(30)):\n    print(number)")
        assert (ran.error, ran.err) == ("", "")
        assert "application/vnd.jupyter.widget-view+json" in ran.data[0]

    def test_what_has_binary_data(self, guarded):
        ran = guarded("display(ipywidgets.Image(value=b'data'))")
        assert (ran.error, ran.err) == ("", "")
        assert "application/vnd.jupyter.widget-view+json" in ran.data[0]

    def test_rich(self, guarded):
        ran = guarded("rich.print('[b]first[/b]')\nrich.print({'second': 2})")
        assert (ran.status, ran.error) == ("ok", "")
        assert [ANSI.sub("", data["text/plain"]).strip() for data in ran.data] == [
            "first",
            "{'second': 2}",
        ]

    def test_a_thread_of_the_host(self, guarded, kernel):
        kernel(
            "def tell():\n    for number in range(20):\n        print('host', number)\n"
            "        time.sleep(0.01)\nthread = threading.Thread(target=tell)"
        )
        kernel("thread.start()")
        ran = guarded("for number in range(20):\n    print('guest')\n    time.sleep(0.01)")
        assert ran.out.count("guest") == 20
        assert kernel("thread.join()\nthread.is_alive()").value == "False"

    def test_a_thread_that_has_the_guard(self, kernel):
        """The first output of a thread takes a socket of its own."""
        ran = kernel(
            "async def tell():\n    await asyncio.to_thread(print, 'told')\n"
            f"with {GUARDS['0.2']}() as guard:\n    await tell()\nguard.violations"
        )
        assert (ran.out, ran.error) == ("told\n", "")


#: Acts of guarded code itself, and acts that it has the host's channel do.
DENIED = {
    "a socket": "zmq.Context.instance().socket(zmq.PUSH)",
    "connecting": "idle.connect('inproc://nobody')",
    "binding": "idle.bind('inproc://somebody')",
    "sending": "sys.stdout.pub_thread._event_pipe.send(b'')",
    "native code": "native(b'four', b'')",
    "as if it were of the channel": (
        "source = 'class IOPubThread:\\n    def schedule(self): self._event_pipe.send(bytes())'\n"
        "space = {'__name__': 'ipykernel.iostream'}\n"
        "exec(compile(source, ipykernel.iostream.__file__, 'exec'), space)\n"
        "space['IOPubThread'].schedule(sys.stdout.pub_thread)"
    ),
    "by way of the channel": (
        "fake = types.SimpleNamespace(thread=threading.Thread())\n"
        "ipykernel.iostream.IOPubThread.schedule(fake, functools.partial(native, b'four', b''))"
    ),
    "connecting by way of the channel": (
        "fake = types.SimpleNamespace(thread=threading.Thread())\n"
        "connect = functools.partial(idle.connect, 'inproc://nobody')\n"
        "ipykernel.iostream.IOPubThread.schedule(fake, connect)"
    ),
}

#: Ways in which an object of the guarded code shows itself; `said` would be shown.
SHOWN = {
    "a method": (
        "class Thing:\n    def _repr_html_(self):\n"
        "        return 'said' + native(b'four', b'').decode()"
    ),
    "a native function": (
        "class Thing:\n    _repr_html_ = staticmethod(functools.partial(native, b'four', b'said'))"
    ),
    "a formatter": (
        "class Thing:\n    pass\nhtml = get_ipython().display_formatter.formatters['text/html']\n"
        "html.for_type(Thing, lambda thing: 'said' + native(b'four', b'').decode())"
    ),
    "a file": (
        "class Thing:\n    _repr_html_ = staticmethod(functools.partial(\n"
        "        pathlib.Path.write_text, pathlib.Path('/srv/never'), 'said'))"
    ),
    "a function of a package": (
        "class Thing:\n"
        "    _repr_html_ = staticmethod(functools.partial(idle.connect, 'inproc://said'))"
    ),
}


class TestDenied:
    @pytest.mark.parametrize("name", DENIED)
    def test_a_call(self, guarded, name):
        ran = guarded(f"print(1)\n{DENIED[name]}")
        assert "AuditDenied: Audit: fastaudit.call blocked" in ran.error
        assert ran.out == "1\n"

    @pytest.mark.parametrize("name", SHOWN)
    def test_an_object_that_shows_itself(self, guarded, kernel, name):
        ran = guarded(f"print(1)\n{SHOWN[name]}\ndisplay(Thing())")
        assert "AuditDenied" in ran.error + ran.err
        assert "said" not in str(ran.data)
        assert int(kernel("len(guard.violations)").value) == 1
        assert not os.path.exists("/srv/never")
