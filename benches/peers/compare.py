#!/usr/bin/env python3
"""Ours and the peers in turn, in one run: tokens per second, ratios, memory. Started by
benches/peers/run."""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = ("--package", "transformer-benches", "--bench", "peers")
WORK = ("train-base", "train-small", "greedy", "beam", "train-lengths")
LENGTHS, BATCHES = (32, 128, 512), (1, 8, 64)
# 64 × 512 takes more than 24 GB, ours and PyTorch's.
MOST_TOKENS = 16_384


def peers(work):
    """The systems that ours is compared with; ratios are to the first."""
    return ["pytorch"] if work.startswith("train") else ["ctranslate2", "transformers"]


def sizes(quick):
    """The work of all systems: work.json."""
    rng = random.Random(1)
    vocab_size, eos = 10_000, 2
    base = {"d_model": 512, "n_heads": 8, "d_ff": 2048, "layers": 6}
    small = {"d_model": 256, "n_heads": 4, "d_ff": 1024, "layers": 3}
    updates = 1 if quick else 3
    training = {
        "train-base": {**base, "rows": 16, "len": 32, "updates": updates},
        "train-small": {**small, "rows": 64, "len": 32, "updates": updates},
    }
    for length in LENGTHS:
        for rows in BATCHES:
            updates = max(1, 1024 // (rows * length))
            size = {**base, "rows": rows, "len": length, "updates": updates}
            training[f"train-{rows}x{length}"] = size
    return {
        "vocab_size": vocab_size,
        "sources": [[rng.randrange(4, vocab_size) for _ in range(24)] + [eos] for _ in range(16)],
        "new_tokens": 32,
        "beam": 4,
        "training": training,
    }


TITLES = {
    "train-base": "training, base model, batch 16 × 32",
    "train-small": "training, d_model 256, 3+3 layers, batch 64 × 32",
    "greedy": "greedy decoding, base model, batch 16, 25 source and 32 new tokens",
    "beam": "beam 4, the same",
}


class System:
    """A program that does the work once for each line on its standard input."""

    def __init__(self, name, command, log):
        self.name = name
        self.turns = []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        self.log = log

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


def ours(features, backend, work, directory):
    command = ["cargo", "bench", "--quiet", *PACKAGE, "--features", features]
    return [*command, "--", "--backend", backend, "--work", work, "--directory", str(directory)]


def theirs(system, work, directory, threads):
    command = [sys.executable, str(HERE / "theirs.py"), system, "--work", work]
    return [*command, "--directory", str(directory), "--threads", str(threads)]


def measure(work, args, features, directory, only=None):
    """All systems in turn, or one of them alone."""
    with open(directory / "log", "w+") as log:
        systems = [
            System(f"ours, {backend}", ours(features, backend, work, directory), log)
            for backend in args.backends
            if only in (None, backend)
        ]
        for system in peers(work):
            if only in (None, system):
                systems.append(System(system, theirs(system, work, directory, args.threads), log))
        for system in systems:
            system.reply()
        for _ in range(args.rounds):
            for system in systems:
                # Wait until the threads of the one before sleep.
                time.sleep(0.3)
                system.turn()
        for system in systems:
            system.end()
    return systems


def table(work, systems):
    reference = next(system for system in systems if system.name == peers(work)[0])
    rows = [
        f"| {TITLES[work]} | tokens/s | lowest–highest | ours / {reference.name} | peak MiB |",
        "|---|---|---|---|---|",
    ]
    for system in systems:
        ratio = f"{system.speed() / reference.speed():.2f}"
        if not system.name.startswith("ours"):
            ratio = ""
        spread = f"{system.speed(min):.0f}–{system.speed(max):.0f}"
        rows.append(
            f"| {system.name} | {system.speed():.0f} | {spread} | {ratio} | {system.peak_mib():.0f} |"
        )
    if reference.targets():
        expected = reference.targets()
        alike = [
            f"{system.name} {sum(a == b for a, b in zip(system.targets(), expected))}"
            for system in systems
            if system is not reference
        ]
        rows.append(f"\nTargets equal to {reference.name}'s, of {len(expected)}: {', '.join(alike)}.")
    return "\n".join(rows)


def print_lengths(args, features, directory):
    """Tokens per second of the base model, and ours by PyTorch's. One system after another: together
    they do not fit into memory."""
    names = [f"ours, {backend}" for backend in args.backends]
    print("| training, base model, batch × length | " + " | ".join([*names, "pytorch"]) + " |")
    print("|---|" + "---|" * (len(names) + 1))
    for rows, length in ((rows, length) for rows in BATCHES for length in LENGTHS):
        if rows * length > MOST_TOKENS:
            continue
        work = f"train-{rows}x{length}"
        alone = [measure(work, args, features, directory, only) for only in [*args.backends, "pytorch"]]
        systems = [system for (system,) in alone]
        reference = systems[-1]
        cells = []
        for system in systems:
            ratio = "" if system is reference else f" ({system.speed() / reference.speed():.2f})"
            cells.append(f"{system.speed():.0f}{ratio}, {system.peak_mib():.0f} MiB")
        print(f"| {rows} × {length} | " + " | ".join(cells) + " |", flush=True)


def machine():
    cpu = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", default="ndarray,flex,tch", metavar="A,B,…",
                        type=lambda text: text.split(","), help="of ours [default: %(default)s]")
    parser.add_argument("--work", default=WORK[:-1], nargs="+", choices=WORK,
                        help="[default: all but train-lengths]")
    parser.add_argument("--rounds", type=int, help="turns of each system [default: 7]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="in five minutes: 3 rounds, 1 update")
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 7)

    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "MATMUL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    features = ",".join(backend for backend in args.backends if backend != "ndarray")
    build = ["cargo", "bench", *PACKAGE, "--features", features, "--no-run"]
    subprocess.run(build, check=True)

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "work.json").write_text(json.dumps(sizes(args.quick)))
        if {"greedy", "beam"} & set(args.work):
            write = ours(features, args.backends[0], "write", directory)
            subprocess.run(write, check=True, stdout=subprocess.DEVNULL)
            convert = [sys.executable, str(HERE / "ctranslate2_model.py")]
            subprocess.run([*convert, name, str(directory / "ctranslate2")], check=True)
        print(f"{date.today()}, {machine()}, {args.threads} threads, medians of {args.rounds} rounds\n")
        for work in args.work:
            if work == "train-lengths":
                print_lengths(args, features, directory)
                continue
            print(table(work, measure(work, args, features, directory)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
