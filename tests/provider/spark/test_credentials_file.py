"""Users and TLS on their way to tasks: never in an option, in a file no longer than needed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_client.model import ClientSettings as RocketMQSettings
from rocketmq_client.model import Credentials as RocketMQCredentials
from tools.devkit.patience import PATIENCE
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.errors import ConfigError
from tubemq_client.model import ClientSettings, Credentials, TlsSettings
from tubemq_provider.spark import spark_options
from tubemq_provider.spark.credentials_file import access_file, settings_from
from tubemq_provider.spark.options import parse_options
from tubemq_provider.spark.write_options import parse_write_options
from tubemq_provider.windows.plan import WindowPlan, WindowScope

SECRET = 'p"wörd\\7\N{KEY}'
SETTINGS = ClientSettings(
    masters=(("m1", 8716),),
    auth=Credentials("etl", SECRET),
    tls=TlsSettings(ca_file="/ca.pem", check_hostname=False, key_password=None),
)
PLAN = WindowPlan.cursor(WindowScope("c", "demo", "g", "parquet:/x"), 1, {"1:0": (0, 280)})
READ = {"masters": "m1:8716", "topic": "demo", "group": "g"}


def test_options_carry_a_path_and_the_file_the_rest() -> None:
    with access_file(SETTINGS) as path:
        assert path is not None
        assert Path(path).stat().st_mode & 0o077 == 0
        options = spark_options(SETTINGS, PLAN, config_file=path)
        assert SECRET not in str(options)
        settings = parse_options(options).settings()
        assert (settings.auth, settings.tls) == (SETTINGS.auth, SETTINGS.tls)
        assert settings.masters == SETTINGS.masters
    assert not Path(path).exists()


def test_the_key_of_rocketmq_is_in_such_a_file_too() -> None:
    pytest.importorskip("pyspark")
    from tubemq_provider.spark.rocketmq import _parse, reading

    settings = RocketMQSettings(
        (("ns1", 9876),),
        auth=RocketMQCredentials("etl", SECRET, "t0ken"),
        tls=SETTINGS.tls,
        connect_timeout_ms=1_234,
        rpc_timeout_ms=5_000,
    )
    scope = WindowScope("c", "orders", "lake", "parquet:/x", source="rocketmq")
    plan = WindowPlan.explicit(scope, {"broker-a:0": (0, 5)})
    with reading(settings, plan) as options:
        assert SECRET not in str(options)
        assert Path(options["configFile"]).stat().st_mode & 0o077 == 0
        assert _parse(options)[1] == settings
    assert not Path(options["configFile"]).exists()


def test_settings_with_a_user_need_a_file() -> None:
    with pytest.raises(ConfigError, match="configFile") as caught:
        spark_options(SETTINGS, PLAN)
    assert SECRET not in str(caught.value)


def test_settings_without_secrets_need_no_file() -> None:
    with access_file(ClientSettings(masters=(("m1", 8715),))) as path:
        assert path is None


def test_masters_may_be_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tubemq.toml"
    file.write_text('masters = "m1,m2:9000"\ntls = true\n')
    options = parse_options({"topic": "demo", "group": "g", "configFile": str(file)})
    assert options.settings().masters == (("m1", 8716), ("m2", 9000))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tls = [", "configFile|option file"),
        ('[auth]\nusername = "u"\n', "auth.password"),
        ('[tsl]\nca_file = "/ca.pem"\n', "tsl: unknown option"),
        (None, "No such file"),
    ],
)
def test_a_file_that_does_not_do_is_named(tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "tubemq.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        parse_options({**READ, "configFile": str(file)}).settings()


def test_the_timeout_of_the_file_counts_where_no_option_says_another(tmp_path: Path) -> None:
    """The option's default must not replace the value of the file."""
    file = tmp_path / "tubemq.toml"
    file.write_text("rpc_timeout_ms = 60000\n")
    write = {"masters": "m1", "topic": "demo"}
    for parse, given in ((parse_options, READ), (parse_write_options, write)):
        found = parse({**given, "configFile": str(file)})
        assert found.settings().rpc_timeout_ms == 60_000
        found = parse({**given, "configFile": str(file), "rpcTimeoutMs": "5000"})
        assert found.settings().rpc_timeout_ms == 5_000
    pytest.importorskip("pyspark")
    from tubemq_provider.spark.rocketmq import _parse

    queues = {"nameServers": "ns1", "topic": "demo", "group": "g", "configFile": str(file)}
    for said, wanted in ({}, 60_000), ({"rpcTimeoutMs": "5000"}, 5_000):
        assert _parse({**queues, **said})[1].rpc_timeout_ms == wanted


