"""Large data sets that stay where the user has them: the cache only remembers the place."""

import json
from pathlib import Path
from typing import Any

from tapr import cache
from tapr.datasets.base import Entry


class Linked(Entry):
    """An entry whose files are elsewhere; `link.json` in the cache says where."""

    def where(self) -> Path | None:
        """The remembered folder, when it still exists."""
        path = Path(self.recall().get("path", ""))
        return path if path.is_absolute() and path.is_dir() else None

    def recall(self) -> dict[str, Any]:
        """What was remembered, {} when nothing was or it is damaged."""
        try:
            content = json.loads((cache.folder() / self.name / "link.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def remember(self, path: Path, **more: object) -> None:
        """Write the place down, with whatever else the entry wants to find again."""
        content = {"path": str(path.absolute()), **more}
        with cache.locked(self.name) as folder, cache.writing(folder / "link.json") as part:
            part.write_text(json.dumps(content, indent=1), "utf-8")
