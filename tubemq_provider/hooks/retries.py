"""`tubemq_retry_policy`: errors of a task that are retried, and after which delay.

For the argument `retry_policy` of any task that uses TubeMQ, or another kind of source that is
registered here, also with operators of other providers. The error classes define it (`fatal`,
`retriable`); this module only turns them into Airflow's rules. The number of retries is the task's:
without `retries` no policy gives any.
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
    """Return a policy that fails at once on errors to fix, and retries where waiting helps.

    :param network_delay: delay before a retry after a connection was refused, lost or silent.
    :param not_ready_delay: delay before a retry of a window whose end is not on the brokers' disks.

    Other retriable errors wait for the task's `retry_delay`; errors of no kind of source follow the
    task's own rules.
    """
    for source in SOURCES:
        space_of(source)  # imports the client, whose errors are then subclasses of the base class
    classes = [*_tree(errors.TubeMQError)]
    fatal = [_path(each) for each in classes if each.fatal or each is errors.TlsError]
    network = [
        _path(each) for each in classes if issubclass(each, errors.NetworkError) and each.retriable
    ]
    others = [
        _path(each)
        for each in classes
        if each.retriable and not issubclass(each, errors.NetworkError | WindowNotReady)
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
    # No subclass matching: a subclass may override the attributes of its base.
    return RetryRule(list(classes), action, delay, reason, match_subclasses=False)


def _tree(root: type[errors.TubeMQError]) -> Iterator[type[errors.TubeMQError]]:
    """Yield the shipped classes below `root`, and `root`; policies are stored by their path."""
    if root.__module__.startswith(_SHIPPED):
        yield root
    for below in sorted(root.__subclasses__(), key=lambda each: each.__name__):
        yield from _tree(below)


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
