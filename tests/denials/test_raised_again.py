"""Errors that a denial is raised again as say its text, and none passes for a common one."""

import asyncio
import logging
import mailbox
import os
import shutil
import socket
import tarfile
import tempfile
import urllib.request

import pytest

from fastaudit_rs import Policy


def bind(_):
    socket.create_server(("127.0.0.1", 0))


def serve(_):
    async def main():
        await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)

    asyncio.run(main())


def connect_from_here(_):
    async def main():
        loop = asyncio.get_running_loop()
        address = ("127.0.0.1", 9)
        await loop.create_connection(asyncio.Protocol, *address, local_addr=("127.0.0.1", 0))

    asyncio.run(main())


def url(_):
    urllib.request.urlopen("http://127.0.0.1:9/", timeout=5)


def copy_tree(out):
    os.mkdir("tree")
    with open("tree/a", "w") as file:
        file.write("a")
    shutil.copytree("tree", "copy", copy_function=lambda source, _: shutil.copy(source, out))


def log(out):
    logging.FileHandler(out + "/log")


def temporary(out):
    tempfile.NamedTemporaryFile(dir=out)


def mail(out):
    # It is opened for reading where the system says that it may not be written.
    mailbox.mbox(out + "/theirs").clear()


def unpack(out):
    open("b", "w").close()
    with tarfile.open("a.tar", "w") as archive:
        archive.add("b")
    with tarfile.open("a.tar") as archive:
        archive.extractall(out, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


AGAIN = [bind, serve, connect_from_here, url, copy_tree, log, temporary, mail, unpack]


@pytest.mark.parametrize("function", AGAIN)
def test_each_says_the_text(places, monkeypatch, function):
    monkeypatch.chdir(places.ok)
    with open(places.out + "/theirs", "w") as file:
        file.write("From a\n\nb\n")
    guard = Policy(write=[places.ok], network=False).guard(monitor_calls=False)()
    with guard, pytest.raises(OSError) as caught:
        function(places.out)
    assert guard.violations
    text = guard.violations[0].message.lower()
    assert text in str(caught.value).lower()
    assert "errno none" not in str(caught.value).lower()


def test_another_error_of_the_system_is_one_too(places):
    """`OSError` makes of the number what it stands for."""
    with (
        Policy(network=False).guard(monitor_calls=False)(),
        pytest.raises(PermissionError) as caught,
    ):
        bind(None)
    assert type(caught.value) is PermissionError
    assert "bind a socket to the address" in caught.value.strerror


def test_those_that_look_at_the_number_stay_loud(places, monkeypatch):
    """Functions that go on after some errors do not after a denial."""
    monkeypatch.chdir(places.out)
    with open("mails", "w") as file:
        file.write("From a\n\nb\n")
    with Policy(write=[places.ok]).guard(monitor_calls=False)():
        for attempt in (
            lambda: tempfile.mkdtemp(dir=places.out),
            lambda: tempfile.mkstemp(dir=places.out),
            lambda: tempfile.TemporaryFile(dir=places.out),
            lambda: os.makedirs("a/b", exist_ok=True),
            lambda: __import__("pathlib").Path("a/b").mkdir(parents=True, exist_ok=True),
            lambda: mailbox.mbox("mails").lock(),
            lambda: shutil.copystat("mails", "."),
            lambda: os.renames("mails", "c/d"),
            lambda: shutil.rmtree("."),
        ):
            with pytest.raises(PermissionError):
                attempt()
    assert sorted(os.listdir()) == ["mails"]
    assert os.listxattr("mails") == []
