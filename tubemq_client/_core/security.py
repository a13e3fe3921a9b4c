"""Authentication of a client: signatures for masters, tokens for brokers.

Masters that authenticate require a fresh signature in every request with a field for it (RPC 1–6
and 20–22); brokers require the visit token that a master gave last, and a signed token, in RPC 13,
15 and 16, and nothing in 17 and 18. Servers without authentication ignore all of it. The signature
is HMAC-SHA1 over user, time and nonce (upstream's `TStringUtils` and
`SimpleClientAuthenticateHandler`). Time is an effect, nonces come with the session; the password
never leaves this module.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from tubemq_client import _pb
from tubemq_client._core.effects import WallClock
from tubemq_client._wire import strings

if TYPE_CHECKING:
    from tubemq_client._core.effects import Conversation
    from tubemq_client.model import Credentials

__all__ = ["NO_TOKEN", "Access", "signature"]

NO_TOKEN = -2
"""Visit token of a client that no master has answered yet."""

_NONCES = (1 << 31) - 1
"""Upper bound of a nonce, a non-negative int32 (exclusive)."""

_REFUSED = 415
_UNKNOWN_VISIT = "Visit Authorized Token"
"""Prefix of a broker's refusal of an unknown or expired visit token."""


def signature(user: str, password: str, timestamp_ms: int, nonce: int) -> str:
    """Return the proof of the password: Base64 of the HMAC-SHA1, escaped as in a web form."""
    text = f"{user}{timestamp_ms}{nonce}".encode()
    digest = hmac.new(password.encode(), text, hashlib.sha1).digest()
    return quote_plus(base64.b64encode(digest).decode("ascii"))


@dataclass(slots=True)
class Access:
    """Credentials and tokens of one client, shared by its conversations with masters and brokers.

    `visit_token` and `authorized_token` come from a master's last answer that had them; `renew`
    asks a master for a visit token under a client id. `nonces` yields increasing numbers.
    """

    credentials: Credentials | None = None
    nonces: Iterator[int] = field(default_factory=itertools.count, repr=False)
    renew: Callable[[str], Conversation[None]] | None = field(default=None, repr=False)
    visit_token: int = NO_TOKEN
    authorized_token: str = field(default="", repr=False)
    _now: int = 0

    def read_signing_time(self) -> Conversation[None]:
        """Read the time for signatures from now on; does nothing without credentials."""
        if self.credentials is not None:
            self._now = yield WallClock()

    def stamp(self, request: Any) -> Conversation[None]:
        """Add signature and token to a master's `request`, if the message has a field for them."""
        if "authInfo" not in request.DESCRIPTOR.fields_by_name:
            return
        yield from self.read_signing_time()
        if self.credentials is not None:
            request.authInfo.authInfo.CopyFrom(self._signed(self.credentials))
        if self.authorized_token:
            request.authInfo.authorizedToken = self.authorized_token

    def broker_auth(self) -> Any:
        """Return the authentication of RPC 13, 15 and 16, signed with the time read last."""
        auth_info = _pb.AuthorizedInfo(visitAuthorizedToken=self.visit_token)
        if self.credentials is not None:
            signed = self._signed(self.credentials)
            auth_info.authAuthorizedToken = strings.broker_token(
                signed.userName, signed.timestamp, signed.nonce, signed.signature
            )
        elif self.authorized_token:
            auth_info.authAuthorizedToken = self.authorized_token
        return auth_info

    def may_succeed_now(
        self, refusal: Any, client_id: str, shown: int | None = None
    ) -> Conversation[bool]:
        """Return whether a refused request may succeed now with a newer visit token than `shown`.

        None stands for the present token. Clients without heartbeats get theirs here: a token is
        valid for some minutes only, and a reader with given brokers starts without one.
        """
        if refusal.errCode != _REFUSED or not refusal.errMsg.startswith(_UNKNOWN_VISIT):
            return False
        if self.renew is None:
            return False
        before = self.visit_token if shown is None else shown
        if self.visit_token == before:
            yield from self.renew(client_id)
        return self.visit_token != before

    def learn(self, reply: Any) -> None:
        """Keep the tokens of a master's reply, if it has any."""
        if "authorizedInfo" not in reply.DESCRIPTOR.fields_by_name:
            return
        if reply.HasField("authorizedInfo"):
            self.visit_token = reply.authorizedInfo.visitAuthorizedToken
            token = reply.authorizedInfo.authAuthorizedToken.strip()
            self.authorized_token = token or self.authorized_token

    def _signed(self, credentials: Credentials) -> Any:
        nonce = next(self.nonces) % _NONCES
        user = credentials.username
        return _pb.AuthenticateInfo(
            userName=user,
            timestamp=self._now,
            nonce=nonce,
            othParams="",
            signature=signature(user, credentials.password, self._now, nonce),
        )
