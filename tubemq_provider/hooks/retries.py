"""`tubemq_retry_policy`: which errors of a task deserve another try, and how soon.

For the argument `retry_policy` of any task that speaks to TubeMQ, or to another kind of source that
is known here, those of other operators too. The classes of the errors say it themselves (`fatal`,
`retriable`); this only turns them into Airflow's rules. Retries themselves are the task's: without
`retries` no policy gives any.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tubemq_client import errors
from tubemq_provider._airflow import ExceptionRetryPolicy, RetryAction, RetryRule
from tubemq_provider.windows.errors import WindowNotReady
from tubemq_provider.windows.spaces import SOURCES, space_of

__all__ = ["tubemq_retry_policy"]

_SHIPPED = ("tubemq_provider.", *(f"{source}_client." for source in SOURCES))


def tubemq_retry_policy(
    *,
    network_delay: timedelta = timedelta(seconds=30),
    not_ready_delay: timedelta = timedelta(minutes=2),
) -> ExceptionRetryPolicy:
    """Fail at once where a person has to change something, retry where waiting helps.

    :param network_delay: before a retry after a connection was refused, lost or silent.
    :param not_ready_delay: before a retry of a window whose end is not on the brokers' disks yet.

    Other errors that a retry may cure wait as long as the task says; errors that no kind of source
    has are judged by the task alone.
    """
    for source in SOURCES:
        space_of(source)  # whose client then has its errors below the base of all
    known = [*_tree(errors.TubeMQError)]
    fatal = [_path(found) for found in known if found.fatal or found is errors.TlsError]
    network = [
        _path(found)
        for found in known
        if issubclass(found, errors.NetworkError) and found.retriable
    ]
    others = [
        _path(found)
        for found in known
        if found.retriable and not issubclass(found, errors.NetworkError | WindowNotReady)
    ]
    return ExceptionRetryPolicy(
        rules=[
            _rule(fatal, RetryAction.FAIL, None, "no retry cures it: the message says what to do"),
            _rule([_path(WindowNotReady)], RetryAction.RETRY, not_ready_delay, "not ready yet"),
            _rule(network, RetryAction.RETRY, network_delay, "the cluster did not answer"),
            _rule(others, RetryAction.RETRY, None, "it may pass"),
        ]
    )


def _rule(
    classes: list[str], action: RetryAction, delay: timedelta | None, reason: str
) -> RetryRule:
    # Each class by itself: a subclass may know better than the one above it.
    return RetryRule(list(classes), action, delay, reason, match_subclasses=False)


def _tree(root: type[errors.TubeMQError]) -> Iterator[type[errors.TubeMQError]]:
    """The shipped classes below `root`, and itself; named by path, as policies are stored."""
    if root.__module__.startswith(_SHIPPED):
        yield root
    for below in sorted(root.__subclasses__(), key=lambda found: found.__name__):
        yield from _tree(below)


def _path(found: type) -> str:
    return f"{found.__module__}.{found.__qualname__}"
