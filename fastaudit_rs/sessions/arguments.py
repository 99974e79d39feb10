"""Arguments of sessions: their types, and how they are checked."""

import keyword
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, NoReturn, TypeAlias

from .. import Policy, Tool
from ..pending import Granted
from .foreign import ToolSource, function_of, own_name
from .forms import DATA, NotData, TooLarge
from .objects import data_of
from .pieces import Tell
from .typed import GENERATOR, Typed, is_async_function, is_generator_function
from .values import pack

#: The snapshots that a session keeps, unless it is told another number.
SNAPSHOTS = 8

#: The calls of tools that a step may make, unless it is told another number.
CALLS = 1000

#: The seconds that work between steps may take: packing a value, finalizers of objects.
BETWEEN = 30.0

#: Tools: functions of the host, or tools of other agent packages, that a step may call, by the
#: names that it calls them by; or a list of those that have names; or an `MCP` server.
Tools: TypeAlias = Mapping[str, Any] | Sequence[Any] | ToolSource


class _OfHost:
    """Marks a parameter that a model cannot give: it is in no JSON schema."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> NoReturn:
        from pydantic_core import PydanticOmit

        raise PydanticOmit


#: Arguments of a step that a host gives, and no model that calls `Session.run` as a tool.
Variables: TypeAlias = Annotated[Mapping[str, object] | None, _OfHost()]
GivenTools: TypeAlias = Annotated[Tools | None, _OfHost()]
OnOutput: TypeAlias = Annotated[Tell | None, _OfHost()]


def text_of(code: object) -> str:
    if isinstance(code, str):
        return code
    instead = ": write path.read_text()" if isinstance(code, PurePath) else ""
    raise TypeError(f"code must be a str, not {type(code).__name__}{instead}")


def identifier(argument: str, name: object) -> str:
    if type(name) is not str:
        raise TypeError(f"{argument}: names must be str, not {type(name).__name__}")
    if not name.isidentifier() or keyword.iskeyword(name):
        near = re.sub(r"\W+", "_", name)
        near = f"{near}_" if keyword.iskeyword(near) else near
        instead = f": write {near!r}" if near.isidentifier() else ""
        raise ValueError(f"{argument}: {name!r} is no name that code can have{instead}")
    return name


def id_of(given: object) -> str:
    """The id of a session; another one for each that is given none."""
    if given is None:
        return secrets.token_hex(8)
    if not isinstance(given, str):
        raise TypeError(f"id must be a str, not {type(given).__name__}")
    if not given:
        raise ValueError("id must not be empty")
    return given


def tools_of(given: object) -> dict[str, Callable[..., Any]]:
    """Return tools by their names: `Tool`s as they are, anything else as what reads arguments."""
    if given is None:
        return {}
    pairs: list[tuple[str, Any]] = []
    if isinstance(given, ToolSource):
        given = [given]
    if isinstance(given, Mapping):
        for name, one in given.items():
            if isinstance(one, ToolSource):
                pairs += one.functions(identifier("tools", name)).items()
            else:
                pairs.append((name, one))
    elif isinstance(given, (list, tuple)):
        for number, one in enumerate(given):
            if isinstance(one, ToolSource):
                pairs += one.functions(None).items()
            else:
                pairs.append((_own_name(number, one), one))
    else:
        name = own_name(given)
        pair = f"{{{name!r}: {name}}}" if name and name.isidentifier() else "{'name': function}"
        raise TypeError(
            f"tools must be a mapping from names, or a list, not {type(given).__name__}: "
            f"write {pair}"
        )
    found: dict[str, Callable[..., Any]] = {}
    for name, function in pairs:
        if identifier("tools", name) in found:
            raise ValueError(f"tools: two have the name {name!r}: write a mapping from names")
        found[name] = _tool_of(name, function)
    return found


def _own_name(number: int, one: Any) -> str:
    name = own_name(one)
    kind = type(one).__name__
    if not callable(one) and name is None:
        raise TypeError(f"tools[{number}] must be a function, not {kind}")
    if name is None or name == "<lambda>":
        raise TypeError(f"tools[{number}] is a {kind} without a name: write {{'name': function}}")
    return name


def _tool_of(name: str, function: Any) -> Callable[..., Any]:
    if isinstance(function, (Tool, Typed)):
        return function
    found = function_of(function, name)
    if found is not None:
        return found
    if not callable(function):
        kind = type(function).__name__
        raise TypeError(f"tools[{name!r}] must be a function, not {kind}: variables= takes values")
    if is_generator_function(function):
        raise TypeError(f"tools[{name!r}]: {GENERATOR}")
    return Typed(function, name)


def is_async(function: object) -> bool:
    """True if calls of it are awaited."""
    if isinstance(function, Tool):
        return function._is_async
    return function.is_async if isinstance(function, Typed) else is_async_function(function)


def listener(given: Any) -> Any:
    """Check a function that gets output."""
    if given is not None and (not callable(given) or is_async(given)):
        kind = "a coroutine function" if callable(given) else type(given).__name__
        raise TypeError(f"on_output must be a plain function of an Output, not {kind}")
    return given


def variables_of(given: object) -> bytes:
    """Check the variables of a step; return them packed, empty if there are none."""
    if given is None:
        return b""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"variables must be a mapping from names, not {type(given).__name__}: "
            "write {'name': value}"
        )
    values = {identifier("variables", name): value for name, value in given.items()}
    try:
        packed = pack(data_of(values, "variables"), place="variables") if values else b""
    except TooLarge as wrong:
        raise ValueError(str(wrong)) from None
    except NotData as wrong:
        text = str(wrong)
        if any(map(callable, values.values())):
            text = text.replace(DATA, "tools= takes functions")
        raise TypeError(text) from None
    return packed


def seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not value > 0:
        raise ValueError(f"{name} must be positive, not {value!r}")
    return value


def size(name: str, value: object) -> int:
    """A size in bytes, as `Policy` reads ``max_bytes``."""
    if not isinstance(value, (int, str)):
        raise TypeError(f"{name} must be an int or a str, not {type(value).__name__}")
    try:
        found = Policy(max_bytes=value).max_bytes
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("max_bytes", name)) from None
    if not found:
        raise ValueError(f"{name} must be positive, not {value!r}")
    return found


def count(name: str, value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if value < least:
        bound = "positive" if least == 1 else f"at least {least}"
        raise ValueError(f"{name} must be {bound}, not {value!r}")
    return value


def input_of(given: object) -> bytes:
    """The bytes of what code reads from its standard input."""
    if isinstance(given, str):
        return given.encode(errors="surrogateescape")
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    # `subprocess` takes a file here, or a constant such as PIPE.
    raise TypeError(
        f"stdin must be str or bytes, not {type(given).__name__}: pass the text, not a file"
    )


def parts_in(directory: str, name: object, of: str, itself: bool = False) -> list[str]:
    """Return the parts of a file's name in a directory, by its text alone; none for `itself`."""
    given = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(given, str):
        raise TypeError(f"name must be a str or a path, not {type(name).__name__}")
    path = os.path.normpath(os.path.join(directory, given))
    if itself and path == directory:
        return []
    if not path.startswith(f"{directory.rstrip('/')}/"):
        raise ValueError(f"{given!r} is not in the directory of the {of}")
    return path[len(directory.rstrip("/")) + 1 :].split("/")


