"""A simulated Spark image: the command for a pod's argument `executor`, with the installed pyspark.

Like the entry point that Spark publishes, it takes everything from the pod's environment. Its
Python is this interpreter without this project, and on its PATH as ``python3``. Starts nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.devkit.kubernetes.node import Image
from tools.devkit.spark import bare_python, spark_home

__all__ = ["spark_image"]

_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_ARGUMENTS: Final = {
    "driver-url": "SPARK_DRIVER_URL",
    "executor-id": "SPARK_EXECUTOR_ID",
    "cores": "SPARK_EXECUTOR_CORES",
    "app-id": "SPARK_APPLICATION_ID",
    "hostname": "SPARK_EXECUTOR_POD_IP",
    "resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "podName": "SPARK_EXECUTOR_POD_NAME",
}


def spark_image(folder: Path, java_home: Path) -> Image:
    """Return an image whose Python is created in `folder`."""
    python = Path(bare_python(folder))
    own = {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home()),
        "PATH": f"{python.parent}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "LANG": "C.UTF-8",
    }

    def run(
        arguments: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        if list(arguments) != ["executor"]:
            raise ValueError(f"this image runs executors only, not {arguments}")
        numbered = [(match, name) for name in environment if (match := _OPTION.fullmatch(name))]
        options = [environment[name] for _, name in sorted(numbered, key=lambda at: int(at[0][1]))]
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        classpath = os.pathsep.join(
            filter(None, [environment.get("SPARK_CONF_DIR"), f"{spark_home()}/jars/*"])
        )
        command = [f"{java_home}/bin/java", *options, f"-Xms{memory}", f"-Xmx{memory}"]
        command += ["-cp", classpath, _BACKEND]
        for option, name in _ARGUMENTS.items():
            command += [f"--{option}", environment[name]]
        return command, own

    return run
