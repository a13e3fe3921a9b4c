"""Versions of stored documents: what an older release wrote is read, what a newer one wrote is not.

Each kind of document (plan, cursor, commit event) has a version `v` and a row of migrations, each
from one version to the next. A document is brought up when it is read, and stored in the new form
when it is written anyway; other workers refuse it until they have the new release, and lose nothing
by it. There is no version before 1. This module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tubemq_provider.windows.errors import DocumentError

__all__ = ["MIGRATIONS", "VERSIONS", "Migration", "brought_up"]

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes of a document of one version one of the next; sets neither `v` nor anything in place."""

VERSIONS: Final[dict[str, int]] = {"plan": 2, "cursor": 1, "event": 1}
"""The version that this release writes, by kind."""

MIGRATIONS: Final[dict[tuple[str, int], Migration]] = {("plan", 1): dict}
"""From kind and version to how the next one is made. Never removed: documents live for years."""


def brought_up(kind: str, document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The document in the version of this release.

    Raises `DocumentError` for a version that is unknown here: of a newer release, with the hint to
    install it, or none at all. Nothing else is looked at then, as it may mean something else.
    """
    wanted, found = VERSIONS[kind], document.get("v")
    if isinstance(found, bool) or not isinstance(found, int):
        raise DocumentError(where, [f"version {found!r} is unknown here; it was edited by hand"])
    if found > wanted:
        raise DocumentError(
            where,
            [
                f"version {found} is unknown here; this release reads up to {wanted}",
                "a newer release wrote it: install that one on every worker and API server",
            ],
        )
    current = dict(document)
    for version in range(found, wanted):
        migrate = MIGRATIONS.get((kind, version))
        if migrate is None:
            raise DocumentError(
                where, [f"version {version} is unknown here; nothing leads from it to {wanted}"]
            )
        current = {**migrate(current), "v": version + 1}
    return current
