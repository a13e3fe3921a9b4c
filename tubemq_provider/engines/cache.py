"""Directory for things that are expensive to get again: a wrapped Java home, jars of servers.

Set by `TUBEMQ_CACHE`; without it a source checkout uses its git-ignored `.cache/tubemq`, an
installed package the user's cache directory. Deleting the directory is always safe: its contents
are created again. This module creates nothing; the module that writes makes the directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cache_root"]


def cache_root(env: Mapping[str, str] | None = None) -> Path:
    """Return the absolute path of the cache directory; it may not exist yet."""
    env = os.environ if env is None else env
    configured = env.get("TUBEMQ_CACHE")
    if configured:
        return Path(configured).expanduser().absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache" / "tubemq"
    shared = env.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "tubemq"
