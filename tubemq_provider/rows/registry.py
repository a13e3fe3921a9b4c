"""Schema registries: the schema of an id, for bodies framed as Confluent's (Apicurio, Karapace).

A frame is a zero byte and the id in four bytes. A decode spec names a registry by its connection
id; the process that decodes has registered the registry itself under that name, so that no
address or password is in a spec. Ids are looked up once per process: a schema never changes under
its id. An id that the registry does not have makes a record bad; a registry that does not answer
fails the read, which a retry may mend.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tubemq_client.errors import ConfigError
from tubemq_provider.files.arrays import binaries, int64s
from tubemq_provider.rows.bulk import BadBody, BodyDecoder, Decoded
from tubemq_provider.rows.frames import Frames
from tubemq_provider.rows.spec import SUBJECT
from tubemq_provider.windows.errors import WindowError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FramedBodies",
    "RegisteredSchema",
    "RegistryUnavailable",
    "SchemaRegistry",
    "UnknownSchema",
    "register",
    "registry_of",
]

_TIMEOUT_S: Final = 30
_MOST_BYTES: Final = 16 * 1024 * 1024


class RegistryUnavailable(WindowError):
    """The registry did not answer, or refused; nothing is known of the id."""

    retriable = True


class UnknownSchema(ValueError):
    """The registry has no schema of the id."""


class RegisteredSchema(NamedTuple):
    """Schema of an id: its kind (``AVRO``, ``PROTOBUF``, ``JSON``) and its text."""

    kind: str
    text: str


class SchemaRegistry:
    """Client of a registry at `url`; login and password are shown nowhere. Not thread-safe."""

    def __init__(self, url: str, login: str | None = None, password: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                "schema_registry: the connection's address is neither http:// nor https://",
                subject=SUBJECT,
            )
        self._url = url.rstrip("/")
        self._authorization = None
        if login:
            pair = f"{login}:{password or ''}".encode()
            self._authorization = f"Basic {base64.b64encode(pair).decode()}"
        self._known: dict[int, RegisteredSchema | None] = {}
        # A redirect would carry the password elsewhere.
        self._opener = urllib.request.build_opener(_NoRedirect)

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._url!r})"

    def schema(self, id_: int) -> RegisteredSchema:
        """Return the schema of an id. Raises `UnknownSchema`, and `RegistryUnavailable`."""
        if id_ not in self._known:
            self._known[id_] = self._fetched(id_)
        schema = self._known[id_]
        if schema is None:
            raise UnknownSchema(f"the schema registry has no schema of id {id_}")
        return schema

    def _fetched(self, id_: int) -> RegisteredSchema | None:
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            f"{self._url}/schemas/ids/{id_}", headers={"Accept": "application/json"}
        )
        if self._authorization is not None:
            request.add_header("Authorization", self._authorization)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as reply:
                document = json.loads(reply.read(_MOST_BYTES))
            text, kind = str(document["schema"]), str(document.get("schemaType") or "AVRO")
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise RegistryUnavailable(
                f"the schema registry at {self._url} answered {error.code} for id {id_}; see its "
                "connection (address, login) and the registry's log"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RegistryUnavailable(
                f"the schema registry at {self._url} did not answer for id {id_}: "
                f"{type(error).__name__}; a retry asks again"
            ) from None
        if document.get("references"):
            raise ConfigError(
                f"schema_registry: schema {id_} refers to others, which are not resolved; register "
                "it with what it refers to inside",
                subject=SUBJECT,
            )
        return RegisteredSchema(kind, text)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_registries: dict[str, SchemaRegistry] = {}


def register(name: str, registry: SchemaRegistry) -> None:
    """Make `registry` the one that specs of this process name `name`."""
    _registries[name] = registry


def registry_of(name: str) -> SchemaRegistry:
    """Return the registry of that name. Raises `ConfigError` in a process without it."""
    if name not in _registries:
        raise ConfigError(
            f"schema_registry: {name!r} was not opened in this process; only engine='inline' looks "
            "schemas up, for others list them in 'schemas'",
            subject=SUBJECT,
        )
    return _registries[name]


class FramedBodies:
    """Decoder that takes the frame off each body and leaves the rest to `inner`. The id must be
    that of a schema of `kind` in the registry; `keep`: the frame stays, as `inner` reads it."""

    def __init__(self, inner: BodyDecoder, name: str, kind: str, *, keep: bool = False) -> None:
        self.schema = inner.schema
        self._inner = inner
        self._name = name
        self._kind = kind
        self._keep = keep

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`. Raises `RegistryUnavailable`."""
        registry = registry_of(self._name)
        places: list[int] = []
        bodies: list[bytes] = []
        bad: list[BadBody] = []
        for place, body in enumerate(records.column("value").to_pylist()):
            try:
                schema = registry.schema(Frames.id_of(body or b""))
                if schema.kind != self._kind:
                    raise ValueError(  # noqa: TRY301 - one handler collects the reasons
                        f"its schema is {schema.kind}, and the bodies are decoded as {self._kind}"
                    )
            except ConfigError:
                raise
            except ValueError as error:
                bad.append(BadBody(place, str(error)))
                continue
            places.append(place)
            bodies.append(body if self._keep else body[Frames.SIZE :])
        rest = records.take(int64s(places))
        at = rest.schema.get_field_index("value")
        rest = rest.set_column(at, rest.schema.field(at), binaries(bodies))
        inner = self._inner.decode(rest)
        for one in inner.bad:
            data = (
                one.data
                if one.data is not None
                else records.column("value")[places[one.index]].as_py()
            )
            bad.append(BadBody(places[one.index], one.reason, data))
        return Decoded(
            inner.rows,
            [places[index] for index in inner.origin],
            sorted(bad, key=lambda one: one.index),
            [places[index] for index in inner.empty],
            inner.notices,
        )
