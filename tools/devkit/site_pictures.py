"""Pictures of the site at two widths, for a person to look at: `build/docs/site` from `make docs`.

    python -m tools.devkit.site_pictures TARGET [page.html …]

Serves the site on loopback, opens it in Chromium and searches for a word. Fails if a page is wider
than its window, asks another host for something, or if the search finds nothing.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tools.devkit.browser import Tab, open_tab, picture_arguments

SITE = Path(__file__).resolve().parents[2] / "build" / "docs" / "site"
_PAGES = ("index.html", "tutorial.html", "airflow.html", "reference/arguments.html")
_WIDTHS = (1280, 400)
_FOREIGN = (
    "performance.getEntriesByType('resource').map(each => each.name)"
    ".filter(name => !name.startsWith(location.origin) && !name.startsWith('data:'))"
)
_SEARCH = (
    "document.querySelector('#__search').click();"
    "document.querySelector('.md-search__input').focus();"
    "document.querySelector('.md-search__input').value = 'quarantine';"
    "document.querySelector('.md-search__input').dispatchEvent(new Event('keyup'))"
)


class Quiet(SimpleHTTPRequestHandler):
    """Static files without a log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Print nothing."""


def look(tab: Tab, address: str, page: str, width: int, target: Path) -> list[str]:
    """Save a picture of a page; return what is wrong with it."""
    tab.size(width, 900)
    tab.go(f"{address}/{page}")
    tab.picture(target / f"{page.replace('/', '-').removesuffix('.html')}-{width}.png")
    problems = [f"{page}: asks {name}" for name in tab.evaluate(_FOREIGN)]
    wide = tab.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        problems.append(f"{page}: {wide} pixels wide in a window of {width}")
    return problems


def main() -> int:
    """Look at each page at each width, and search once."""
    target, chromium = picture_arguments()
    pages = sys.argv[2:] or _PAGES
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    with open_tab(chromium) as tab:
        problems = [
            problem
            for page in pages
            for width in _WIDTHS
            for problem in look(tab, address, page, width, target)
        ]
        tab.size(1280, 900)
        tab.go(f"{address}/index.html")
        tab.evaluate(_SEARCH)
        tab.wait("document.querySelectorAll('.md-search-result__item').length > 0", 30)
        tab.picture(target / "search-1280.png")
    server.shutdown()
    print("\n".join([*problems, f"{len(pages)} pages, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
