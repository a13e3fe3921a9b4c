"""Versions of stored documents: those of older releases are migrated, those of newer ones refused.

Each kind of document (plan, cursor, commit event) has a version `v` and a chain of migrations, each
to the next version. A document is migrated when it is read, and stored in the new form at its next
regular write. Workers of the old release then refuse it until they are upgraded, and lose nothing.
There is no version before 1. This module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tubemq_provider.windows.errors import DocumentError

__all__ = ["MIGRATIONS", "VERSIONS", "Migration", "migrated"]

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns a document in the next version, without setting `v`; must not change its argument."""

VERSIONS: Final[dict[str, int]] = {"plan": 2, "cursor": 1, "event": 1}
"""Version that this release writes, by kind."""

MIGRATIONS: Final[dict[tuple[str, int], Migration]] = {("plan", 1): dict}
"""Migration by kind and old version. Never removed: documents live for years."""


def migrated(kind: str, document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the document migrated to the version of this release.

    Raises `DocumentError` for an unknown version: that of a newer release, with the hint to install
    it, or none at all. Other members are not checked then, as their meaning may differ.
    """
    newest, stored = VERSIONS[kind], document.get("v")
    if isinstance(stored, bool) or not isinstance(stored, int):
        raise DocumentError(where, [f"version {stored!r} is unknown here; it was edited by hand"])
    if stored > newest:
        raise DocumentError(
            where,
            [
                f"version {stored} is unknown here; this release reads up to {newest}",
                "a newer release wrote it: install that one on every worker and API server",
            ],
        )
    current = dict(document)
    for version in range(stored, newest):
        migrate = MIGRATIONS.get((kind, version))
        if migrate is None:
            raise DocumentError(
                where, [f"version {version} is unknown here; nothing leads from it to {newest}"]
            )
        current = {**migrate(current), "v": version + 1}
    return current
