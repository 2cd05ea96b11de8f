"""Marian, by PyPI's pymarian: models of the sizes of ours, with random weights, and its speed of training.

Marian cannot have our weights: its sines have other frequencies, and no embedding begins its decoder. Nor can it be told how
long a translation has to be, only how long it may be for its source. So its models never end a sentence, and the translations
of a batch have as many tokens for each of the longest source as the references have on average.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import text
from systems import HERE, environment
from theirs_text import Pieces, marian_flags
from train_translation import SPECIALS, read_pairs

PROGRAM = Path(sys.executable).with_name("pymarian")
# Of the log: its lines, and those at the beginning that do not count.
LINES, WARM_UP = 12, 4


def training(folder, model, threads, options):
    """The command that trains a model of such a size into model.npz of the folder, on its text."""
    vocabulary = folder / "vocabulary.json"
    options = {
        "type": "transformer",
        "model": folder / "model.npz",
        "train-sets": [folder / "train.source", folder / "train.target"],
        "vocabs": [vocabulary, vocabulary],
        "cpu-threads": threads,
        "dim-emb": model["d_model"],
        "enc-depth": model["layers"],
        "dec-depth": model["layers"],
        "transformer-heads": model["n_heads"],
        "transformer-dim-ffn": model["d_ff"],
        "transformer-ffn-activation": "relu",
        "transformer-dropout": 0.1,
        "transformer-dropout-attention": 0.1,
        "transformer-dropout-ffn": 0.1,
        "label-smoothing": 0.1,
        "learn-rate": 0.0003,
        "optimizer-params": [0.9, 0.98, 1e-9],
        "maxi-batch": 1000,
        "workspace": 4000,
    } | options
    return [str(PROGRAM), "train", "--tied-embeddings-all", *marian_flags(options)]


def run(command):
    """Runs a command, and returns its output and its log. Each of Marian's threads computes by itself."""
    finished = subprocess.run(command, env=environment(1), capture_output=True, text=True)
    if finished.returncode != 0:
        sys.exit(f"error: Marian:\n{finished.stderr}")
    return finished.stdout, finished.stderr


def write_text(folder, tokenizer, pairs):
    """Pairs in pieces, the tokenizer and the vocabulary, in which Marian's <eos> and <unk> come first."""
    (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    pieces = Pieces(folder)
    names = [pieces.names[id] for id in sorted(pieces.names) if id not in SPECIALS.values()]
    names = ["</s>", "<unk>", "<pad>", "<bos>", *names]
    (folder / "vocabulary.json").write_text(json.dumps({name: id for id, name in enumerate(names)}), encoding="utf-8")
    for name, side in zip(("source", "target"), zip(*pairs)):
        lines = "".join(f"{line}\n" for line in pieces.cut(list(side)))
        (folder / f"train.{name}").write_text(lines, encoding="utf-8")


def write_model(directory, pairs):
    """Writes Marian's model of the size of ours into a folder `marian` of the model's directory. `pairs` are those that are
    translated: the lengths of translations are made equal to theirs."""
    import numpy

    folder = directory / "marian"
    folder.mkdir()
    write_text(folder, directory / "tokenizer.json", pairs)
    ours = json.loads((directory / "config.json").read_text())
    model = {"layers": ours["n_encoder_layers"], **{name: ours[name] for name in ("d_model", "n_heads", "d_ff")}}
    run(training(folder, model, 1, {"after": "1u", "mini-batch": 8}))
    weights = dict(numpy.load(folder / "model.npz"))
    # <eos>, which is never chosen.
    weights["decoder_ff_logit_out_b"][0, 0] = -1e9
    numpy.savez(folder / "model.npz", **weights)
    files = {"from": folder / "model.npz", "to": folder / "model-int8.bin", "gemm-type": "intgemm8"}
    run([str(PROGRAM), "convert", *marian_flags(files)])
    # A source has its <eos> in Marian's lengths.
    lengths = [sum(len(line.split()) for line in (folder / f"train.{name}").open()) for name in ("source", "target")]
    factor = lengths[1] / (lengths[0] + len(pairs))
    (folder / "length.json").write_text(json.dumps(factor))


def training_speed(model, threads):
    """Trains for some updates; returns a turn for each line of the log: labels, seconds, and the peak memory."""
    small = text.prepare_text()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder, small / "tokenizer.json", read_pairs(small / "train.tsv"))
        # Updates of a line.
        shown = model["updates"] // 4
        options = {
            "mini-batch-words": model["batch_tokens"],
            "disp-freq": f"{shown}u",
            "after": f"{shown * (LINES + WARM_UP)}u",
        }
        timed = [sys.executable, "-S", "-E", str(HERE / "timed.py"), str(folder / "output")]
        output, log = run([*timed, *training(folder, model, threads, options)])
    peak = json.loads(output)["peak_mib"]
    lines = re.findall(r"\* ([0-9,]+) @ .* Time ([0-9.]+)s", log)[WARM_UP:]
    return [{"tokens": int(labels.replace(",", "")), "seconds": float(seconds), "peak_mib": peak} for labels, seconds in lines]
