"""A function of the host that code may call: its annotations honoured, and its JSON schema."""

import contextlib
import enum
import functools
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Optional

from .. import Tool
from .._text import AsText
from .annotations import PLACE, Json, Reader, Unknown, Wrong, look, reader
from .forms import NotData, limited
from .values import pack, unpack

EMPTY: Any = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

#: The characters of a default that are told.
DEFAULT = 1000

#: The error of a generator function, whose calls do nothing yet.
GENERATOR = "a generator function cannot be a tool, as its body runs after the call: return a list"


class Typed:
    """A function that gets what its annotations name, made of data.

    Wrong calls are errors of the function, wrong data `TypeError` or `ValueError` with the names of
    the tool and the parameter.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        doc: str | None = None,
        signature: inspect.Signature | None = None,
        schema: Json | None = None,
        is_async: bool | None = None,
        reads: bool = True,
    ) -> None:
        """Prepare a function. Without `reads` it is given data as they are, and reads them itself.

        Raises:
            TypeError: Nobody can tell how data become what an annotation names.
        """
        self.__name__ = self.__qualname__ = name
        self.__doc__ = inspect.getdoc(function) if doc is None else doc
        self.is_async = is_async_function(function) if is_async is None else is_async
        by_name: dict[str, Reader | None] = {}
        by_position: list[tuple[str, Reader | None]] = []
        rest: tuple[str, Reader | None] = "args", None
        more: Reader | None = None
        properties: dict[str, Json] = {}
        required: list[str] = []
        self.__signature__ = signature or signature_of(function)
        parameters = [] if self.__signature__ is None else self.__signature__.parameters.values()
        for one in parameters:
            found = _reader_of(name, one) if reads else None
            if one.kind is one.VAR_POSITIONAL:
                rest = one.name, found
                continue
            if one.kind is one.VAR_KEYWORD:
                more = found
                continue
            if one.kind in _POSITIONAL:
                by_position.append((one.name, found))
            if one.kind is not one.POSITIONAL_ONLY:
                by_name[one.name] = found
            if isinstance(found, _Hidden):
                continue
            properties[one.name] = {} if found is None else dict(found.schema)
            if one.default is EMPTY:
                required.append(one.name)
            elif type(one.default) in (str, int, float, bool, type(None)):
                properties[one.name]["default"] = one.default
        read, read_within = (
            _reading(name, by_position, rest, by_name, more, of_host) for of_host in (False, True)
        )
        #: Reads arguments before the call, but for those that pydantic reads, which are looked at.
        self.before = read
        #: The function, which has pydantic read what it alone can.
        self.within = function if read_within is None else _reading_first(read_within, function)
        #: The classes of arguments by position that are what they are named; `object` for any.
        self.kinds = tuple(_kind_of(found) for _, found in by_position)
        schema = schema or _schema(name, self.__doc__, properties, required)
        #: A JSON schema, of data that JSON has.
        self.schema: Json = json.loads(json.dumps(schema, default=str))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self.before is not None:
            args, kwargs = self.before(args, kwargs)
        return self.within(*args, **kwargs)


#: What gets the arguments of a call, and returns those that a function gets.
Before = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


def _reading(
    tool: str,
    by_position: list[tuple[str, Reader | None]],
    rest: tuple[str, Reader | None],
    by_name: dict[str, Reader | None],
    more: Reader | None,
    of_host: bool,
) -> Before | None:
    """Return what reads the arguments that pydantic reads, or the others; ``None`` if none are.

    A guest in this process may have replaced names of modules, even by native functions: none is
    looked up as it runs, as the former have the rights of the host.
    """
    wrong_class, as_tuple = Wrong, tuple

    def one(found: Reader | None) -> Callable[[Any, str], Any] | None:
        if found is None:
            return None
        read_plainly = found.read
        if found.is_of_host is not of_host:
            if of_host or not found.is_looked_at:
                return None
            read_plainly = _as_it_is

        def read(value: Any, parameter: str) -> Any:
            try:
                return read_plainly(value)
            except wrong_class as wrong:
                raise wrong.told(tool, parameter) from None

        return read

    first = [(one(found), place) for place, found in by_position]
    rest_name, read_rest, read_more = rest[0], one(rest[1]), one(more)
    named = {name: one(found) for name, found in by_name.items()}
    if not any([read_rest, read_more, *named.values(), *(read for read, _ in first)]):
        return None

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given, left, number = [], [*first], 0
        for value in args:
            if left:
                read, place = left.pop(0)
            else:
                read, place, number = read_rest, f"{rest_name}[{number}]", number + 1
            given.append(value if read is None else read(value, place))
        found = {}
        for key, value in kwargs.items():
            read = named.get(key, read_more)
            found[key] = value if read is None else read(value, key)
        return as_tuple(given), found

    return before


def _as_it_is(value: Any) -> Any:
    look(value)
    return value


def _reading_first(read: Before, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        given, named = read(args, kwargs)
        return function(*given, **named)

    return call


class _Never:
    """The class of no argument."""


def _kind_of(found: Reader | None) -> type:
    if found is None or (found.is_of_host and not found.is_looked_at):
        return object
    return found.kind or _Never


class _Hidden(Reader):
    """Reads nothing: a parameter that code cannot give, and that need not be given."""


def _reader_of(name: str, parameter: inspect.Parameter) -> Reader | None:
    annotation = parameter.annotation
    if annotation is EMPTY:
        return None
    told = formatted(annotation)
    which = f"tool {name!r}: {parameter.name} is annotated with {told[:100]}"
    try:
        if isinstance(annotation, str):
            raise Unknown("its names are not known where the function is defined")
        # `x: int = None` takes None too.
        is_optional = parameter.default is None
        return reader(Optional[annotation] if is_optional else annotation)  # noqa: UP045
    except ImportError:
        raise TypeError(
            f"{which}, which pydantic reads: pip install pydantic, or annotate it with data"
        ) from None
    except Unknown as unknown:
        why = f" ({unknown})" if str(unknown) else ""
        if parameter.default is not EMPTY or parameter.kind in (2, 4):
            return _Hidden(_refusing(f"cannot be given: it is annotated with {told[:100]}"), told)
        raise TypeError(
            f"{which}, which code cannot pass{why}: annotate it with data, a dataclass, a model, "
            "an enum, an array or a frame, or give it a default"
        ) from None


#: Quoted text, or the modules and functions before a name.
_MODULES = re.compile(r"""('[^']*'|"[^"]*")|(?:[\w<>]+\.)+(?=\w)""")


