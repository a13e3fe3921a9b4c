"""The command `rocketmq-snode`: its options, start and end."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from rocketmq_client import ClientSettings, Credentials, Producer, errors
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.embedded.replies import Refused
from rocketmq_client.model import address_text
from rocketmq_snode import SnodeSettings
from rocketmq_snode.command import main
from rocketmq_snode.options import SnodeConfig, read_options
from rocketmq_snode.registry import known_nodes
from tests.snode.raw import eventually
from tools.devkit.patience import PATIENCE

SERVE = [sys.executable, "-m", "rocketmq_snode.command", "serve"]


def test_the_environment_has_precedence_over_the_file(tmp_path) -> None:
    path = tmp_path / "snode.toml"
    path.write_text(
        'name_servers = "ns1:9876;ns2"\nlisten = "127.0.0.1:12000"\ntopics = ["a"]\n'
        'pool_size = 3\n[ports]\nbroker-a = 12001\n[tls]\nca_file = "ca.pem"\n'
    )
    settings = read_options(path, {"SNODE_POOL_SIZE": "5", "SNODE_TOPICS": "b,c", "OTHER": "x"})

    assert settings.name_servers == (("ns1", 9876), ("ns2", 9876))
    assert (settings.listen, settings.pool_size) == (("127.0.0.1", 12000), 5)
    assert settings.topics == {"b", "c"}
    assert settings.ports == (("broker-a", 12001),)
    assert settings.tls is not None
    assert settings.tls.ca_file == "ca.pem"


def test_every_problem_is_reported(tmp_path) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        read_options(None, {"SNODE_POOL_SIZE": "0", "SNODE_COLOUR": "red", "SNODE_LISTEN": "a:b:c"})
    text = str(caught.value)
    assert all(name in text for name in ("name_servers", "pool_size", "colour", "listen"))
    with pytest.raises(errors.ConfigError, match="nowhere"):
        read_options(tmp_path / "nowhere.toml", {})


NS = {"SNODE_NAME_SERVERS": "ns:9876"}
TWO = (("alice", "s3cret"), ("bob", "b=="))


@pytest.mark.parametrize(
    ("users", "found"),
    [
        ("alice=s3cret,bob=b==", TWO),
        (" alice = s3cret , bob=b==", TWO),
        ('{"alice": "s3cret", "bob": "b=="}', TWO),
        ('[["alice", "s3cret"], ["bob", "b=="]]', TWO),
        ('{"alice": "s3,cr;et="}', (("alice", "s3,cr;et="),)),
    ],
)
def test_users_are_read_from_the_environment(users, found) -> None:
    assert read_options(None, NS | {"SNODE_USERS": users}).users == found


def test_lists_and_ports_are_read_from_the_environment() -> None:
    settings = read_options(
        None,
        NS
        | {
            "SNODE_TOPICS": "orders, payments",
            "SNODE_GROUPS": '["a,b"]',
            "SNODE_PORTS": '{"broker-a": 11921, "broker-b": 11922}',
            "SNODE_USERS": "alice=s3cret",
            "SNODE_CREDENTIALS": '{"access_key": "node", "secret_key": "k=1"}',
        },
    )
    assert (settings.topics, settings.groups) == ({"orders", "payments"}, {"a,b"})
    assert settings.ports == (("broker-a", 11921), ("broker-b", 11922))
    assert settings.credentials == Credentials("node", "k=1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("USERS", "alice:s3cret"),
        ("USERS", "alice=s3,cret"),
        ("USERS", "alice=s3cret;bob=b"),
        ("USERS", "alice=s3cret,alice=b"),
        ("USERS", "alice=s3cret,"),
        ("USERS", "alice="),
        ("USERS", ""),
        ("USERS", "{}"),
        ("USERS", '{"alice": 12345678}'),
        ("USERS", '{"alice": "s3cret", "alice": "b"}'),
        ("USERS", '{"alice": "s3cret"'),
        ("USERS", '["alice:s3cret"]'),
        ("PORTS", "broker-a:11921"),
        ("PORTS", "broker-a=99999"),
        ("TOPICS", ""),
        ("GROUPS", "a,,b"),
        ("CREDENTIALS", "s3cret-of-nodes"),
        ("CREDENTIALS", "node="),
        ("CREDENTIALS", '{"access_key": "node", "secret_key": 12345678}'),
        ("CREDENTIALS", '{"access_key": "node", "secret": "s3cret"}'),
        ("CREDENTIALS", '["node", "s3cret"]'),
    ],
)
def test_unknown_options_are_refused_without_secrets(name, value) -> None:
    environment = NS | {"SNODE_USERS": "u=v"}
    with pytest.raises(errors.ConfigError, match=f"- {name.lower()}") as caught:
        read_options(None, environment | {f"SNODE_{name}": value})
    assert "s3" not in str(caught.value)
    assert "12345678" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        'users = "alice:s3cret"',
        "users = {alice = 12345678}",
        "users = {}",
        "users = 12345678",
        'users = {alice = "s3cret"}\ncredentials = {access_key = "node", secret_key = 12345678}',
    ],
)
def test_files_are_validated_like_the_environment(tmp_path, text) -> None:
    path = tmp_path / "snode.toml"
    path.write_text(text)
    with pytest.raises(errors.ConfigError, match=r"- (users|credentials)") as caught:
        read_options(path, NS)
    assert "s3cret" not in str(caught.value)
    assert "12345678" not in str(caught.value)


def test_settings_take_texts_only() -> None:
    users: Any = (("alice", 12345678),)
    with pytest.raises(errors.ConfigError, match="not text") as caught:
        SnodeSettings((("ns", 9876),), users=users)
    assert "12345678" not in str(caught.value)


def test_variables_of_kubernetes_services_are_ignored() -> None:
    injected = {
        "SNODE_SERVICE_HOST": "10.0.0.1",
        "SNODE_SERVICE_PORT": "11911",
        "SNODE_SERVICE_PORT_CLIENTS": "11911",
        "SNODE_PORT": "tcp://10.0.0.1:11911",
        "SNODE_PORT_11911_TCP": "tcp://10.0.0.1:11911",
        "SNODE_PORT_11911_TCP_PROTO": "tcp",
        "SNODE_PORT_11911_TCP_PORT": "11911",
        "SNODE_PORT_11911_TCP_ADDR": "10.0.0.1",
        "SNODE_METRICS_SERVICE_HOST": "10.0.0.2",
        "SNODE_METRICS_PORT": "tcp://10.0.0.2:9911",
    }
    assert read_options(None, NS | injected).listen == ("127.0.0.1", 11911)
    with pytest.raises(errors.ConfigError, match=r"port: unknown option; did you mean ports\?"):
        read_options(None, NS | {"SNODE_PORT": "11911"})


JAVA = """# a node of RocketMQ
namesrvAddr=ns1:9876;ns2:9876
snodeName = one
snodeAddr=10.0.0.5:11912
clusterName=Lake
listenPort=12911
registerNameServerPeriod=30000
serverChannelMaxIdleTimeSeconds=90
snodeSendMessageMinPoolSize=10
"""


@pytest.mark.parametrize("name", ["snode.properties", "snode.conf"])
def test_a_java_properties_file_is_read(tmp_path, caplog, name) -> None:
    path = tmp_path / name
    path.write_text(JAVA)
    settings = read_options(path, {"SNODE_NAME": "two"})

    assert settings.name_servers == (("ns1", 9876), ("ns2", 9876))
    assert (settings.name, settings.cluster) == ("two", "Lake")
    assert (settings.listen, settings.advertise) == (("10.0.0.5", 12911), ("10.0.0.5", 11912))
    assert (settings.registry_period_ms, settings.idle_ms) == (30_000, 90_000)
    assert "without effect here: snodeSendMessageMinPoolSize" in caplog.text


def test_every_problem_of_a_properties_file_is_reported(tmp_path) -> None:
    path = tmp_path / "snode.properties"
    path.write_text("snodeNam=x\nnonsense\nlistenPort=1\nlistenPort=2\n")
    with pytest.raises(errors.ConfigError) as caught:
        read_options(path, {})
    text = str(caught.value)
    assert "snodeNam: unknown option; did you mean snodeName?" in text
    assert "line 2 is not name=value" in text
    assert "line 4: listenPort is repeated" in text
    path.write_text("namesrvAddr=ns:9876\nfetchNamesrvAddrByAddressServer=true\n")
    with pytest.raises(errors.ConfigError, match="name_servers_url=http"):
        read_options(path, {})


def test_name_servers_of_the_environment_of_java_are_the_last_resort(tmp_path) -> None:
    java = {"NAMESRV_ADDR": "ns1:9876;ns2:9876"}
    assert read_options(None, java).name_servers == (("ns1", 9876), ("ns2", 9876))
    assert read_options(None, java | NS).name_servers == (("ns", 9876),)
    with pytest.raises(errors.ConfigError, match="name_servers_url: not an address"):
        read_options(None, {"SNODE_NAME_SERVERS_URL": "ns1:9876"})


def test_settings_are_shown_without_secrets() -> None:
    settings = SnodeSettings(
        (("ns", 9876),),
        users=(("alice", "s3cret"),),
        credentials=Credentials("node", "s3cret"),
        name_servers_url="http://alice:s3cret@host/nsaddr?key=s3cret",
        topics=frozenset({"b", "a"}),
    )
    shown = settings.shown()
    assert "s3cret" not in json.dumps(shown)
    assert (shown["users"], shown["credentials"], shown["tls"]) == (1, True, False)
    assert (shown["name_servers"], shown["topics"]) == (["ns:9876"], ["a", "b"])
    assert shown["name_servers_url"] == "http://host/nsaddr"


def test_it_serves_until_a_stop_signal(tmp_path) -> None:
    with EmbeddedRocketMQ(topics={"orders": 1}) as rocketmq:
        path = tmp_path / "snode.toml"
        path.write_text(
            f'name_servers = "127.0.0.1:{rocketmq.name_server[1]}"\nlisten = "127.0.0.1:0"\n'
        )
        with subprocess.Popen(
            [*SERVE, "-c", str(path)],
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
                _, log = process.communicate(timeout=20 * PATIENCE)
            finally:
                process.kill()
        left = asyncio.run(known_nodes(rocketmq.settings))

    lines = [json.loads(line) for line in log.splitlines()]
    assert process.returncode == 0
    assert [entry["addr"] for entry in registered.values()] == [f"127.0.0.1:{port}"]
    assert left == {}
    by_message = {line["message"]: line for line in lines}
    assert next(iter(by_message)).startswith("listening on 127.0.0.1:")
    options = by_message["options of this node"]["options"]
    assert options["name_servers"] == [f"127.0.0.1:{rocketmq.name_server[1]}"]
    assert options["idle_ms"] == 120_000
    assert by_message["stopping: no new clients"]["under_way"] == 0
    assert by_message["stopped"]["unanswered"] == 0
    gone = by_message["a client has disconnected"]
    assert gone["client"].startswith("127.0.0.1:")
    assert gone["requests"] >= 2


def test_wrong_options_end_it_with_an_error_text() -> None:
    answer = subprocess.run(
        SERVE,
        check=False,
        capture_output=True,
        text=True,
        timeout=30 * PATIENCE,
        env={"SNODE_NAME": ""},
    )

    assert answer.returncode == 2
    assert "name_servers" in answer.stderr


def test_entries_of_other_clients_are_not_listed(rocketmq, capsys) -> None:
    """Any client that reaches a name server may write there."""
    now = time.time_ns() // 1_000_000
    entry = {"addr": "10.0.0.5:11911", "clients": 2, "ts": now}
    wrong: list[Any] = [
        *(dict(entry, addr=7), dict(entry, addr="x\x1b[2J"), dict(entry, clients="2")),
        *(dict(entry, ts=True), {"ts": now}, [], "a word", 3),
    ]
    entries = {"mine": json.dumps(entry), "e\nvil": json.dumps(entry), "none": "{"}
    entries |= {f"wrong-{number}": json.dumps(said) for number, said in enumerate(wrong)}
    where = address_text(rocketmq.name_server)

    assert (main(["list", where]), capsys.readouterr()) == (0, ("", ""))
    rocketmq._name_server._entries["SNODE_CONFIG"] = entries
    assert main(["list", where]) == 0
    out = capsys.readouterr().out
    assert out.startswith("mine 10.0.0.5:11911 cluster=- clients=2 age=")
    assert out.count("\n") == 1


def test_a_refusal_of_a_name_server_is_not_an_empty_list_of_nodes(
    rocketmq, monkeypatch, capsys
) -> None:
    def refuse(request):
        raise Refused(16, "no right to look")

    monkeypatch.setitem(rocketmq._name_server._handlers, 219, refuse)
    assert main(["list", address_text(rocketmq.name_server)]) == 1
    assert "no right to look" in capsys.readouterr().err


def ended(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    """Run `main` where argparse ends it; return code, output and errors."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    said = capsys.readouterr()
    return caught.value.code, said.out, said.err


