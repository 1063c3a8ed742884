# SPDX-License-Identifier: Apache-2.0
"""Run Apache Kafka on this machine: one node, no ZooKeeper, on a loopback port.

    python examples/online_learning/kafka/broker.py run --directory DIRECTORY --port 9092

The broker needs Java 17 and Maven, which downloads the jars in pom.xml (about 40 MB) the first
time. The broker never outlives the program that started it, even if the program is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

__all__ = ["Broker", "missing_tools", "resolve"]

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "mindspore_rec"
LARGEST_MESSAGE = 32 << 20

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={logs}
auto.create.topics.enable=false
message.max.bytes={largest}
replica.fetch.max.bytes={largest}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
# A killed broker's successor waits this long to be let in.
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
"""


def missing_tools() -> str:
    """Return a broker's missing requirement (Java 17 or later, Maven in the path), or ""."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"{tool} is not in the path; Kafka needs Java 17 and Maven"
    completed = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', completed.stderr)
    if version is None or int(version.group(1)) < 17:
        return f"Kafka needs Java 17 or later, and java is {completed.stderr.splitlines()[:1]}"
    return ""


def resolve() -> str:
    """Download missing jars through Maven, and return the class path of the broker.

    Raises:
        RuntimeError: Java or Maven is missing, or Maven failed.
    """
    digest = hashlib.sha256((HERE / "pom.xml").read_bytes()).hexdigest()[:16]
    remembered = CACHE / f"kafka-{digest}.classpath"
    if remembered.exists():
        path = remembered.read_text(encoding="utf-8").strip()
        if all(Path(jar).exists() for jar in path.split(":")):
            return path
    reason = missing_tools()
    if reason:
        raise RuntimeError(reason)
    CACHE.mkdir(parents=True, exist_ok=True)
    written = CACHE / f"kafka-{digest}.{os.getpid()}.partial"
    command = ["mvn", "-q", "-B", "-ntp", "-f", str(HERE / "pom.xml")]
    goals = ["dependency:build-classpath", f"-Dmdep.outputFile={written}"]
    done = subprocess.run(command + goals, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not written.exists():
        raise RuntimeError(f"Maven could not fetch Kafka:\n{done.stdout[-2000:]}{done.stderr}")
    os.replace(written, remembered)
    return remembered.read_text(encoding="utf-8").strip()


class Broker:
    """Broker that keeps its data in a directory, so a restart loses no data.

    Args:
        directory: directory for data, settings and log; made if missing.
        port: port of 127.0.0.1; 0 chooses a free port, which stays the same after a restart
            (default 0).
        memory: maximum heap, in Java's notation (default 512m).

    Attributes:
        address: host and port for clients.
    """

    def __init__(self, directory: str | os.PathLike[str], port: int = 0, memory: str = "512m"):
        self.directory = Path(directory).absolute()
        self.port = port or _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._controller = _free_port()
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout: float = 240.0) -> Broker:
        """Start the broker and wait until it answers.

        Raises:
            RuntimeError: Java or Maven is missing or fails, or the broker runs already, has ended,
                or is not ready within `timeout` seconds.
        """
        if self._process is not None:
            raise RuntimeError(f"the broker at {self.address} runs already")
        classpath = resolve()
        settings = self._prepare(classpath)
        log = self.directory / "broker.log"
        begin = log.stat().st_size if log.exists() else 0
        java = [*self._java(classpath), "kafka.Kafka", str(settings)]
        with open(log, "ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "_child", str(os.getpid()), *java],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # a Ctrl-C in the terminal is for us to handle
            )
        self._wait_ready(log, begin, time.monotonic() + timeout)
        return self

    def stop(self, timeout: float = 30.0) -> None:
        """End the broker cleanly, or by force after `timeout` seconds."""
        self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        """End the broker at once, like a crash."""
        self._end(signal.SIGKILL, 10.0)

    @property
    def pid(self) -> int | None:
        """Id of the running process, or None."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Broker:
        return self if self._process is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _java(self, classpath: str) -> list[str]:
        flags = [f"-Xmx{self._memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += ["-Xshare:auto", "-Djava.awt.headless=true"]
        logging = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        return ["java", *flags, logging, "-cp", classpath]

    def _prepare(self, classpath: str) -> Path:
        """Write the settings, and format the data directory if it is not formatted yet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        data, settings = self.directory / "data", self.directory / "server.properties"
        text = SETTINGS.format(
            port=self.port, controller=self._controller, logs=data, largest=LARGEST_MESSAGE
        )
        settings.write_text(text, encoding="utf-8")
        if not (data / "meta.properties").exists():
            tool = [*self._java(classpath), "kafka.tools.StorageTool", "format"]
            arguments = ["-t", "bWluZHNwb3JlX3JlY19rZg", "-c", str(settings)]
            done = subprocess.run(tool + arguments, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"Kafka could not format {data}:\n{done.stdout}{done.stderr}")
        return settings

    def _wait_ready(self, log: Path, begin: int, deadline: float) -> None:
        assert self._process is not None
        while True:
            with open(log, "rb") as file:
                file.seek(begin)
                output = file.read().decode(errors="replace")
            if "Kafka Server started" in output:
                return
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                what = "ended while starting" if ended else "is not ready in time"
                raise RuntimeError(f"the broker {what}; the end of {log}:\n{output[-2000:]}")
            time.sleep(0.05)

    def _end(self, number: signal.Signals, timeout: float) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _become(parent: int, command: list[str]) -> None:
    """Replace this process by a command that the kernel ends when the parent process ends."""
    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == parent:  # else it is gone already
        os.execvp(command[0], command)


def _run(directory: Path, port: int) -> None:
    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    with Broker(directory, port) as broker:
        print(f"ready at {broker.address}; data in {broker.directory}; Ctrl-C ends it", flush=True)
        try:
            while broker._process is not None and broker._process.poll() is None:
                time.sleep(0.2)
            raise SystemExit(f"the broker ended; see {broker.directory / 'broker.log'}")
        except KeyboardInterrupt:
            print("stopping", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> None:
    """Run the command."""
    if arguments[:1] == ["_child"]:
        _become(int(arguments[1]), arguments[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("resolve", help="fetch the jars and print the class path")
    run = commands.add_parser("run", help="start a broker and keep it until Ctrl-C")
    run.add_argument("--directory", type=Path, required=True, help="for data, settings and log")
    run.add_argument("--port", type=int, default=9092, help="of 127.0.0.1; 0 is a free one")
    options = parser.parse_args(arguments)
    try:
        print(resolve()) if options.command == "resolve" else _run(options.directory, options.port)
    except RuntimeError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
