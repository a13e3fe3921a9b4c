"""The registry of nodes: entries in every name server, which their nodes renew; and the page of an
address server, which names the name servers.

The entry of a dead node stays, so readers check its age: a node whose entry was not renewed for 45
s is dead. Stock clients need no registry; commands and clients that list nodes do.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any, Final, cast
from urllib.request import urlopen

from rocketmq_client import errors
from rocketmq_client._wire import codes
from rocketmq_client._wire.codec import ROCKETMQ
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client._wire.json_text import read_json
from rocketmq_client.model import Address, ClientSettings
from tubemq_client._io.asyncio_connection import connect

__all__ = ["NAMESPACE", "known_nodes", "name_servers_at"]

NAMESPACE: Final = "SNODE_CONFIG"
"""Namespace of the entries in name servers."""

STALE_MS: Final = 45_000

_SERVER: Final = re.compile(r"(\[[0-9a-fA-F:.%\w]+\]|[^:;,\s\[\]@/?#<>]+):(\d{1,5})")
_PAGE_TIMEOUT_S: Final = 10.0
_LARGEST_PAGE: Final = 65_536


async def known_nodes(
    settings: ClientSettings, *, now_ms: int | None = None
) -> dict[str, dict[str, Any]]:
    """Return the entries of live nodes by name, from the first name server that answers. Raises
    `errors.NetworkError`."""
    failure: errors.RocketMQError = errors.ConnectError("no name server")
    for address in settings.name_servers:
        try:
            answer = await _entries(address, settings)
        except errors.NetworkError as error:
            failure = error
            continue
        return _living(answer, time.time_ns() // 1_000_000 if now_ms is None else now_ms)
    raise failure


def name_servers_at(url: str) -> tuple[Address, ...]:
    """Return the name servers that a page names, ``host:port`` separated by ``;``. Blocks for up to
    ten seconds. Raises `OSError`, and `ValueError` for a page that names none."""
    with urlopen(url, timeout=_PAGE_TIMEOUT_S) as page:  # noqa: S310 - the settings allow http only
        text = page.read(_LARGEST_PAGE).decode("utf-8", "replace")
    servers = [_SERVER.fullmatch(item.strip()) for item in text.split(";") if item.strip()]
    if not servers or not all(servers):
        raise ValueError("it is not host:port;host:port")
    return tuple((found[1].strip("[]"), int(found[2])) for found in servers if found)


async def _entries(address: Address, settings: ClientSettings) -> Command:
    connection = await connect(address, settings.network(), ROCKETMQ)
    timeout_s = settings.rpc_timeout_ms / 1000
    try:
        serial = await connection.post(
            lambda number: encode_command(Command(219, number, {"namespace": NAMESPACE})),
            timeout_s,
        )
        answer = await connection.wait(serial, asyncio.get_running_loop().time() + timeout_s)
    finally:
        await connection.close()
    return cast("Command", answer)


def _living(answer: Command, now_ms: int) -> dict[str, dict[str, Any]]:
    if answer.code == codes.QUERY_NOT_FOUND:
        return {}  # no node has registered yet
    if answer.code != codes.SUCCESS:
        raise errors.for_code(answer.code, answer.remark or "", where="the registry")
    table = read_json(answer.body, "the registry").get("table") or {}
    entries = {name: _entry(text) for name, text in table.items()}
    return {
        name: entry
        for name, entry in sorted(entries.items())
        if name.isprintable() and entry and now_ms - entry["ts"] <= STALE_MS
    }


def _entry(text: object) -> dict[str, Any]:
    """Return the entry that a node wrote; empty for any other text, because every client of a name
    server may write there."""
    try:
        entry = read_json(str(text).encode(), "an entry")
    except errors.ProtocolViolation:
        return {}
    kinds = {"addr": str, "clients": int, "ts": int}
    is_whole = all(type(entry.get(name)) is kind for name, kind in kinds.items())
    texts = (entry.get("addr"), entry.get("cluster", ""))
    printable = all(isinstance(text, str) and text.isprintable() for text in texts)
    return entry if is_whole and printable else {}
