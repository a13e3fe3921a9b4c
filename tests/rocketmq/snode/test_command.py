"""The command `rocketmq-snode`: its options, its life, its end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys

import pytest

from rocketmq_client import ClientSettings, Producer, errors
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.snode.options import read_options
from rocketmq_client.snode.registry import known_nodes
from tests.rocketmq.snode.raw import eventually

SERVE = [sys.executable, "-m", "rocketmq_client.snode.command", "serve"]


def test_the_environment_wins_over_the_file(tmp_path) -> None:
    path = tmp_path / "snode.toml"
    path.write_text(
        'name_servers = "ns1:9876;ns2"\nlisten = "127.0.0.1:12000"\ntopics = ["a"]\n'
        'pool_size = 3\n[ports]\nbroker-a = 12001\n[tls]\nca_file = "ca.pem"\n'
    )
    found = read_options(path, {"SNODE_POOL_SIZE": "5", "SNODE_TOPICS": "b,c", "OTHER": "x"})

    assert found.name_servers == (("ns1", 9876), ("ns2", 9876))
    assert (found.listen, found.pool_size) == (("127.0.0.1", 12000), 5)
    assert found.topics == {"b", "c"}
    assert found.ports == (("broker-a", 12001),)
    assert found.tls is not None
    assert found.tls.ca_file == "ca.pem"


def test_every_problem_is_told(tmp_path) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        read_options(None, {"SNODE_POOL_SIZE": "0", "SNODE_COLOUR": "red", "SNODE_LISTEN": "a:b:c"})
    text = str(caught.value)
    assert all(name in text for name in ("name_servers", "pool_size", "colour", "listen"))
    with pytest.raises(errors.ConfigError, match="nowhere"):
        read_options(tmp_path / "nowhere.toml", {})


def test_it_serves_until_it_is_told_to_stop(tmp_path) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1}) as rocketmq:
        path = tmp_path / "snode.toml"
        path.write_text(
            f'name_servers = "127.0.0.1:{rocketmq.name_server[1]}"\nlisten = "127.0.0.1:0"\n'
        )
        with subprocess.Popen(
            [*SERVE, "--config", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                port = int(process.stdout.readline().rpartition(":")[2])
                with Producer(ClientSettings((("127.0.0.1", port),))) as producer:
                    assert producer.send("orders", b"x").offset == 0
                registered = eventually(lambda: asyncio.run(known_nodes(rocketmq.settings)))
                process.send_signal(signal.SIGTERM)
                _, said = process.communicate(timeout=20)
            finally:
                process.kill()
        left = asyncio.run(known_nodes(rocketmq.settings))

    lines = [json.loads(line) for line in said.splitlines()]
    assert process.returncode == 0
    assert [found["addr"] for found in registered.values()] == [f"127.0.0.1:{port}"]
    assert left == {}
    by_message = {line["message"]: line for line in lines}
    assert next(iter(by_message)).startswith("listening on 127.0.0.1:")
    assert by_message["stopping: no new clients"]["under_way"] == 0
    assert by_message["stopped"]["unanswered"] == 0
    gone = by_message["a client is gone"]
    assert gone["client"].startswith("127.0.0.1:")
    assert gone["requests"] >= 2


def test_wrong_options_end_it_with_words() -> None:
    answer = subprocess.run(
        SERVE, check=False, capture_output=True, text=True, timeout=30, env={"SNODE_NAME": ""}
    )

    assert answer.returncode == 2
    assert "name_servers" in answer.stderr
