"""`tubemq serve`: a TubeMQ to develop against, embedded (one process) or genuine (from Maven).

The embedded one listens on loopback only. The genuine one listens on every interface without any
authentication, which no option changes, so it starts only with `--yes`. Both run until interrupted
or terminated and then stop in order.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from tubemq_client import errors
from tubemq_client.cli.options import Output, OutputAs, Yes, note, show_json
from tubemq_client.embedded import (
    EmbeddedTubeMQ,
    Ports,
    Security,
    ServerTls,
    Switches,
    TopicSpec,
)

__all__ = ["serve"]

_EXPOSED = (
    "Apache InLong TubeMQ listens on EVERY network interface without authentication: any host "
    "that reaches this machine can read, write and administer it (RPC and HTTP of master and "
    "broker, metrics on 9081)"
)

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME[:STORES[:PARTITIONS]]",
        help="Topic to create on every broker; repeatable.",
    ),
]
Brokers = Annotated[int, typer.Option("--brokers", min=1, max=16, help="Number of brokers.")]
Masters = Annotated[
    int,
    typer.Option(
        "--masters",
        min=1,
        max=4,
        help="Number of masters; SIGUSR1 kills the active one and restarts it as a stand-by.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(file_okay=False, help="Keep topics, records and positions here for next time."),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of the master; 0 takes a free one.")
]
WebPort = Annotated[
    int, typer.Option(min=0, max=65535, help="HTTP port of the master; 0 takes a free one.")
]
BrokerPort = Annotated[
    int,
    typer.Option(min=0, max=65535, help="Port of the first broker, the next ones follow; 0: free."),
]
BrokerWebPort = Annotated[
    int,
    typer.Option(min=0, max=65535, help="HTTP port of the first broker; 0 takes free ones."),
]
Http = Annotated[bool, typer.Option("--http/--no-http", help="Serve HTTP administration.")]
ReadyFile = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Write addresses here, as JSON, once everything is up."),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Serve TLS too, with this certificate and key (PEM)."),
]
ClientCa = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False, help="With --tls-cert: authority whose client certificates to accept."
    ),
]
Users = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Require a user: a file with a line NAME:PASSWORD for each."),
]
Genuine = Annotated[
    bool,
    typer.Option(
        "--genuine", help="Run Apache InLong TubeMQ itself (from a checkout, with mvn, Java)."
    ),
]


def serve(
    topic: Topics = None,
    brokers: Brokers = 1,
    masters: Masters = 1,
    data_dir: DataDir = None,
    port: Port = 0,
    web_port: WebPort = 0,
    broker_port: BrokerPort = 0,
    broker_web_port: BrokerWebPort = 0,
    http: Http = True,
    ready_file: ReadyFile = None,
    tls_cert: TlsCert = None,
    tls_client_ca: ClientCa = None,
    users: Users = None,
    genuine: Genuine = False,
    yes: Yes = False,
    output: OutputAs = Output.TABLE,
) -> None:
    """Run a TubeMQ until interrupted: for development and tests, on loopback only.

    Without --data-dir everything is in memory. --genuine runs the real servers, NOT on loopback
    only: read its warning before you add --yes.
    """
    topics = [_topic(text) for text in topic or ()]
    ports = Ports(port, web_port, broker_port, broker_web_port)
    if genuine:
        ports_given = ports != Ports()
        security_given = any((tls_cert, tls_client_ca, users))
        unused = {"--brokers": brokers > 1, "--masters": masters > 1, "--no-http": not http}
        _refuse_idle(
            {**unused, "--…port": ports_given, "--tls-…, --users": security_given}, genuine
        )
        _serve_genuine(topics, data_dir, ready_file, output, yes=yes)
    else:
        _refuse_idle({"--yes": yes}, genuine)
        server = EmbeddedTubeMQ(
            brokers,
            topics,
            data_dir=data_dir,
            ports=ports,
            http=http,
            switches=Switches(security=_security(users)),
            tls=_tls(tls_cert, tls_client_ca),
            masters=masters,
        )
        _fail_over_on_signal(server)
        server.run_until_signal(lambda: _announce(_embedded_addresses(server), ready_file, output))
    note("stopped")


def _fail_over_on_signal(server: EmbeddedTubeMQ) -> None:
    def fail_over() -> None:
        try:
            host, port = server.fail_over()
        except errors.ConfigError as error:
            note(str(error))
            return
        note(f"killed the active master {host}:{port}")
        server.wait_switched()
        server.restart_masters()
        note("another master is active; the killed one stands by")

    signal.signal(
        signal.SIGUSR1, lambda *_: threading.Thread(target=fail_over, daemon=True).start()
    )


def _topic(text: str) -> TopicSpec:
    name, *numbers = text.split(":")
    if len(numbers) > 2 or not all(n.isdecimal() for n in numbers):
        raise errors.ConfigError(f"--topic {text!r} is not NAME[:STORES[:PARTITIONS]]")
    return TopicSpec(name, *map(int, numbers))


def _security(users: Path | None) -> Security:
    if users is None:
        return Security()
    try:
        lines = [line for line in users.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise errors.ConfigError(f"--users {users}: {reason}") from error
    pairs = [line.partition(":") for line in lines]
    if not all(name and colon and password for name, colon, password in pairs):
        raise errors.ConfigError(f"--users {users}: a line is not NAME:PASSWORD")
    return Security(produce=True, consume=True, users={name: word for name, _, word in pairs})


def _tls(cert: Path | None, client_ca: Path | None) -> ServerTls | None:
    if cert is None:
        _refuse_idle({"--tls-client-ca without --tls-cert": client_ca is not None}, genuine=False)
        return None
    return ServerTls(cert_file=cert, client_ca_file=client_ca)


def _refuse_idle(options: dict[str, bool], genuine: bool) -> None:
    where = "--genuine" if genuine else "the embedded server"
    idle = [name for name, is_given in options.items() if is_given]
    if idle:
        raise errors.ConfigError([f"{name} has no effect with {where}" for name in idle])


def _embedded_addresses(server: EmbeddedTubeMQ) -> dict[str, Any]:
    brokers = [server.broker(broker_id) for broker_id in server.broker_ids]
    return {
        "masters": server.masters,
        **({"tls_masters": server.tls_masters} if server.tls_masters else {}),
        "master_web": _url(server.master_web),
        "brokers": {str(b.broker_id): {"address": b.address, "web": _url(b.web)} for b in brokers},
        "topics": server.topics(),
    }


def _url(address: str | None) -> str | None:
    return f"http://{address}" if address else None


def _serve_genuine(
    topics: list[TopicSpec],
    data_dir: Path | None,
    ready_file: Path | None,
    output: Output,
    *,
    yes: bool,
) -> None:
    if not yes:
        raise errors.ConfigError(
            f"{_EXPOSED}. Add --yes to start it anyway, or run it in a network namespace with "
            "loopback only: python -m tools.devkit.isolation -- tubemq serve --genuine --yes …"
        )
    kit = _genuine_kit()
    note(f"DANGER: {_EXPOSED}.")
    specs = [kit.TopicSpec(t.name, t.stores, t.partitions) for t in topics]
    with (
        _interrupted_by_sigterm(),
        kit.GenuineTubeMQ(data_dir, topics=specs, progress=note) as cluster,
    ):
        if specs:
            cluster.wait_accepting()
        _announce(_genuine_addresses(cluster), ready_file, output)
        _wait_for_interrupt()


def _genuine_kit() -> Any:
    """Return the launcher's module, which is in the source tree but in no wheel."""
    try:
        return import_module("tools.devkit.tubemq.genuine")
    except ModuleNotFoundError as error:
        raise errors.ConfigError(
            "the launcher of a genuine TubeMQ is in the source tree of this project, not in its "
            "wheel: run `.venv/bin/tubemq serve --genuine` in a checkout, after `make setup`; "
            "without --genuine the embedded server is started, which needs neither mvn nor Java",
            subject="--genuine",
        ) from error


