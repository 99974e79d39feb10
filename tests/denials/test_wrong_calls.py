"""Wrong calls that people make: the error, or the warning, names what to write instead."""

import asyncio
import inspect
import os
import pickle
import sys
import tempfile
import warnings
from pathlib import Path

import programs
import pytest

import fastaudit_rs
from fastaudit_rs import Network, Policy, guarded, mk_audit, v02

# The names in the calls below.
NAMES = {
    "Network": Network,
    "Path": Path,
    "Policy": Policy,
    "asyncio": asyncio,
    "guarded": guarded,
    "mk_audit": mk_audit,
    "os": os,
    "sys": sys,
    "v02": v02,
}

# The call as it is written, and words that the message has.
ENTERED = [
    ("with mk_audit(['.']): pass", "call it, `with mk_audit([...])():`"),
    ("with v02.mk_audit(['.']): pass", "call it, `with v02.mk_audit([...])():`"),
    ("with Policy(): pass", "`with policy.guard()():`"),
    ("with Policy().guard(monitor_calls=False): pass", "call it, `with policy.guard()():`"),
    (
        "with Policy().observe(monitor_calls=False) as r: pass",
        "call it, `with policy.observe()() as recording:`",
    ),
    ("mk_audit(['.'])(print)", "write @mk_audit([...])()"),
    ("mk_audit(['.'])('.')", "takes no arguments: `with mk_audit([...])():`"),
    ("mk_audit(['.'])(write=['.'])", "takes no arguments: `with mk_audit([...])():`"),
    ("@mk_audit(['.'])\ndef run(): pass", "write @mk_audit([...])()"),
    ("@Policy().guard(monitor_calls=False)\ndef run(): pass", "write @policy.guard()()"),
    ("@Policy().observe(monitor_calls=False)\ndef run(): pass", "write @policy.observe()()"),
    ("@mk_audit\ndef run(): pass", "write @mk_audit([...])()"),
    ("mk_audit(['.'])()('x')", "a guard decorates a function, not str"),
    ("mk_audit(['.']).violations", "`with mk_audit([...])() as guard:` and guard.violations"),
    ("Policy().observe(monitor_calls=False).effects", "`with policy.observe()() as guard:`"),
]
ROOTS = [
    ("mk_audit()", "mk_audit() missing 1 required positional argument: 'oks'"),
    ("mk_audit('.')", "write mk_audit(['.'])"),
    ("mk_audit('/tmp', '/srv')", "all roots are in one list, mk_audit(['/tmp', '/srv'])"),
    ("mk_audit(['/tmp'], '/srv')", "all roots are in one list"),
    ("mk_audit([''])", "oks[0] must not be empty: '.' is the current directory"),
    ("mk_audit(['/tmp', b''])", "oks[1] must not be empty"),
    ("mk_audit([None])", "oks[0] must be str, bytes or os.PathLike, not NoneType"),
    ("mk_audit(None)", "mk_audit([]) for nowhere and mk_audit(['/']) for anywhere"),
    ("mk_audit({'write': '.'})", "write Policy(**fields).guard()"),
    ("mk_audit(Policy())", "write policy.guard()"),
    ("Policy().guard(['.'])", "Policy(write=[...])"),
]
KEYWORDS = [
    ("mk_audit(roots=['.'])", "It takes oks, before_deny"),
    ("mk_audit(['.'], before_den=print)", "Did you mean 'before_deny'?"),
    ("mk_audit(['.'], on_deny=print)", "Did you mean 'on_denied'?"),
    ("mk_audit(['.'], package='data')", "Did you mean 'packages'?"),
    ("mk_audit(['.'], write=['.'])", "Policy(write=…) has it"),
    ("mk_audit(['.'], network=False)", "Policy(network=…) has it"),
    ("mk_audit(['.'], policy=Policy())", "policy.guard()"),
    ("mk_audit(['.'], allow_imports=['numpy'])", "fastaudit_rs.v02.mk_audit(…, allow_imports=…)"),
    ("mk_audit(['.'], allow_import=['numpy'])", "fastaudit_rs.v02.mk_audit(…, allow_imports=…)"),
    ("v02.mk_audit(['.'], allow_import=['numpy'])", "Did you mean 'allow_imports'?"),
    ("v02.mk_audit(['.'], on_denied=print)", "fastaudit_rs.mk_audit(…, rules='0.2', on_denied=…)"),
    ("v02.mk_audit(['.'], rules='0.2')", "fastaudit_rs.mk_audit(…, rules='0.2') has it"),
    ("Policy(wirte=['.'])", "Did you mean 'write'? It takes write, read, block, protect"),
    ("Policy(writes=['.'])", "Did you mean 'write'?"),
    ("Policy(roots=['.'])", "Did you mean 'write'?"),
    ("Policy(hosts=['pypi.org'])", "Policy(network=Network(hosts=…)) has it"),
    ("Policy(memory='1G')", "Sandbox(policy, Limits(memory=…)) has it"),
    ("Policy(timeout=3)", "Sandbox(policy, Limits(wall_seconds=…)) has it"),
    ("Policy(before_deny=print)", "policy.guard(before_deny=…) has it"),
    ("Policy(nothing_like_it=1)", "Policy() has no argument 'nothing_like_it'. It takes write"),
    ("Policy().replace(wirte=['.'])", "Did you mean 'write'?"),
    ("Policy().guard(before_den=print)", "Did you mean 'before_deny'?"),
    ("Policy().guard(monitor_call=False)", "Did you mean 'monitor_calls'?"),
    ("Policy().observe(enforced=True)", "Did you mean 'enforce'?"),
    ("Policy().install(on_deny=print)", "Did you mean 'on_denied'?"),
    ("Network(host=['pypi.org'])", "Did you mean 'hosts'? It takes hosts, block, ports"),
    ("Policy.parse_toml('wirte = []')", "Did you mean 'write'?"),
    ("Policy.parse_toml('[network]\\nhost = []')", "Did you mean 'hosts'?"),
    ("Policy.preset('workspce')", "Did you mean 'workspace'?"),
]
FIELDS = [
    ("Policy('.')", "write Policy(write=['.'])"),
    ("Policy(['/tmp', '/srv'])", "write Policy(write=['/tmp', '/srv'])"),
    ("Policy(Path('.'))", "write Policy(write=[PosixPath('.')])"),
    ("Policy({'write': ['.']})", "write Policy(**fields)"),
    ("Policy().replace(['.'])", "write policy.replace(write=['.'])"),
    ("Policy(write='.')", "write ['.']"),
    ("Policy(write=b'.')", "write [b'.']"),
    ("Policy(write=True)", "write None for all of them"),
    ("Policy(write=False)", "write [] for none"),
    ("Policy(write=[''])", '"." is the current directory'),
    ("Policy(read='/etc')", "write ['/etc']"),
    ("Policy(commands='git')", "write ['git']"),
    ("Policy(commands=['git status'])", "without arguments"),
    ("Policy(env='PATH')", "write ['PATH']"),
    ("Policy(env={'A': 'b'})", "write ['A']"),
    ("Policy(network=['pypi.org'])", "write Network(hosts=['pypi.org'])"),
    ("Policy(network='pypi.org')", "write Network(hosts=['pypi.org'])"),
    ("Policy(network={'host': []})", "'host'"),
    ("Policy(threads=True)", "write threads='inherit'"),
    ("Policy(threads=False)", "write threads='deny'"),
    ("Policy(unknown_events=False)", "write unknown_events='deny'"),
    ("Policy(native='numpy')", "write ['numpy']"),
    ("Policy(imports={'blok': ['ctypes']})", "Did you mean 'block'?"),
    ("Policy(max_bytes='lots')", "a size such as '10M'"),
    ("Policy(on_violation='ignore')", "'raise' or 'warn' or 'log' or a function"),
    ("Network('pypi.org')", "write Network(hosts=['pypi.org'])"),
    ("Network(hosts='pypi.org')", "write ['pypi.org']"),
    ("Network(hosts=['https://pypi.org/simple'])", "must be a host name"),
    ("Network(ports=443)", "write [443]"),
    ("Network(listen='localhost')", "write ['localhost']"),
    ("Policy.parse_toml('x.toml')", "write Policy.from_toml('x.toml')"),
    ("Policy.parse_toml(Path('x.toml'))", "write Policy.from_toml(PosixPath('x.toml'))"),
    ("Policy.parse_toml(b'write = []')", "text must be str, not bytes"),
    ('Policy.from_toml("write = []")', "write Policy.parse_toml(text)"),
    ("Policy().explain(open, 'x')", "the name of an audit event ('open')"),
    ("guarded(['.'])", "guarded takes a function or a Policy, not list"),
]
SANDBOXES = [
    ("Limits(memroy='1G')", "Did you mean 'memory'? It takes memory, wall_seconds"),
    ("Limits(timeout=3)", "Did you mean 'wall_seconds'?"),
    ("Sandbox(['.'])", "policy must be a Policy, not list"),
    ("Sandbox(Policy(), limit=Limits())", "Did you mean 'limits'?"),
    ("Sandbox(Policy(), timeout=3)", "Sandbox(policy, Limits(wall_seconds=…)) has it"),
    ("Sandbox(Policy(), write=['.'])", "Policy(write=…) has it"),
    ("SandboxManager(limit=Limits())", "Did you mean 'limits'?"),
    ("sandbox.run('1', time=3)", "Did you mean 'timeout'?"),
    ("asyncio.run(sandbox.arun('1', wall_seconds=3))", "Limits(wall_seconds=…)"),
    ("asyncio.run(sandbox.arun('1', [], '', 3))", "Sandbox.arun(): too many positional arguments"),
    ("asyncio.run(sandbox.commands.arun())", "commands.arun(): missing a required argument"),
    ("asyncio.run(sandbox.commands.arun('ls', cw='/'))", "Did you mean 'cwd'?"),
    ("sandbox.run('script.py')", "write Path('script.py')"),
    ("sandbox.run(3)", "code must be a str or the path of a file, not int"),
    ("sandbox.run('1', args='x')", "write ['x']"),
    ("sandbox.run('1', args=3)", "args must be a list, not int: write [3]"),
    ("sandbox.run()", "Sandbox.run() missing 1 required"),
    ("sandbox.files.upload(3)", "source must be a path, not int"),
    ("sandbox.files.download('.', 3)", "to must be a path, not int"),
    ("sandbox.run('1', stdin=3)", "stdin must be str or bytes, not int"),
    ("sandbox.run('1', stdin=sys.stderr)", ": pass the text, not a file"),
    ("sandbox.run('1', input='x')", "Sandbox.run() has no argument 'input'. Did you mean 'stdin'?"),
    ("sandbox.write_file('a', sys.stdin)", "data must be str or bytes, not "),
]

