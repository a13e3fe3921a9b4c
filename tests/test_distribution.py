"""The distribution as others get it: the wheel's content, its metadata, and what documents it.

The wheel is built from this checkout with the locked build backend, without isolation or network;
nothing is installed. What the packages do is tested elsewhere.
"""

from __future__ import annotations

import ast
import email
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

import tubemq_client
from tools.devkit.patience import PATIENCE
from tools.scripts import release_check
from tubemq_client.cli.app import load_command

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "tubemq_client",
    "rocketmq_client",
    "rocketmq_snode",
    "tubemq_provider",
    "pyspark_rocketmq",
    "pyspark_tubemq",
)


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60 * PATIENCE,
    )
    (built,) = target.glob("*.whl")
    return zipfile.ZipFile(built)


def metadata(wheel: zipfile.ZipFile, name: str) -> str:
    (member,) = (n for n in wheel.namelist() if n.endswith(f".dist-info/{name}"))
    return wheel.read(member).decode()


def requirement_name(requirement: str) -> str:
    return re.split(r"[\[<>=! ]", requirement, maxsplit=1)[0]


def test_wheel_holds_the_typed_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}

    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_wheel_holds_every_module_of_the_checkout(wheel: zipfile.ZipFile) -> None:
    modules = {
        str(path.relative_to(ROOT)) for top in PACKAGES for path in (ROOT / top).rglob("*.py")
    }

    assert modules <= set(wheel.namelist())


def test_wheel_carries_licence_and_entry_points(wheel: zipfile.ZipFile) -> None:
    parsed: Message = email.message_from_string(metadata(wheel, "METADATA"))

    assert parsed["License-Expression"] == "Apache-2.0"
    assert metadata(wheel, "licenses/LICENSE").lstrip().startswith("Apache License")
    assert "tubemq_provider.get_provider_info" in metadata(wheel, "entry_points.txt")


def test_wheel_names_a_platform_exactly_if_it_holds_the_compiled_decoder(
    wheel: zipfile.ZipFile,
) -> None:
    modules = [name for name in wheel.namelist() if "_native." in name]
    tag = email.message_from_string(metadata(wheel, "WHEEL"))["Tag"]

    assert modules in (
        ["tubemq_client/_native.pyi"],
        ["tubemq_client/_native.pyi", "tubemq_client/_native.abi3.so"],
    )
    assert tag.startswith("cp311-abi3-" if len(modules) == 2 else "py3-none-any")
    assert not [name for name in wheel.namelist() if name.endswith((".rs", "Cargo.toml"))]