def test_a_misspelt_group_of_the_file_is_named_for_rocketmq_too(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tubemq_provider.spark.rocketmq import _parse

    file = tmp_path / "rocketmq.toml"
    file.write_text('[TLS]\nca_file = "/ca.pem"\n')
    with pytest.raises(ConfigError, match="TLS: unknown option"):
        _parse({"nameServers": "n", "topic": "demo", "group": "g", "configFile": str(file)})


def test_a_password_as_an_option_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError, match="configFile") as caught:
        parse_options({**READ, "password": SECRET})
    assert SECRET not in str(caught.value)


def test_tasks_need_no_file(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from tubemq_client.model import BrokerNode
    from tubemq_provider.spark.batch_reader import TubeMQBatchReader
    from tubemq_provider.spark.range_planner import PlannedRead

    with access_file(SETTINGS) as path:
        options = parse_options({**READ, "configFile": str(path)})
        planned = PlannedRead(("demo",), "s", (), {1: BrokerNode(1, "b", 8123)}, options.settings())
        reader = TubeMQBatchReader(options, planned, None)  # type: ignore[arg-type]
    there = pickle.loads(pickle.dumps(reader))
    assert there._planned.settings.auth == SETTINGS.auth


def test_the_file_is_read_once_a_load(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import StringType, StructField, StructType

    from tubemq_provider.spark.source import TubeMQDataSource

    file = tmp_path / "tubemq.toml"
    file.write_text("rpc_timeout_ms = 9000")
    with EmbeddedTubeMQ(http=False) as server:
        server.add_topic(TopicSpec("demo"))
        given = {**READ, "masters": server.masters, "configFile": str(file)}
        source = TubeMQDataSource(given)
        source.schema()
        # A second read would not find it.
        file.unlink()
        reader = source.reader(StructType([StructField("partition", StringType())]))
    assert [range_.partition.key for range_ in reader.planned_ranges] == ["1:0"]


KILLED = """
import os, signal
from tests.provider.spark.test_credentials_file import SETTINGS
from tubemq_provider.spark.credentials_file import access_file, settings_from
with access_file(SETTINGS) as path:
    print(open(path).read().count("auth"), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has files in memory")
def test_a_killed_process_leaves_no_password_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "1\n"), done.stderr
    left = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in left if "password" in text]


READING = """
import sys
from tubemq_provider.spark.credentials_file import settings_from
print(settings_from(sys.argv[1], masters="m1:1").auth.username)
"""


def test_another_process_of_this_user_can_read_it(tmp_path: Path) -> None:
    """Spark plans a read in a separate process."""
    with access_file(SETTINGS) as path:
        done = subprocess.run(
            [sys.executable, "-c", READING, str(path)],
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
            check=True,
        )
    assert done.stdout == "etl\n"


def test_without_files_in_memory_it_is_on_disk_for_as_long_as_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with access_file(SETTINGS) as path:
        assert path is not None
        assert not Path(path).is_symlink()
        assert Path(path).stat().st_mode & 0o077 == 0
        assert settings_from(path, masters="m1:1").auth == SETTINGS.auth
    assert not Path(path).parent.exists()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files are on disk")
def test_a_process_that_has_changed_its_user_lets_others_of_that_user_read() -> None:
    child = """
import ctypes, os, subprocess
from tubemq_provider.spark.credentials_file import secret_file
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
else:
    ctypes.CDLL(None).prctl(4, 0)  # as the kernel does then
with secret_file("spark.conf", "hush-hush") as path:
    print(os.stat(path).st_mode & 0o777, flush=True)
    subprocess.run(["cat", path], check=True)
"""
    found = subprocess.run(
        [sys.executable, "-c", child],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )
    assert (found.stdout, found.stderr) == ("384\nhush-hush", "")
