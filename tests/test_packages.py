"""Packages that are named as one installs or imports them, with the native code that is theirs."""

import sys

import pytest

from fastaudit_rs import AuditDenied, Policy

watches_calls = pytest.mark.skipif(sys.version_info < (3, 12), reason="has no sys.monitoring")

PYDANTIC = """
from pydantic import BaseModel
class M(BaseModel):
    x: int
M(x='3').model_dump_json()
"""
CIPHERS = """
from cryptography.fernet import Fernet
f = Fernet(Fernet.generate_key())
f.decrypt(f.encrypt(b'x'))
"""
RSA = """
from cryptography.hazmat.primitives.asymmetric import rsa
rsa.generate_private_key(65537, 1024)
"""
JINJA = """
import jinja2
jinja2.Environment(autoescape=True).from_string('{{ x }}').render(x='<')
"""
MSGPACK = """
import msgpack
msgpack.packb([1])
"""


def imported(source):
    """The source, with what it needs imported before."""
    try:
        exec(source, {"__name__": "guest"})
    except ImportError as error:
        pytest.skip(f"needs {error.name}")
    return source


def run(source, **fields):
    with Policy(threads="inherit", **fields).guard()():
        exec(source, {"__name__": "guest"})


@watches_calls
class TestNativeCodeIsOfItsPackage:
    @pytest.mark.parametrize(
        ("source", "package"),
        [
            (PYDANTIC, "pydantic"),  # `_pydantic_core` and `pydantic_core`, which it requires
            (CIPHERS, "cryptography"),
            (RSA, "cryptography"),
            (JINJA, "jinja2"),  # markupsafe, which it requires
            (JINJA, "Jinja2"),
            (MSGPACK, "msgpack"),
        ],
        ids=lambda given: given if "\n" not in given else "",
    )
    def test_named_as_it_is_installed_or_imported(self, source, package):
        imported(source)
        run(source, native=[package])

    @pytest.mark.parametrize(
        ("source", "package"),
        [
            (PYDANTIC, "jinja2"),
            (CIPHERS, "pydantic_core"),
            (RSA, "rsa_of_another"),
            (JINJA, "msgpack"),
            (MSGPACK, "pydantic"),
            (MSGPACK, "msgpack.fallback"),  # a part is no package
        ],
        ids=lambda given: given if "\n" not in given else "",
    )
    def test_others_stay_denied(self, source, package):
        imported(source)
        with pytest.raises(AuditDenied) as caught:
            run(source, native=[package])
        assert caught.value.rule == "native"

    @pytest.mark.parametrize(
        ("source", "package"),
        [(CIPHERS, "cryptography"), (PYDANTIC, "pydantic_core"), (MSGPACK, "msgpack")],
    )
    def test_a_hint_names_the_package(self, source, package):
        imported(source)
        with pytest.raises(AuditDenied) as caught:
            run(source, native=["orjson"])
        assert package in caught.value.hint

    def test_a_recording_names_the_package(self):
        imported(CIPHERS)
        with Policy(native=False).observe()() as recording:
            exec(CIPHERS, {"__name__": "guest"})
        assert "cryptography" in recording.suggest().native
        assert "ciphers" not in recording.suggest().native

    def test_a_class_of_the_guests_own_is_of_no_package(self):
        imported(MSGPACK)
        source = """
import msgpack
class Packer(msgpack.Packer):
    __module__ = 'orjson'
Packer().pack(1)
"""
        with pytest.raises(AuditDenied):
            run(source, native=["cryptography"])
        run(source, native=["msgpack"])