def formatted(annotation: Any) -> str:
    """An annotation as text, without modules."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _MODULES.sub(lambda found: found[1] or "", text)


def default_told(default: Any) -> str:
    """A default as text: of an object of the host's own, which may hold a secret, nothing."""
    given = default.value if isinstance(default, enum.Enum) else default
    try:
        return limited(repr(unpack(pack(given), own=True)), DEFAULT)
    except (NotData, ValueError):
        return "..."


def heading(name: str, function: Any) -> str:
    """A function as a model is told of it: its name and parameters, and schemas of data."""
    signature: inspect.Signature | None = function.__signature__
    if signature is None:
        return f"{name}(...)"

    def shown(annotation: Any) -> Any:
        return EMPTY if annotation is EMPTY else AsText(formatted(annotation))

    parameters = [
        one.replace(
            annotation=shown(one.annotation),
            default=EMPTY if one.default is EMPTY else AsText(default_told(one.default)),
        )
        for one in signature.parameters.values()
    ]
    returned = shown(signature.return_annotation)
    told = f"{name}{signature.replace(parameters=parameters, return_annotation=returned)}"
    properties = getattr(function, "schema", {}).get("parameters", {}).get("properties", {})
    # Those of a JSON schema may have names that no parameter of Python has.
    others = [f"{one!r}: ..." for one in properties if one not in signature.parameters]
    return f"{told}, called with **{{{', '.join(others)}}}" if others else told


