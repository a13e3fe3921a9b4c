"""Last errors by partition, broker or master: they show an operator why a member is slow.

Stores copies without traceback: a traceback would pin the frames and the lost connection's buffers
for the member's life, which may be months.
"""

from __future__ import annotations

import copy

from tubemq_client import errors

__all__ = ["LastErrors"]


class LastErrors(dict[str, errors.TubeMQError]):
    """Errors by partition, broker or "master".

    A stored error is a copy: its class, message and data, without traceback, cause and context.
    """

    def __setitem__(self, where: str, error: errors.TubeMQError) -> None:
        super().__setitem__(where, copy.copy(error))