# The same of sessions in both places.
STEPS = [
    ("session.run(3)", "code must be a str, not int"),
    ("session.run(Path('a.py'))", "code must be a str, not PosixPath: write path.read_text()"),
    (
        "session.run('1', inputs={})",
        "Session.run() has no argument 'inputs'. Did you mean 'variables'?",
    ),
    (
        "session.run('1', function={})",
        "Did you mean 'tools'? It takes code, variables, tools, timeout, stdin, on_output.",
    ),
    ("session.run('1', wall_seconds=3)", "Limits(wall_seconds=…)) has it"),
    ("asyncio.run(session.arun('1', input=''))", "Did you mean 'stdin'?"),
    ("asyncio.run(session.arun('1', {}))", "Session.run(): too many positional arguments"),
    ("session.stream('1', inputs={})", "Did you mean 'variables'?"),
    ("session.run('1', tools=[price, price])", "two have the name 'price'"),
    ("session.run('1', tools=price)", "not function: write {'price': price}"),
    ("session.run('1', tools=[lambda: 1])", "function without a name: write {'name': function}"),
    (
        "session.run('1', tools={'a b': price})",
        "'a b' is no name that code can have: write 'a_b'",
    ),
    (
        "session.run('1', tools={'class': price})",
        "'class' is no name that code can have: write 'class_'",
    ),
    ("session.run('1', tools={'1': price})", "tools: '1' is no name that code can have"),
    ("session.run('1', tools=[3])", "tools[0] must be a function, not int"),
    ("session.run('1', tools={1: price})", "tools: names must be str, not int"),
    (
        "session.run('1', tools={'a': 1})",
        "tools['a'] must be a function, not int: variables= takes values",
    ),
    (
        "session.run('1', variables=[1])",
        "variables must be a mapping from names, not list: write {'name': value}",
    ),
    (
        "session.run('1', variables={'a b': 1})",
        "variables: 'a b' is no name that code can have: write 'a_b'",
    ),
    (
        "session.run('1', variables={'x': object()})",
        "variables['x'] is an object of object, which cannot be passed by value",
    ),
    (
        "session.run('1', variables={'x': [1, object()]})",
        "variables['x'][1] is an object of object",
    ),
    (
        "session.run('1', variables={'f': price})",
        "which cannot be passed by value: tools= takes functions",
    ),
    ("session.run('1', timeout=-1)", "timeout must be positive, not -1"),
    ("session.run('1', timeout=0)", "timeout must be positive, not 0"),
    ("session.run('1', timeout=float('nan'))", "timeout must be positive, not nan"),
    ("session.run('1', timeout='1')", "timeout must be a number of seconds, not str"),
    ("session.save(3)", "to must be a path or a mutable mapping from ids to bytes, not int"),
    ("session.load(3)", "source must be a path or a mutable mapping"),
    ("session.nothing_like_it", "'Session' object has no attribute 'nothing_like_it'"),
    ("session.get(1)", "name: names must be str, not int"),
    (
        "session.get('function')",
        "function is an object of function, which cannot be passed by value",
    ),
]
SESSIONS = [
    ("make(function={})", "session() has no argument 'function'. Did you mean 'tools'?"),
    ("make(on_aks=print)", "session() has no argument 'on_aks'. Did you mean 'on_ask'?"),
    ("make(write=['.'])", "Policy(write=…) has it"),
    ("make(tools=price)", "not function: write {'price': price}"),
    ("make(timeout=-1)", "timeout must be positive, not -1"),
    ("make(on_ask=3)", "on_ask must be"),
    ("make(on_ask=print, ask_seconds=-1)", "ask_seconds"),
]


