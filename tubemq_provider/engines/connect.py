"""Engine `connect`: runs a plan on a Spark Connect server.

The driver is the server. This process plans nothing, starts no JVM, and observes the work through
tags, progress messages and results. Secrets therefore travel inside the formats that need them
(`with_secrets`), and the staging place must be visible to this process too. This module must not
know windows, or publish anything.
"""

from __future__ import annotations

import hashlib
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack
from uuid import UUID, uuid4

from tubemq_client.errors import ConfigError, require_extra
from tubemq_provider.engines.spark_engine import EngineShape, SparkEngine
from tubemq_provider.engines.spark_runtime import T, TaskObserver, environment
from tubemq_provider.spark.error_hints import error_hint_on_server
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

__all__ = ["ConnectEngine", "ConnectRuntime", "close_session"]

log = logging.getLogger(__name__)

_TRIES: Final = 64
_RETRIES: Final = 5
_CLOSED: Final = "SESSION_CLOSED"
_MODE: Final = {"SPARK_CONNECT_MODE_ENABLED": "1"}
"""Environment that makes `pyspark.sql.functions`, which transforms use, those of Spark Connect."""
_OLDEST: Final = (4, 1)
_OPTIONS: Final = r"(?:use_ssl|user_id|user_agent|session_id|grpc_\w+)="
"""Parameters of an address that hold no secret."""


class ConnectEngine(SparkEngine):
    """Engine that opens a session on a Spark Connect server for each window.

    `remote` is the server's address (``sc://host:port``, with parameters but no ``token``), `token`
    the bearer token, if the server asks for one. `conf` are settings of the session; those of the
    server cannot be changed. With `ship_package` the server and its executors get this package as a
    zip; protobuf, pyarrow, and obstore for object stores, must be installed there. The other
    arguments are those of `SessionEngine`; ``direct_write="off"`` is not available.

    Delivery: as `SessionEngine`. Operations that an earlier try of the same plan left running on
    the server are interrupted before this one reads, unless another task started them
    (`belong_to`).

    Secrets (of the source, of the sink's storage) go to the server over the session's channel:
    without ``use_ssl=true`` they are sent in clear text.
    """

    def __init__(
        self,
        settings: Any,
        *,
        remote: str,
        token: str | None = None,
        conf: Mapping[str, str] | None = None,
        ship_package: bool = False,
        **shape: Unpack[EngineShape],
    ) -> None:
        if shape.get("direct_write") == "off":
            raise ConfigError(
                "direct_write='off' is not available: Spark's own writer needs a directory of this "
                "machine",
                subject="connect engine",
            )
        kind = shape.get("kind", FIRST_SOURCE)
        shipped = kind if ship_package else None
        self._sessions = ConnectRuntime(remote, token, conf or {}, shipped)
        super().__init__(settings, self._sessions, **shape)

    def belong_to(self, task: str) -> None:
        """See `Engine.belong_to`."""
        self._sessions.owner = task


