"""Who may do what at a node: allow-lists, signatures of its users, and its own signature upstream.

Without `users` a request is passed on as it is signed, and the broker judges it. With them the node
verifies every request; with `credentials` it then signs anew, so brokers know one account and its
secret stays here.
"""

from __future__ import annotations

from dataclasses import replace

from rocketmq_client import errors
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.signature import is_signed_by, signed
from rocketmq_client.model import Credentials
from rocketmq_client.snode.settings import SnodeSettings

__all__ = ["Access", "NotAdmitted"]

_OF_SIGNATURES = ("AccessKey", "SecurityToken", "Signature")


class NotAdmitted(errors.LocalError):
    """The node itself refuses a request; its client is told with code 16."""


class Access:
    """Judges requests; holds no connection."""

    def __init__(self, settings: SnodeSettings) -> None:
        self._topics, self._groups = settings.topics, settings.groups
        self._users = {name: Credentials(name, secret) for name, secret in settings.users}
        self._upstream = settings.credentials
        self.signs = bool(self._users)
        """Whether requests have to be verified here."""
        self.lists = bool(self._topics or self._groups)
        """Whether there are allow-lists."""

    def judge(self, topic: str | None, group: str | None) -> None:
        """Raises `NotAdmitted` for what is not on an allow-list."""
        if topic and self._topics and topic not in self._topics:
            raise NotAdmitted(f"topic {topic!r} is not served here")
        if group and self._groups and group not in self._groups:
            raise NotAdmitted(f"group {group!r} is not served here")

    def admit(self, request: Command) -> Command:
        """The request as brokers are to see it. Raises `NotAdmitted` for one that none of
        the users has signed."""
        if not self.signs:
            return request
        user = self._users.get(request.fields.get("AccessKey", ""))
        given = request.fields.get("SecurityToken")
        if user is None or not is_signed_by(
            request.fields, request.body, replace(user, security_token=given)
        ):
            raise NotAdmitted("no user of this node has signed this request")
        if self._upstream is None:
            return request
        plain = {key: text for key, text in request.fields.items() if key not in _OF_SIGNATURES}
        return request._replace(fields=signed(plain, request.body, self._upstream))
