"""Registration of one client for one partition at its broker: register, fetch, commit, unregister.

These are RPC 15, 17 and 18 of the broker as conversations. This module knows messages and codes,
but neither ranges nor retries: callers decide what a refusal means (`range_read`, `ends`,
`assigned`).

Sources: `docs/protocol/offsets.md` (query priorities, ends), `docs/protocol/errors.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tubemq_client import _pb, errors
from tubemq_client._core.effects import Call, Post
from tubemq_client._core.security import Access
from tubemq_client._wire import methods

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation, Ticket
    from tubemq_client.model import BrokerNode, Partition

__all__ = [
    "PRIORITY_MEMORY",
    "PRIORITY_STABLE",
    "UNDEFINED",
    "Registered",
    "Registration",
]

UNDEFINED = -2
"""TubeMQ's "no value" (`META_VALUE_UNDEFINED`; `docs/protocol/wire.md#traps`)."""

PRIORITY_MEMORY = 303
"""Priority that reads files, back-up and main memory, filtered or not
(`docs/protocol/offsets.md`)."""

PRIORITY_STABLE = 1
"""Priority that sees the fsynced part only. Not 101: the broker compares the whole number with 1
when it picks the `maxOffset` of its reply (`docs/protocol/offsets.md`; measured on a genuine
broker)."""

_FAILURE = 500


@dataclass(frozen=True, slots=True)
class Registered:
    """Broker's answer to a register: the position, and the end of the log."""

    current: int
    max_offset: int


@dataclass(slots=True)
class Registration:
    """Identity under which one client holds one partition.

    `access` is what the client shows the broker, needed only where clusters check it.
    """

    broker: BrokerNode
    partition: Partition
    group: str
    client_id: str
    filters: tuple[str, ...] = ()
    priority: int = PRIORITY_MEMORY
    access: Access = field(default_factory=Access, repr=False)
    where: str = field(init=False)

    def __post_init__(self) -> None:
        self.where = f"partition {self.partition} at broker {self.broker} as group {self.group}"

    def register(self, offset: int | None, *, read_status: int = 0) -> Conversation[Registered]:
        """Take the partition, at `offset` if it is not None.

        Raises `errors.ServerError` when the broker refuses.
        """
        request = yield from self.register_request(offset, read_status=read_status)
        reply = yield Call(self.broker.address, methods.REGISTER_PARTITION, request)
        if (yield from self.access.may_succeed_now(reply, self.client_id)):
            request.authInfo.CopyFrom(self.access.broker_auth())
            reply = yield Call(self.broker.address, methods.REGISTER_PARTITION, request)
        self.check(reply, "register")
        return Registered(reply.currOffset, reply.maxOffset)

    def unregister(self, *, consumed: bool = False) -> Conversation[None]:
        """Give the partition back; with `consumed` False the group's position does not change."""
        request = yield from self.unregister_request(consumed=consumed)
        reply = yield Call(self.broker.address, methods.REGISTER_PARTITION, request)
        self.check(reply, "unregister")

    def give_back(self) -> Conversation[None]:
        """Unregister; if that fails, the lease expires at the broker."""
        try:
            yield from self.unregister()
        except (errors.ServerError, errors.NetworkError, errors.RemoteException):
            pass

    def post_fetch(
        self, *, consumed: bool, escape_limit: bool = False, unparsed: bool = False
    ) -> Conversation[Ticket]:
        """Send a fetch.

        With `consumed` the broker first moves past the batch fetched before. `escape_limit`: the
        client enforces a limit itself, so the broker need not. `unparsed`: the answer may be a
        `FetchReply`.
        """
        request = self.fetch_request(consumed=consumed, escape_limit=escape_limit)
        method = methods.GET_MESSAGES_UNPARSED if unparsed else methods.GET_MESSAGES
        ticket: Ticket = yield Post(self.broker.address, method, request)
        return ticket

    def commit(self, *, consumed: bool = True) -> Conversation[Registered]:
        """Move the position past the batch in flight (or roll it back) and return the position."""
        request = self.commit_request(consumed=consumed)
        reply = yield Call(self.broker.address, methods.COMMIT_OFFSET, request)
        self.check(reply, "commit")
        return Registered(reply.currOffset, reply.maxOffset)

    def check(self, reply: Any, what: str) -> None:
        if not reply.success or reply.errCode != errors.SUCCESS:
            raise errors.for_code(reply.errCode, reply.errMsg, where=f"{what} of {self.where}")

    def refusal(self, reply: Any, what: str) -> errors.ServerError:
        """Return the exception for a failed fetch.

        A broker reports code 0 for an I/O error in mid-batch; this is treated as a server failure.
        """
        return errors.for_code(
            reply.errCode or _FAILURE, reply.errMsg, where=f"{what} of {self.where}"
        )

    # Requests alone, for callers that send those of many partitions at once

    def register_request(self, offset: int | None, *, read_status: int = 0) -> Conversation[Any]:
        """Return the request of `register`."""
        request = yield from self._register_request(methods.OP_REGISTER, read_status)
        request.filterCondStr.extend(self.filters)
        request.qryPriorityId = self.priority
        if offset is not None:
            request.currOffset = offset
        return request

    def unregister_request(self, *, consumed: bool = False) -> Conversation[Any]:
        """Return the request of `unregister`."""
        return self._register_request(methods.OP_UNREGISTER, 0 if consumed else 1)

    def fetch_request(self, *, consumed: bool, escape_limit: bool = False) -> Any:
        """Return the request of `post_fetch`."""
        return _pb.GetMessageRequestC2B(
            clientId=self.client_id,
            partitionId=self.partition.partition_id,
            groupName=self.group,
            topicName=self.partition.topic,
            lastPackConsumed=consumed,
            manualCommitOffset=False,
            escFlowCtrl=escape_limit,
        )

    def commit_request(self, *, consumed: bool = True) -> Any:
        """Return the request of `commit`."""
        return _pb.CommitOffsetRequestC2B(
            clientId=self.client_id,
            topicName=self.partition.topic,
            partitionId=self.partition.partition_id,
            groupName=self.group,
            lastPackConsumed=consumed,
        )

    def _register_request(self, operation: int, read_status: int) -> Conversation[Any]:
        yield from self.access.read_signing_time()
        return _pb.RegisterRequestC2B(
            opType=operation,
            clientId=self.client_id,
            groupName=self.group,
            topicName=self.partition.topic,
            partitionId=self.partition.partition_id,
            readStatus=read_status,
            authInfo=self.access.broker_auth(),
        )
