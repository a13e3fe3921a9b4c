"""Object stores that are mounted as directories: found out by what they cannot do, and refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.provider.sinks.windows import plan_of, publish
from tubemq_client.errors import ConfigError
from tubemq_provider.files import mounts
from tubemq_provider.files.mounts import mount_of
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sinks.parquet import ParquetSink
from tubemq_provider.testing.sink_suite import rows_of, written_by

LISTED = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
90 27 0:55 / /mnt/a\\040lake rw,nosuid - fuse.s3fs s3fs rw,user_id=0
91 27 0:56 / /mnt/a\\040lake/ceph rw - fuse.ceph-fuse ceph-fuse rw
92 27 0:57 / /mnt/over rw - ext4 /dev/vdb rw
93 92 0:58 / /mnt/over rw - fuse mountpoint-s3 rw
a line that is cut
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mnt/a lake/orders", "fuse.s3fs"),
        ("/mnt/a lake", "fuse.s3fs"),
        ("/mnt/a lakeside", "ext4"),
        ("/mnt/a lake/ceph/orders", "fuse.ceph-fuse"),
        ("/mnt/over/x", "fuse"),
        ("/srv/orders", "ext4"),
    ],
)
def test_the_mount_of_a_path_is_the_nearest(path: str, kind: str) -> None:
    found = mount_of(Path(path), LISTED)
    assert found is not None
    assert found.kind == kind


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the kernel list a root as a FUSE mount."""
    listed = tmp_path / "mountinfo"
    root = str(tmp_path / "lake").replace(" ", "\\\\040")
    lines = ["27 1 254:0 / / rw - ext4 /dev/vda rw", f"90 27 0:55 / {root} rw - fuse goofys rw"]
    listed.write_text("\n".join(lines))
    judge = mounts.refuse_object_mounts
    monkeypatch.setattr(
        "tubemq_provider.sinks.parquet.refuse_object_mounts",
        lambda place: judge(place, mounts=listed),
    )
    return tmp_path / "lake"


def test_a_mounted_object_store_is_refused_with_the_way_out(
    mounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_hard_links(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "as s3fs, gcsfuse and others answer")

    sink = ParquetSink(mounted)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_hard_links)
        with pytest.raises(ConfigError, match="without hard links") as refused:
            sink.begin(plan_of(sink), "a")
    assert "give the store's own address (s3://" in str(refused.value)
    assert list(mounted.iterdir()) == []
    other = sink_for(str(tmp_path / "disk"))
    assert publish(other, plan_of(other)).won
    assert rows_of(other) == written_by("a")


def test_file_systems_with_hard_links_are_used_whatever_they_are_called(mounted: Path) -> None:
    sink = ParquetSink(mounted)
    assert publish(sink, plan_of(sink)).won
    assert rows_of(sink) == written_by("a")
    assert not list(mounted.glob(".probe-*"))


def test_a_boundary_that_is_read_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The try that made it may have died before its name was forced there; after a power cut it
    would be resolved again, otherwise than those who read it planned."""
    sink = ParquetSink(tmp_path / "lake")
    key = "20261121T120000Z-0123456789"
    sink.boundaries.fix(key, {"v": 1})
    forced: list[str] = []

    def fsync(descriptor: int) -> None:
        forced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", fsync)
    assert sink.boundaries.read(key) == {"v": 1}
    assert forced == [str(tmp_path / "lake" / "_boundaries")]
