"""An Airflow connection of type `tubemq`, validated, and what it shares with those of other kinds.

One model holds every field of the form, so that the manifest, the hook and error messages cannot
drift apart. Opens nothing: `tubemq` and `aio` ask Airflow for the connection and open clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, Field, SecretStr, model_validator

from tubemq_client import errors
from tubemq_client.config import ClientConfig, validated
from tubemq_client.json_text import RepeatedName, load_unique_json
from tubemq_client.model import address_text
from tubemq_provider.sources.consumer_config import consumer_options_of

if TYPE_CHECKING:
    from airflow.sdk import Connection

DEFAULT_ADMIN_PORT = 8080


def _in_the_form(problem: str) -> str:
    """Return a problem in the words of the connection form, which names options differently."""
    if problem.startswith("masters: ''"):
        return "host (Masters) is empty: name the masters, as master1:8715,master2:8715"
    return problem.replace("admin_token, admin_url, auth, ", "admin_token, admin_url, ")


def _http_url(value: object) -> object:
    if isinstance(value, str) and "@" in value:
        raise ValueError("credentials do not belong into a URL")
    text = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{errors.without_credentials(text)!r} is not http://host:port")
    return f"{parts.scheme}://{parts.netloc}"


class ConnectionFields(BaseModel):
    """Fields that connections of every kind of source have; a kind adds its client's options."""

    _KIND: ClassVar[str]
    """Kind of source, which is the type of the connection."""
    _HOSTS: ClassVar[str]
    """Client's option that the host field holds."""
    _CREDENTIALS: ClassVar[tuple[str, str]]
    """Members of `auth` that login and password hold."""

    cluster: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$",
        description="alias that names the cluster in assets and window ids",
    )
    default_group: str | None = Field(None, description="group for look-ups that name none")
    consumer_config: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="options of reading, as tasks give them"
    )

    @classmethod
    def from_connection(cls, connection: Connection) -> Self:
        """Return the model of an Airflow connection; `cluster` defaults to the connection id.

        Raises `errors.ConfigError` that lists every problem and never contains a secret.
        """
        subject = f"connection {connection.conn_id!r}"
        problems = cls._misplaced(connection)
        if problems:
            raise errors.ConfigError(problems, subject=subject)
        options = {
            "cluster": connection.conn_id,
            cls._HOSTS: host_list(connection),
            **extra_options(connection),
        }
        options["consumer_config"], problems = cls._of_reading(options)
        if connection.login or connection.password:
            values = (connection.login or "", connection.password or "")
            options["auth"] = dict(zip(cls._CREDENTIALS, values, strict=True))
        try:
            config = validated(cls, cls._completed(options))
        except errors.ConfigError as exc:
            problems = [*map(_in_the_form, exc.problems), *problems]
            raise errors.ConfigError(problems, subject=subject) from None
        if problems:
            raise errors.ConfigError(problems, subject=subject)
        return config

    @classmethod
    def _of_reading(cls, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return the options of reading, taken from the extra or from its `consumer_config`, and
        their problems."""
        given = options.pop("consumer_config", {})
        try:
            given = load_unique_json(given) if isinstance(given, str) else given
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            return {}, ["consumer_config: it is no JSON object"]
        consumer = consumer_options_of(cls._KIND)
        names = (consumer.names - cls.model_fields.keys()) & options.keys()
        flat = {name: options.pop(name) for name in sorted(names)}
        problems = [f"{name}: is in consumer_config as well" for name in flat if name in given]
        chosen = {**given, **flat}
        problems += [f"consumer_config: {problem}" for problem in consumer.problems(chosen)]
        return chosen, problems

    def reader_settings(self, consumer_config: Mapping[str, Any] | None = None) -> Any:
        """Return the client's settings, with the connection's options of reading and then those of
        a task in their place. Raises `errors.ConfigError` with every problem."""
        mine: Any = self
        chosen = {**self.consumer_config, **(consumer_config or {})}
        return consumer_options_of(self._KIND).applied(mine.settings(), chosen)

    @classmethod
    def _misplaced(cls, connection: Connection) -> list[str]:
        return misplaced_fields(connection)

    @classmethod
    def _completed(cls, options: dict[str, Any]) -> dict[str, Any]:
        return options

    def group_of(self, group: str | None, *, conn_id: str) -> str:
        """Return `group`, or the default group of this connection, whose id is `conn_id`.

        Raises `errors.ConfigError` if neither is set.
        """
        name = group or self.default_group
        if name is None:
            raise errors.ConfigError(
                f"name a group, or set 'default_group' in connection {conn_id!r}", subject="group"
            )
        return name


class ConnectionConfig(ConnectionFields, ClientConfig):
    """Fields of a connection: how to reach the cluster, and its alias."""

    _KIND: ClassVar[str] = "tubemq"
    _HOSTS: ClassVar[str] = "masters"
    _CREDENTIALS: ClassVar[tuple[str, str]] = ("username", "password")

    admin_url: Annotated[str, BeforeValidator(_http_url)] | None = Field(
        None, description="HTTP address of a master"
    )

    admin_token: SecretStr | None = Field(
        None, description="the masters' confModAuthToken, for changes over HTTP"
    )

    admin_ca_file: str | None = Field(
        None, description="authorities to trust for an https:// admin_url"
    )
    admin_cert_file: str | None = Field(None, description="the client's certificate for admin_url")
    admin_key_file: str | None = Field(None, description="its key; default: in admin_cert_file")
    admin_key_password: SecretStr | None = Field(None, description="opens an encrypted key")

    @model_validator(mode="after")
    def _files_have_an_effect(self) -> Self:
        if self.admin_tls() and not str(self.admin_url).startswith("https:"):
            raise ValueError("admin_ca_file, admin_cert_file: need an https:// admin_url")
        if (self.admin_key_file or self.admin_key_password) and not self.admin_cert_file:
            raise ValueError("admin_key_file, admin_key_password: need admin_cert_file")
        return self

    def admin_tls(self) -> dict[str, Any]:
        """Return the TLS options of `AdminClient` that are set."""
        names = ("ca_file", "cert_file", "key_file", "key_password")
        values = {name: getattr(self, f"admin_{name}") for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def admin_urls(self) -> tuple[str, ...]:
        """Return the HTTP addresses to try for administration, in order."""
        if self.admin_url:
            return (self.admin_url,)
        addresses = ((host, DEFAULT_ADMIN_PORT) for host, _ in self.masters)
        return tuple(f"http://{address_text(address)}" for address in addresses)


def misplaced_fields(connection: Connection) -> list[str]:
    """Return problems of fields in places where they have no effect or would be visible."""
    problems = []
    if connection.schema:
        problems.append("schema: must be empty")
    host = connection.host or ""
    if connection.port and ("," in host or ";" in host):
        problems.append("port: with several hosts, give each its own: master1:8715,master2:8715")
    elif connection.port and _port_in(host) not in ("", str(connection.port)):
        problems.append("port: the host names another one")
    try:
        extras = extra_fields(connection)
    except errors.ConfigError as exc:
        return [*problems, *exc.problems]
    if host and (both := sorted({"masters", "name_servers"} & extras.keys())):
        problems.append(f"{both[0]}: not an extra beside a host, which would have no effect")
    if "auth" in extras:
        problems.append("auth: not an extra; use the login and password of the connection")
    members = sorted(name for name in extras if name.startswith("tls_"))
    if members and isinstance(extras.get("tls"), dict):
        problems.append(f"tls: an object already; put {', '.join(members)} into it")
    return problems


def extra_fields(connection: Connection) -> Mapping[str, Any]:
    """Return the extra fields. Raises `errors.ConfigError` for text that is no JSON object.

    Airflow reads such text as no extras, and the result would be a connection without TLS.
    """
    try:
        extras = load_unique_json(connection.extra or "{}")
    except RepeatedName as exc:
        raise errors.ConfigError(
            f"extra: {exc}", subject=f"connection {connection.conn_id!r}"
        ) from None
    except (ValueError, RecursionError):
        extras = None
    if not isinstance(extras, dict):
        raise errors.ConfigError(
            "extra: it is no JSON object", subject=f"connection {connection.conn_id!r}"
        )
    return extras


def extra_options(connection: Connection) -> dict[str, Any]:
    """Return the extra fields with a value, and those called ``tls_…`` as members of `tls`.

    Any of the latter enables TLS.
    """
    extra_fields(connection)
    # Read by Airflow, which masks the values of sensitive names in logs.
    extras = {k: v for k, v in connection.extra_dejson.items() if v not in (None, "")}
    flat = {k: v for k, v in extras.items() if not k.startswith("tls_")}
    tls = {k.removeprefix("tls_"): v for k, v in extras.items() if k.startswith("tls_")}
    if tls and _is_on(flat.get("tls", True)):
        flat["tls"] = tls
    return flat


def _is_on(value: object) -> bool:
    return value is True or str(value).lower() in {"true", "yes", "on", "1"}


def host_list(connection: Connection) -> str:
    """Return the host field, which may hold a list, with the port of a URI with one address."""
    host = connection.host or ""
    if not host or not connection.port or _port_in(host):
        return host
    # Airflow strips the brackets of an IPv6 address.
    bare = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{bare}:{connection.port}"


def _port_in(host: str) -> str:
    """Return the port that one host contains, or ""."""
    name = host.rpartition("]")[2] if host.startswith("[") else host
    port = name.partition(":")[2]
    return port if port.isdecimal() else ""