def fails(code, says, more=()):
    names = {**NAMES, **dict(more)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((TypeError, ValueError, AttributeError)) as raised:
            exec(code, names)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """An empty directory, in which a call that fails leaves nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("code", "says"), ENTERED + ROOTS + KEYWORDS + FIELDS)
def test_it_says_what_to_write(alone, code, says):
    fails(code, says)
    assert v02.audit_state()["active"] is False
    assert fastaudit_rs.installed_policy() is None


@pytest.mark.parametrize(("code", "says"), SANDBOXES)
def test_it_says_what_to_write_of_sandboxes(alone, code, says):
    from fastaudit_rs import Limits, Sandbox, SandboxManager

    made = {"Limits": Limits, "Sandbox": Sandbox, "SandboxManager": SandboxManager}
    with Sandbox(Policy(), confine="audit") as sandbox:
        fails(code, says, {**made, "sandbox": sandbox})
        assert sandbox.list_files() == []


@pytest.fixture(scope="module", params=["here", "sandbox"])
def makes_sessions(request):
    """A function that makes sessions, in each place."""
    if request.param == "here":
        yield Policy().session
        return
    from fastaudit_rs import Sandbox

    with Sandbox(Policy(), confine="audit") as sandbox:
        yield sandbox.session


@pytest.fixture(scope="module")
def session(makes_sessions):
    with makes_sessions() as session:
        session.run("def function(): pass")
        yield session


def price(item):
    return len(item)


class TestSessions:
    @pytest.mark.parametrize(("code", "says"), STEPS)
    def test_a_step(self, session, code, says):
        names = session.names
        fails(code, says, {"session": session, "price": price})
        assert session.names == names and session.run("1 + 1").value == 2

    @pytest.mark.parametrize(("code", "says"), SESSIONS)
    def test_a_session(self, makes_sessions, code, says):
        fails(code, says, {"make": makes_sessions, "price": price})

    @pytest.mark.parametrize("name", ["diff", "files"])
    def test_what_a_sandbox_alone_has(self, name):
        with Policy().session() as session:
            fails(
                f"session.{name}", ": a session of Sandbox.session() has it", {"session": session}
            )

    def test_a_step_in_a_step(self, session):
        ran = session.run("f()", tools={"f": lambda: session.run("1")})
        assert str(ran.error) == (
            "RuntimeError: the session runs a step already: wait for its end, or call interrupt(); "
            "a SessionManager queues steps"
        )

    @pytest.mark.parametrize("code", ["session.run('1')", "session.names", "session.reset()"])
    def test_after_its_end(self, makes_sessions, code):
        with makes_sessions() as session:
            pass
        with pytest.raises(RuntimeError, match="^the session is closed$"):
            exec(code, {"session": session})
        assert session.interrupt() is False
        assert repr(session).endswith(", closed>")


def test_a_session_takes_what_a_guard_takes():
    given = {"tool_id": 3, "monitor_calls": False, "retire_sites": False}
    # The `calls` of a session is the number of calls of tools that a step may make.
    for name in inspect.signature(Policy.guard).parameters.keys() - {"self", "calls"}:
        Policy().session(**{name: given.get(name)}).close()


def test_a_guard_that_was_entered_wrongly_works_when_it_is_called(tmp_path):
    audit_perms = mk_audit([tmp_path], monitor_calls=False)
    with pytest.raises(TypeError, match="call it"), audit_perms:
        pass
    with audit_perms(), pytest.raises(PermissionError):
        os.mkdir("/fastaudit-rs-test")
    (tmp_path / "free").mkdir()


def test_also_with_async_with():
    async def main():
        async with mk_audit(["."], monitor_calls=False):
            pass

    with pytest.raises(TypeError, match="call it"):
        asyncio.run(main())


def test_an_attribute_that_nothing_has_is_named_as_python_does():
    with pytest.raises(AttributeError, match="has no attribute 'set_dat'") as raised:
        mk_audit(["."], monitor_calls=False).set_dat
    assert raised.value.name == "set_dat"
    assert not hasattr(mk_audit(["."], monitor_calls=False), "violations")


@pytest.mark.slow
def test_the_marker_names_the_near_field(pytester):
    pytester.makepyfile("""
        import pytest

        @pytest.mark.audit(wirte=["."])
        def test_one():
            pass
    """)
    found = pytester.runpytest_subprocess()
    found.stdout.fnmatch_lines("*Did you mean 'write'?*")


MISSING = [
    ("mk_audit(['nosuchdir'], monitor_calls=False)", "oks: there is no '{0}/nosuchdir'"),
    ("mk_audit(['nosuchdir', '..'], monitor_calls=False)", "oks: there is no '{0}/nosuchdir'"),
    ("mk_audit(['..', 'nosuchdir'], monitor_calls=False)", "oks: there is no '{0}/nosuchdir'"),
    ("mk_audit(['~nobody-here/x'], monitor_calls=False)", "oks: there is no '{0}/~nobody-here/x'"),
    ("mk_audit(['*.txt'], monitor_calls=False)", "oks: there is no '{0}/*.txt'"),
    ("mk_audit(['a/report.txt'], monitor_calls=False)", "oks: there is no '{0}/a/report.txt'"),
    ("v02.mk_audit(['nosuchdir'], monitor_calls=False)", "oks: there is no '{0}/nosuchdir'"),
    (
        "Policy(write=['nosuchdir/x']).guard(monitor_calls=False)",
        "write: there is no '{0}/nosuchdir/x'",
    ),
    (
        "Policy(commands=['nosuchprog']).guard(monitor_calls=False)",
        'commands: there is no program "nosuchprog"',
    ),
    (
        "Policy(write=['.'], block=['private/*.key']).guard(monitor_calls=False)",
        'block[0]: "private/*.key" is the path of one file',
    ),
    (
        "Policy(write=['a/*']).guard(monitor_calls=False)",
        'write[0]: "a/*" is the path of one file',
    ),
    ("Policy().explain('opne', 'x')", "raises an event 'opne'. Did you mean 'open'?"),
    ("Policy().explain('write', 'x')", "raises an event 'write'"),
    ("Policy().explain('os.rmove', 'x')", "Did you mean 'os.remove'?"),
]


@pytest.mark.parametrize(("code", "says"), MISSING)
def test_what_is_not_there_warns(alone, code, says):
    # As a host's own code, which warns once at each place.
    code = compile(f"for _ in 'ab': {code}", "host.py", "exec")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        exec(code, {**NAMES, "__warningregistry__": {}})
    assert [(w.category, w.filename) for w in warned] == [(UserWarning, "host.py")]
    assert str(warned[0].message).startswith("fastaudit_rs: ")
    assert says.format(os.path.realpath(alone)) in str(warned[0].message)


@pytest.mark.parametrize(
    "code",
    [
        "mk_audit(['.', '..', '/', os.getcwd()], monitor_calls=False)",
        # They will be made: hints and recordings name such.
        "mk_audit(['report.txt'], monitor_calls=False)",
        "Policy(write=['out.csv', 'out'], read=['nosuchdir']).guard(monitor_calls=False)",
        "Policy(commands=True, write=None).guard(monitor_calls=False)",
        "Policy().explain('fastaudit.call', 'a', 'b')",
        "Policy().explain('somelib.event')",
        "Policy(unknown_events='deny').explain('somelib.event')",
    ],
)
def test_what_is_there_does_not_warn(alone, code):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(code, {**NAMES})


def test_the_command_warns_in_a_line(alone):
    command = [sys.executable, "-m", "fastaudit_rs", "run", "--write", "nosuchdir/x"]
    command += ["-c", "print(1)"]
    ran = programs.run(command, check=True)
    place = os.path.realpath(alone) + "/nosuchdir/x"
    assert ran.stdout == "1\n"
    assert ran.stderr == f"fastaudit-rs: write: there is no {place!r}\n"


def test_a_sandbox_warns_its_host_and_not_its_code(alone):
    from fastaudit_rs import Sandbox

    policy = Policy(write=["nosuchdir/x"], commands=["nosuchprog"])
    with pytest.warns(UserWarning) as warned, Sandbox(policy, confine="audit") as sandbox:
        assert sandbox.run("print(1)").stderr == ""
    says = [str(warning.message) for warning in warned]
    assert [text.partition("there is no ")[0] for text in says] == [
        "fastaudit_rs: write: ",
        "fastaudit_rs: commands: ",
    ]
    assert {warning.filename for warning in warned} == {__file__}


def test_where_the_warning_is_an_error_there_is_no_guard(alone):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="nosuchdir"):
            mk_audit(["nosuchdir"], monitor_calls=False)


def test_the_words_are_imported_for_a_wrong_call_alone():
    code = """
import sys
import fastaudit_rs
with fastaudit_rs.mk_audit(["."], monitor_calls=False)():
    pass
from fastaudit_rs import Limits
Limits()
print("fastaudit_rs._near" in sys.modules)
"""
    assert programs.printed(code) == "False\n"


def test_under_a_guard_that_imports_nothing_the_error_is_a_type_error():
    code = """
from fastaudit_rs import Policy
with Policy(imports=False).guard(monitor_calls=False)():
    try:
        Policy(wirte=[])
    except TypeError as error:
        print(error)
"""
    assert programs.printed(code) == "Policy() has no argument 'wirte'\n"


def test_limits_stay_a_plain_dataclass():
    import inspect

    from fastaudit_rs import Limits

    assert [*inspect.signature(Limits).parameters][:2] == ["memory", "wall_seconds"]
    assert pickle.loads(pickle.dumps(Limits(memory="16M"))) == Limits(memory=16 << 20)
