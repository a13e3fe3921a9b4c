"""Authentication in front of the RPC handlers, and the rewriting of replies for callers over TLS.

A gate is a `Service` that wraps another one. It refuses like upstream's `SimpleCertificate…Handler`
(code 415, its texts, before any other check), and rewrites replies: a master returns the visit
token of the generation before the newest, and the brokers' TLS ports to a caller over TLS. Unlike a
real server it checks signatures, if it has the users' passwords.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from tubemq_client._core.security import signature
from tubemq_client._wire import methods, strings
from tubemq_client.embedded.broker import Clock
from tubemq_client.embedded.checks import Refused
from tubemq_client.embedded.cluster import Cluster
from tubemq_client.embedded.options import Security
from tubemq_client.embedded.rpc import Service
from tubemq_client.model import BrokerNode

__all__ = ["BrokerGate", "MasterGate", "VisitTokens"]

_REFUSED = 415
_KEPT_TOKENS = 6
_TOKEN_PARTS = 4

_PRODUCER_METHODS = frozenset(
    (methods.REGISTER_PRODUCER.id, methods.HEARTBEAT_PRODUCER.id, methods.CLOSE_PRODUCER.id)
)
_BROKER_CONSUMER_METHODS = frozenset((methods.REGISTER_PARTITION.id, methods.HEARTBEAT_BROKER.id))


class VisitTokens:
    """Visit tokens that the master makes and brokers recognise: creation times, in ms."""

    def __init__(self, clock: Clock, period_ms: int) -> None:
        self._clock = clock
        self._step_ms = max(1, period_ms * 4 // 5)
        self._made = [clock()]

    def announced_token(self) -> int:
        """Return the generation before the newest, so that every broker has heard of it."""
        self._turn()
        return self._made[-2] if len(self._made) > 1 else self._made[-1]

    def recognises(self, token: int) -> bool:
        self._turn()
        return token in self._made

    def rotate(self, generations: int) -> None:
        """Make `generations` new tokens now; only the newest six are kept."""
        for _ in range(min(generations, _KEPT_TOKENS + 1)):
            self._made.append(max(self._clock(), self._made[-1] + 1))
        del self._made[:-_KEPT_TOKENS]

    def _turn(self) -> None:
        due = (self._clock() - self._made[-1]) // self._step_ms
        last = self._made[-1]
        for number in range(max(1, due - _KEPT_TOKENS), due + 1):
            self._made.append(last + number * self._step_ms)
        del self._made[:-_KEPT_TOKENS]


class MasterGate:
    """Authenticates callers of the master."""

    def __init__(
        self,
        service: Service,
        security: Security,
        clock: Clock,
        tokens: VisitTokens,
        tls_view: Cluster | None = None,
    ) -> None:
        self.handlers = service.handlers
        self._service = service
        self._security = security
        self._clock = clock
        self._tokens = tokens
        self._tls_view = tls_view

    def handle(self, method_id: int, request: Any) -> Any | None:
        producing = method_id in _PRODUCER_METHODS
        if self._security.produce if producing else self._security.consume:
            try:
                self._check(request.authInfo.authInfo)
            except Refused as refusal:
                return self.handlers[method_id].refuse(refusal)
        reply = self._service.handle(method_id, request)
        if reply is not None:
            self._rewrite(reply)
        return reply

    def _check(self, auth: Any) -> None:
        for name in ("userName", "signature"):
            if not getattr(auth, name).strip():
                raise Refused(_REFUSED, f"Illegal value: authInfo.{name} is Blank!")
        if abs(self._clock() - auth.timestamp) > self._security.timestamp_window_ms:
            raise Refused(
                _REFUSED,
                "Illegal value: timestamp out of effective period in authenticateToken!",
            )
        user, signed = auth.userName, auth.signature
        if not _knows(self._security.users, user, auth.timestamp, auth.nonce, signed):
            raise Refused(_REFUSED, "Illegal value: userName or password is not correct!")

    def _rewrite(self, reply: Any) -> None:
        fields = reply.DESCRIPTOR.fields_by_name
        if "authorizedInfo" in fields and reply.HasField("authorizedInfo"):
            reply.authorizedInfo.visitAuthorizedToken = self._tokens.announced_token()
        if self._tls_view is None:
            return
        for name in ("brokerInfos", "brokerConfigList"):
            if name in fields:
                texts = getattr(reply, name)
                texts[:] = [self._broker_over_tls(text) for text in texts]
        if "event" in fields and reply.HasField("event"):
            subscriptions = reply.event.subscribeInfo
            subscriptions[:] = [self._subscription_over_tls(text) for text in subscriptions]

    def _broker_over_tls(self, text: str) -> str:
        node = self._over_tls(strings.parse_broker(text))
        return strings.format_broker(node, strings.DEFAULT_BROKER_TLS_PORT)

    def _subscription_over_tls(self, text: str) -> str:
        info = strings.parse_subscribe_info(text)
        return strings.format_subscribe_info(info._replace(broker=self._over_tls(info.broker)))

    def _over_tls(self, node: BrokerNode) -> BrokerNode:
        assert self._tls_view is not None, "called over TLS only"
        record = self._tls_view.brokers.get(node.broker_id)
        return BrokerNode(node.broker_id, node.host, record.tls_port) if record else node


class BrokerGate:
    """Authenticates callers of a broker. `registered` restarts the grace period."""

    def __init__(
        self, service: Service, security: Security, clock: Clock, tokens: VisitTokens
    ) -> None:
        self.handlers = service.handlers
        self._service = service
        self._security = security
        self._clock = clock
        self._tokens = tokens
        self._registered_ms = clock()

    def registered(self) -> None:
        """Start the grace period: for a while after a registration visit tokens are not checked."""
        self._registered_ms = self._clock()

    def handle(self, method_id: int, request: Any) -> Any | None:
        if method_id == methods.SEND_MESSAGE.id:
            signed = self._security.produce
        elif method_id in _BROKER_CONSUMER_METHODS:
            signed = self._security.consume
        else:
            return self._service.handle(method_id, request)
        try:
            self._check(request.authInfo, signed=signed)
        except Refused as refusal:
            return self.handlers[method_id].refuse(refusal)
        return self._service.handle(method_id, request)

    def _check(self, auth: Any, *, signed: bool) -> None:
        security = self._security
        grace_over = self._clock() - self._registered_ms > security.visit_token_grace_ms
        if security.visit_tokens and grace_over:
            has_token = auth.HasField("visitAuthorizedToken")
            if not (has_token and self._tokens.recognises(auth.visitAuthorizedToken)):
                raise Refused(_REFUSED, "Visit Authorized Token is invalid!")
        if signed:
            token = auth.authAuthorizedToken.strip()
            if not token:
                raise Refused(_REFUSED, "authAuthorizedToken is Blank!")
            if security.users is not None and not self._signed_by_a_user(token):
                raise Refused(_REFUSED, "authAuthorizedToken is not correct!")

    def _signed_by_a_user(self, token: str) -> bool:
        parts = token.split(" ")
        if len(parts) != _TOKEN_PARTS or not (parts[1].isdecimal() and parts[2].isdecimal()):
            return False
        user, timestamp, nonce, signed = parts
        return _knows(self._security.users, user, int(timestamp), int(nonce), signed)


def _knows(
    users: Mapping[str, str] | None, user: str, timestamp: int, nonce: int, signed: str
) -> bool:
    """Return True if the signature is the user's.

    Without a list of users any is valid, as upstream.
    """
    if users is None:
        return True
    expected = signature(user, users.get(user, ""), timestamp, nonce)
    return hmac.compare_digest(expected.encode(), signed.encode()) and user in users