class ConnectRuntime:
    """Sessions on the Spark Connect server at `remote`; see `SparkRuntime`. `shipped` is the kind
    of source whose package is uploaded, or None.

    The session id is derived from the plan, the `owner` and the number of the try. So a try finds
    and ends the session that the previous try left on the server, while another task that reads the
    same window at the same time has another owner. A session that has ended stays closed.
    """

    def __init__(
        self, remote: str, token: str | None, conf: Mapping[str, str], shipped: str | None
    ) -> None:
        self._remote = remote
        self._masked_remote = _masked(remote)
        self._token = token
        self._conf = dict(conf)
        self._shipped = shipped
        self.owner = ""
        self._open: tuple[str, SparkSession] | None = None
        self._stack = ExitStack()

    @property
    def name(self) -> str:
        """``connect``."""
        return "connect"

    def open(self, plan_hash: str) -> SparkSession:
        """Open a new session. Raises `MissingExtraError` without the packages of Spark Connect, and
        `ConfigError` if the server cannot be reached, is too old, or refuses a setting."""
        if self._open is not None and self._open[0] == plan_hash:
            return self._open[1]
        self.stop()
        session_class = _session_class()
        self._stack.enter_context(environment(_MODE))
        try:
            number = self._end_earlier(session_class, plan_hash)
            builder = self._channel(plan_hash, number)
            self._warn_of_clear_text(builder)
            spark: SparkSession = session_class.builder.channelBuilder(builder).create()
            self._stack.callback(close_session, spark)
            self._prepare(spark)
        except BaseException:
            self.stop()
            raise
        self._open = plan_hash, spark
        return spark

    def _warn_of_clear_text(self, builder: Any) -> None:
        if not builder.secure and builder.host not in ("localhost", "127.0.0.1", "[::1]"):
            log.warning(
                "%s is not encrypted: credentials of source and sink are sent over the network in "
                "clear text; use_ssl=true asks for TLS",
                self._masked_remote,
            )

    def _prepare(self, spark: SparkSession) -> None:
        if tuple(map(int, spark.version.split(".")[:2])) < _OLDEST:
            raise self._problem(f"its Spark is {spark.version}; 4.1 is needed, or newer")
        problems = []
        for key, value in self._conf.items():
            try:
                spark.conf.set(key, value)
            except Exception as error:  # noqa: BLE001 - all problems are reported together
                problems.append(f"{key}: {_error_line(error)}")
        if problems:
            raise self._problem(*problems)
        if self._shipped is not None:
            from tubemq_provider.spark.session import spark_artifacts

            with tempfile.TemporaryDirectory(prefix="tubemq-ship-") as folder:
                package = spark_artifacts(Path(folder), kind=self._shipped)
                spark.addArtifacts(str(package), pyfile=True)

    def _end_earlier(self, session_class: Any, plan_hash: str) -> int:
        """Interrupt and close the session of an earlier try; return the number of this try."""
        for number in range(_TRIES):
            earlier = session_class(connection=self._channel(plan_hash, number))
            _limit_retries(earlier)
            try:
                interrupted = earlier.interruptAll()
            except Exception as error:
                earlier.client.close()
                if _CLOSED not in str(error):
                    raise self._problem(_error_line(error)) from error
                continue
            earlier.stop()
            if interrupted:
                log.info("interrupted operations of an earlier try on %s", self._masked_remote)
            return number + 1
        return uuid4().int

    def _channel(self, plan_hash: str, number: int) -> Any:
        from pyspark.sql.connect.client import DefaultChannelBuilder

        try:
            builder = DefaultChannelBuilder(self._remote)
        except ValueError as error:
            raise self._problem(_error_line(error)) from None
        digest = hashlib.sha256(f"{plan_hash}/{self.owner}/{number}".encode()).digest()
        builder.set("session_id", str(UUID(bytes=digest[:16], version=4)))
        if self._token is not None:
            builder.set("token", self._token)
        return builder

    def _problem(self, *problems: str) -> ConfigError:
        return ConfigError(
            list(map(_masked, problems)), subject=f"Spark Connect at {self._masked_remote}"
        )

    def ui_url(self, spark: SparkSession) -> str | None:  # noqa: ARG002 - clients cannot ask for it
        """Return None: clients of Spark Connect cannot ask a server for its UI."""
        return None

    @contextmanager
    def job(
        self,
        spark: SparkSession,
        group: str,
        description: str,  # noqa: ARG002 - a server describes jobs itself
        tell: TaskObserver,
    ) -> Iterator[None]:
        """Tag the operations of the body, and report their progress."""

        handler: Any = _Progress(tell)
        spark.addTag(group)
        spark.registerProgressHandler(handler)
        try:
            yield
        finally:
            spark.removeProgressHandler(handler)
            spark.removeTag(group)

    def interrupt(self, spark: SparkSession, group: str) -> None:
        """Interrupt the operations with the tag `group`."""
        spark.interruptTag(group)

    def run_isolated(
        self,
        spark: SparkSession,  # noqa: ARG002 - its calls are independent of each other
        body: Callable[[], T],
        stop: Callable[[], None],  # noqa: ARG002 - the next try interrupts what this one left
    ) -> T:
        """Run `body` on this thread: an interrupted gRPC call leaves no broken state in this
        process."""
        return body()

    def slots(self, spark: SparkSession) -> int:
        """Return the server's default parallelism: the number of partitions of an unpartitioned
        range."""
        from pyspark.sql import functions as sf

        return spark.range(1 << 12).select(sf.spark_partition_id()).distinct().count()

    def register(
        self, spark: SparkSession, source: type[DataSource], secrets: Sequence[str]
    ) -> None:
        """Register `source` together with the contents of the files `secrets`, which do not exist
        on the server."""
        from tubemq_provider.spark.connect_secrets import with_secrets

        texts = {path: Path(path).read_text(encoding="utf-8") for path in secrets}
        spark.dataSource.register(with_secrets(source, texts))

    def hint_for(self, text: str) -> ConfigError | None:
        """Return the hint for a failure on the server, whose Python is configured elsewhere."""
        return error_hint_on_server(text)

    def stop(self) -> None:
        """Close the session, and drop its state on the server."""
        self._open = None
        self._stack.close()


def _masked(text: str) -> str:
    """Mask the values of parameters of an address that are not connection options: Spark sends the
    others as headers, which may hold credentials."""
    return re.sub(rf"(?<=[;/])(?!{_OPTIONS})([\w.-]+)=[^;'\s]*", r"\1=***", text)


def _error_line(error: Exception) -> str:
    """Return the first line of an error, without gRPC's frame around it."""
    details = re.search(r'details = "([^"]*)"', str(error))
    return details[1] if details is not None else (str(error).splitlines() or [repr(error)])[0]


def close_session(spark: SparkSession) -> None:
    """Close a session, within a minute if its server is gone."""
    _limit_retries(spark)
    spark.stop()


def _limit_retries(spark: Any) -> None:
    """Limit retries: the default policy would try an unreachable address for ten minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])


class _Progress:
    """Progress handler of Spark Connect: reports task counts when they have changed."""

    def __init__(self, tell: TaskObserver) -> None:
        self._tell = tell
        self._reported = (0, 0)

    def __call__(self, stages: Any, **_: Any) -> None:
        finished = stages or ()
        now = sum(s.num_completed_tasks for s in finished), sum(s.num_tasks for s in finished)
        if now[1] and now != self._reported:
            self._reported = now
            self._tell(*now)


def _session_class() -> Any:
    """Import the session class of Spark Connect: `pyspark.sql.SparkSession` would switch the whole
    process to it."""
    try:
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        raise require_extra("connect", error) from error
    return SparkSession
