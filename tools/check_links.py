"""Check a built site: `python tools/check_links.py site` names every dead link and exits with 1.

A link is dead when its file, or the place in it, is not there. What a page loads (pictures,
scripts, styles) must come from the site itself, so that it can be read without network.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img": "src", "script": "src", "source": "src", "iframe": "src"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload"}


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that one can link to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places = {"", "__top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag's addresses and its place."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag in LOADED and LOADED[tag] in given:
            self.loads.append(given[LOADED[tag]])
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and LOADED_LINKS & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))


def problems(site: Path) -> list[str]:
    """Every dead link and everything loaded from elsewhere, a sentence each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        return [f"expected pages in {site}, found none"]
    return [
        f"{path.relative_to(site)} {problem}"
        for path, page in pages.items()
        for address in dict.fromkeys(page.links + page.loads)
        if (problem := _problem(address, path, site, pages))
    ]


def _problem(address: str, path: Path, site: Path, pages: dict[Path, Page]) -> str | None:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        remote = parts.netloc and address in pages[path].loads
        return f"loads {address} from elsewhere" if remote else None
    base = site if parts.path.startswith("/") else path.parent
    target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return f"links to {address}: no such file"
    place = unquote(parts.fragment)
    if target in pages and place not in pages[target].places:
        return f"links to {address}: no place '{place}' in it"
    return None


if __name__ == "__main__":
    dead = problems(Path(sys.argv[1]).resolve())
    print("\n".join(dead) or "every link leads somewhere")
    sys.exit(bool(dead))
