"""Opens object stores: S3 and what speaks like it, Google Cloud Storage, Azure Blob.

Through obstore, on drivers and executors alike, so that options mean the same everywhere. Options
may hold secrets: nothing here repeats them, and errors of a store, which can quote keys and signed
requests, are told by their kind alone. This module knows neither windows nor files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError, require_extra

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["SCHEMES", "is_remote", "open_store", "refusals_told", "split_options"]

SCHEMES: Final = ("s3", "gs", "az")
"""Schemes of URLs that are object stores."""

_CLIENT_OPTIONS: Final = ("allow_http", "allow_invalid_certificates", "connect_timeout", "timeout")
_FLAGS: Final = ("allow_http", "allow_invalid_certificates")


def is_remote(path: str) -> bool:
    """Whether a staging path is a URL of an object store, and not a directory."""
    return path.partition("://")[0] in SCHEMES and "://" in path


def open_store(url: str, options: Mapping[str, str]) -> ObjectStore:
    """The store of a prefix; names are relative to it. Asks nothing yet.

    Options that are not given come from this process's environment. Raises `MissingExtraError`
    without obstore.
    """
    try:
        from obstore.store import from_url
    except ImportError as exc:
        raise require_extra("lake", exc) from exc
    config, client = split_options(options)
    return from_url(url, config=config, client_options=client)


def split_options(options: Mapping[str, str]) -> tuple[Any, Any]:
    """Store options and HTTP options; they share one mapping for the user."""
    config: dict[str, str] = {}
    client: dict[str, Any] = {}
    for given, value in options.items():
        key = given.lower()
        name = key.removeprefix("aws_")
        if name not in _CLIENT_OPTIONS:
            config[key] = value
        else:
            client[name] = value.lower() == "true" if name in _FLAGS else value
    return config, client


@contextmanager
def refusals_told(url: str) -> Iterator[None]:
    """Turns what the store at `url` raises in the body into an error of ours: a refusal into
    `ConfigError`, which no retry cures, and the rest into `OSError`. `FileNotFoundError` stays."""
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as exc:
        raise ConfigError(
            f"{url}: the store refuses this process ({type(exc).__name__}); give storage_options "
            f"(in a Dag, the sink's connection) that may write there, which travel to executors, "
            f"or give drivers and executors an identity of their own",
            subject="storage",
        ) from None
    except BaseError as exc:
        raise OSError(f"{url}: {type(exc).__name__} of the object store") from None
