"""Cost of a window at the driver.

Run as `python -m tools.benchmarks.cluster [--mib 128 2048] [--sql QUERY]`.

A standalone Spark cluster of two workers writes one window of each size from an embedded TubeMQ
into an S3 store. The driver has a separate network namespace, linked to that of the cluster by a
pair of virtual interfaces, so the counters of its interface are exactly its traffic. The output is
the peaks of resident memory (``VmHWM`` in /proc) of the driver's Python and JVM, of its other
processes together, and the bytes in and out (/proc/net/dev). Needs Linux, `unshare` and `ip`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.provider.sinks.object_server import object_server
from tools.devkit.isolation import can_isolate, is_isolated, isolated_command
from tools.devkit.spark import SparkCluster
from tubemq_client import Partition, Producer, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.model import Address
from tubemq_provider.engines.java import find_java
from tubemq_provider.engines.session import SessionEngine
from tubemq_provider.engines.transforms import sql_transform
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestWatch

CLUSTER: Final = "10.77.0.1"
DRIVER: Final = "10.77.0.2"
BRIDGE: Final = "tq-cluster"
OUTSIDE: Final = "tq-cable"
INSIDE: Final = "tq-driver"
TOPIC: Final = "orders"
BODY: Final = 16 * 1024
PARTITIONS: Final = 4
CONTEXT: Final = multiprocessing.get_context("spawn")


def main() -> int:
    """Start all parts, run a driver for each size, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, nargs="+", default=[128, 2048])
    parser.add_argument("--sql", help="write the result of this query on the table records")
    parser.add_argument("--driver", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver:
        print(json.dumps(_drive(json.load(sys.stdin))))
        return 0
    if not is_isolated():
        if not can_isolate():
            raise SystemExit("no network namespaces here: the driver's traffic cannot be measured")
        command = isolated_command(
            [sys.executable, "-m", "tools.benchmarks.cluster", *sys.argv[1:]]
        )
        os.execvp(command[0], command)
    _link()
    with tempfile.TemporaryDirectory(prefix="tubemq-bench-") as folder:
        rows = _measure(Path(folder), options.mib, options.sql)
    _print(rows)
    return 0


def _link() -> None:
    """Create a bridge that keeps the cluster's address; each driver gets a virtual cable to it."""
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("addr", "add", f"{CLUSTER}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")


def _measure(folder: Path, sizes: list[int], sql: str | None) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        masters, ends = stack.enter_context(_broker(max(sizes)))
        _relay((CLUSTER, _port(masters)), ("127.0.0.1", _port(masters)))
        storage = stack.enter_context(object_server(host=CLUSTER))
        java = find_java().home
        cluster = SparkCluster(folder / "cluster", java, host=CLUSTER)
        order = {
            "masters": masters,  # on loopback on both sides, by relays
            "storage_options": storage,
            "sql": sql,
            "master": stack.enter_context(cluster).master_url,
        }
        rows = []
        for mib in sizes:
            count = mib * 2**20 // BODY // PARTITIONS
            ranges = {key: (0, min(end, 28 * count)) for key, end in ends.items()}
            print(f"a window of {mib} MiB", flush=True)
            rows.append({"mib": mib, **_driver({**order, "ranges": ranges}, folder / f"{mib}")})
        return rows


@contextmanager
def _broker(mib: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Run a TubeMQ with `mib` MiB of records in a separate process."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_serve, args=(theirs, mib), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join(10)


def _serve(pipe: Any, mib: int) -> None:
    spec = TopicSpec(TOPIC, stores=PARTITIONS, partitions=1)
    with EmbeddedTubeMQ(topics=[spec], http=False) as server:
        settings = ClientConfig.parse({"masters": server.masters}).settings()
        pool = [os.urandom(BODY) for _ in range(64)]
        with Producer(settings) as producer:
            partitions: list[Partition] = sorted(producer.partitions(TOPIC))
            records = (
                Record(pool[number % 64], partition=partitions[number % PARTITIONS])
                for number in range(mib * 2**20 // BODY)
            )
            for _ in producer.send_many(TOPIC, records, in_flight=64):
                pass
        server.broker(1).flush()
        stable_ends = {
            p.key: server.broker(1).store(TOPIC, p.store_id).ends.stable for p in partitions
        }
        pipe.send((server.masters, stable_ends))
        threading.Event().wait()


def _driver(order: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run a driver in a new namespace, and connect it once it is there."""
    folder.mkdir()
    command = ["unshare", "-n", sys.executable, "-m", "tools.benchmarks.cluster", "--driver"]
    environment = {**os.environ, "TMPDIR": str(folder), "SPARK_LOCAL_IP": DRIVER}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    mine = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{process.pid}/ns/net").readlink() == mine:
        time.sleep(0.05)
    _ip("link", "add", OUTSIDE, "type", "veth", "peer", "name", INSIDE)
    _ip("link", "set", OUTSIDE, "master", BRIDGE)
    _ip("link", "set", OUTSIDE, "up")
    _ip("link", "set", INSIDE, "netns", str(process.pid))
    answer, _ = process.communicate(json.dumps(order), timeout=900)
    if process.returncode:
        raise SystemExit(f"the driver ended with {process.returncode}")
    _ip("link", "del", OUTSIDE)  # its other end went with the driver, or does now
    figures: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return figures


def _drive(order: dict[str, Any]) -> dict[str, Any]:
    """Ingest one window; return its cost to this process and its children."""
    _ip("addr", "add", f"{DRIVER}/24", "dev", INSIDE)
    _ip("link", "set", "lo", "up")
    _ip("link", "set", INSIDE, "up")
    _relay(("127.0.0.1", _port(order["masters"])), (CLUSTER, _port(order["masters"])))
    settings = ClientConfig.parse({"masters": order["masters"]}).settings()
    sink = sink_for("s3://lake/orders", storage_options=order["storage_options"])
    scope = WindowScope("bench", TOPIC, "bench", sink.identity)
    plan = WindowPlan.explicit(scope, {key: tuple(r) for key, r in order["ranges"].items()})
    conf = {
        "spark.driver.host": DRIVER,
        "spark.driver.bindAddress": DRIVER,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    engine = SessionEngine(
        settings,
        master=order["master"],
        conf=conf,
        options={"maxRecordsPerPartition": "4096"},
        transform=sql_transform(order["sql"]) if order["sql"] else None,
    )
    peaks = _Peaks()
    started, before = time.monotonic(), _traffic()
    staging = sink.begin(plan, "bench")
    counts = engine.ingest(plan, staging, IngestWatch())
    publication = sink.publish(staging, plan, counts, lambda _: None)
    seconds, after = time.monotonic() - started, _traffic()
    memory = peaks.stop()
    engine.stop()
    return {
        "records": publication.marker.counts.total,
        "files": len(publication.marker.files),
        "seconds": seconds,
        "in": after[0] - before[0],
        "out": after[1] - before[1],
        **memory,
    }


class _Peaks:
    """Largest resident memory of this process and of each child, sampled while they live."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, int]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, int]:
        self._stopped.set()
        self._thread.join()
        java = [size for name, size in self._seen.values() if name == "java"]
        me = self._seen.pop(os.getpid())[1]
        others = [size for name, size in self._seen.values() if name != "java"]
        return {"python": me, "jvm": max(java, default=0), "others": sum(others)}

    def _watch(self) -> None:
        while not self._stopped.wait(0.2):
            for pid in _family(os.getpid()):
                if peak := _peak_of(pid):
                    self._seen[pid] = peak


def _family(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def _peak_of(pid: int) -> tuple[str, int] | None:
    """Return name and peak of resident memory in KiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    peak = fields.get("VmHWM", "").split()
    return (fields["Name"].strip(), int(peak[0])) if peak else None


def _traffic() -> tuple[int, int]:
    """Return the bytes received and sent by the driver's interface."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == INSIDE:
            fields = numbers.split()
            return int(fields[0]), int(fields[8])
    raise SystemExit(f"no interface {INSIDE}")


def _port(masters: str) -> int:
    return int(masters.rpartition(":")[2])


def _relay(here: Address, there: Address) -> None:
    """Forward connections between the namespaces' loopbacks, where an embedded TubeMQ listens.

    Executors need none of this, and drivers query only the master.
    """
    listener = socket.create_server(here)

    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while True:
            accepted, _ = listener.accept()
            onward = socket.create_connection(there)
            for pair in ((accepted, onward), (onward, accepted)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=words[1] != "del", capture_output=True, timeout=20)


def _print(rows: list[dict[str, Any]]) -> None:
    print("\ndriver: peak of resident memory and traffic, MiB")
    print("  window  records files      s   python     jvm  others       in      out")
    for row in rows:
        memory = "".join(f"{row[name] / 1024:8.0f}" for name in ("python", "jvm", "others"))
        traffic = "".join(f"{row[name] / 2**20:9.2f}" for name in ("in", "out"))
        head = f"{row['mib']:8} {row['records']:8} {row['files']:5} {row['seconds']:6.0f} "
        print(head + memory + traffic)


if __name__ == "__main__":
    sys.exit(main())
