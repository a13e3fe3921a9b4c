"""Opens object stores: S3 and what speaks like it, Google Cloud Storage, Azure Blob.

Through obstore, on drivers and executors alike, so that options mean the same everywhere. Options
may hold secrets: nothing here repeats them, and errors of a store, which can quote keys and signed
requests, are told by their kind and the code of the reply. This module knows neither windows nor
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
    "is_refusal",
    "is_remote",
    "open_store",
    "prefix_problems",
    "refusal",
    "refusals_told",
    "split_options",
]

SCHEMES: Final = ("s3", "gs", "az")
"""Schemes of URLs that are object stores."""

_CLIENT_OPTIONS: Final = ("allow_http", "allow_invalid_certificates", "connect_timeout", "timeout")
_PERCENT: Final = re.compile("%[0-9A-Fa-f]{2}")
_STATUS: Final = re.compile(r"status code\W+([45]\d\d\b(?: [A-Z][A-Za-z-]*)*)")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_NO_ANSWER: Final = re.compile(r"HTTP error: ([a-z ]{1,64})")
_FLAGS: Final = ("allow_http", "allow_invalid_certificates")
_REQUEST: Final = "Error performing"
"""What obstore writes before the reply of a store."""


class StoreFailed(TubeMQError, OSError):
    """A store failed or did not answer, an object store or a file system: what it holds is as it
    was, and may be asked for again."""

    retriable = True


def is_remote(path: str) -> bool:
    """Whether a staging path is a URL of an object store, and not a directory."""
    return path.partition("://")[0] in SCHEMES and "://" in path


def prefix_problems(url: str) -> list[str]:
    """Why an address of an object store would mean another prefix than it says, or one that readers
    do not find again: libraries resolve, join or decode parts of it, each in its own way."""
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.rstrip("/").partition("/")
    if not bucket:
        return [f"{url!r} names no bucket; write {scheme}://<bucket>/<prefix>"]
    parts = prefix.split("/") if prefix else []
    problems = []
    if bad := [part for part in parts if part in ("", ".", "..")]:
        plain: list[str] = []
        for part in parts:
            if part == "..":
                del plain[-1:]
            elif part not in ("", "."):
                plain.append(part)
        named = "an empty part" if bad[0] == "" else f"the part {bad[0]!r}"
        meant = "/".join((bucket, *plain))
        problems.append(f"{url!r} has {named}; did you mean {scheme}://{meant}?")
    if found := _PERCENT.search(prefix):
        problems.append(
            f"{url!r} has the escape {found[0]}, which some readers decode and others do not; "
            f"write the character itself, or choose a prefix without it"
        )
    if "\\" in prefix or any(ord(char) < ord(" ") or char == "\x7f" for char in prefix):
        problems.append(f"{url!r} has a backslash or a control character; choose another prefix")
    return problems


def open_store(url: str, options: Mapping[str, str]) -> ObjectStore:
    """The store of a prefix; names are relative to it. Asks nothing yet.

    Options that are not given come from this process's environment. Raises `MissingExtraError`
    without obstore, and `ConfigError` for a URL that means another prefix than it says.
    """
    if set("?#") & set(url):
        # obstore leaves out what follows: the prefix would be one above, with all that is there.
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
    `ConfigError`, which no retry cures, and the rest into `StoreFailed`. `FileNotFoundError`
    stays."""
    try:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
    except ImportError:  # A local path, and no store to answer.
        yield
        return
    try:
        yield
    except BaseError as exc:
        kind, answer = type(exc).__name__, answer_in(str(exc))
        # A listing that is refused raises what all other errors raise.
        if isinstance(exc, PermissionDeniedError | UnauthenticatedError) or is_refusal(answer):
            raise refusal(url, kind) from None
        said = f" ({answer})" if answer else ""
        raise StoreFailed(f"{url}: {kind} of the object store{said}") from None
    except OSError as exc:
        # A file that is being written raises none of obstore's own errors, with the whole reply.
        if _REQUEST not in str(exc):
            raise
        answer = answer_in(str(exc))
        if is_refusal(answer):
            raise refusal(url, answer) from None
        missing = isinstance(exc, FileNotFoundError)
        told = FileNotFoundError if missing else StoreFailed
        raise told(f"{url}: error of the object store ({answer or 'no answer'})") from None


def is_refusal(answer: str) -> bool:
    """Whether `answer_in` found that the store wants other credentials."""
    return answer.startswith(("401 ", "403 "))


def answer_in(text: str) -> str:
    """What a store's error says that is no secret: status and code of its reply, or that there was
    none. Empty if it says neither."""
    found = (_STATUS.search(text), _CODE.search(text), _NO_ANSWER.search(text))
    return ", ".join(match[1].strip() for match in found if match is not None)


def refusal(url: str, kind: str) -> ConfigError:
    """What is said of a store at `url` that wants other credentials."""
    return ConfigError(
        f"{url}: the store refuses this process ({kind}); give storage_options "
        f"(in a Dag, the sink's connection) that may write there, which travel to executors, "
        f"or give drivers and executors an identity of their own",
        subject="storage",
    )
