"""A data directory: what comes back after a stop, a kill, and a torn write."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.embedded.rpc import BrokerWire, bodies
from tubemq_client.embedded import EmbeddedTubeMQ, Ends, Switches, TopicSpec
from tubemq_client.embedded.persistence import DataDirectory, StoreFile
from tubemq_client.embedded.store import NO_KEY, Record, StoreLog
from tubemq_client.errors import ConfigError

pytestmark = pytest.mark.timeout(60)

BY_HAND = Switches(flush_interval_ms=None, unflushed_records=None)


def server(data: Path, brokers: int = 1, *topics: TopicSpec | str) -> EmbeddedTubeMQ:
    return EmbeddedTubeMQ(brokers, topics, data_dir=data, http=False, switches=BY_HAND)


def test_an_orderly_stop_keeps_everything(tmp_path: Path) -> None:
    with server(tmp_path, 2, TopicSpec("wide", 2, 3, max_message_mb=2)) as mq:
        before = (mq.masters, [mq.broker(n).address for n in (1, 2)])
        with BrokerWire(mq.broker(2).address) as wire:
            sent = [wire.send("wide", b"m%d" % n, 10_001, stream_id="s") for n in range(3)]
            wire.register("wide", 10_001)
            wire.get("wide", 10_001)
            wire.commit("wide", 10_001)
            wire.send("wide", b"late", 10_001)

    with server(tmp_path) as mq:
        assert (mq.masters, [mq.broker(n).address for n in (1, 2)]) == before
        assert mq.topics() == ["wide"]
        assert mq.broker(1).store("wide", 1).ends == Ends(0, 0, 0, 0)
        assert mq.broker(2).store("wide", 1).ends == Ends(0, 112, 112, 112)
        with BrokerWire(mq.broker(2).address) as wire:
            assert wire.register("wide", 10_001).currOffset == 84
            wire.register("wide", 10_001, currOffset=0)
            batch = wire.get("wide", 10_001)
            assert bodies(batch) == [b"m0", b"m1"]
            assert batch.messages[0].messageId == sent[0].messageId
            again = wire.send("wide", bytes(2_000_000), 10_001)
            assert again.appendOffset == 112
            assert again.messageId not in {reply.messageId for reply in sent}


CHILD = """
import sys
from tests.client.embedded.rpc import BrokerWire
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
switches = Switches(flush_interval_ms=None, unflushed_records=None)
with EmbeddedTubeMQ(1, ["lone"], data_dir=sys.argv[1], http=False, switches=switches) as mq:
    with BrokerWire(mq.broker(1).address) as wire:
        wire.send_all("lone", 5)
        wire.register("lone")
        wire.get("lone")
        wire.commit("lone")
        mq.broker(1).flush()
        mq.tick()
        wire.send_all("lone", 7)
        print(mq.broker(1).address, flush=True)
        sys.stdin.read()
