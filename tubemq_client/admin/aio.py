"""The asyncio administration client; `client` is its twin, with the same names in the same order.

Every method is one of the conversations in this package, run over httpx. No decisions are made
here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar, cast

from tubemq_client import errors
from tubemq_client._io.forks import watch
from tubemq_client.admin import _brokers, _groups, _offsets, _topics
from tubemq_client.admin._http import (
    MAX_ANSWER_BYTES,
    Body,
    build_request,
    client_options,
    network_error,
    open_client,
)
from tubemq_client.admin._web import Answer, Conversation, Exchange, Web
from tubemq_client.admin.client import new_web, tls_of, with_signature

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from pydantic import SecretStr

__all__ = ["AsyncAdminClient"]

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    conversation: Callable[Concatenate[Web, P], Conversation[T]],
) -> Callable[Concatenate[AsyncAdminClient, P], Awaitable[T]]:
    @wraps(conversation)
    async def method(self: AsyncAdminClient, *args: P.args, **options: P.kwargs) -> T:
        return await self.run(conversation(self.web, *args, **options))

    return cast(
        "Callable[Concatenate[AsyncAdminClient, P], Awaitable[T]]",
        with_signature(method, conversation),
    )


class AsyncAdminClient:
    """Administers a cluster over HTTP. An asynchronous context manager; one event loop only.

    Options, methods, guarantees and errors are those of `AdminClient`. A change whose task is
    cancelled may have taken effect.
    """

    def __init__(
        self,
        urls: Sequence[str] | str,
        *,
        token: SecretStr | str | None = None,
        user: str = "tubemq_client",
        timeout_ms: int = 10_000,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        key_password: SecretStr | str | None = None,
        trust_env: bool = False,
    ) -> None:
        try:
            import httpx
        except ImportError as exc:
            raise errors.require_extra("admin", exc) from exc
        self.web = new_web(urls, token, user)
        self._max_answer_bytes = max_answer_bytes
        self._timeout_s = timeout_ms / 1000
        tls = tls_of(ca_file, cert_file, key_file, key_password)
        options = client_options(self.web, tls, timeout_ms, trust_env=trust_env)
        self._http = open_client(httpx.AsyncClient, options)
        watch(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Safe to call twice."""
        await self._http.aclose()

    topics = _awaited(_topics.topics)
    topic = _awaited(_topics.topic)
    create_topic = _awaited(_topics.create_topic)
    modify_topic = _awaited(_topics.modify_topic)
    delete_topic = _awaited(_topics.delete_topic)
    topic_controls = _awaited(_topics.topic_controls)
    set_topic_control = _awaited(_topics.set_topic_control)

    brokers = _awaited(_brokers.brokers)
    broker_urls = _awaited(_brokers.broker_urls)
    broker_status = _awaited(_brokers.broker_status)
    add_broker = _awaited(_brokers.add_broker)
    modify_broker = _awaited(_brokers.modify_broker)
    online_brokers = _awaited(_brokers.online_brokers)
    offline_brokers = _awaited(_brokers.offline_brokers)
    reload_brokers = _awaited(_brokers.reload_brokers)
    set_broker_access = _awaited(_brokers.set_broker_access)
    release_brokers = _awaited(_brokers.release_brokers)
    delete_brokers = _awaited(_brokers.delete_brokers)
    server_version = _awaited(_brokers.server_version)
    master_group = _awaited(_brokers.master_group)
    cluster_settings = _awaited(_brokers.cluster_settings)
    set_cluster_settings = _awaited(_brokers.set_cluster_settings)

    groups = _awaited(_groups.groups)
    group = _awaited(_groups.group)
    consume_controls = _awaited(_groups.consume_controls)
    set_consume_control = _awaited(_groups.set_consume_control)
    delete_consume_control = _awaited(_groups.delete_consume_control)
    resource_controls = _awaited(_groups.resource_controls)
    set_resource_control = _awaited(_groups.set_resource_control)
    delete_resource_control = _awaited(_groups.delete_resource_control)

    topic_ends = _awaited(_offsets.topic_ends)
    group_offsets = _awaited(_offsets.group_offsets)
    group_positions = _awaited(_offsets.group_positions)
    lag = _awaited(_offsets.lag)
    set_offsets = _awaited(_offsets.set_offsets)
    clone_offsets = _awaited(_offsets.clone_offsets)
    remove_offsets = _awaited(_offsets.remove_offsets)
    position_history = _awaited(_offsets.position_history)

    async def run(self, conversation: Conversation[T]) -> T:
        """Run a conversation."""
        answer: Answer | None = None
        failure: errors.NetworkError | None = None
        while True:
            try:
                if failure is not None:
                    exchange = conversation.throw(failure)
                else:
                    exchange = next(conversation) if answer is None else conversation.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            answer = failure = None
            try:
                answer = await self._exchange(exchange)
            except errors.NetworkError as error:
                failure = error

    async def _exchange(self, exchange: Exchange) -> Answer:
        import httpx

        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._http.send(build_request(self._http, exchange, {}), stream=True)
                async with aclosing(reply):
                    body = Body(reply, exchange, self._max_answer_bytes)
                    async for chunk in reply.aiter_raw():
                        body.add(chunk)
                    return body.answer()
        except TimeoutError as exc:
            raise network_error(exc, exchange, over=True) from exc
        except (httpx.HTTPError, ssl.SSLError) as exc:  # an alert of TLS 1.3 comes with a read
            raise network_error(exc, exchange) from exc
