"""Shows a class of Rust on the documentation site with the signature of its ``__new__``."""

from typing import Any

import griffe


class Signatures(griffe.Extension):
    """Gives it an ``__init__``, which griffe reads the arguments and their types from."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Take that of the stubs: the one of the compiled class has no types."""
        made = cls.members.get("__new__")
        if cls.analysis == "static" and made is not None and "__init__" not in cls.members:
            cls.set_member("__init__", made)
