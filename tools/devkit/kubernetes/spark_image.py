"""What an image of Spark runs when a pod's argument is `executor`: the installed pyspark's classes.

As the entry point that Spark publishes does, it takes all from the pod's environment. Its Python is
this interpreter without this project, and on its PATH under the name ``python3``. Starts nothing.
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
    """An image whose Python is made in `folder`."""
    python = Path(bare_python(folder))
    own = {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home()),
        "PATH": f"{python.parent}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "LANG": "C.UTF-8",
    }

    def run(arguments: Sequence[str], given: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        if list(arguments) != ["executor"]:
            raise ValueError(f"this image runs executors only, not {arguments}")
        numbered = [(found, name) for name in given if (found := _OPTION.fullmatch(name))]
        options = [given[name] for found, name in sorted(numbered, key=lambda at: int(at[0][1]))]
        memory = given["SPARK_EXECUTOR_MEMORY"]
        places = os.pathsep.join(
            filter(None, [given.get("SPARK_CONF_DIR"), f"{spark_home()}/jars/*"])
        )
        command = [f"{java_home}/bin/java", *options, f"-Xms{memory}", f"-Xmx{memory}"]
        command += ["-cp", places, _BACKEND]
        for option, name in _ARGUMENTS.items():
            command += [f"--{option}", given[name]]
        return command, own

    return run
