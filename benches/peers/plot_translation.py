#!/usr/bin/env python3
"""Draw learning curves of translation runs, ours and PyTorch's, into one SVG.

Ours are log.jsonl in the directories of runs; PyTorch's the curve.tsv of
train_translation.py. Thin lines are the training loss, points the validation loss, both
label-smoothed, in nats per target token. Needs matplotlib. For example:

    python plot_translation.py --ours ours-1/log.jsonl ours-2/log.jsonl \
        --pytorch pytorch-1/curve.tsv pytorch-2/curve.tsv --out curves.svg
"""

import argparse
import csv
import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

WINDOW = 50  # updates in the mean of one point of the training loss


def ours(path):
    """[(update, training loss)], [(update, validation loss)] of a run's log.jsonl."""
    train, valid, update = [], [], 0
    with path.open(encoding="utf-8") as lines:
        for event in map(json.loads, lines):
            if event["event"] == "training":
                first, update = update + 1, event["update"]
                train += [(at, event["loss"]) for at in range(first, update + 1)]
            elif event["event"] == "validation":
                valid.append((event["update"], event["valid_loss"]))
    return train, valid


def pytorch(path):
    """The same of a curve.tsv."""
    train, valid, update = [], [], 0
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["train_loss"]:
                first, update = update + 1, int(row["update"])
                loss = float(row["train_loss"])
                train += [(at, loss) for at in range(first, update + 1)]
            if row["valid_loss_smoothed"]:
                valid.append((int(row["update"]), float(row["valid_loss_smoothed"])))
    return train, valid


def windows(points):
    """Means over windows of updates."""
    sums = {}
    for update, loss in points:
        total, count = sums.get((update - 1) // WINDOW, (0.0, 0))
        sums[(update - 1) // WINDOW] = total + loss, count + 1
    return [((at + 1) * WINDOW, total / count) for at, (total, count) in sorted(sums.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", type=Path, nargs="+", required=True, metavar="LOG")
    parser.add_argument("--pytorch", type=Path, nargs="+", required=True, metavar="TSV")
    parser.add_argument("--out", type=Path, required=True, metavar="SVG")
    args = parser.parse_args()

    plt.rcParams["svg.hashsalt"] = "curves"  # the same runs, the same file
    figure, axes = plt.subplots(figsize=(7, 4))
    for name, read, paths, color, marker in [
        ("PyTorch", pytorch, args.pytorch, "tab:blue", "s"),
        ("ours", ours, args.ours, "tab:red", "o"),
    ]:
        for seed, path in enumerate(paths, 1):
            train, valid = read(path)
            style = {"color": color, "alpha": 1.0 if seed == 1 else 0.55}
            axes.plot(*zip(*windows(train)), linewidth=0.8, **style)
            axes.plot(*zip(*valid), linestyle="", marker=marker, **style,
                      label=f"{name}, seed {seed}")
    axes.set(xlabel="update", ylabel="loss, nats per token", ylim=(2.4, 7), xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(title="validation; lines: training")
    figure.tight_layout()
    figure.savefig(args.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
