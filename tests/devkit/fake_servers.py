"""A substitute for `java`: a ZooKeeper, a master and a broker with the launcher's interface only.

Started with the launcher's own command lines and configuration files. `FAKE_TROUBLE` names the
fault: ``zookeeper-exits``, ``zookeeper-silent``, ``broker-refused``, ``broker-stubborn``.
"""

from __future__ import annotations

import configparser
import json
import os
import signal
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

TROUBLE = os.environ.get("FAKE_TROUBLE", "")


def zookeeper(config: Path) -> None:
    if TROUBLE == "zookeeper-exits":
        print("cannot lock the data directory", flush=True)
        sys.exit(3)
    if TROUBLE == "zookeeper-silent":
        print("thinking", flush=True)
        time.sleep(60)
    settings = dict(line.split("=", 1) for line in config.read_text().splitlines())
    with socket.create_server(("127.0.0.1", int(settings["clientPort"]))) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.recv(4)
                connection.sendall(b"imok")


class Master(BaseHTTPRequestHandler):
    """A server that saves its changes, one per line, in ``changes`` next to its configuration."""

    def do_GET(self) -> None:
        words = dict(parse_qsl(urlsplit(self.path).query))
        answer: list[dict[str, object]] = []
        if words["method"] == "admin_query_server_version":
            answer = [{"version": "2.4.0"}]
        elif words["method"] == "admin_query_broker_configure":
            answer = [{"manageStatus": "online"}] if Path("changes").exists() else []
        elif words["method"] == "admin_query_topic_info":
            answer = [{"isSrvAcceptPublish": True, "isSrvAcceptSubscribe": True}]
        elif words.get("topicName") == "refused":
            answer = [{"success": False, "errCode": 407, "errInfo": "numPartitions too big"}]
        else:
            with Path("changes").open("a") as changes:
                changes.write(f"{words['method']} {words.get('topicName', '')}".strip() + "\n")
        body = json.dumps({"result": True, "errCode": 0, "data": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def main() -> None:
    config = Path(sys.argv[-1])
    kind = sys.argv[-2] if sys.argv[-2] != "-f" else sys.argv[-3]
    if kind.endswith("QuorumPeerMain"):
        zookeeper(config)
    ini = configparser.ConfigParser()
    ini.read(config)
    if kind.endswith("MasterStartup"):
        HTTPServer(("127.0.0.1", ini.getint("master", "webPort")), Master).serve_forever()
    if TROUBLE == "broker-refused":
        print("ERROR TubeBroker - Register to master failed!", flush=True)
        time.sleep(60)
    if TROUBLE == "broker-stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with socket.create_server(("127.0.0.1", ini.getint("broker", "port"))):
        time.sleep(60)


if __name__ == "__main__":
    main()
