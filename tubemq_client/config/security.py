"""Options for the identity of the client and the encryption of its connections.

Secrets are `SecretStr`: they show as asterisks wherever a model is printed, and no problem text
repeats them. The plain values (`model.Credentials`, `model.TlsSettings`) hide them too. `_io`
checks that files exist and fit, when it reads them.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from tubemq_client.config.base import CommonOptions
from tubemq_client.model import Credentials, TlsSettings

__all__ = ["Auth", "AuthConfig", "Tls", "TlsConfig"]

_SWITCH = {"true": True, "yes": True, "on": True, "1": True}
_SWITCH |= {"false": False, "no": False, "off": False, "0": False, "": False}


class AuthConfig(CommonOptions):
    """A user of the cluster, for masters and brokers that authenticate."""

    username: str = Field(min_length=1, max_length=256, description="name of the user")
    password: SecretStr = Field(min_length=1, description="signs requests; it is never sent")

    def settings(self) -> Credentials:
        """Return the plain value of the client."""
        return Credentials(self.username, self.password.get_secret_value())


class TlsConfig(CommonOptions):
    """TLS for every connection. All files are PEM."""

    ca_file: str | None = Field(None, description="authorities to trust; the system's by default")
    cert_file: str | None = Field(None, description="the client's own certificate (mutual TLS)")
    key_file: str | None = Field(None, description="its key; by default it is in `cert_file`")
    key_password: SecretStr | None = Field(None, description="opens an encrypted key")
    check_hostname: bool = Field(default=True, description="verify host names, not only the chain")
    server_hostname: str | None = Field(
        None, description="name to verify instead of the address of master or broker"
    )
    handshake_timeout_ms: int = Field(
        5_000, ge=100, le=60_000, description="time for a handshake, ms"
    )

    @model_validator(mode="after")
    def _key_belongs_to_a_certificate(self) -> Self:
        if self.cert_file is None and (self.key_file or self.key_password):
            raise ValueError("key_file and key_password need cert_file")
        return self

    def settings(self) -> TlsSettings:
        """Return the plain values of the client."""
        password = self.key_password.get_secret_value() if self.key_password else None
        return TlsSettings(
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            key_password=password,
            check_hostname=self.check_hostname,
            server_hostname=self.server_hostname,
            handshake_timeout_ms=self.handshake_timeout_ms,
        )


def _switch(value: object) -> object:
    """Accept `true` for TLS with defaults, `false` for none; anything else is left to pydantic."""
    if isinstance(value, str):
        value = _SWITCH.get(value.lower(), value)
    if isinstance(value, bool):
        return {} if value else None
    return value


Auth = Annotated[AuthConfig | None, Field(None, description="the user, if clusters ask for one")]
Tls = Annotated[
    TlsConfig | None,
    BeforeValidator(_switch),
    Field(None, description="encrypt connections; `true` takes the defaults below"),
]
