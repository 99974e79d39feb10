"""Tools of other agent packages as functions that code may call.

They are known by the names of their classes: no package is imported to look.
"""

import inspect
import keyword
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from .annotations import Json, told_errors
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
    is_async = getattr(tool, "func", tool) is None

    async def awaited(**given: Any) -> Any:
        with _Short(name):
            return await tool.ainvoke(given)

    def run(**given: Any) -> Any:
        with _Short(name):
            return tool.invoke(given)

    return _made(awaited if is_async else run, name, tool.description, schema)


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
        return _made(tool.function, name, tool.description, schema)
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
    return _made(tool, name, tool.description, schema, in_order)


#: Classes of tools by package and name.
_MAKERS: Mapping[tuple[str, str], Callable[[Any, str], Typed]] = {
    ("langchain_core", "BaseTool"): _langchain,
    ("pydantic_ai", "Tool"): _pydantic_ai,
    ("smolagents", "Tool"): _smolagents,
}


def _made(
    function: Callable[..., Any],
    name: str,
    description: str | None,
    schema: Json,
    order: list[str] | None = None,
) -> Typed:
    """Make a function with the parameters of a schema of one that gets them by name."""
    signature = signature_of_schema(schema, order)
    names = list(signature.parameters)

    def run(*args: Any, **kwargs: Any) -> Any:
        return function(**by_name(name, names, args, kwargs))

    parameters = {
        key: value for key, value in schema.items() if key not in ("title", "description")
    }
    whole = {"name": name, "description": description or "", "parameters": parameters}
    return Typed(
        run,
        name,
        doc=description or "",
        signature=signature,
        schema=whole,
        is_async=is_async_function(function),
        reads=False,
    )


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def signature_of_schema(
    schema: Json, order: list[str] | None = None, returned: Json | None = None
) -> inspect.Signature:
    """A signature with the parameters of a JSON schema, those that must be given first.

    What it returns is told by another schema.
    """
    properties, required = schema.get("properties", {}), schema.get("required", [])
    names = order or sorted(properties, key=lambda name: name not in required)
    parameters = []
    is_optional = False
    for name in names:
        if not name.isidentifier() or keyword.iskeyword(name):
            # Code can pass it by ``**`` alone.
            continue
        # A schema may be `true`: anything.
        told = properties[name] if isinstance(properties[name], dict) else {}
        is_optional |= name not in required
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


def _annotation(told: Json) -> Any:
    kinds = told.get("type")
    given = kinds if isinstance(kinds, list) else [kinds]
    if kinds is None:
        any_of = told.get("anyOf")
        parts = any_of if isinstance(any_of, list) else [{}]
        given = [one.get("type") if isinstance(one, dict) else None for one in parts]
    if "$ref" in told:
        return str(told["$ref"]).rpartition("/")[2]
    names = [_NAMES.get(str(kind)) for kind in given]
    return EMPTY if None in names else " | ".join(map(str, names))


def by_name(
    name: str, order: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by the names of its parameters."""
    if len(args) > len(order):
        raise TypeError(
            f"{name}() takes {len(order)} positional arguments but {len(args)} were given"
        )
    given = dict(zip(order, args))  # noqa: B905 - the others are not given
    for key in given.keys() & kwargs.keys():
        raise TypeError(f"{name}() got multiple values for argument {key!r}")
    return {**given, **kwargs}


class _Short:
    """Tells the errors of pydantic in one line."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None and kind.__name__ == "ValidationError" and hasattr(error, "errors"):
            raise ValueError(f"tool {self._name!r}: {told_errors(error, '')}") from None
