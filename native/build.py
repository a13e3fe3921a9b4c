"""Builds the compiled decoder: `python native/build.py` in place, hatchling's hook for wheels.

Without a Rust toolchain, or when building fails, the project works too, only slower; so both print
a line with the reason and continue. `TUBEMQ_NATIVE=0` builds nothing, `TUBEMQ_NATIVE=1`
makes a failure fatal. cargo downloads what Cargo.lock names only, and has `LIMIT_S` seconds.

A library needs the C library of the machine that built it, or a newer one.
`TUBEMQ_NATIVE_GLIBC=2.28` links against that version of glibc instead, with `cargo-zigbuild` (PyPI:
cargo-zigbuild, ziglang); with it, `TUBEMQ_NATIVE_MACHINE=aarch64` builds for another processor, if
the Rust toolchain has its standard library (`rustup target add aarch64-unknown-linux-gnu`).

The file imports hatchling only when hatchling imports it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

LIMIT_S = int(os.environ.get("TUBEMQ_NATIVE_LIMIT_S", "480"))
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MODULE = "tubemq_client/_native.abi3.so"
TARGET = ROOT / ".cache" / "native"
_OLDEST_GLIBC = 17
"""Minor version of the oldest glibc that has a tag for wheels of CPython 3.11."""
LIBRARY = "libtubemq_native.dylib" if sys.platform == "darwin" else "libtubemq_native.so"
MACHINE = os.environ.get("TUBEMQ_NATIVE_MACHINE") or platform.machine()

# The interpreter that loads the module has Python's symbols; linked to libpython it would load only
# where that library of the same version is.
_LINKING = {"PYO3_BUILD_EXTENSION_MODULE": "1"}
if sys.platform == "darwin":
    _LINKING["RUSTFLAGS"] = "-C link-arg=-undefined -C link-arg=dynamic_lookup"
if platform.machine() != MACHINE:
    _LINKING |= {"PYO3_NO_PYTHON": "1", "PYO3_CROSS_PYTHON_VERSION": "3.11"}


class NotBuilt(Exception):
    """The module was not compiled; the text is the reason, in one line."""


def build() -> Path:
    """Compile and return the library's path. Raises `NotBuilt`."""
    if os.environ.get("TUBEMQ_NATIVE") == "0":
        raise NotBuilt("TUBEMQ_NATIVE=0 asks for none")
    if sys.implementation.name != "cpython" or os.name != "posix":
        raise NotBuilt("it is made for CPython on POSIX systems")
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo/bin"))
    if cargo is None:
        raise NotBuilt("no Rust toolchain (cargo) was found")
    command, output = [cargo, "build"], TARGET / "release"
    if glibc := os.environ.get("TUBEMQ_NATIVE_GLIBC"):
        command, output = _zig_build(glibc)
    elif platform.machine() != MACHINE:
        raise NotBuilt("TUBEMQ_NATIVE_MACHINE needs TUBEMQ_NATIVE_GLIBC")
    command += ["--release", "--locked", "--quiet"]
    environment = {"CARGO_NET_RETRY": "1", "CARGO_HTTP_TIMEOUT": "20"} | os.environ
    environment |= {"CARGO_TARGET_DIR": str(TARGET), "PYO3_PYTHON": sys.executable, **_LINKING}
    try:
        subprocess.run(
            command, cwd=HERE, env=environment, check=True, timeout=LIMIT_S, capture_output=True
        )
    except subprocess.TimeoutExpired as error:
        raise NotBuilt(f"cargo took more than {LIMIT_S} s") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["cargo failed"]
        first = next((line for line in lines if line.startswith("error")), lines[0])
        raise NotBuilt(first) from error
    except OSError as error:
        raise NotBuilt(str(error)) from error
    return output / LIBRARY


def _zig_build(glibc: str) -> tuple[list[str], Path]:
    """Return the command that links against an older glibc, and the directory of its output."""
    target = f"{MACHINE}-unknown-linux-gnu"
    zigbuild = shutil.which("cargo-zigbuild")
    if zigbuild is None or sys.platform != "linux":
        raise NotBuilt(
            "TUBEMQ_NATIVE_GLIBC needs Linux and cargo-zigbuild (pip install it, ziglang)"
        )
    return [zigbuild, "zigbuild", "--target", f"{target}.{glibc}"], TARGET / target / "release"


def put_in_place(library: Path) -> None:
    """Copy the library next to the client's modules; running processes keep the old one."""
    target = ROOT / MODULE
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".native-")
    os.close(handle)
    shutil.copyfile(library, name)
    Path(name).chmod(0o755)
    Path(name).replace(target)


def needed_glibc(library: Path) -> int | None:
    """Return N of the newest symbol version GLIBC_2.N that a library names; None: it names none."""
    found = re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", library.read_bytes())
    return max(map(int, found), default=None)


def wheel_tag(library: Path) -> str:
    """Return the tag of every CPython from 3.11 on, on this platform and any glibc that has the
    library's symbols."""
    system = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if sys.platform == "linux" and (needed := needed_glibc(library)) is not None:
        system = f"manylinux_2_{max(needed, _OLDEST_GLIBC)}_{MACHINE}"
    return f"cp311-abi3-{system}"


def main() -> int:
    """Build in place; return 1 only if `TUBEMQ_NATIVE=1` requires the module."""
    try:
        put_in_place(build())
    except NotBuilt as why:
        (ROOT / MODULE).unlink(missing_ok=True)
        print(f"decoder: pure Python ({why})")
        return int(os.environ.get("TUBEMQ_NATIVE") == "1")
    print("decoder: compiled (tubemq_client._native); TUBEMQ_NATIVE=0 turns it off")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # noqa: E402


class NativeHook(BuildHookInterface[Any]):
    """Hook that adds the compiled module and the platform tag to a wheel, if it can be built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the module to a wheel; an editable install gets it from `make`."""
        if version == "editable":
            return
        try:
            library = build()
        except NotBuilt as why:
            if os.environ.get("TUBEMQ_NATIVE") == "1":
                raise
            self.app.display_warning(f"the wheel is pure Python: {why}")
            return
        build_data["force_include"][str(library)] = MODULE
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag(library)
