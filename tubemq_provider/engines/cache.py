"""Where what is expensive to get again is kept: a wrapped Java home, and jars of servers.

`TUBEMQ_CACHE` decides; without it a source checkout uses its own git-ignored `.cache/tubemq`, an
installed package the user's cache directory. Deleting the directory is always safe: everything in
it can be made again. This module creates nothing; the module that writes makes the directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cache_root"]


def cache_root(env: Mapping[str, str] | None = None) -> Path:
    """The cache directory as an absolute path; it may not exist yet."""
    env = os.environ if env is None else env
    configured = env.get("TUBEMQ_CACHE")
    if configured:
        return Path(configured).expanduser().absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache" / "tubemq"
    shared = env.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "tubemq"
