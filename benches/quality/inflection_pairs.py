#!/usr/bin/env python3
"""Writes the files of SIGMORPHON's inflection tasks as pairs for configs/inflection.toml.

    benches/quality/inflection_pairs.py hun_small.train > train.tsv

reads lemma<TAB>form<TAB>features (2022), or lemma<TAB>features<TAB>form with --features-second (2023), and writes the features
in brackets and the letters of the lemma, a tab, and the letters of the form:

    beszél<TAB>beszéltek<TAB>V;IND;PST;NOM(3,PL)
    [V] [IND] [PST] [NOM] [3] [PL] b e s z é l<TAB>b e s z é l t e k
"""

import argparse
import re
import sys
from pathlib import Path

SPACE = "_"


def letters(word):
    return " ".join(word.replace(" ", SPACE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--features-second", action="store_true", help="the order of 2023")
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")
    for number, line in enumerate(args.file.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        fields = line.rstrip("\r").split("\t")
        if len(fields) != 3:
            parser.error(f"{args.file}:{number}: {len(fields)} fields, expected 3")
        lemma, form, features = fields
        if args.features_second:
            form, features = features, form
        features = " ".join(f"[{feature}]" for feature in re.findall(r"[^;(),+]+", features))
        print(f"{features} {letters(lemma)}\t{letters(form)}")


if __name__ == "__main__":
    main()
