"""Native code of the standard library that reads by itself is held to `read` and `block` too."""

import getpass
import grp
import locale
import os
import pwd
import ssl
import sys
from pathlib import Path

import pytest
from in_turn import Paths

from fastaudit_rs import AuditDenied, Policy

try:
    import readline
except ImportError:  # pragma: no cover
    readline = None

needs_readline = pytest.mark.skipif(readline is None, reason="no readline here")


# Variables that name files, and how.
NAMING = [
    ("TZ", "{0}/text"),
    ("TZ", ":{0}/text"),
    ("TZ", "../../..{0}/text"),
    ("TZDIR", "{0}"),
    ("TERMINFO", "{0}"),
    ("TERMINFO_DIRS", "/usr/share/terminfo:{0}"),
    ("TERMCAP", "{0}/text"),
    ("INPUTRC", "{0}/text"),
    ("LOCPATH", "{0}"),
    ("NLSPATH", "/usr/x:{0}/%N"),
    ("SSL_CERT_FILE", "{0}/text"),
    ("SSL_CERT_DIR", "/usr/x:{0}"),
    ("HOSTALIASES", "{0}/text"),
]
VARIABLES = sorted({name for name, _ in NAMING})


@pytest.fixture
def secret(places):
    directory = Path(places.out, "secret")
    directory.mkdir()
    (directory / "text").write_text("password=hunter2\n")
    (directory / "link").symlink_to("text")
    return str(directory)


def blocking(secret, places):
    return Policy(write=[places.ok], block=[secret], env=VARIABLES)


def reading(secret, places):
    return Policy(write=[places.ok], read=["/usr"], env=VARIABLES)


@pytest.fixture(params=[blocking, reading])
def held(request, secret, places):
    """A policy, and the rule by which it denies."""
    policy = request.param(secret, places)
    return policy, "block" if policy.block else "read"


def denied(function, *args, **kwargs):
    """The event that denies a call, and the rule; `None` if none does."""
    try:
        function(*args, **kwargs)
    except AuditDenied as error:
        return error.event, error.rule
    except (OSError, ValueError):
        pass
    return None


def guard(policy):
    return policy.guard(monitor_calls=False)()


@needs_readline
def test_readline(secret, places, held, monkeypatch):
    policy, rule = held
    text = secret + "/text"
    Path(places.ok, "theirs").write_text("ours\n")
    monkeypatch.setenv("HOME", secret)
    monkeypatch.delenv("INPUTRC", raising=False)
    readline.clear_history()
    with guard(policy):
        for call in (
            lambda: readline.read_history_file(text),
            lambda: readline.read_history_file(os.fsencode(text)),
            lambda: readline.read_history_file(Path(text)),
            lambda: readline.read_history_file(),
            lambda: readline.read_init_file(text),
            lambda: readline.read_init_file("~/text"),
            lambda: readline.parse_and_bind(f"$include {text}"),
            lambda: readline.parse_and_bind(f"  $ INCLUDE  {text}\nset editing-mode vi"),
            lambda: readline.parse_and_bind("$include ~/text"),
            lambda: list(map(readline.read_history_file, [text])),
            lambda: readline.read_history_file(Paths(text, places.ok + "/theirs")),
        ):
            assert denied(call) == ("open", rule)
        assert readline.get_current_history_length() == 0
        readline.read_history_file(Paths(places.ok + "/theirs", text))
        assert readline.get_history_item(1) == "ours"
        readline.parse_and_bind("tab: complete")
        readline.parse_and_bind(f"$include {places.ok}/theirs")
        readline.parse_and_bind("$if mode=vi")
        readline.parse_and_bind("$endif")
    readline.clear_history()


@needs_readline
def test_the_init_file_that_the_environment_names(secret, places, monkeypatch):
    monkeypatch.setenv("INPUTRC", secret + "/text")
    with guard(blocking(secret, places)):
        # The last file that was read, where there is one.
        assert denied(readline.read_init_file) == ("open", "block")


def test_certificates(secret, places, held):
    policy, rule = held
    text = secret + "/text"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with guard(policy):
        for call in (
            lambda: context.load_verify_locations(text),
            lambda: context.load_verify_locations(cafile=Path(text)),
            lambda: context.load_verify_locations(None, secret),
            lambda: context.load_verify_locations(capath=os.fsencode(secret)),
            lambda: context.load_verify_locations(Paths(text, places.ok + "/a")),
            lambda: context.load_cert_chain(text),
            lambda: context.load_cert_chain(certfile=places.ok + "/a", keyfile=text),
            lambda: context.load_dh_params(text),
            lambda: ssl.create_default_context(cafile=text),
            lambda: ssl._ssl._test_decode_cert(text),
            lambda: super(ssl.SSLContext, context).load_verify_locations(text),
            lambda: ssl._ssl._SSLContext.load_verify_locations(context, text),
            lambda: list(map(context.load_verify_locations, [text])),
        ):
            assert denied(call) == ("open", rule)
        with pytest.raises(FileNotFoundError):
            context.load_verify_locations(Paths(places.ok + "/missing", text))
        with pytest.raises(FileNotFoundError):
            paths = (
                Paths(places.ok + "/missing", text),
                Paths(places.ok + "/missing", text),
            )
            context.load_cert_chain(*paths)
        with pytest.raises(ssl.SSLError):
            context.load_verify_locations(cadata="nothing")
        with pytest.raises(TypeError):
            context.load_verify_locations()
        with pytest.raises(TypeError):
            context.load_cert_chain()
        with pytest.raises(TypeError):
            context.load_cert_chain(1)
        ssl.create_default_context()


