"""Contents of the executors' zip: everything that their code imports, and little more."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.devkit.patience import PATIENCE
from tubemq_provider.spark.session import spark_artifacts

OURS = (
    *("tubemq_client", "rocketmq_client", "tubemq_provider"),
    *("pyspark_tubemq", "pyspark_rocketmq"),
)
LARGEST = 437 * 1024
LARGER = 535 * 1024
"""Sizes with a second kind of source."""
IMPORT_ALL = """
import sys, zipfile
zipped = sys.argv[1]
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f)]
sys.path[:] = [zipped, *(p for p in sys.path if p not in {"", sys.argv[2]})]
for name in zipfile.ZipFile(zipped).namelist():
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert zipped in __import__(module, fromlist=["x"]).__file__, module
"""


@pytest.fixture(scope="module", params=["tubemq", "rocketmq"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def zipped(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return spark_artifacts(tmp_path_factory.mktemp("zip"), kind=kind)


def imported(source: str) -> set[str]:
    """Return our modules that a source imports, in functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.partition(".")[0] in OURS}


def test_the_zip_is_small(zipped: Path, kind: str) -> None:
    names = zipfile.ZipFile(zipped).namelist()
    assert zipped.stat().st_size <= (LARGEST if kind == "tubemq" else LARGER)
    assert any("rocketmq" in name for name in names) is (kind == "rocketmq")


def test_every_module_of_the_zip_can_be_imported_from_it_alone(zipped: Path) -> None:
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, str(zipped), root],
        cwd=zipped.parent,
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_late_imports_of_the_source_are_in_the_zip_too(zipped: Path) -> None:
    archive = zipfile.ZipFile(zipped)
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name
        for name in archive.namelist()
    }
    rooms = (
        *("tubemq_provider.spark", "tubemq_provider.files"),
        *("pyspark_tubemq", "pyspark_rocketmq"),
    )
    missing = {
        module: sorted(imported(archive.read(name).decode()) - modules.keys())
        for module, name in modules.items()
        if module.startswith(rooms)
    }

    assert {module: names for module, names in missing.items() if names} == {}
