"""--work train-text: updates on batches of real text, ours and PyTorch's.

All systems have the same batches, which hold pairs of similar length, as those of a run do. Ours computes in f32 and with
products in bf16 on each backend. PyTorch's settings, in 32 bits, with their products in bf16 ("medium" precision) or with
bf16 autocast, compiled or not, are first measured alone, because together they need too much memory; the fastest then takes
turns with its plain f32 and with ours. PyTorch computes the logits of real tokens only, as ours do. Marian's training, also
measured alone, makes batches of its own from the same text.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

import marian
import text
from results import Results
from systems import System, build, environment, ours, take_turns, theirs
from train_text_tables import print_tables
from train_translation import cut_batches, encode_pairs, lengths, load_tokenizer, read_pairs

# By their names on the command line.
SIZES = {"small": "128", "base": "512"}
# `updates` are those of one turn.
MODELS = {
    "128": {"d_model": 128, "n_heads": 4, "d_ff": 256, "layers": 4, "batch_tokens": 4096, "updates": 16},
    "512": {"d_model": 512, "n_heads": 8, "d_ff": 2048, "layers": 6, "batch_tokens": 2048, "updates": 6},
}
# PyTorch's settings by their names on the command line: those in the tables, and what is set.
PYTORCH = {
    "f32": ("PyTorch, f32", {}),
    "medium": ("PyTorch, medium precision", {"medium": True}),
    "bf16": ("PyTorch, bf16 autocast", {"bf16": True}),
}
PYTORCH |= {
    f"{key}-compiled": (f"{name}, compiled", setting | {"compile": True}) for key, (name, setting) in PYTORCH.items()
}
PLAIN = "f32"


def batches(pairs, batch_tokens, count):
    """Batches of an epoch, so many, from the shortest pairs to the longest, in random order."""
    rng = random.Random(1)
    epoch = cut_batches(sorted(rng.sample(pairs, len(pairs)), key=lengths), batch_tokens)
    chosen = [epoch[(2 * index + 1) * len(epoch) // (2 * count)] for index in range(count)]
    rng.shuffle(chosen)
    return chosen


def write_work(folder, model, count):
    """Writes train-text.json: a model and batches of pairs, as token ids without <bos> and <eos>."""
    texts = text.prepare_text()
    tokenizer = load_tokenizer(texts / "tokenizer.json")
    pairs = encode_pairs(tokenizer, read_pairs(texts / "train.tsv"))
    chosen = batches(pairs, model["batch_tokens"], count)
    content = {
        "vocab_size": tokenizer.get_vocab_size(),
        "model": {name: model[name] for name in ("d_model", "n_heads", "d_ff", "layers")},
        "batches": [[[source[:-1], target[:-1]] for source, target in batch] for batch in chosen],
    }
    (folder / "train-text.json").write_text(json.dumps(content))


def measure(size, args, threads, features, results):
    """One model: PyTorch's settings alone, then ours and PyTorch in turn."""
    model = MODELS[size]
    with tempfile.TemporaryDirectory() as name, open(Path(name) / "log", "w+") as log:
        folder = Path(name)
        write_work(folder, model, model["updates"] // (2 if args.quick else 1))

        def pytorch(key):
            name, setting = PYTORCH[key]
            flags = ["--setting", json.dumps(setting)]
            command = theirs("theirs_training.py", "pytorch", "train-text", folder, threads, *flags)
            return System(name, command, log, environment(threads))

        def measured(systems, rounds, kind):
            print(f"measuring: d_model {size}, {', '.join(system.name for system in systems)}", file=sys.stderr)
            take_turns(systems, rounds)
            for system in systems:
                results.add(
                    kind=kind,
                    size=size,
                    threads=threads,
                    system=system.name,
                    skipped=system.skipped,
                    turns=system.turns,
                )

        alone = {key: pytorch(key) for key in args.settings}
        for system in alone.values():
            measured([system], 2, "alone")
        fastest = max((key for key, system in alone.items() if not system.skipped), key=lambda key: alone[key].speed())
        systems = [
            System(f"ours, {backend}, {precision}", [*ours(features, backend, "train-text", folder), *flags], log, environment(threads))
            for backend in args.backends
            for precision, flags in (("f32", []), ("bf16", ["--bf16"]))
        ]
        systems += [pytorch(key) for key in dict.fromkeys((PLAIN, fastest))]
        measured(systems, args.rounds or (3 if args.quick else 5), "turns")
        print(f"measuring: d_model {size}, Marian", file=sys.stderr)
        turns = marian.training_speed(model, threads)
        results.add(kind="alone", size=size, threads=threads, system="Marian, f32", skipped=None, turns=turns)


def run(args, threads):
    """Measures, writes the raw rounds and prints the tables."""
    features = ",".join(backend for backend in args.backends if backend != "ndarray")
    build(features)
    results = Results("train-text", args)
    for name in args.models:
        measure(SIZES[name], args, threads, features, results)
    print_tables([results.content])
