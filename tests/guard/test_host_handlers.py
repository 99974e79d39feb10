"""Handlers of `logging` that the host set up work under a guard; others gain nothing."""

import textwrap

import programs
import pytest

PREPARED = """
import functools, logging, logging.handlers, os, shutil, socket, sys, threading
from fastaudit_rs import Policy, mk_audit, v02
logging.raiseExceptions = True
log = logging.getLogger()
log.setLevel(0)
OUT = os.path.abspath("../out")

class Custom(logging.Handler):
    def emit(self, record):
        self.write(self.format(record))
    def write(self, text):
        with open(f"{OUT}/custom.log", "a") as file:
            file.write(text + "\\n")

def guards():
    yield mk_audit(["."])
    yield v02.mk_audit(["."])
    yield Policy(write=["."], read=["."]).guard()
"""


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "cwd").mkdir()
    return tmp_path / "out"


@pytest.fixture
def run(out):
    """`run(code)`: what it prints."""

    def run(code):
        program, options = PREPARED + textwrap.dedent(code), ["-W", "ignore"]
        done = programs.ran(program, options=options, cwd=out.parent / "cwd")
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    return run


class TestOfTheHost:
    @pytest.mark.parametrize(
        ("handler", "file"),
        [
            ('logging.FileHandler(f"{OUT}/a.log", delay=True)', "a.log"),
            (
                "logging.handlers.MemoryHandler(1, target="
                'logging.FileHandler(f"{OUT}/a.log", delay=True))',
                "a.log",
            ),
            ("Custom()", "custom.log"),
        ],
        ids=["opened late", "in a target", "a class of its own"],
    )
    def test_that_writes_a_file(self, run, out, handler, file):
        run(f"""
            for guard in guards():
                log.handlers = [{handler}]
                with guard():
                    log.info("said")
                log.handlers[0].close()
        """)
        assert (out / file).read_text() == "said\n" * 3

    @pytest.mark.slow
    def test_files_that_are_rolled_over(self, run, out):
        run("""
            rotating = logging.handlers.RotatingFileHandler
            log.handlers = [rotating(f"{OUT}/a.log", maxBytes=10, backupCount=2)]
            for guard in guards():
                with guard():
                    for number in range(5):
                        log.info("number %d", number)
        """)
        assert sorted(path.name for path in out.iterdir()) == ["a.log", "a.log.1", "a.log.2"]

    def test_files_that_are_rolled_over_in_time(self, run, out):
        run("""
            timed = logging.handlers.TimedRotatingFileHandler
            log.handlers = [timed(f"{OUT}/a.log", when="S", backupCount=1)]
            for number, guard in enumerate(guards()):
                log.handlers[0].rolloverAt = 0
                with guard():
                    log.info("said")
        """)
        assert len(list(out.iterdir())) >= 2

    def test_a_file_that_was_moved(self, run, out):
        run("""
            log.handlers = [logging.handlers.WatchedFileHandler(f"{OUT}/a.log")]
            for number, guard in enumerate(guards()):
                os.rename(f"{OUT}/a.log", f"{OUT}/{number}")
                with guard():
                    log.info("said")
        """)
        assert (out / "a.log").read_text() == "said\n"

    @pytest.mark.slow
    def test_a_socket(self, run):
        said = run("""
            import pickle
            for guard in guards():
                with socket.create_server(("127.0.0.1", 0)) as server:
                    server.settimeout(10)
                    log.handlers = [
                        logging.handlers.SocketHandler(*server.getsockname()),
                        logging.handlers.DatagramHandler("127.0.0.1", 9),
                    ]
                    with guard():
                        log.info("said")
                    data = server.accept()[0].recv(4096)
                    print(pickle.loads(data[4:])["msg"])
        """)
        assert said == "said\n" * 3

    @pytest.mark.slow
    def test_native_code(self, run):
        said = run("""
            import orjson
            class Json(logging.Handler):
                def emit(self, record):
                    print(orjson.dumps(record.getMessage()).decode())
            log.handlers = [Json()]
            for guard in guards():
                with guard():
                    log.info("said")
        """)
        assert said == '"said"\n' * 3

    @pytest.mark.slow
    @pytest.mark.parametrize("changes", [False, True])
    def test_a_socket_of_another_host(self, run, changes):
        said = run(f"""
            logging.raiseExceptions = False
            with socket.create_server(("127.0.0.1", 0)) as server:
                host = logging.handlers.SocketHandler("127.0.0.1", 1)
                log.handlers = [host]
                with v02.mk_audit(["."])() as guard:
                    if {changes}:
                        host.address = server.getsockname()
                    log.info("said")
                print([denial.event for denial in guard.violations])
        """)
        assert said == ("['socket.connect']\n" if changes else "[]\n")

    def test_one_set_up_between_guards(self, run, out):
        run("""
            with mk_audit(["."])():
                pass
            log.handlers = [logging.FileHandler(f"{OUT}/a.log", delay=True)]
            with mk_audit(["."])():
                log.info("said")
        """)
        assert (out / "a.log").read_text() == "said\n"

    def test_in_force_for_good(self, run, out):
        run("""
            log.handlers = [logging.FileHandler(f"{OUT}/a.log", delay=True)]
            Policy(write=["."], read=["."]).install()
            log.info("said")
        """)
        assert (out / "a.log").read_text() == "said\n"


