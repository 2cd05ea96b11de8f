"""Programs that take turns in one run, each a process of its own, and how they are built and started."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = ("--package", "transformer-benches", "--bench", "peers")
# After this long, threads that wait for work by spinning sleep: OpenMP's do so after 0.2 s.
PAUSE = 0.3


def environment(threads, extra=None):
    """That of a process which computes with so many threads."""
    names = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "MATMUL_NUM_THREADS")
    return os.environ | {name: str(threads) for name in names} | {"HF_HUB_OFFLINE": "1"} | (extra or {})


class System:
    """A program that does the work once for each line on its standard input."""

    def __init__(self, name, command, log, environment=None):
        self.name = name
        self.command = command
        self.environment = environment
        self.log = log
        self.turns = []
        # Memory before the model was read, where the program says it.
        self.start_mib = None
        # Why the program cannot do the work on this machine.
        self.skipped = None

    def start(self):
        """Starts the program, and waits until it is ready."""
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            self.command, stdin=pipe, stdout=pipe, stderr=self.log, text=True, env=self.environment
        )
        ready = self.reply()
        self.start_mib = ready.get("start_mib")
        self.skipped = ready.get("skipped")

    def reply(self):
        """The next line that is JSON; other lines describe the program's backend."""
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.fail()

    def fail(self):
        self.log.flush()
        sys.exit(f"error: {self.name} ended:\n{Path(self.log.name).read_text()}")

    def turn(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.fail()
        self.turns.append(self.reply())

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def speed(self, middle=statistics.median):
        return middle(turn["tokens"] / turn["seconds"] for turn in self.turns)

    def peak_mib(self):
        return max(turn["peak_mib"] for turn in self.turns)

    def targets(self):
        return self.turns[0]["targets"]


def take_turns(systems, rounds):
    """Starts all systems, one after another, and has them do the work in turn. Returns those that can do it."""
    for system in systems:
        system.start()
    able = [system for system in systems if not system.skipped]
    for _ in range(rounds):
        for system in able:
            time.sleep(PAUSE)
            system.turn()
    for system in systems:
        system.end()
    return able


def build(features):
    subprocess.run(["cargo", "bench", *PACKAGE, "--features", features, "--no-run"], check=True, cwd=ROOT)


def build_program(features):
    """The program `transformer` as a user builds it."""
    command = ["cargo", "build", "--release", "--package", "transformer", "--features", features]
    subprocess.run(command, check=True, cwd=ROOT)
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "transformer"


def ours(features, backend, work, directory, *flags):
    command = ["cargo", "bench", "--quiet", *PACKAGE, "--features", features]
    return [*command, "--", "--backend", backend, "--work", work, "--directory", str(directory), *flags]


def theirs(script, system, work, directory, threads, *flags):
    command = [sys.executable, str(HERE / script), system, "--work", work]
    return [*command, "--directory", str(directory), "--threads", str(threads), *flags]


def machine():
    """The processor's name, with the instructions for products that it has."""
    cpu, found = platform.processor(), []
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            cpu = value.strip()
        if name.strip() == "flags":
            known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16")
            found = [flag for flag in known if flag in value.split()]
            break
    return f"{cpu} ({', '.join(found)})" if found else cpu
