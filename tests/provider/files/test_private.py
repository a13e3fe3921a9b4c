"""Directories for this user alone: links, owners of parents, and modes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.engines.applications import Applications
from tubemq_provider.files.private import make_private, refuse_open_to_others
from tubemq_provider.spark import spark_artifacts

pytestmark = pytest.mark.timeout(60)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
STRANGER = 12_345


def test_a_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    root = tmp_path / "above" / "mine"
    make_private(root, subject="work_dir")
    assert root.stat().st_mode & 0o777 == 0o700
    make_private(root, subject="work_dir")


def test_a_link_is_refused_wherever_it_leads(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match="link"):
        Applications(tmp_path / "link")


def test_a_directory_that_others_can_replace_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "mine").mkdir(mode=0o700)
    for root in (shared / "mine", shared / "new"):
        with pytest.raises(ConfigError, match=r"shared.*drwxrwxrwx"):
            Applications(root)
    assert not (shared / "new").exists()
    shared.chmod(0o1777)  # like /tmp: only owners remove what is theirs
    Applications(shared / "mine")


@as_root
def test_a_link_of_another_user_above_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    link = tmp_path / "open" / "link"
    link.symlink_to(tmp_path)
    Applications(link / "mine")
    os.lchown(link, STRANGER, STRANGER)
    with pytest.raises(ConfigError, match="link belongs to user 12345"):
        Applications(link / "mine")


@as_root
def test_a_directory_below_another_users_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "mine").mkdir(parents=True, mode=0o700)
    os.chown(theirs, STRANGER, STRANGER)
    with pytest.raises(ConfigError, match="theirs belongs to user 12345"):
        Applications(theirs / "mine")


def test_a_group_of_ones_own_may_write_above_it_and_another_may_not(tmp_path: Path) -> None:
    group = tmp_path / "group"
    (group / "mine").mkdir(parents=True, mode=0o700)
    group.chmod(0o775)
    Applications(group / "mine")
    if os.geteuid() == 0:
        os.chown(group, 0, STRANGER)
        with pytest.raises(ConfigError, match="drwxrwxr-x"):
            Applications(group / "mine")


def test_artifacts_are_not_put_where_others_can_change_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="directory of artifacts"):
        spark_artifacts(tmp_path)
    with pytest.raises(ConfigError, match="directory of artifacts"):
        refuse_open_to_others(tmp_path / "below", subject="directory of artifacts")
    tmp_path.chmod(0o700)
    assert spark_artifacts(tmp_path).is_file()
