"""The blocking administration client: masters (`/webapi.htm`) and brokers (`/broker.htm`).

Every method is one of the conversations in this package, run over httpx; `aio` is its twin and
lists the same names in the same order (`tests/client/admin/test_shells.py`). No decisions are made
here.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable
from contextlib import closing
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast

from tubemq_client import errors
from tubemq_client._io.forks import watch
from tubemq_client.admin import _brokers, _groups, _offsets, _topics
from tubemq_client.admin._http import (
    MAX_ANSWER_BYTES,
    Body,
    RequestDeadline,
    build_request,
    client_options,
    network_error,
    open_client,
)
from tubemq_client.admin._web import Answer, Conversation, Exchange, Web
from tubemq_client.model import TlsSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from pydantic import SecretStr

__all__ = ["AdminClient", "new_web", "tls_of", "with_signature"]

P = ParamSpec("P")
T = TypeVar("T")


def new_web(urls: Sequence[str] | str, token: SecretStr | str | None, user: str) -> Web:
    """Return the `Web` of a client; a token given as text is wrapped at once."""
    from pydantic import SecretStr

    secret = SecretStr(token) if isinstance(token, str) else token
    return Web(urls, secret, user)


def _blocking(
    conversation: Callable[Concatenate[Web, P], Conversation[T]],
) -> Callable[Concatenate[AdminClient, P], T]:
    @wraps(conversation)
    def method(self: AdminClient, *args: P.args, **options: P.kwargs) -> T:
        return self.run(conversation(self.web, *args, **options))

    return cast("Callable[Concatenate[AdminClient, P], T]", with_signature(method, conversation))


def tls_of(
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    key_password: SecretStr | str | None,
) -> TlsSettings:
    """Return TLS settings for HTTP. Raises `errors.ConfigError` for a key without certificate."""
    if cert_file is None and (key_file or key_password):
        raise errors.ConfigError("key_file, key_password: need cert_file", subject="administration")
    secret = (
        key_password if isinstance(key_password, str | None) else key_password.get_secret_value()
    )
    return TlsSettings(ca_file, cert_file, key_file, secret)


def with_signature(method: T, conversation: Callable[..., Any]) -> T:
    """Set a method's signature: `self` instead of the first parameter, and the conversation's
    result as its own."""
    parameters_of = inspect.signature(conversation)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    result = str(parameters_of.return_annotation).removeprefix("Conversation[").removesuffix("]")
    vars(method)["__signature__"] = parameters_of.replace(
        parameters=[own, *list(parameters_of.parameters.values())[1:]], return_annotation=result
    )
    return method


class AdminClient:
    """Administers a cluster over HTTP. A context manager; every call blocks; one per thread.

    `urls` are HTTP addresses of the masters (``http://host:8080``, or ``host:8080``): each is tried
    until one is active, because a stand-by's redirect may lead nowhere. `token` is the masters'
    `confModAuthToken`, needed for changes that go to a master; `user` is written into changed
    records. `timeout_ms` bounds one exchange, from the connection to the last byte of the answer
    (and each attempt for an address of a name), `max_answer_bytes` the memory that an answer takes
    before it is parsed. For https:// addresses `ca_file` names the authorities to trust (the
    system's by default), `cert_file`, `key_file` and `key_password` the client's own pair. Proxies
    and netrc of the environment are used with `trust_env` only: over plain HTTP a proxy sees the
    token.

    Raises `errors.ConnectError` if no master answers, `errors.StandbyMaster` if only stand-bys do,
    `errors.ServerError` if a request is refused, `errors.AdminError` if items of a change are,
    `errors.ConnectionLost` or `errors.RpcTimeout` if it is unknown whether a change took effect
    (changes are never sent twice), `errors.ProtocolViolation` for other answers.
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
        tls = tls_of(ca_file, cert_file, key_file, key_password)
        options = client_options(self.web, tls, timeout_ms, trust_env=trust_env)
        self._cutter = RequestDeadline(timeout_ms)
        self._http = open_client(httpx.Client, options)
        watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. Safe to call twice."""
        self._http.close()

    topics = _blocking(_topics.topics)
    topic = _blocking(_topics.topic)
    create_topic = _blocking(_topics.create_topic)
    modify_topic = _blocking(_topics.modify_topic)
    delete_topic = _blocking(_topics.delete_topic)
    topic_controls = _blocking(_topics.topic_controls)
    set_topic_control = _blocking(_topics.set_topic_control)

    brokers = _blocking(_brokers.brokers)
    broker_urls = _blocking(_brokers.broker_urls)
    broker_status = _blocking(_brokers.broker_status)
    add_broker = _blocking(_brokers.add_broker)
    modify_broker = _blocking(_brokers.modify_broker)
    online_brokers = _blocking(_brokers.online_brokers)
    offline_brokers = _blocking(_brokers.offline_brokers)
    reload_brokers = _blocking(_brokers.reload_brokers)
    set_broker_access = _blocking(_brokers.set_broker_access)
    release_brokers = _blocking(_brokers.release_brokers)
    delete_brokers = _blocking(_brokers.delete_brokers)
    server_version = _blocking(_brokers.server_version)
    master_group = _blocking(_brokers.master_group)
    cluster_settings = _blocking(_brokers.cluster_settings)
    set_cluster_settings = _blocking(_brokers.set_cluster_settings)

    groups = _blocking(_groups.groups)
    group = _blocking(_groups.group)
    consume_controls = _blocking(_groups.consume_controls)
    set_consume_control = _blocking(_groups.set_consume_control)
    delete_consume_control = _blocking(_groups.delete_consume_control)
    resource_controls = _blocking(_groups.resource_controls)
    set_resource_control = _blocking(_groups.set_resource_control)
    delete_resource_control = _blocking(_groups.delete_resource_control)

    topic_ends = _blocking(_offsets.topic_ends)
    group_offsets = _blocking(_offsets.group_offsets)
    group_positions = _blocking(_offsets.group_positions)
    lag = _blocking(_offsets.lag)
    set_offsets = _blocking(_offsets.set_offsets)
    clone_offsets = _blocking(_offsets.clone_offsets)
    remove_offsets = _blocking(_offsets.remove_offsets)
    position_history = _blocking(_offsets.position_history)

    def run(self, conversation: Conversation[T]) -> T:
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
                answer = self._exchange(exchange)
            except errors.NetworkError as error:
                failure = error

    def _exchange(self, exchange: Exchange) -> Answer:
        import httpx

        try:
            with self._cutter as cutter:
                request = build_request(self._http, exchange, {"trace": cutter.trace})
                reply = self._http.send(request, stream=True)
                with closing(reply):
                    body = Body(reply, exchange, self._max_answer_bytes)
                    for chunk in reply.iter_raw():
                        body.add(chunk)
                    return body.answer()
        except (httpx.HTTPError, ssl.SSLError) as exc:
            raise network_error(exc, exchange, over=self._cutter.over) from exc
