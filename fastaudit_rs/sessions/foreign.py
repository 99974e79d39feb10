"""Tools of other agent packages as functions that code may call.

They are known by the names of their classes: no package is imported to look.
"""

import inspect
import keyword
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._text import printable
from .annotations import Json, told_errors
from .made_keys import check_made, makes_keys
from .typed import EMPTY, Typed, is_async_function

#: The Python types that stand for those of JSON schemas.
_NAMES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


#: What a schema says of a tool that is said elsewhere, or in one way.
_LEFT_OUT = ("title", "description", "$defs")


class ToolSource(ABC):
    """What has many tools: a session uses it until it is closed."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        # `Session.run` is a tool of other packages, which read its annotations.
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)

    @abstractmethod
    def functions(self, prefix: str | None) -> dict[str, Typed]:
        """Its tools, by the names that code calls them by, which begin with a prefix."""

    @abstractmethod
    def hold(self) -> None:
        """Note one that uses it."""

    @abstractmethod
    def release(self) -> None:
        """Let go of it: the last one that does ends it."""


def function_of(one: object, name: str) -> Typed | None:
    """Return a function that calls the tool of another package; ``None`` for any other object.

    Raises:
        TypeError: It needs what code cannot give.
    """
    for base in type(one).__mro__:
        make = _MAKERS.get((base.__module__.partition(".")[0], base.__name__))
        if make is not None:
            return make(one, name)
    return None


def own_name(one: Any) -> str | None:
    """The name that a function or a tool has by itself."""
    for attribute in ("__name__", "name"):
        name = getattr(one, attribute, None)
        if isinstance(name, str):
            return name
    return None


def _langchain(tool: Any, name: str) -> Typed:
    given = tool.tool_call_schema
    schema: Json = dict(given if isinstance(given, dict) else given.model_json_schema())
    whole = None if isinstance(given, dict) else tool.get_input_schema()
    # What it takes besides is the host's: the model that calls it does not know of it.
    call = Call(name, schema, hidden=getattr(whole, "model_fields", ()))
    has_sets = makes_keys(getattr(whole, "__pydantic_core_schema__", None))
    is_async = getattr(tool, "func", tool) is None

    def request(arguments: dict[str, Any]) -> Any:
        # Whatever the names of the arguments are, this is no call in another form.
        if has_sets:
            try:
                check_made(arguments)
            except ValueError as wrong:
                raise ValueError(f"tool {name!r}: {wrong}") from None
        return {"type": "tool_call", "id": None, "name": name, "args": arguments}

    async def awaited(**given: Any) -> Any:
        with _Short(name):
            return await tool.ainvoke(request(given))

    def run(**given: Any) -> Any:
        with _Short(name):
            return tool.invoke(request(given))

    return _made(awaited if is_async else run, tool.description, call)


def _pydantic_ai(tool: Any, name: str) -> Typed:
    if tool.takes_ctx:
        raise TypeError(
            f"tools[{name!r}] takes a RunContext, which code does not have: pass a function that "
            "needs none"
        )
    schema = dict(tool.function_schema.json_schema)
    kinds = {one.kind for one in inspect.signature(tool.function).parameters.values()}
    if kinds == {inspect.Parameter.VAR_KEYWORD}:
        # `Tool.from_schema` made it.
        return _made(tool.function, tool.description, Call(name, schema))
    whole = {"name": name, "description": tool.description or "", "parameters": schema}
    return Typed(tool.function, name, doc=tool.description, schema=whole)


def _smolagents(tool: Any, name: str) -> Typed:
    properties: dict[str, Json] = {}
    for key, told in tool.inputs.items():
        types = told["type"] if isinstance(told["type"], list) else [told["type"]]
        plain = [kind for kind in types if kind in _NAMES]
        properties[key] = {"description": told["description"]}
        if len(plain) == len(types):
            plain += ["null"] if told.get("nullable") else []
            properties[key]["type"] = plain[0] if len(plain) == 1 else plain
    required = [key for key, told in tool.inputs.items() if not told.get("nullable")]
    schema: Json = {"type": "object", "properties": properties, "required": required}
    order = [key for key in _parameters(tool.forward) if key in properties]
    in_order = order if len(order) == len(properties) else None
    return _made(tool, tool.description, Call(name, schema, in_order))


#: Classes of tools by package and name.
_MAKERS: Mapping[tuple[str, str], Callable[[Any, str], Typed]] = {
    ("langchain_core", "BaseTool"): _langchain,
    ("pydantic_ai", "Tool"): _pydantic_ai,
    ("smolagents", "Tool"): _smolagents,
}


class Call:
    """The arguments of a call by their names, as a JSON schema has them, whoever wrote it."""

    def __init__(
        self,
        name: str,
        schema: Json,
        order: list[str] | None = None,
        hidden: Iterable[str] = (),
        returned: Json | None = None,
    ) -> None:
        """Read a schema, and that of what it returns, if it is told."""
        self.name = name
        #: True if it takes more than it names, but for what is hidden.
        self._is_open = bool(schema.get("additionalProperties", "properties" not in schema))
        # Where it is odd it says nothing.
        self._told: dict[str, Json] = {
            key: told if isinstance(told, dict) else {}
            for key, told in _part(schema, "properties", dict).items()
        }
        self._hidden = {*hidden} - self._told.keys()
        self._needed = _part(schema, "required", list)
        definitions = _part(schema, "$defs", dict)
        self.schema = {
            **{key: told for key, told in schema.items() if key not in _LEFT_OUT},
            "properties": self._told,
            "required": self._needed,
            **({"$defs": definitions} if definitions else {}),
        }
        self.signature = self._signature(order, returned)
        self._order = list(self.signature.parameters)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the names of its parameters."""
        if len(args) > len(self._order):
            raise TypeError(
                f"{self.name}() takes {len(self._order)} positional arguments but {len(args)} were "
                "given"
            )
        given = dict(zip(self._order, args))  # noqa: B905 - the others are not given
        for key in kwargs:
            if key in given:
                raise TypeError(f"{self.name}() got multiple values for argument {key!r}")
            if key not in self._told and (not self._is_open or key in self._hidden):
                raise TypeError(f"{self.name}() got an unexpected keyword argument {key!r}")
        return {**given, **kwargs}

    def _signature(self, order: list[str] | None, returned: Json | None) -> inspect.Signature:
        """A signature with the parameters of the schema, those that must be given first."""
        needed = self._needed
        parameters = []
        is_optional = False
        for name in order or sorted(self._told, key=lambda name: name not in needed):
            if not name.isidentifier() or keyword.iskeyword(name):
                # By ``**`` alone.
                continue
            told = self._told[name]
            is_optional |= name not in needed
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=told.get("default") if is_optional else EMPTY,
                    annotation=_annotation(told),
                )
            )
        annotation = EMPTY if returned is None else _annotation(returned)
        return inspect.Signature(parameters, return_annotation=annotation)


