"""Starting, stopping, addresses and options of the whole server."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.client.embedded.rpc import BrokerWire
from tests.kit.ports import reserved_port
from tools.devkit.patience import PATIENCE
from tubemq_client.embedded import EmbeddedTubeMQ, Ports, ServerTls, Switches, TopicSpec
from tubemq_client.errors import ClosedError, ConfigError, MissingExtraError

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "::1", "example.org", ""])
def test_only_loopback_is_served(host: str) -> None:
    with pytest.raises(ConfigError, match="not an IPv4 loopback address"):
        EmbeddedTubeMQ(host=host)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
def test_any_loopback_address_will_do(host: str) -> None:
    with EmbeddedTubeMQ(1, ["lone"], host=host, http=False) as mq:
        expected = "127.0.0.1" if host == "localhost" else host
        assert mq.masters.startswith(f"{expected}:")
        with BrokerWire(mq.broker(1).address) as wire:
            assert wire.send("lone", b"x").errCode == 200


def test_ports_can_be_chosen_and_a_busy_one_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{busy}"),
            EmbeddedTubeMQ(http=False, ports=Ports(master=busy)),
        ):
            pass
    with reserved_port() as free, EmbeddedTubeMQ(http=False, ports=Ports(master=free)) as mq:
        assert mq.masters == f"127.0.0.1:{free}"
        assert mq.master_address == ("127.0.0.1", free)
        assert mq.master_web is None
        assert mq.broker(1).web is None


@pytest.mark.parametrize("which", ["broker", "broker_web", "master_web"])
def test_a_start_that_fails_leaves_nothing_behind(which: str, tmp_path: Path) -> None:
    """Neither a lock on the directory nor sockets; what other brokers held is still there."""
    with EmbeddedTubeMQ(3, ["lone"], data_dir=tmp_path, http=False):
        pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        server = EmbeddedTubeMQ(2, data_dir=tmp_path, ports=Ports(**{which: busy}))
        opened = _sockets()
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{busy}"):
            server.start()
        assert _sockets() == opened
    with EmbeddedTubeMQ(data_dir=tmp_path, http=False) as mq, BrokerWire(mq.broker(3).address) as b:
        assert b.send("lone", b"x").errCode == 200


def test_certificates_that_are_missing_are_named(tmp_path: Path) -> None:
    tls = ServerTls(cert_file=tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match="server TLS"):
        EmbeddedTubeMQ(data_dir=tmp_path / "data", http=False, tls=tls).start()
    with EmbeddedTubeMQ(data_dir=tmp_path / "data", http=False):
        pass


def test_without_its_packages_the_http_side_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "tubemq_client.embedded.web", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtraError, match=r"airflow-provider-tubemq\[embedded\]"):
        EmbeddedTubeMQ(data_dir=tmp_path).start()
    with EmbeddedTubeMQ(data_dir=tmp_path, http=False):
        pass


def _sockets() -> int:
    """Of this process, on Linux; elsewhere they are not counted."""
    gc.collect()
    place, found = Path("/proc/self/fd"), 0
    for name in list(place.iterdir()) if place.is_dir() else []:
        with suppress(FileNotFoundError):  # what listed them is one of them
            found += str(name.readlink()).startswith("socket")
    return found


def test_it_starts_and_stops_any_number_of_times() -> None:
    mq = EmbeddedTubeMQ(1, ["lone"], http=False)
    for _ in range(2):
        mq.start()
        mq.start()
        with BrokerWire(mq.broker(1).address) as wire:
            assert wire.send("lone", b"x").errCode == 200
        mq.stop()
        mq.stop()
        assert repr(mq) == "EmbeddedTubeMQ(stopped)"


def test_nothing_runs_after_a_stop() -> None:
    before = threading.active_count()
    with EmbeddedTubeMQ(1, ["lone"]) as mq:
        address, broker = mq.master_address, mq.broker(1)
        assert repr(mq) == f"EmbeddedTubeMQ(masters='{mq.masters}')"

    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=1)
    with pytest.raises(ClosedError):
        broker.flush()


@pytest.mark.parametrize(
    ("make", "problems"),
    [
        (lambda: TopicSpec("1x", 0, -1, 99), 4),
        (lambda: TopicSpec("t"), 1),
        (lambda: TopicSpec("t" * 65), 1),
        (lambda: Switches(lease_ms=-1, unflushed_records=0, max_message_mb=0), 3),
        (lambda: EmbeddedTubeMQ(0), 1),
    ],
)
def test_wrong_options_are_all_named_at_once(make: Any, problems: int) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert len(caught.value.problems) == problems


def test_unknown_brokers_are_refused() -> None:
    with EmbeddedTubeMQ(http=False) as mq:
        with pytest.raises(KeyError):
            mq.broker(2)
        with pytest.raises(ConfigError, match="there is no broker 7"):
            mq.add_topic("lone", brokers=[7])


def test_the_token_stays_out_of_reprs() -> None:
    assert "s3cret" not in repr(Switches(admin_token="s3cret"))


CHILD = """
import sys
from tests.client.embedded.rpc import BrokerWire
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
switches = Switches(flush_interval_ms=None, unflushed_records=None)
mq = EmbeddedTubeMQ(1, ["lone"], data_dir=sys.argv[1], http=False, switches=switches)

def use():
    with BrokerWire(mq.broker(1).address) as wire:
        wire.send("lone", b"x")
    print("up", flush=True)

mq.run_until_signal(use)
print("down", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_until_signal_stops_in_order(number: int, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        child.send_signal(number)
        rest, _ = child.communicate(timeout=20 * PATIENCE)
    finally:
        child.kill()
        child.wait(10)

    assert (rest, child.returncode) == ("down\n", 0)
    with EmbeddedTubeMQ(1, data_dir=tmp_path, http=False) as mq:
        assert mq.broker(1).store("lone").ends.stable == 28