@pytest.fixture(scope="module")
def pure_release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the wheel without a toolchain, and the source archive."""
    target = tmp_path_factory.mktemp("release")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(target)],
        cwd=ROOT,
        check=True,
        timeout=60 * PATIENCE,
        env=os.environ | {"TUBEMQ_NATIVE": "0"},
    )
    (wheel,) = target.glob("*-py3-none-any.whl")
    (archive,) = target.glob("*.tar.gz")
    return wheel, archive


def test_without_a_toolchain_the_wheel_is_pure_python(pure_release: tuple[Path, Path]) -> None:
    assert "tubemq_client/_native.abi3.so" not in zipfile.ZipFile(pure_release[0]).namelist()


def test_the_source_archive_can_build_test_and_demo(pure_release: tuple[Path, Path]) -> None:
    wheel, archive = pure_release
    assert release_check.problems_of([wheel], archive) == []


def test_a_release_that_lacks_a_module_is_refused(
    pure_release: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel, archive = pure_release
    less = tmp_path / "x-cp311-abi3-manylinux_2_36_x86_64.whl"
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(less, "w") as written:
        for name in whole.namelist()[1:]:
            written.writestr(name, b"")
    (lacks, glibc) = release_check.problems_of([wheel, less], archive)
    assert "differs" in lacks
    assert "newer glibc than 2.28" in glibc


def test_a_decoder_that_needs_one_release_of_python_is_refused(
    pure_release: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel, archive = pure_release
    linked = tmp_path / "x-cp311-abi3-manylinux_2_28_x86_64.whl"
    shutil.copyfile(wheel, linked)
    with zipfile.ZipFile(linked, "a") as written:
        written.writestr(release_check.NATIVE, b"\0libpython3.11.so.1.0\0")
    (problem,) = release_check.problems_of([wheel, linked], archive)
    assert "linked to one release of Python" in problem


def test_every_extra_has_a_first_command(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"].keys() - {"all"}
    assert {"", *extras} == set(release_check.FIRST)


@pytest.mark.parametrize("extra", release_check.FIRST)
def test_the_first_command_of_an_extra_names_what_there_is(extra: str) -> None:
    for statement in ast.walk(ast.parse(release_check.FIRST[extra])):
        if isinstance(statement, ast.ImportFrom) and (name := statement.module or "").startswith(
            PACKAGES
        ):
            module = importlib.import_module(name)
            assert all(hasattr(module, imported.name) for imported in statement.names)


@pytest.mark.parametrize(
    ("symbols", "system"),
    [
        (b"\0GLIBC_2.2.5\0GLIBC_2.28\0", "manylinux_2_28"),
        (b"\0GLIBC_2.34\0GLIBC_2.4\0", "manylinux_2_34"),
        (b"\0GLIBC_2.2.5\0", "manylinux_2_17"),
    ],
)
def test_the_tag_is_of_the_glibc_that_the_library_needs(
    symbols: bytes, system: str, tmp_path: Path
) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"ELF" + symbols)
    code = (
        "import sys, pathlib; sys.platform = 'linux'; sys.path.insert(0, 'native'); import build\n"
        f"print(build.wheel_tag(pathlib.Path({str(library)!r})))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert told.stdout.startswith(f"cp311-abi3-{system}_")


def test_no_address_is_a_placeholder(project: dict[str, Any]) -> None:
    addresses = project["project"].get("urls", {}).values()
    assert not [one for one in addresses if re.search(r"example\.|your-|localhost|<", one)]
    assert project["project"]["authors"]


def test_the_command_can_serve_with_its_extra(project: dict[str, Any]) -> None:
    cli = project["project"]["optional-dependencies"]["cli"]
    assert "airflow-provider-tubemq[admin,embedded]" in cli


def test_source_archive_holds_what_builds_the_compiled_decoder(
    pure_release: tuple[Path, Path],
) -> None:
    with tarfile.open(pure_release[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "native/Cargo.toml",
        "native/Cargo.lock",
        "native/src/lib.rs",
        "native/build.py",
    } <= names
    assert not [name for name in names if name.endswith(".so") or "target" in name]


def test_version_is_stated_once_more_and_equal(project: dict[str, Any]) -> None:
    crate = tomllib.loads((ROOT / "native/Cargo.toml").read_text())
    assert project["project"]["version"] == tubemq_client.__version__ == crate["package"]["version"]


def test_the_compose_file_runs_what_there_is(project: dict[str, Any]) -> None:
    """No container is started: its commands, folders, extras and connection are those of here."""
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert set(services) == {"airflow", "tubemq"}
    for service in services.values():
        (extras,) = re.findall(r"/src\[(.*)\]", service["build"]["dockerfile_inline"])
        assert set(extras.split(",")) <= project["project"]["optional-dependencies"].keys()
    for volume in services["airflow"]["volumes"]:
        source = volume.partition(":")[0]
        assert source == "state" or (ROOT / source).is_dir()
    program, command, *options = services["tubemq"]["command"].split()
    assert (program, services["airflow"]["command"]) == ("tubemq", "airflow standalone")
    context = load_command(command).make_context(command, options)
    served = context.params
    environment = services["airflow"]["environment"]
    connection = json.loads(environment["AIRFLOW_CONN_TUBEMQ_DEFAULT"])
    assert (connection["conn_type"], connection["port"]) == ("tubemq", served["port"])
    admin = f"http://127.0.0.1:{served['web_port']}"
    assert connection["extra"]["admin_url"] == admin
    assert services["tubemq"]["environment"]["TUBEMQ_ADMIN"] == admin
    assert connection["extra"]["cluster"] in (ROOT / "dags" / "tubemq_on_records.py").read_text()
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["service"] in services
    assert set(container["runServices"]) == set(services)


def test_the_readme_of_the_package_has_no_link_into_the_repository(
    wheel: zipfile.ZipFile,
) -> None:
    text = email.message_from_string(metadata(wheel, "METADATA")).get_payload()
    assert "# airflow-provider-tubemq" in text
    assert "See it work" in text
    assert re.findall(r"\]\((?!https?://)[^)]*\)", str(text)) == []


def test_readme_explains_every_extra(project: dict[str, Any]) -> None:
    readme = (ROOT / "README.md").read_text()
    extras = project["project"]["optional-dependencies"]

    assert [name for name in extras if f"| `{name}` |" not in readme] == []


@pytest.mark.parametrize(
    ("name", "least"),
    [("protobuf", "6.31"), ("pydantic", "2.9"), ("pyarrow", "22")],
)
def test_the_oldest_version_that_works_is_declared_and_told(
    project: dict[str, Any], name: str, least: str
) -> None:
    """protobuf has `FieldDescriptor.is_repeated`, which typed rows need, since 6.31; pyarrow finds
    the columns of all files since 22. `make test-python-matrix` runs these versions."""
    arrow = project["project"]["optional-dependencies"]["arrow"]
    declared = [*project["project"]["dependencies"], *arrow]
    (found,) = [one for one in declared if requirement_name(one) == name]

    assert found.split(",")[0] == f"{name}>={least}"
    assert f"| {name} | {least} or newer" in (ROOT / "README.md").read_text()


def test_every_dependency_has_its_reason(project: dict[str, Any]) -> None:
    record = (ROOT / "docs/adr/0002-one-distribution-three-packages.md").read_text()
    declared = [
        *project["project"]["dependencies"],
        *(r for extra in project["project"]["optional-dependencies"].values() for r in extra),
        *(r for group in project["dependency-groups"].values() for r in group),
    ]
    names = {requirement_name(requirement) for requirement in declared}
    names.discard("airflow-provider-tubemq")

    assert sorted(name for name in names if name not in record) == []


@pytest.mark.parametrize(
    "lock",
    [
        "requirements/all.lock",
        "requirements/java.lock",
        "requirements/demo.lock",
        "requirements/kafka.lock",
    ],
)
def test_lock_files_are_hashed_and_name_no_index(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    pinned = [line for line in lines if re.match(r"[a-z0-9]", line)]

    assert pinned
    assert all("==" in line and line.endswith("\\") for line in pinned)
    assert [line for line in lines if "://" in line or "index" in line.split("==")[0]] == []
