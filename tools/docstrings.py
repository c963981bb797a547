"""What our docstrings need to become pages: doctests as code, comments on fields as their words."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
COMMENT = re.compile(r"  # (.+)$")


class Docstrings(griffe.Extension):
    """An extension of mkdocstrings' reader, named in mkdocs.yml."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the doctests, which Markdown would take for quotations."""
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub("```pycon\n\\g<0>\n```", obj.docstring.value)

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Take the comment behind a field as its docstring."""
        field = isinstance(attr.parent, griffe.Class) and attr.lines
        comment = COMMENT.search(attr.lines[0]) if field else None
        if comment and not attr.docstring:
            attr.docstring = griffe.Docstring(comment[1], parent=attr)
