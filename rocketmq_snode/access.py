"""Access control of a node: allow-lists, signatures of its users, and its signature for brokers.

Without `users` a request is forwarded with its signature, which the broker verifies. With them the
node verifies every request; with `credentials` it then signs it again, so brokers know one account
and its secret stays at the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rocketmq_client import errors
from rocketmq_client._wire.commands import Command, decode_command
from rocketmq_client._wire.signature import is_signed_by, signed
from rocketmq_client.model import Credentials
from rocketmq_snode.request_resources import groups_in, named_in_body, origin_in, topic_in
from rocketmq_snode.routing import ADMINISTRATION
from rocketmq_snode.settings import SnodeSettings

__all__ = ["Access", "AccessDenied"]

_OF_SIGNATURES = ("AccessKey", "SecurityToken", "Signature")
_OF_ANY_TOPIC = frozenset({33})
"""Requests for a record by its position in the log, of any topic."""
_OF_ANY_GROUP = frozenset({43, 201})
"""Requests for the offsets of all groups on all topics, and for all groups."""


class AccessDenied(errors.LocalError):
    """Refusal by the node; its client gets code 16."""


class Access:
    """Allow-lists and users of a node; holds no connection."""

    def __init__(self, settings: SnodeSettings) -> None:
        self._topics, self._groups = settings.topics, settings.groups
        self._users = {name: Credentials(name, secret) for name, secret in settings.users}
        self._upstream = settings.credentials
        self._admins = settings.admins
        self.signs = bool(self._users)
        """True if the node verifies requests."""
        self.lists = bool(self._topics or self._groups)
        """True if there are allow-lists."""

    def authorize(self, code: int, fields: Mapping[str, str]) -> None:
        """Raise `AccessDenied` for a header with a topic or group that is not on an allow-list, or
        without any to check."""
        if not self.lists:
            return
        if code in _OF_ANY_GROUP or (self._topics and code in _OF_ANY_TOPIC):
            raise AccessDenied(
                f"request type {code} reaches resources that are not on the allow-lists"
            )
        origin = origin_in(code, fields)
        if origin == "" and self._topics:
            raise AccessDenied("a record is sent back without originTopic")
        self._judge((topic_in(code, fields), origin), groups_in(fields))

    def authorize_body(self, request: Command) -> None:
        """Raise `AccessDenied` for a heartbeat or a lock whose body has a topic or group that is
        not on an allow-list, or cannot be checked."""
        if not self.lists:
            return
        try:
            named = named_in_body(request.code, request.body)
        except errors.ProtocolViolation as error:
            raise AccessDenied(str(error)) from error
        self._judge(sorted(named.topics), sorted(named.groups))

    def _judge(self, topics: Iterable[str | None], groups: Iterable[str | None]) -> None:
        for topic in topics:
            if topic and self._topics and topic not in self._topics:
                raise AccessDenied(f"topic {topic!r} is not served here")
        for group in groups:
            if group and self._groups and group not in self._groups:
                raise AccessDenied(f"group {group!r} is not served here")

    def names_user(self, header: bytes) -> bool:
        """Return True if a header, with its mark and length, names a user; verifies nothing."""
        try:
            key = decode_command(header).fields.get("AccessKey", "")
        except errors.ProtocolViolation:
            return False
        return key in self._users

    def admit(self, request: Command) -> Command:
        """Return the request for brokers. Raises `AccessDenied` for a request that no user has
        signed."""
        if not self.signs:
            return request
        user = self._users.get(request.fields.get("AccessKey", ""))
        token = request.fields.get("SecurityToken")
        if user is None or not is_signed_by(
            request.fields, request.body, replace(user, security_token=token)
        ):
            raise AccessDenied("no user of this node has signed this request")
        if self._upstream is None:
            return request
        if request.code in ADMINISTRATION and user.access_key not in self._admins:
            raise AccessDenied(
                f"request type {request.code} is administration, which only users in admins may "
                "ask for through a node that has credentials"
            )
        plain = {key: text for key, text in request.fields.items() if key not in _OF_SIGNATURES}
        return request._replace(fields=signed(plain, request.body, self._upstream))
