"""Signatures of requests, as brokers with access control verify them.

HMAC-SHA1 over all header values in ascending order of their keys, then the body; the same on both
server lines and for both forms of header (upstream's `AclUtils.java`). The secret is never sent.

Source: `docs/rocketmq-protocol/wire.md#signatures`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from rocketmq_client.model import Credentials

__all__ = ["is_signed_by", "sign", "signed"]

_ACCESS_KEY, _TOKEN, _SIGNATURE = "AccessKey", "SecurityToken", "Signature"


def sign(fields: dict[str, str], body: bytes, secret_key: str) -> str:
    """Return the signature of a request, Base64."""
    values = (fields[key] for key in sorted(fields) if key != _SIGNATURE)
    content = "".join(values).encode() + body
    digest = hmac.new(secret_key.encode(), content, hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def signed(fields: dict[str, str], body: bytes, credentials: Credentials | None) -> dict[str, str]:
    """Return the fields to send: with key, token and signature, or unchanged without
    credentials."""
    if credentials is None:
        return fields
    fields = {**fields, _ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        fields[_TOKEN] = credentials.security_token
    fields[_SIGNATURE] = sign(fields, body, credentials.secret_key)
    return fields


def is_signed_by(fields: dict[str, str], body: bytes, credentials: Credentials) -> bool:
    """Return True if a request carries this key and a signature made with its secret."""
    expected = sign(fields, body, credentials.secret_key)
    signature = fields.get(_SIGNATURE, "")
    return fields.get(_ACCESS_KEY) == credentials.access_key and hmac.compare_digest(
        signature.encode("utf-8", "surrogatepass"), expected.encode()
    )
