"""The registry of nodes: entries in every name server, which their nodes renew.

The entry of a dead node stays, so readers check its age: a node whose entry was not renewed for 45
s is dead. Stock clients need no registry; commands and clients that list nodes do.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, cast

from rocketmq_client import errors
from rocketmq_client._wire import codes
from rocketmq_client._wire.codec import ROCKETMQ
from rocketmq_client._wire.commands import Command, encode_command
from rocketmq_client._wire.json_text import read_json
from rocketmq_client.model import Address, ClientSettings
from tubemq_client._io.asyncio_connection import connect

__all__ = ["NAMESPACE", "known_nodes"]

NAMESPACE: Final = "SNODE_CONFIG"
"""Namespace of the entries in name servers."""

STALE_MS: Final = 45_000


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
    return entry if is_whole and str(entry["addr"]).isprintable() else {}