"""


def test_a_killed_process_loses_what_was_not_flushed(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    finally:
        child.kill()
        child.communicate()

    with server(tmp_path) as mq:
        assert mq.broker(1).address == address
        assert mq.broker(1).store("lone").ends == Ends(0, 140, 140, 140)
        with BrokerWire(address) as wire:
            assert wire.send("lone", b"new").appendOffset == 140
            assert wire.register("lone").currOffset == 140


def test_a_torn_record_is_cut_off(tmp_path: Path) -> None:
    with server(tmp_path, 1, "lone") as mq, BrokerWire(mq.broker(1).address) as wire:
        wire.send_all("lone", 3)
    path = tmp_path / "broker-1" / "lone-0.log"
    whole = path.read_bytes()

    for torn in (whole[:-1], whole + b"\x00" * 60, whole[:-1] + b"!"):
        path.write_bytes(torn)
        with server(tmp_path) as mq, BrokerWire(mq.broker(1).address) as wire:
            kept = mq.broker(1).store("lone").ends.memory
            assert kept == (84 if torn.startswith(whole) else 56)
            assert wire.send("lone", b"next").appendOffset == kept


def test_retention_and_truncation_are_kept(tmp_path: Path) -> None:
    with server(tmp_path, 1, "lone") as mq, BrokerWire(mq.broker(1).address) as wire:
        wire.send_all("lone", 10)
        mq.broker(1).store("lone").expire_to(84)
        mq.broker(1).store("lone").truncate_to(196)

    with server(tmp_path) as mq, BrokerWire(mq.broker(1).address) as wire:
        assert mq.broker(1).store("lone").ends == Ends(84, 196, 196, 196)
        wire.register("lone")
        assert bodies(wire.get("lone")) == [b"m3", b"m4"]


@pytest.mark.parametrize("index", [0, 28, 196])
def test_data_that_expired_before_its_index_stays_so(tmp_path: Path, index: int) -> None:
    with server(tmp_path, 1, "lone") as mq, BrokerWire(mq.broker(1).address) as wire:
        wire.send_all("lone", 10)
        mq.broker(1).store("lone").expire_data_to(84)
        mq.broker(1).store("lone").expire_index_to(index)

    with server(tmp_path) as mq, BrokerWire(mq.broker(1).address) as wire:
        assert mq.broker(1).store("lone").ends == Ends(index, 280, 280, 280)
        assert wire.send("lone", b"new").appendOffset == 280
        wire.register("lone", currOffset=0, readStatus=0)
        got = []
        for _ in range(10):
            got += bodies(wire.get("lone", lastPackConsumed=True))
        first = max(3, index // 28)
        assert got == [*(b"m%d" % n for n in range(first, 10)), b"new"]


def test_a_simulated_crash_and_the_files_agree(tmp_path: Path) -> None:
    with server(tmp_path, 1, "lone") as mq:
        with BrokerWire(mq.broker(1).address) as wire:
            wire.send_all("lone", 2)
            mq.broker(1).flush()
            wire.send_all("lone", 3)
        mq.broker(1).crash()
        mq.broker(1).restart()
        with BrokerWire(mq.broker(1).address) as wire:
            wire.send("lone", b"new")

    with server(tmp_path) as mq, BrokerWire(mq.broker(1).address) as wire:
        wire.register("lone", currOffset=28)
        assert bodies(wire.get("lone")) == [b"m1"]
        assert bodies(wire.get("lone", lastPackConsumed=True)) == [b"new"]


def test_a_directory_serves_one_server_at_a_time(tmp_path: Path) -> None:
    with (
        server(tmp_path),
        pytest.raises(ConfigError, match="in use by another embedded server"),
        server(tmp_path),
    ):
        pass
    with server(tmp_path) as mq:
        assert mq.topics() == []


def test_topics_grow_and_brokers_join_on_a_kept_directory(tmp_path: Path) -> None:
    with server(tmp_path, 1, TopicSpec("wide", 1, 1)) as mq:
        assert mq.broker_ids == [1]

    with server(tmp_path, 2, TopicSpec("wide", 2, 3)) as mq:
        assert mq.broker_ids == [1, 2]
        with BrokerWire(mq.broker(1).address) as wire:
            assert wire.send("wide", b"x", 10_002).errCode == 200


@pytest.mark.parametrize(
    ("name", "content"),
    [("cluster.json", "{"), ("cluster.json", "[]"), ("broker-1/lone-0.log", "nonsense")],
)
def test_unreadable_files_stop_the_start_with_their_name(
    tmp_path: Path, name: str, content: str
) -> None:
    with server(tmp_path, 1, "lone") as mq, BrokerWire(mq.broker(1).address) as wire:
        wire.send("lone", b"x")
    (tmp_path / name).write_text(content)

    with pytest.raises(ConfigError, match=Path(name).name), server(tmp_path):
        pass


def test_device_sync_can_be_requested(tmp_path: Path) -> None:
    switches = Switches(flush_interval_ms=0, fsync=True)
    with (
        EmbeddedTubeMQ(1, ["lone"], data_dir=tmp_path, http=False, switches=switches) as mq,
        BrokerWire(mq.broker(1).address) as wire,
    ):
        wire.send("lone", b"x")
        assert mq.broker(1).store("lone").ends.stable == 28


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = DataDirectory(tmp_path).store_file(1, "lone", 0)
    file.open()
    log = StoreLog()
    for size in (10, 100_000):
        log.append(0, bytes(size), time_ms=1, checksum=1)
    first, second = log.slice(0, 56)
    file.append([first])
    whole = (tmp_path / "broker-1" / "lone-0.log").stat().st_size

    # A limit on file sizes is the one full disk that a test can have.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 1_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            file.append([second])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, former)

    assert (tmp_path / "broker-1" / "lone-0.log").stat().st_size == whole
    file.append([second])
    assert file.open().records == [first, second]


def test_writes_that_fail_twice_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "orders-0.log"
    file = StoreFile(path, fsync=False)
    file.open()
    record = Record(0, NO_KEY, 1, 2, 3, 0, 0, 0, b"body")
    with monkeypatch.context() as broken:
        broken.setattr(file, "_fsync", True)
        broken.setattr(os, "fsync", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                file.append([record])
    file.append([record])
    file.close()
    assert StoreFile(path, fsync=False).open().records == [record]


def test_the_directory_and_its_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    umask = os.umask(0)
    try:
        for root in (tmp_path / "new", tmp_path / "there"):
            with server(root, 1, "orders") as mq, BrokerWire(mq.broker(1).address) as wire:
                wire.send("orders", b"secret", 10_000)
            modes = {path.name: path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}
            assert {mode for name, mode in modes.items() if "." in name or name == "lock"} == {
                0o600
            }
            assert modes[root.name] == modes["broker-1"] == 0o700
    finally:
        os.umask(umask)
