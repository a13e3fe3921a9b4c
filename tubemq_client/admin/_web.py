"""The effect of administration conversations: one HTTP exchange, nothing else.

A conversation is a generator that yields `Exchange` and is resumed with an `Answer` or with a
network error thrown in, so the blocking and the asyncio client share every decision: the master to
query, success or failure, the meaning of a body. No httpx here, no sockets, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, TypeVarTuple
from urllib.parse import urlencode, urlsplit

from tubemq_client import errors

if TYPE_CHECKING:
    from pydantic import SecretStr

__all__ = ["Answer", "Conversation", "Exchange", "Web", "in_batches", "parsed", "web_urls"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_ITEMS = 100
"""Servers refuse longer comma-separated lists (upstream's `WebParameterUtils.java`)."""

_LONGEST_QUERY = 2_000
_LONGEST_REASON = 2_000
_NAMES = frozenset(
    ("brokerId", "consumeGroup", "groupName", "sourceGroupName", "targetGroupName", "topicName")
)
"""Parameters that select records. Servers ignore empty ones, and then select everything."""

_DONE = frozenset({0, 200, 201, 403})
"""Item codes of modifications that leave nothing to do: done, done unchanged, not changed
(upstream's `DataOpErrCode.java`)."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send `fields` to `url`, in the body if `post`. Fields may hold a secret: never shown."""

    url: str
    fields: Mapping[str, str] = field(repr=False)
    post: bool


class Answer(NamedTuple):
    """Answer of a server. `location` is the header of a redirect."""

    status: int
    text: str
    location: str = ""


Conversation = Generator[Exchange, Answer, T]


def web_urls(urls: Sequence[str] | str) -> tuple[str, ...]:
    """Return addresses in normal form: `host:port` becomes `http://host:port`, commas separate.

    Raises `errors.ConfigError` that lists every invalid address.
    """
    texts = urls.split(",") if isinstance(urls, str) else list(urls)
    addresses = [text.strip().rstrip("/") for text in texts if text.strip()]
    addresses = [text if "://" in text else f"http://{text}" for text in addresses]
    wrong = [text for text in addresses if not _is_web(text)]
    problems = [f"{errors.shown_addresses(wrong)} is not http://host:port"] if wrong else []
    if not addresses:
        problems.append("give the HTTP address of every master, for instance http://host:8080")
    if problems:
        raise errors.ConfigError(problems, subject="HTTP addresses of masters")
    return tuple(addresses)


def _is_web(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
        # Host names are looked up in this form; an invalid one would fail there without a reason.
        (parts.hostname or "").encode("idna")
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


class Web:
    """HTTP interfaces of one cluster: addresses of masters, the token, the user for audit fields.

    Remembers the master that answered last and tries it first. Holds no connection.
    """

    def __init__(self, urls: Sequence[str] | str, token: SecretStr | None, user: str) -> None:
        self.urls = web_urls(urls)
        self.user = user
        self._token = token
        self._first = 0

    def query(self, method: str, **fields: object) -> Conversation[dict[str, Any]]:
        """Return a master's answer to a read."""
        return self._master(method, fields, write=False)

    def modify(self, method: str, **fields: object) -> Conversation[dict[str, Any]]:
        """Return a master's answer to a change; items that failed raise `errors.AdminError`.

        Needs the token. Sent once: if the connection breaks afterwards, it is unknown whether the
        change took effect, and the error says that.
        """
        if self._token is None:
            raise errors.ConfigError(
                f"{method} changes the cluster and needs the master's confModAuthToken: give the "
                "option token (--admin-token, TUBEMQ_ADMIN_TOKEN)",
                subject="administration",
            )
        secret = {"confModAuthToken": self._token.get_secret_value()}
        body = yield from self._master(method, {**fields, **secret}, write=True)
        _refuse_failed_items(body, method)
        return body

    def broker(
        self, url: str, method: str, *, write: bool = False, **fields: object
    ) -> Conversation[dict[str, Any]]:
        """Return a broker's answer; brokers require no token."""
        answer = yield _exchange(f"{url}/broker.htm", method, fields, write=write)
        return _decoded(answer, f"{method} at {url}")

    def _master(
        self, method: str, fields: Mapping[str, object], *, write: bool
    ) -> Conversation[dict[str, Any]]:
        reasons: dict[str, str] = {}
        standbys = 0
        for number in range(len(self.urls)):
            index = (self._first + number) % len(self.urls)
            url = self.urls[index]
            try:
                answer = yield _exchange(f"{url}/webapi.htm", method, fields, write=write)
            except errors.ConnectError as error:
                reasons[url] = str(error)
            except errors.NetworkError as error:
                if write:
                    raise
                reasons[url] = str(error)
            else:
                if not 300 <= answer.status < 400:
                    self._first = index
                    return _decoded(answer, f"{method} at {url}")
                # A stand-by redirects to the active master's host with its own port, which is
                # wrong if the ports differ: the next address is tried instead.
                standbys += 1
                reasons[url] = "is a stand-by"
        raise _no_master(method, reasons, standbys)


def _no_master(method: str, reasons: Mapping[str, str], standbys: int) -> errors.TubeMQError:
    failures = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
    if standbys == len(reasons):
        return errors.StandbyMaster(
            "no active master", f"{failures} (give the HTTP address of every master)", where=method
        )
    return errors.ConnectError(f"{method}: no master answers: {failures}")


def _exchange(url: str, method: str, fields: Mapping[str, object], *, write: bool) -> Exchange:
    empty = [name for name, value in fields.items() if name in _NAMES and _is_empty(value)]
    if empty:
        problems = [f"{name}: an empty name would mean all there are" for name in empty]
        raise errors.ConfigError(problems, subject=method)
    texts = {"method": method}
    texts |= {name: _text(value) for name, value in fields.items() if value is not None}
    # Changes go in the body, so that no access log holds a token or a long rule.
    return Exchange(url, texts, write or len(urlencode(texts)) > _LONGEST_QUERY)


def _is_empty(value: object) -> bool:
    """Return True for an empty name, or a list with one, which servers would ignore."""
    if value is None:
        return False
    several = isinstance(value, Iterable) and not isinstance(value, str)
    names = [str(name).strip(' \t"') for name in (value if several else [value])]  # type: ignore[attr-defined]
    return not all(names) or not names


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable):
        return ",".join(str(item) for item in value)
    return str(value)


def _decoded(answer: Answer, where: str) -> dict[str, Any]:
    if answer.status >= 500:
        raise errors.ServerFailure(answer.status, "the web server failed", where=where)
    if answer.status != 200:
        raise errors.ProtocolViolation(f"{where}: HTTP status {answer.status}")
    try:
        body = json.loads(answer.text)
    except (ValueError, RecursionError) as exc:
        raise errors.ProtocolViolation(f"{where}: the answer is not JSON") from exc
    if not isinstance(body, dict) or "result" not in body:
        raise errors.ProtocolViolation(f"{where}: no result in the answer")
    if not body["result"]:
        code = _number(body.get("errCode"), 500)
        raise errors.for_code(code, _truncated(body.get("errMsg", "")), where=where)
    return body


def _truncated(text: object) -> str:
    """Return the error text of a server, truncated to a readable length."""
    return str(text)[:_LONGEST_REASON]


def _number(value: object, default: int) -> int:
    try:
        return int(str(value))
    except ValueError:
        return default


_MALFORMED = (
    *(KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError, RecursionError),
)
_KEYS = ("brokerId", "topicName", "groupName")


def _refuse_failed_items(body: Mapping[str, Any], method: str) -> None:
    """Raise for failed records: `result` is true even if every record failed."""
    rows = body.get("data") or []
    failed: list[errors.ItemFailure] = []
    done: list[str] = []
    for row in rows if isinstance(rows, list) else []:
        if not isinstance(row, dict) or "errCode" not in row:
            continue
        name = ":".join(str(row[key]) for key in _KEYS if row.get(key) not in (None, ""))
        code = _number(row["errCode"], 599)
        if code in _DONE:
            done.append(name)
        else:
            failed.append(errors.ItemFailure(name, code, _truncated(row.get("errInfo", ""))))
    if failed:
        raise errors.AdminError(failed, done=done, where=method)


def parsed(build: Callable[[*Ts], T], where: str, *values: *Ts) -> T:
    """Return the result of `build`; a missing or invalid field is `errors.ProtocolViolation`."""
    try:
        return build(*values)
    except _MALFORMED as exc:
        problem = _truncated(f"{type(exc).__name__}: {exc}")
        raise errors.ProtocolViolation(f"{where}: unexpected answer ({problem})") from exc


def in_batches(items: Sequence[T]) -> list[Sequence[T]]:
    """Return `items` in lists of a length that servers accept; one empty list for none."""
    return [items[i : i + MOST_ITEMS] for i in range(0, len(items), MOST_ITEMS)] or [items]
