"""Makes the README of the package's metadata: hatchling's hook.

An index shows the README without the repository, and there is no public repository to link to. So
relative links become their text, pictures of the repository are left out, links to the web stay.
The file imports hatchling only when hatchling imports it.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[2]
_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")


def packaged(text: str) -> str:
    """Return the README as an index shows it."""
    return _LINK.sub(r"\1", _PICTURE.sub("", text))


class ReadmeHook(MetadataHookInterface):
    """Hook that gives the package its long description."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add the README to the metadata."""
        text = packaged((ROOT / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