def policy_of(name: str, value: object) -> None:
    if value is not None and not isinstance(value, Policy):
        raise no_policy(name, value)


def no_policy(name: str, value: object, kinds: str = "a Policy") -> TypeError:
    instead = ""
    if isinstance(value, str) and value in Policy.PRESETS:
        instead = f": write Policy.preset({value!r})"
    elif isinstance(value, Mapping):
        instead = ": write Policy(**fields)"
    return TypeError(f"{name} must be {kinds}, not {type(value).__name__}{instead}")


def listed(name: str, given: Any, of: str = "a list") -> list[Any]:
    """The elements of an iterable that is no text."""
    if isinstance(given, (str, bytes, os.PathLike)) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be {of}, not {type(given).__name__}: write [{given!r}]")
    return list(given)


def path_of(name: str, value: Any) -> str:
    try:
        return os.fsdecode(value)
    except TypeError:
        raise TypeError(f"{name} must be a path, not {type(value).__name__}") from None


def current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        why = "the current directory was removed: pass directory=, or change to another one"
        raise FileNotFoundError(error.errno, why) from None


class StepRequest:
    """The arguments of `Session.run`, checked, with the variables packed."""

    #: A program that a sandbox runs in the place of the code.
    command: tuple[object, ...] | None = None

    def __init__(
        self,
        code: str,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
    ) -> None:
        self.code = text_of(code)
        self.variables = variables_of(variables)
        self.tools = tools_of(tools)
        self.timeout = seconds("timeout", timeout)
        #: What a person answered before it began.
        self.granted: Granted = ()
        self.has_begun = False
        self.stdin = None if stdin is None else input_of(stdin)
        #: When it was asked for.
        self.asked = time.monotonic()
