"""Windows on the genuine server after its disk was emptied, and after a topic was recreated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.system.real import topics
from tests.system.real.pipeline import GROUP, Pipeline, wait_for
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client import ClientSettings, Metadata
from tubemq_client.admin import AdminClient
from tubemq_client.errors import Forbidden, LogRegression

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

SPEC = topics.SPARES[7]


def test_a_recreated_log_is_detected_and_an_epoch_follows_it(
    genuine: GenuineTubeMQ, tmp_path: Path
) -> None:
    pipeline = Pipeline(ClientSettings(masters=(genuine.master_address,)), tmp_path, SPEC.name)
    pipeline.produce(20)
    assert pipeline.cursor_window().total == 20

    # The disk is replaced, and the new log grows past the position.
    genuine.stop_broker()
    emptied = list((genuine.directory / "broker" / "data").glob(f"{SPEC.name}-*"))
    assert emptied
    for store in emptied:
        shutil.rmtree(store)
    genuine.start_broker()
    with Metadata(pipeline.settings) as metadata:
        wait_for(lambda: len(metadata.topic(SPEC.name, GROUP).subscribable) == 2)
        pipeline.produce(60)
        with pytest.raises(LogRegression, match="offsets epoch"):
            pipeline.cursor_window()
        assert pipeline.cursor_window(epoch="second").total == 60

        # The topic is deleted and recreated, and grows past the position again.
        with AdminClient(genuine.master_web, token=genuine.admin_token) as admin:
            admin.delete_topic(SPEC.name, remove_data=True)
            wait_for(lambda: not admin.topics([SPEC.name]))
        genuine.add_topics(SPEC)
        genuine.wait_accepting([SPEC.name])
        wait_for(lambda: len(metadata.topic(SPEC.name, GROUP).subscribable) == 2)
        wait_for(lambda: _accepted(pipeline))
        pipeline.produce(149)
        with pytest.raises(LogRegression, match="offsets epoch"):
            pipeline.cursor_window(epoch="second")
        assert pipeline.cursor_window(epoch="third").total == 150
    assert pipeline.each_once("cursor")


def _accepted(pipeline: Pipeline) -> bool:
    """Return True if a record was accepted: the master announces a topic before its broker knows
    it."""
    try:
        pipeline.produce(1)
    except Forbidden:
        return False
    return True
