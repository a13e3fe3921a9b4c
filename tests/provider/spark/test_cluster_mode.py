"""A window whose driver shares only an object store with the task, by a fake `spark-submit` that
ships files as YARN does. A genuine YARN: `test_on_yarn`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.spark_submit import fake_spark_home
from tests.provider.engines import fake_cluster_submit
from tests.provider.spark.jobs import Window
from tests.provider.spark.test_submit_on_cluster import bodies, nothing_is_left, said
from tests.provider.spark.world import World

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

SECRET = "hush-hush"
CONF = {
    "spark.master": "yarn",
    "spark.submit.deployMode": "cluster",
    "spark.yarn.tags": "mine",
    "spark.hadoop.yarn.resourcemanager.webapp.address": "127.0.0.1:1",
}


def test_order_and_result_of_a_driver_elsewhere_go_through_manager_and_store(
    world: World, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(40)
    fake = Path(fake_cluster_submit.__file__)
    monkeypatch.setenv("SPARK_HOME", str(fake_spark_home(tmp_path, fake)))
    (tmp_path / "hadoop").mkdir()
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "hadoop"))
    work = tmp_path / "work"
    window = Window(
        world,
        "s3://lake/elsewhere",
        lake,
        engine="submit",
        spark_conf=CONF,
        spark_work_dir=str(work),
    )
    seen: list[str] = []

    def look(point: str) -> None:
        if point == "application":
            seen.extend(said(work))
            seen.append((work / "node" / "spark.conf").read_text())

    result = window.run(look)
    assert result.total == 40
    assert bodies(window) == window.expected()
    conf = dict(line.split(" ", 1) for line in seen[-1].splitlines())
    assert conf["spark.yarn.maxAppAttempts"] == "1"
    assert conf["spark.yarn.tags"].startswith(f"mine,tubemq-{result.window_id}-".lower())
    assert len(seen) > 4
    assert not [text[:200] for text in seen if SECRET in text]
    assert "cluster_main" in (work / "node" / "program.py").read_text()
    shutil.rmtree(work / "node")
    assert nothing_is_left(window, result.window_id or "", work)
