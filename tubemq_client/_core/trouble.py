"""What went wrong last, by where: what a group's member remembers for whoever asks why it is slow.

An exception holds its traceback, that the frames of the call, and those the connection that was
lost, with its buffer and what had arrived. Members live for months: only the error itself is kept.
"""

from __future__ import annotations

import copy

from tubemq_client import errors

__all__ = ["Trouble"]


class Trouble(dict[str, errors.TubeMQError]):
    """By partition, broker or "master". What is put in is copied: of its class, with its message
    and data, without traceback, cause and context."""

    def __setitem__(self, where: str, error: errors.TubeMQError) -> None:
        super().__setitem__(where, copy.copy(error))
