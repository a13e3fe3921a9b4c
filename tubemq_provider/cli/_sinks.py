"""Sink of a command's ``--sink``, with the credentials of its connection.

Like the operator's `sink` and `sink_conn_id`: a password does not belong on a command line, which
every user of the machine can list, nor in a shell's history. Opens nothing itself.
"""

from __future__ import annotations

from typing import Any

from tubemq_client import errors
from tubemq_provider.hooks.sink_connection import open_sink
from tubemq_provider.hooks.tubemq import TubeMQHook
from tubemq_provider.windows.protocols import Sink


def sink_of(args: Any) -> Sink | None:
    """Return the sink, or None without ``--sink``. Raises `errors.ConfigError` without secrets."""
    if args.sink is None:
        if args.sink_conn_id is not None:
            raise errors.ConfigError("--sink-conn-id has no effect without --sink", subject="sink")
        return None
    return open_sink(args.sink, args.sink_conn_id, TubeMQHook.get_connection)
