"""Work on random tokens: training of batches without padding, and decoding of sources of one length."""

import json
import random
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from systems import HERE, System, build, environment, machine, ours, take_turns, theirs

DECODING = ("greedy", "beam")
WORK = ("train-base", "train-small", *DECODING, "train-lengths")
LENGTHS, BATCHES = (32, 128, 512, 2048), (1, 8, 64)
# Weights of attention in a layer, rows · length², that PyTorch keeps: with more it takes over 24 GB.
MOST_WEIGHTS = 8 * 1024**2
MOST_TOKENS = 16_384
# By rows and length.
SIZES = {
    f"{rows}x{length}": (rows, length)
    for rows in BATCHES
    for length in LENGTHS
    if rows * length <= MOST_TOKENS and rows * length**2 <= MOST_WEIGHTS
}


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
    for name, (rows, length) in SIZES.items():
        updates = max(1, 1024 // (rows * length))
        training[f"train-{name}"] = {**base, "rows": rows, "len": length, "updates": updates}
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


def measure(work, args, threads, features, directory, only=None):
    """All systems in turn, or one of them alone."""
    with open(directory / "log", "w+") as log:
        commands = {
            f"ours, {backend}": ours(features, backend, work, directory)
            for backend in args.backends
            if only in (None, backend)
        }
        commands |= {
            system: theirs("theirs.py", system, work, directory, threads)
            for system in peers(work)
            if only in (None, system)
        }
        systems = [System(name, command, log, environment(threads)) for name, command in commands.items()]
        return take_turns(systems, args.rounds or (3 if args.quick else 7))


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


def print_lengths(args, threads, features, directory):
    """Tokens per second of the base model, and ours by PyTorch's. One system after another: together
    they do not fit into memory."""
    names = [f"ours, {backend}" for backend in args.backends]
    print("| training, base model, batch × length | " + " | ".join([*names, "pytorch"]) + " |")
    print("|---|" + "---|" * (len(names) + 1))
    for size in args.sizes:
        work = f"train-{size}"
        alone = [measure(work, args, threads, features, directory, only) for only in [*args.backends, "pytorch"]]
        systems = [system for (system,) in alone]
        reference = systems[-1]
        cells = []
        for system in systems:
            ratio = "" if system is reference else f" ({system.speed() / reference.speed():.2f})"
            cells.append(f"{system.speed():.0f}{ratio}, {system.peak_mib():.0f} MiB")
        print(f"| {size.replace('x', ' × ')} | " + " | ".join(cells) + " |", flush=True)


def run(works, args, threads):
    """Measures, and prints the tables."""
    features = ",".join(backend for backend in args.backends if backend != "ndarray")
    build(features)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "work.json").write_text(json.dumps(sizes(args.quick)))
        if set(DECODING) & set(works):
            write = ours(features, args.backends[0], "write", directory)
            subprocess.run(write, check=True, stdout=subprocess.DEVNULL)
            convert = [sys.executable, str(HERE / "ctranslate2_model.py")]
            subprocess.run([*convert, name, str(directory / "ctranslate2")], check=True)
        rounds = args.rounds or (3 if args.quick else 7)
        print(f"{date.today()}, {machine()}, {threads} threads, medians of {rounds} rounds\n")
        for work in works:
            if work == "train-lengths":
                print_lengths(args, threads, features, directory)
                continue
            systems = measure(work, args, threads, features, directory)
            print(table(work, systems), end="\n\n", flush=True)
