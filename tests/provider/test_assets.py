"""Names and URIs of assets: stable, one per meaning, wrong ones refused."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.assets import create_asset, offsets_asset, sanitize_uri, sink_asset
from tubemq_provider.queues.tubemq import TubeMQMessageQueueProvider

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]


def test_offsets_asset_is_named_after_cluster_topic_and_group() -> None:
    asset = offsets_asset("prod", "orders", "lake-1")
    assert asset.name == "tubemq:prod/orders/lake-1"
    assert asset.uri == "tubemq://prod/orders?group=lake-1"


def test_case_is_kept_because_tubemq_distinguishes_it() -> None:
    assert offsets_asset("Prod", "Orders", "Lake").uri == "tubemq://Prod/Orders?group=Lake"


def test_topic_asset_has_no_group() -> None:
    assert create_asset(cluster="prod", topic="orders").uri == "tubemq://prod/orders"


@pytest.mark.parametrize("path", ["/lake/orders", "/lake/orders/", "file:///lake/orders/"])
def test_sink_asset_is_the_same_for_every_spelling(path: str) -> None:
    assert sink_asset(path).uri == "file:///lake/orders"


@pytest.mark.parametrize("uri", ["tubemq://prod/orders/", "tubemq://prod/orders"])
def test_handler_normalises(uri: str) -> None:
    assert sanitize_uri(urlsplit(uri)).geturl() == "tubemq://prod/orders"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("tubemq://m1:8715,m2:8715/orders", "not a cluster alias"),
        ("tubemq://user@prod/orders", "not a cluster alias"),
        ("tubemq://prod", "exactly one topic"),
        ("tubemq://prod/orders/extra", "exactly one topic"),
        ("tubemq://prod/orders?tid=a", "unknown query keys tid"),
        ("tubemq://prod/orders?group=", "group is empty"),
        ("tubemq://prod/orders?group=lake&group=other", "told twice"),
        ("tubemq://prod/orders?group=lake#other", "would have no effect"),
    ],
)
def test_handler_refuses_other_uris(uri: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sanitize_uri(urlsplit(uri))


def test_a_password_in_a_uri_is_not_repeated() -> None:
    uri = "tubemq://loader:s3cret-word@prod/orders"
    with pytest.raises(ValueError, match="not a cluster alias") as caught:
        sanitize_uri(urlsplit(uri))
    assert "s3cret-word" not in str(caught.value)
    with pytest.raises(ConfigError, match="belong into the connection") as refused:
        TubeMQMessageQueueProvider().trigger_kwargs(uri)
    assert "s3cret-word" not in str(refused.value)
