#!/usr/bin/env python3
"""Splits sentence pairs into training, validation and test sets without a common source sentence.

    benches/quality/split_pairs.py pairs.tsv.gz --words 8-30 --train 29000 --out data

writes data/train.tsv, data/valid.tsv and data/test.tsv. The same file and settings give the same sets.
"""

import argparse
import gzip
import random
from pathlib import Path


def words(text):
    """The range of `8-30`."""
    first, last = map(int, text.split("-"))
    return range(first, last + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path, help="source<TAB>target per line, plain or gzip")
    parser.add_argument("--words", type=words, default="1-100", help="words of each side [default: %(default)s]")
    parser.add_argument("--train", type=int, help="training pairs [default: all others]")
    parser.add_argument("--valid", type=int, default=1000, help="validation pairs [default: %(default)s]")
    parser.add_argument("--test", type=int, default=1000, help="test pairs [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="of the order [default: %(default)s]")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()

    lines = gzip.open if args.pairs.suffix == ".gz" else open
    targets = {}
    with lines(args.pairs, "rt", encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 2:
                parser.error(f"{args.pairs}:{number}: {len(fields)} fields, expected 2")
            source, target = fields
            if all(len(side.split()) in args.words for side in (source, target)):
                targets.setdefault(source, []).append(target)
    sources = sorted(targets)
    order = random.Random(args.seed)
    order.shuffle(sources)
    valid, others = sources[: args.valid], sources[args.valid :]
    test, rest = others[: args.test], others[args.test :]
    train = [(source, target) for source in rest for target in targets[source]]
    order.shuffle(train)
    count = len(train) if args.train is None else args.train
    if not 1 <= count <= len(train):
        parser.error(f"{args.pairs} leaves {len(train)} training pairs, not {count}")
    args.out.mkdir(parents=True, exist_ok=True)
    held_out = [[(source, targets[source][0]) for source in part] for part in (valid, test)]
    for name, pairs in zip(("train", "valid", "test"), (train[:count], *held_out)):
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (args.out / f"{name}.tsv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
