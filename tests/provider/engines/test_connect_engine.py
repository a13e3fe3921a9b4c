"""Checks of the engine connect that need no server; the rest is in spark/test_connect."""

from __future__ import annotations

import pytest

from tubemq_client import ClientSettings
from tubemq_client.errors import ConfigError
from tubemq_provider.engines import connect
from tubemq_provider.engines.connect import ConnectEngine, close_session
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import IngestWatch, Staging

pytest.importorskip("pyspark.sql.connect.session", exc_type=ImportError)

PLAN = WindowPlan.explicit(WindowScope("local", "orders", "etl", "/lake"), {"1:0": (0, 28)})


@pytest.mark.parametrize(
    ("remote", "words"),
    [
        ("http://c1/;token=hush", "must start with 'sc://'"),
        ("sc://c1/path;token=hush", "must be empty"),
        ("sc:///;token=hush", "Hostname is missing"),
        ("sc://c1/;token=hush;colour", "key-value pair"),
        ("sc://c1:99999/;token=hush", "out of range"),
        ("sc://c1:99999/;user_id=me;authorization=Bearer%20hush;x-api-key=hush", "user_id=me"),
    ],
)
def test_the_error_for_a_wrong_address_hides_its_token(
    remote: str, words: str, tmp_path: object
) -> None:
    engine = ConnectEngine(ClientSettings((("127.0.0.1", 1),)), remote=remote)
    with pytest.raises(ConfigError, match=words) as caught:
        engine.ingest(PLAN, Staging("w-1", "try-1", str(tmp_path)), IngestWatch())
    assert "hush" not in str(caught.value)
    engine.stop()


@pytest.mark.timeout(60)
def test_a_session_whose_server_is_gone_is_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.connect.session import SparkSession

    monkeypatch.setattr("tubemq_provider.engines.connect._RETRIES", 1)
    session = SparkSession(connection="sc://127.0.0.1:1")
    close_session(session)
    assert session.is_stopped


def test_an_error_without_a_message_hides_no_other() -> None:
    assert connect._error_line(EOFError()) == "EOFError()"


def test_spark_s_own_writer_is_refused() -> None:
    with pytest.raises(ConfigError, match="direct_write='off'"):
        ConnectEngine(ClientSettings((("127.0.0.1", 1),)), remote="sc://c1", direct_write="off")
