"""The most that answers to the questions of a session in a sandbox open."""

import os
import threading

import pytest
from users import USERS, run_as

from fastaudit_rs import Approvals, Network, Policy, Sandbox

pytest.importorskip("sandlock")


@pytest.fixture
def asking(tmp_path):
    """`asking(*answers, **options)`: a sandbox, a session that asks, and what it was asked."""
    made = []

    def make(*answers, **options):
        asked, left = [], list(answers)

        def on_ask(denied):
            asked.append((threading.current_thread(), denied))
            return left.pop(0) if len(left) > 1 else left[0]

        policy = options.pop("policy", Policy.preset("sandbox"))
        sandbox = Sandbox(policy, parent=tmp_path, **options)
        made.append(sandbox)
        return sandbox.session(on_ask=on_ask), asked

    try:
        yield make
    finally:
        for sandbox in made:
            sandbox.close()


def writing(path):
    return f"open({str(path)!r}, 'w').close()"


def test_an_answer_opens_what_the_kernel_lets_through(asking, out):
    up_to = Policy(write=[str(out)], network=False)
    session, asked = asking("once", "pattern", "deny", ask_up_to=up_to)
    assert session.run(writing(out / "a")).error is None
    assert session.run(writing(out / "b")).error is None
    ran = session.run(writing(out / "c"))
    assert (ran.error, ran.violations) == (None, [])
    assert [denied.path for _, denied in asked] == [str(out / "a"), str(out / "b")]
    assert {thread for thread, _ in asked} == {threading.current_thread()}
    assert asked[0][1].answers == ("once", "guard", "pattern", "deny", "never")
    assert sorted(os.listdir(out)) == ["a", "b", "c"]


def test_an_answer_does_not_open_what_the_kernel_holds(asking, out, tmp_path):
    (tmp_path / "other").mkdir()
    session, asked = asking("pattern", ask_up_to=Policy(write=[str(out)]))
    ran = session.run(writing(tmp_path / "other" / "a"))
    assert ran.error.kind == "fastaudit_rs.AuditDenied"
    [denied] = ran.violations
    assert denied.path == str(tmp_path / "other" / "a")
    assert "ask_up_to=" in denied.answer and "ask_up_to=" in str(denied)
    assert asked == []
    assert os.listdir(tmp_path / "other") == []


def test_a_kept_answer_opens_no_more_than_the_kernel(asking, out):
    (out / "in").mkdir()
    session, asked = asking("pattern", ask_up_to=Policy(write=[str(out / "in")]))
    assert session.run(writing(out / "in" / "a")).error is None
    ran = session.run(writing(out / "b"))
    assert [denied.path for denied in ran.violations] == [str(out / "b")]
    assert len(asked) == 1


#: What the kernel denies whatever is answered, by the field of the policy.
HELD = {
    "write": "open({out!r} + '/a', 'w')",
    "read": "open({out!r} + '/there').read()",
    "commands": "import subprocess; subprocess.run(['true'])",
    "network": "import socket; socket.create_connection(('127.0.0.1', 9))",
    "lookup": "import socket; socket.getaddrinfo('example.com', 80)",
}


@pytest.mark.filterwarnings("ignore:fastaudit_rs. on_ask without ask_up_to")
def test_without_it_nobody_is_asked_about_what_the_kernel_holds(asking, out):
    (out / "there").write_text("x")
    session, asked = asking("once")
    for name, code in HELD.items():
        ran = session.run(code.format(out=str(out)))
        assert ran.error.kind == "fastaudit_rs.AuditDenied", (name, ran.error)
        [denied] = ran.violations
        assert "ask_up_to=" in denied.answer
    assert asked == []
    assert session.run("import os; os.environ['LD_PRELOAD'] = ''").error is None
    assert len(asked) == 1
    assert os.listdir(out) == ["there"]