def test_what_the_system_reads_by_itself(secret, places):
    """`block` holds for it; `read` does not, as ordinary code would not go on."""
    paths = ssl.get_default_verify_paths()
    blocked = [path for path in (paths.cafile, paths.capath) if path]
    blocked += ["/etc/passwd", "/etc/group"]
    with guard(Policy(write=[places.ok], block=blocked)):
        for call in (
            lambda: pwd.getpwuid(os.getuid()),
            lambda: pwd.getpwnam("root"),
            pwd.getpwall,
            lambda: grp.getgrgid(0),
            lambda: grp.getgrnam("root"),
            grp.getgrall,
            *([ssl.create_default_context] if len(blocked) > 2 else []),
        ):
            assert denied(call) == ("fastaudit.read", "block")
    with guard(Policy(write=[places.ok], read=[places.ok])):
        pwd.getpwuid(os.getuid())
        grp.getgrall()
        getpass.getuser()
        os.path.expanduser("~root")
        ssl.create_default_context()


def test_passwords(places):
    spwd = pytest.importorskip("spwd")
    with guard(Policy(write=[places.ok], block=["/etc/shadow"])):
        assert denied(spwd.getspall) == ("open", "block")
        assert denied(spwd.getspnam, "root") == ("open", "block")


@pytest.mark.skipif(not hasattr(locale, "bindtextdomain"), reason="no catalogs here")
def test_catalogs(secret, places, held):
    policy, rule = held
    with guard(policy):
        assert denied(locale.bindtextdomain, "ours", secret) == ("open", rule)
        assert denied(locale.bindtextdomain, "ours", secret + "/") == ("open", rule)
        locale.bindtextdomain("ours", places.ok)
        locale.bindtextdomain("ours", None)


@pytest.mark.parametrize("name", ["dbm.ndbm", "dbm.gnu"])
def test_dbm(places, name):
    dbm = pytest.importorskip(name, exc_type=ImportError)
    dbm.open(places.out + "/theirs", "c").close()
    files = [places.out + "/" + file for file in os.listdir(places.out)]
    with guard(Policy(write=[places.ok], block=files)):
        for flags in ("r", "w", "c"):
            assert denied(dbm.open, places.out + "/theirs", flags)[0] == "open"
    for file in files:
        os.symlink(file, file.replace(places.out, places.ok))
    with guard(Policy(write=[places.ok])):
        assert denied(dbm.open, places.ok + "/theirs", "w")[0] == "open"


def test_links(secret, places):
    os.symlink(secret + "/text", places.ok + "/to_secret")
    os.symlink("to_secret", places.ok + "/twice")
    fd = os.open(secret, os.O_RDONLY)
    with guard(blocking(secret, places)):
        for call in (
            lambda: os.readlink(secret + "/link"),
            lambda: os.readlink(os.fsencode(secret) + b"/link"),
            lambda: os.readlink(places.ok + "/../out/secret/link"),
            lambda: os.readlink("link", dir_fd=fd),
            lambda: os.readlink(path=Paths(secret + "/link", places.ok + "/twice")),
            lambda: Path(secret, "link").readlink() if sys.version_info >= (3, 9) else None,
        ):
            assert denied(call) == ("os.readlink", "block")
        # A link is where it is, not where it leads.
        assert os.readlink(places.ok + "/to_secret") == secret + "/text"
        assert os.path.realpath(places.ok + "/twice") == secret + "/text"
        assert Path(places.ok, "twice").resolve() == Path(secret, "text")
    os.close(fd)
    with guard(reading(secret, places)):
        assert os.readlink(secret + "/link") == "text"
        assert os.path.realpath(secret + "/link") == secret + "/text"
        assert os.path.realpath(sys.executable)


@pytest.mark.parametrize(
    ("name", "value"),
    NAMING,
)
def test_variables_that_name_files(secret, places, held, monkeypatch, name, value):
    monkeypatch.setenv(name, "")
    policy, rule = held
    with guard(policy):
        value = value.format(secret)
        assert denied(os.environ.__setitem__, name, value) == ("os.putenv", rule)
        assert denied(os.putenv, name, value) == ("os.putenv", rule)
        os.environ[name] = "" if name != "TZ" else "Europe/Berlin"
        if name == "TZ":
            os.environ[name] = "EST5EDT"
    with guard(Policy(write=[places.ok], env=VARIABLES)):
        os.environ[name] = value


@needs_readline
def test_without_a_policy_nothing_changes(secret, places, mk_audit):
    with mk_audit([places.ok], monitor_calls=False)():
        readline.clear_history()
        readline.read_history_file(secret + "/text")
        assert os.readlink(secret + "/link") == "text"
        with pytest.raises(ssl.SSLError):
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(secret + "/text")
    readline.clear_history()


@needs_readline
def test_a_recording_tells_of_them(secret):
    with Policy().observe(monitor_calls=False)() as recording:
        readline.read_history_file(secret + "/text")
        os.readlink(secret + "/link")
    readline.clear_history()
    assert secret + "/text" in recording.suggest().read
