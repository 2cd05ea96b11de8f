"""Firefox's students by ours and by fxtranslate, a Rust engine for these models alone: whole processes in turn."""

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TEXT = ROOT / "examples/data/tatoeba.en-fr.tsv.gz"
# Every ninth distinct English sentence.
STEP = 9


def sentences(count):
    lines = gzip.open(TEXT, "rt", encoding="utf-8").read().splitlines()
    distinct = dict.fromkeys(line.split("\t")[0] for line in lines)
    return list(distinct)[STEP - 1 :: STEP][:count]


def build():
    """The two programs."""
    subprocess.run([ROOT / "scripts/setup-models"], check=True)
    ours = ["cargo", "build", "--release", "--package", "transformer", "--features", "flex"]
    subprocess.run(ours, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    theirs = ["cargo", "build", "--release", "--manifest-path", HERE / "fxtranslate/Cargo.toml", "--target-dir", target / "peers"]
    subprocess.run(theirs, check=True)
    return target / "release/transformer", target / "peers/release/fxtranslate-peer"


def timed(command, text, environment):
    """Seconds and peak memory in MiB of a process."""
    with tempfile.NamedTemporaryFile() as output:
        command = [sys.executable, HERE / "timed.py", output.name, *command]
        process = subprocess.run(
            list(map(str, command)), input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | environment
        )
        if process.returncode or output.read().count(b"\n") != text.count(b"\n"):
            raise SystemExit(f"error: {command[3]} ended with {process.returncode}")
    turn = json.loads(process.stdout)
    return turn["seconds"], turn["peak_mib"]


def run(args):
    ours, theirs = build()
    model = ROOT / ".models/en-pt"
    lines = sentences(200 if args.quick else None)
    text = "".join(f"{line}\n" for line in lines)
    rounds = args.rounds or 5
    translate = [ours, "translate", "--backend", "flex", "--model", model]
    # What a row is called, its text, our flags, and their sentences per batch. A batch of few tokens has one sentence.
    works = [
        ("batches", text, [], 64),
        ("one by one", text, ["--batch-tokens", 1], 1),
        ("the first sentence alone", f"{lines[0]}\n", [], 1),
    ]
    print(f"{len(lines)} sentences, {len(text.split())} words, whole processes: medians of {rounds} turns\n")
    print("| | ours | ours, AVX2 | fxtranslate 0.5 | ratio | ratio, AVX2 |\n|---|---|---|---|---|---|")
    for threads in (1, 2):
        ours_alone = {"RAYON_NUM_THREADS": str(threads)}
        for name, of_work, flags, of_batch in works:
            systems = [
                ([*translate, *flags], ours_alone),
                ([*translate, *flags], ours_alone | {"TRANSFORMER_SIMD": "avx2"}),
                ([theirs, model, of_batch, threads], {}),
            ]
            turns = [[] for _ in systems]
            for _ in range(rounds):
                for (command, environment), of_system in zip(systems, turns):
                    of_system.append(timed(command, of_work.encode(), environment))
            seconds = [statistics.median(seconds for seconds, _ in of_system) for of_system in turns]
            named = f"{name}, {threads} {'thread' if threads == 1 else 'threads'}"
            if of_work is text:
                row(f"{named}, words/s", [len(of_work.split()) / of_system for of_system in seconds])
            else:
                row(f"{named}, ms", [1000 * of_system for of_system in seconds])
            row(f"{named}, peak MiB", [max(mib for _, mib in of_system) for of_system in turns])


def row(name, values):
    ours, avx2, theirs = values
    cells = [name, *(f"{value:.0f}" for value in values), f"{ours / theirs:.2f}", f"{avx2 / theirs:.2f}"]
    print("| " + " | ".join(cells) + " |", flush=True)