@pytest.mark.parametrize("command", ["", "serve", "list", "completion"])
def test_help_has_examples(command, capsys) -> None:
    code, shown, _ = ended([*command.split(), "--help"], capsys)
    assert code == 0
    assert shown.partition("examples:")[2].count("$ ") >= 2 or command == "completion"
    assert "rocketmq-snode completion fish | source" in shown or command != "completion"


def test_help_imports_nothing_of_the_node() -> None:
    code = (
        "import sys; from rocketmq_snode.command import main\n"
        "try: main(['--help'])\n"
        "finally: print([m for m in ('asyncio', 'pydantic', 'google') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_lists_every_variable_of_the_environment(capsys) -> None:
    shown = ended(["serve", "--help"], capsys)[1]
    for name in SnodeConfig.model_fields.keys() - {"tls"}:
        assert f"SNODE_{name.upper()} " in shown


def test_the_version_is_told(capsys) -> None:
    assert ended(["--version"], capsys)[:2] == ended(["-V"], capsys)[:2] == (0, "0.1.0\n")


def test_a_wrong_word_lists_the_commands(capsys) -> None:
    code, _, said = ended(["lst"], capsys)
    assert code == 2
    assert all(word in said for word in ("serve", "list", "completion"))
    assert said.endswith("; did you mean 'list'?\n")
    assert "did you mean" not in ended(["nonsense"], capsys)[2]
    assert said.count("rocketmq-snode: error:") == 1
    assert "mean 'json' or 'jsonl'?" in ended(["list", "ns1", "-o", "jsno"], capsys)[2]
    assert "COMMAND" in ended([], capsys)[2]


def test_options_are_checked_without_serving(tmp_path, capsys, monkeypatch) -> None:
    path = tmp_path / "snode.toml"
    path.write_text('name_servers = "ns1:9876"\nlisten = "127.0.0.1:12000"\n')
    asked = ["serve", "--config", str(path), "--check-config"]
    assert main(asked) == 0
    assert capsys.readouterr().out == "valid options: the node would listen on 127.0.0.1:12000\n"
    monkeypatch.setenv("SNODE_POOL_SIZE", "0")
    assert main(asked) == 2
    assert "pool_size" in capsys.readouterr().err


def test_nodes_are_listed_as_json(capsys, monkeypatch) -> None:
    entry = {"addr": "10.0.0.5:11911", "cluster": "Lake", "clients": 3, "ts": time.time() * 1000}

    async def known(settings: object) -> dict[str, Any]:
        return {"a": entry, "b": entry, "c": entry | {"cluster": "Other"}}

    monkeypatch.setattr("rocketmq_snode.registry.known_nodes", known)
    row = {"name": "a", "cluster": "Lake", "address": "10.0.0.5:11911", "clients": 3, "age_s": 0}
    assert main(["list", "ns1", "-o", "json", "--cluster", "Lake"]) == 0
    assert json.loads(capsys.readouterr().out) == [row, row | {"name": "b"}]
    assert main(["list", "ns1", "-o", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == row


def test_the_completion_of_bash_completes() -> None:
    script = (
        f'eval "$({sys.executable} -m rocketmq_snode.command completion bash)"\n'
        'complete -p rocketmq-snode; compgen -W "$(complete -p rocketmq-snode '
        '| sed "s/.*-W \'//; s/\'.*//")" -- --ch'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60 * PATIENCE, check=True
    )
    assert done.stdout.splitlines()[-1] == "--check-config"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_word_of_the_help(shell, capsys) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in ("", "serve", "list"):
        shown = ended([*command.split(), "--help"], capsys)[1]
        for option in set(re.findall(r"--[a-z][a-z-]+", shown.partition("examples:")[0])):
            assert option in script