def summary(function: Any) -> str:
    """The first paragraph of a function's documentation, in one line."""
    return (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")


def structures(function: Any) -> Json:
    """The JSON schemas of the arguments of a function that are mappings with keys of their own."""
    parameters = getattr(function, "schema", {}).get("parameters", {})
    found = {
        name: {key: one[key] for key in ("properties", "required") if key in one}
        for name, one in parameters.get("properties", {}).items()
        if isinstance(one, dict) and "properties" in one
    }
    shared = parameters.get("$defs")
    return {**found, **(shared if isinstance(shared, dict) else {})}


def _refusing(text: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        raise Wrong(TypeError, f"{PLACE} {text}")

    return read


def signature_of(function: Any) -> inspect.Signature | None:
    """The signature of a function, with what its annotations name in the place of text.

    An annotation whose names are not known stays text.
    """
    try:
        if sys.version_info >= (3, 14):
            import annotationlib

            made = inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        else:
            made = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    names, local = _names_near(function)
    parameters = [
        one.replace(annotation=_named(one.annotation, names, local))
        for one in made.parameters.values()
    ]
    return made.replace(parameters=parameters)


def _names_near(function: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names of the module that a function is defined in, and those that it closes over."""
    plain = inspect.unwrap(function)
    while isinstance(plain, (types.MethodType, functools.partial)):
        inner = plain.__func__ if isinstance(plain, types.MethodType) else plain.func
        plain = inspect.unwrap(inner)
    if not inspect.isfunction(plain):
        plain = inspect.getattr_static(type(plain), "__call__", None)
    if not inspect.isfunction(plain):
        return {}, {}
    local: dict[str, Any] = {}
    for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            local[name] = cell.cell_contents
    return plain.__globals__, local


def _named(annotation: Any, names: dict[str, Any], local: dict[str, Any]) -> Any:
    """What an annotation names, at all its levels."""
    if annotation is EMPTY:
        return annotation
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        found = typing.get_type_hints(holder, names, local, include_extras=True)
    except Exception:
        return annotation if isinstance(annotation, str) else str(annotation)
    return found["it"]


def _schema(name: str, doc: str | None, properties: dict[str, Json], required: list[str]) -> Json:
    shared: dict[str, Json] = {}
    properties = {key: _without_definitions(one, shared) for key, one in properties.items()}
    parameters: Json = {"type": "object", "properties": properties, "required": required}
    if shared:
        parameters["$defs"] = shared
    return {"name": name, "description": doc or "", "parameters": parameters}


def _without_definitions(schema: Json, shared: dict[str, Json]) -> Json:
    """The schema without its definitions, which stand once for all parameters.

    Those of other classes that have a name already get another one.
    """
    definitions = schema.get("$defs", {})
    text = json.dumps({**schema, "$defs": list(definitions.values())}, default=str)
    names = []
    for name, one in definitions.items():
        free, number = name, 1
        while shared.get(free, one) != one:
            number += 1
            free = f"{name}{number}"
        names.append(free)
        if free != name:
            text = text.replace(f'"#/$defs/{name}"', f'"#/$defs/{free}"')
    made: Json = json.loads(text)
    shared.update(zip(names, made.pop("$defs"), strict=True))
    return made


def is_async_function(function: object) -> bool:
    """True if calls of it are awaited."""
    call = inspect.getattr_static(type(function), "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def is_generator_function(function: object) -> bool:
    """True if the body of a function runs after the call, which yields what it makes."""
    call = inspect.getattr_static(type(function), "__call__", None)
    both = (function, call)
    return any(inspect.isgeneratorfunction(x) or inspect.isasyncgenfunction(x) for x in both)


def prepared(
    function: Callable[..., Any], name: str, raw: bool
) -> tuple[Callable[..., Any], Before | None, tuple[type, ...], Json]:
    """Return the function of a tool, what reads its arguments before, and its JSON schema.

    The function runs with the host's rights; what reads the arguments runs with those of the code.
    Arguments by position of the classes that are returned, or fewer, need not be read.
    """
    inner: Any = function
    while inner is not None:
        if isinstance(inner, Tool):
            # It reads them itself.
            return function, None, (), {**inner.schema, "name": name}
        if isinstance(inner, Typed):
            return function, inner.before, inner.kinds, {**inner.schema, "name": name}
        inner = getattr(inner, "__wrapped__", None)
    typed = Typed(function, name, reads=not raw)
    return typed.within, typed.before, typed.kinds, typed.schema
