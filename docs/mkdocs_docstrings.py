"""An extension of griffe: read our docstrings, which have ``Example:`` sections and Sphinx roles."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
ROLE = re.compile(r":(?:attr|class|func|meth|mod):(?=`)")


class Docstrings(Extension):
    """Name the section as griffe does, and leave out the roles, which Markdown does not know."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a class or function once it has been read."""
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub("", EXAMPLE.sub("Examples:", obj.docstring.value))
