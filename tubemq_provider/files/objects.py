"""Object stores: S3 and compatible ones, Google Cloud Storage, Azure Blob Storage.

All access goes through obstore, on drivers and executors, so that options have one meaning. Options
may have secrets and are never shown. Errors of a store can quote keys and signed requests, so only
their kind and the status and code of the reply are shown. This module knows neither windows nor
files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError, TubeMQError, require_extra

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = [
    "SCHEMES",
    "StoreFailed",
    "answer_in",
    "explains_object_store_errors",
    "is_refusal",
    "is_remote",
    "open_store",
    "refusal",
    "split_options",
]

SCHEMES: Final = ("s3", "gs", "az")
"""Schemes of object store URLs."""

_CLIENT_OPTIONS: Final = ("allow_http", "allow_invalid_certificates", "connect_timeout", "timeout")
_STATUS: Final = re.compile(r"status code\W+([45]\d\d\b(?: [A-Z][A-Za-z-]*)*)")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_NO_ANSWER: Final = re.compile(r"HTTP error: ([a-z ]{1,64})")
_FLAGS: Final = ("allow_http", "allow_invalid_certificates")
_REQUEST: Final = "Error performing"
"""Text of obstore before the reply of a store."""


class StoreFailed(TubeMQError, OSError):
    """An object store or a file system failed or did not answer. Stored data is unchanged; the
    operation may be retried."""

    retriable = True


def is_remote(path: str) -> bool:
    """Return True if a staging path is the URL of an object store, False for a directory."""
    return path.partition("://")[0] in SCHEMES and "://" in path


def open_store(url: str, options: Mapping[str, str]) -> ObjectStore:
    """Open the store of a prefix, without a request yet. Names are relative to the prefix.

    Options that are not given come from this process's environment. Raises `MissingExtraError`
    without obstore, and `ConfigError` for a URL with a query or a fragment.
    """
    if set("?#") & set(url):
        # obstore drops the rest of the URL, and would open a parent prefix with all its files.
        raise ConfigError(
            f"{url.partition('?')[0]!r} has a question mark or a number sign, which ends the path "
            f"of a URL; choose a prefix without",
            subject="storage",
        )
    try:
        from obstore.store import from_url
    except ImportError as exc:
        raise require_extra("lake", exc) from exc
    config, client = split_options(options)
    return from_url(url, config=config, client_options=client)


def split_options(options: Mapping[str, str]) -> tuple[Any, Any]:
    """Split a user's options into store options and HTTP options."""
    config: dict[str, str] = {}
    client: dict[str, Any] = {}
    for option, value in options.items():
        key = option.lower()
        name = key.removeprefix("aws_")
        if name not in _CLIENT_OPTIONS:
            config[key] = value
        else:
            client[name] = value.lower() == "true" if name in _FLAGS else value
    return config, client


@contextmanager
def explains_object_store_errors(url: str) -> Iterator[None]:
    """Convert errors of the store at `url` in the body: refused credentials into `ConfigError`,
    which no retry cures, others into `StoreFailed`. `FileNotFoundError` passes."""
    try:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
    except ImportError:  # only local paths are possible
        yield
        return
    try:
        yield
    except BaseError as exc:
        kind, answer = type(exc).__name__, answer_in(str(exc))
        # A refused listing raises a generic error.
        if isinstance(exc, PermissionDeniedError | UnauthenticatedError) or is_refusal(answer):
            raise refusal(url, kind) from None
        detail = f" ({answer})" if answer else ""
        raise StoreFailed(f"{url}: {kind} of the object store{detail}") from None
    except OSError as exc:
        # Writers raise plain OSError with the whole reply.
        if _REQUEST not in str(exc):
            raise
        answer = answer_in(str(exc))
        if is_refusal(answer):
            raise refusal(url, answer) from None
        missing = isinstance(exc, FileNotFoundError)
        error = FileNotFoundError if missing else StoreFailed
        raise error(f"{url}: error of the object store ({answer or 'no answer'})") from None


def is_refusal(answer: str) -> bool:
    """Return True if an answer of `answer_in` refuses the credentials."""
    return answer.startswith(("401 ", "403 "))


def answer_in(text: str) -> str:
    """Return the parts of a store's error that are no secret: status and code of the reply, or the
    reason why there was none. Empty without these."""
    matches = (_STATUS.search(text), _CODE.search(text), _NO_ANSWER.search(text))
    return ", ".join(match[1].strip() for match in matches if match is not None)


def refusal(url: str, kind: str) -> ConfigError:
    """Return the error for a store at `url` that refuses the credentials."""
    return ConfigError(
        f"{url}: the store refuses this process ({kind}); give storage_options "
        f"(in a Dag, the sink's connection) that may write there, which travel to executors, "
        f"or give drivers and executors their own identity",
        subject="storage",
    )