def _part(schema: Json, name: str, kind: type[Any]) -> Any:
    """A part of a schema; an empty one if it is of another type."""
    found = schema.get(name)
    return found if isinstance(found, kind) else kind()


def _made(
    function: Callable[..., Any],
    description: str | None,
    call: Call,
) -> Typed:
    """Make a function with the parameters of a schema of one that gets them by name."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return function(**call.arguments(args, kwargs))

    whole = {"name": call.name, "description": description or "", "parameters": call.schema}
    return Typed(
        run,
        call.name,
        doc=description or "",
        signature=call.signature,
        schema=whole,
        is_async=is_async_function(function),
        reads=False,
    )


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _annotation(told: Json) -> Any:
    if "$ref" in told:
        return printable(str(told["$ref"]).rpartition("/")[2])
    kinds, others = told.get("type"), told.get("anyOf")
    given = kinds if isinstance(kinds, list) else [kinds]
    if kinds is None and isinstance(others, list):
        given = [one.get("type") if isinstance(one, dict) else None for one in others]
    names = [_NAMES.get(str(kind)) for kind in given]
    return EMPTY if None in names else " | ".join(map(str, names))


class _Short:
    """Tells the errors of pydantic in one line."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None and kind.__name__ == "ValidationError" and hasattr(error, "errors"):
            raise ValueError(f"tool {self._name!r}: {told_errors(error, '')}") from None