#: Uses of logging by guarded code; `HOST` is a handler of the host, which opens its file late.
DENIED = {
    "a handler of its own": "log.handlers = [logging.FileHandler(f'{OUT}/no', delay=True)]",
    "the class of the host": "log.handlers = [Custom()]",
    "another file": "HOST.baseFilename = f'{OUT}/no'",
    "another method": "HOST._open = functools.partial(open, f'{OUT}/no', 'w')",
    "another class": "HOST.__class__ = Custom",
    "a method of the class": (
        "logging.FileHandler.emit = lambda self, record: open(f'{OUT}/no', 'w').write('x')"
    ),
    "a filter": "HOST.addFilter(lambda record: open(f'{OUT}/no', 'w'))",
    "a native filter": "HOST.addFilter(functools.partial(shutil.rmtree, OUT))",
    "a formatter": (
        "class Mine(logging.Formatter):\n"
        "    def format(self, record):\n"
        "        open(f'{OUT}/no', 'w')\n"
        "HOST.setFormatter(Mine())"
    ),
    "a native formatter": (
        "HOST.setFormatter(logging.Formatter())\n"
        "HOST.formatter.format = functools.partial(shutil.rmtree, OUT)"
    ),
    "a method of its own": "CUSTOM.write = functools.partial(shutil.rmtree, OUT)",
    "a native filter of its own": "CUSTOM.addFilter(functools.partial(shutil.rmtree, OUT))",
    "a native formatter of its own": (
        "CUSTOM.setFormatter(logging.Formatter())\n"
        "CUSTOM.formatter.format = functools.partial(shutil.rmtree, OUT)"
    ),
    "an argument": (
        "class Mine:\n    def __str__(self):\n        return str(open(f'{OUT}/no', 'w'))\n"
        "log.info('%s', Mine())"
    ),
    "its own name": "class Mine(Custom): pass\nlog.handlers = [Mine()]",
    "the list of handlers": (
        "import weakref\nmine = logging.FileHandler(f'{OUT}/no', delay=True)\n"
        "logging._handlerList.insert(0, weakref.ref(mine))\nlog.handlers = [mine]"
    ),
    "a rotator": (
        "HOST = logging.handlers.RotatingFileHandler(f'{OUT}/no', maxBytes=1, delay=True)\n"
        "log.handlers = [HOST]"
    ),
    "calling it": "HOST.emit(logging.makeLogRecord({'msg': 'x'}))",
    "opening it": "HOST._open()",
}


#: The uses that are denied when they happen.
AT_ONCE = ("an argument", "calling it", "opening it")

USES = """
HOST = logging.FileHandler(f'{{OUT}}/a.log', delay=True)
CUSTOM = Custom()
log.handlers = [HOST, CUSTOM]
logging.raiseExceptions = False
with mk_audit(['.'])() as guard:
    try:
{use}
{next}
        log.info('said')
    except PermissionError:
        pass
print(len(guard.violations))
"""
#: The use ends, and another guard begins.
NEXT = """
    except PermissionError:
        pass
with mk_audit(['.'])():
    try:
"""


@pytest.mark.parametrize("name", DENIED)
@pytest.mark.parametrize("then", ["", NEXT], ids=["at once", "under the next guard"])
def test_denied(run, out, name, then):
    said = run(USES.format(use=textwrap.indent(DENIED[name], "        "), next=then))
    assert int(said) >= (not then or name in AT_ONCE)
    assert {path.name for path in out.iterdir()} <= {"a.log", "custom.log"} and out.exists()
