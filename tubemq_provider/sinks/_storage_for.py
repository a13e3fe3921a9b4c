"""From a path or URL to the storage it means.

Apart from `_storage`, so that what a storage is does not depend on the storages there are;
object stores are imported only when one is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from tubemq_provider.files.mounts import local_root
from tubemq_provider.sinks._storage import LocalStorage, Storage, scheme_of

__all__ = ["storage_for"]


def storage_for(url: str, storage_options: Mapping[str, str]) -> Storage:
    """Return the storage of a path or URL. Raises `ConfigError` for addresses that no sink can use,
    and `MissingExtraError` without the extra that object stores need."""
    if scheme_of(url) in ("", "file"):
        return LocalStorage(local_root(url))
    from tubemq_provider.sinks._object_storage import ObjectStorage

    return ObjectStorage(url, storage_options)
