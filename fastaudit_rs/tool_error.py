"""The exception for errors of tools that are not Python's own."""


class ToolError(RuntimeError):
    """A tool raised an exception of a class that is not Python's own, which is handed over as data.

    Attributes:
        tool: The name of the tool.
        kind: The qualified name of the exception's class.
    """

    __module__ = "fastaudit_rs"

    tool: str = ""
    kind: str = ""
