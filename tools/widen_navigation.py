"""Show a built site's navigation from 1140 pixels on: `python tools/widen_navigation.py site`.

The theme hides it behind a button below 1220 pixels (76.25em), and has no setting for that; so the
limit is replaced in the styles and scripts of the built site.
"""

import sys
from pathlib import Path

LIMITS = {"76.25em": "71.25em", "76.234375em": "71.234375em"}


def widen(site: Path) -> int:
    """Replace the limits; return in how many files they were found."""
    changed = 0
    for path in sorted((site / "assets").rglob("*.*s")):  # .css and .js
        text = path.read_text(encoding="utf-8")
        new = text
        for old, limit in LIMITS.items():
            new = new.replace(old, limit)
        if new != text:
            path.write_text(new, encoding="utf-8")
            changed += 1
    return changed


if __name__ == "__main__":
    if not widen(Path(sys.argv[1])):
        sys.exit("expected the theme's limit of 76.25em in the site's styles, found it nowhere")
