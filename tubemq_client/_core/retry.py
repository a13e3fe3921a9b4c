"""Retry of registrations: how often, how far apart, and when not.

Error classes state which errors may be retried (`errors`); `range_read` and `balance_fetch` retry
reads, `sending` retries sends. Here is the one loop in which producers, members of groups and
readers register. An error that a user must correct is raised at once, unless a change of masters
that is under way may explain it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from tubemq_client import errors
from tubemq_client._core.effects import Now, Sleep

if TYPE_CHECKING:
    from collections.abc import Callable

    from tubemq_client._core.effects import Conversation
    from tubemq_client._core.master import MasterSession
    from tubemq_client.model import ClientSettings

__all__ = ["register"]

T = TypeVar("T")


def register(
    master: MasterSession, settings: ClientSettings, ask: Callable[[], Conversation[T]]
) -> Conversation[T]:
    """Return the result of `ask`, tried up to `register_attempts` times, `register_pause_ms` apart.

    Raises an error that is fatal or not retriable at once, unless it may pass with a change of
    masters (`MasterSession.may_be_switch`), and the last one after all attempts.
    """
    for attempts_left in reversed(range(settings.register_attempts)):
        try:
            return (yield from ask())
        except errors.TubeMQError as error:
            hopeless = error.fatal or not error.retriable
            if hopeless and master.may_be_switch(error, (yield Now())):
                hopeless = False
            if hopeless or not attempts_left:
                raise
        yield Sleep(settings.register_pause_ms)
    raise AssertionError("the last attempt returns or raises")