@pytest.mark.slow
def test_without_it_a_warning_says_so(tmp_path):
    with Sandbox(parent=tmp_path) as sandbox:
        with pytest.warns(UserWarning, match=r"ask_up_to=Policy\(write") as warned:
            sandbox.session(on_ask=print).close()
    assert warned[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_without_the_kernel_an_answer_opens_what_it_says(asking, out):
    session, asked = asking("once", confine="audit")
    assert session.run(writing(out / "a")).error is None
    assert (len(asked), os.listdir(out)) == (1, ["a"])


def test_what_the_host_raises_is_told(tmp_path, out):
    def on_ask(denied):
        raise LookupError("nobody")

    with Sandbox(parent=tmp_path, ask_up_to=Policy(write=[out])) as sandbox:
        [denied] = sandbox.session(on_ask=on_ask).run(writing(out / "a")).violations
    assert "on_ask raised LookupError: nobody" in denied.answer


@pytest.mark.slow
def test_what_is_blocked_stays_so(asking, out):
    (out / "secret").mkdir()
    (out / "secret" / "key").write_text("key")
    policy = Policy.preset("sandbox").replace(block=[str(out / "secret")])
    session, asked = asking("once", policy=policy, ask_up_to=Policy(read=[str(out)]))
    ran = session.run(f"open({str(out / 'secret' / 'key')!r}).read()")
    assert ([denied.rule for denied in ran.violations], asked) == (["block"], [])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ask_up_to": "/"}, "ask_up_to must be a Policy"),
        ({"on_ask": Approvals("x", lambda denied: None)}, "must not be Approvals"),
    ],
)
def test_arguments(tmp_path, options, told):
    with pytest.raises(TypeError, match=told):
        if "on_ask" in options:
            with Sandbox(parent=tmp_path) as sandbox:
                sandbox.session(**options)
        else:
            Sandbox(parent=tmp_path, **options)


def test_the_kernel_holds_both_policies():
    from fastaudit_rs.sandbox.host.setup import bound

    own = Policy(write=["/a"], read=["/b"], commands=["ls"], network=False, block=["/x"])
    more = Policy(write=["/c"], read=["/d"], commands=["cat"], network=True)
    held = bound(own, more)
    assert (held.write, held.read, held.commands) == (("/a", "/c"), ("/b", "/d"), ("ls", "cat"))
    assert (held.network, held.block) == (True, ("/x",))
    one, two = Network(hosts=["a:1"], ports=[1]), Network(hosts=["b:2"], listen=["*:3"])
    network = bound(own.replace(network=one), more.replace(network=two)).network
    assert network == Network(hosts=["a:1", "b:2"], ports=None, listen=["*:3"])
    assert bound(own, more.replace(network=one)).network == one
    assert bound(own.replace(network=one), more.replace(network=False)).network == one
    assert bound(own, Policy()).read == ("/b",)
    assert bound(own, Policy(commands=True)).commands is True


OF_A_USER = """
import os
from fastaudit_rs import Policy, Sandbox
for name in ("out", "other"):
    os.mkdir(name)
out, other = map(os.path.abspath, ("out", "other"))
with Sandbox(ask_up_to=Policy(write=[out])) as sandbox:
    session = sandbox.session(on_ask=lambda denied: "once")
    for place in (out, other):
        error = session.run(f"open({place!r} + '/a', 'w')").error
        print(error and error.kind, os.listdir(place))
"""


@pytest.mark.slow
@pytest.mark.parametrize("user", USERS)
def test_for_each_user(user):
    assert run_as(user, OF_A_USER) == "None ['a']\nfastaudit_rs.AuditDenied []\n"


def test_files_by_which_the_host_governs(out):
    """They lie in a place of `write`: the guard keeps them."""
    rules = out / "policy.toml"
    rules.write_text(f"native = true\nnetwork = false\nwrite = ['{out}']\n")
    Policy(write=[]).guard(on_ask=Approvals(out / "answers.toml"))
    with Sandbox(Policy.from_toml(rules)) as sandbox:
        session = sandbox.session()
        for name in ("policy.toml", "answers.toml"):
            ran = session.run(writing(out / name))
            assert [denied.rule for denied in ran.violations] == ["protect"], ran.error
        ran = session.run(f"import os; os.rename({str(out)!r}, {str(out) + '2'!r})")
        assert ran.error is not None
        assert session.run(writing(out / "new")).error is None
        ran = sandbox.run(writing(rules))
        assert [denied.rule for denied in ran.violations] == ["protect"]
    assert rules.read_text().startswith("native")
    assert sorted(os.listdir(out)) == ["new", "policy.toml"]