def _genuine_addresses(cluster: Any) -> dict[str, Any]:
    host, port = cluster.broker_address
    broker = {"address": f"{host}:{port}", "web": _url(cluster.broker_web)}
    return {
        "masters": cluster.masters,
        "master_web": _url(cluster.master_web),
        "brokers": {str(cluster.broker_id): broker},
        "topics": sorted(cluster.topics),
    }


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that servers are stopped on either."""

    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _wait_for_interrupt() -> None:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        note("stopping")


def _announce(addresses: dict[str, Any], ready_file: Path | None, output: Output) -> None:
    """Print the addresses of the servers; the ready file is replaced in one step."""
    note(f"masters   {addresses['masters']}   (export TUBEMQ_MASTERS={addresses['masters']})")
    if "tls_masters" in addresses:
        note(f"over TLS  {addresses['tls_masters']}")
    if addresses["master_web"]:
        web = addresses["master_web"]
        note(f"admin     {web}   (export TUBEMQ_ADMIN={web} TUBEMQ_ADMIN_TOKEN=abc)")
    for broker_id, at in addresses["brokers"].items():
        note(f"broker {broker_id}  {at['address']}" + (f"   {at['web']}" if at["web"] else ""))
    note(f"topics    {', '.join(addresses['topics']) or 'none'}")
    note("stop with Ctrl-C")
    show_json([addresses], output)
    if ready_file is not None:
        partial = ready_file.with_name(f"{ready_file.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps({**addresses, "pid": os.getpid()}), encoding="utf-8")
        partial.replace(ready_file)
