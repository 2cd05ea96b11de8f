#!/usr/bin/env python3
"""Ours and the peers in turn, in one run: speed, ratios, memory. Started by benches/peers/run."""

import argparse
import json
import os
from pathlib import Path

import students
import synthetic
import train_text
import translate
import translate_tables

OF_TEXT = ("translate", "train-text", "students")
# What limits our packed models, and CTranslate2 with its libraries, to these instructions.
INSTRUCTIONS = {
    "avx2": {
        "TRANSFORMER_SIMD": "avx2",
        "CT2_FORCE_CPU_ISA": "AVX2",
        "DNNL_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--work", default=synthetic.WORK[:-1], nargs="+", choices=(*synthetic.WORK, *OF_TEXT),
        help="the last three are on real text, the others on random tokens [default: all of these but train-lengths]")
    add("--rounds", type=int, help="turns of each system [default: 7 on random tokens, otherwise 5, or 3 of large models]")
    add("--threads", type=int, nargs="+", metavar="N", help="one run for each [default: 2; of translate 1 and 2]")
    add("--instructions", choices=INSTRUCTIONS, help="of translate: the newest ones that ours and CTranslate2 may use [default: all]")
    add("--quick", action="store_true", help="fewer rounds, updates and sentences")
    add("--backends", default="ndarray,flex,tch", metavar="A,B,…", type=lambda text: text.split(","),
        help="of ours, but in translate [default: %(default)s]")
    add("--sizes", nargs="+", default=list(synthetic.SIZES), choices=synthetic.SIZES, metavar="BATCHxLENGTH",
        help="of train-lengths, of %(choices)s [default: all]")
    add("--raw", type=Path, metavar="FILE", help="of translate and train-text: file for the raw rounds "
        "[default: .peers/results/WORK-TIME.json]")
    add("--tables", type=Path, nargs="+", metavar="FILE", help="prints the tables of such files, and measures nothing")
    add("--models", nargs="+", default=["small", "base"], choices=("small", "base"), help="of translate and train-text")
    add("--settings", nargs="+", default=list(train_text.PYTORCH), choices=train_text.PYTORCH, metavar="NAME",
        help="of PyTorch in train-text, of %(choices)s [default: all]")
    of_text = parser.add_argument_group("translate")
    add = of_text.add_argument
    add("--model", type=Path, metavar="DIR", help="small model, a directory of ours, in place of the one that is trained "
        "once and kept in .peers/models; its tokenizer is the base model's, too")
    add("--text", type=Path, metavar="TSV", help="sentences and their translations [default: valid.tsv of the small model]")
    add("--sentences", type=int, metavar="N", help="the first N of them [default: all; with --quick 200]")
    add("--program", type=Path, metavar="FILE", help="transformer, built already")
    add("--beams", nargs="+", type=int, default=[1, 4], metavar="N")
    add("--systems", nargs="+", metavar="NAME", choices=[contender.key() for contender in translate.CONTENDERS],
        default=translate.DEFAULT_SYSTEMS, help="of %(choices)s [default: all but those that are not packed]")
    return parser.parse_args()


def print_saved(paths):
    """The tables of earlier runs; several of one work are one."""
    runs = [json.loads(path.read_text()) for path in paths]
    for work, module in (("translate", translate_tables), ("train-text", train_text)):
        of_work = [run for run in runs if run["work"] == work]
        if of_work:
            module.print_tables(of_work)


def main():
    args = parse_args()
    if args.tables:
        print_saved(args.tables)
        return
    os.environ |= INSTRUCTIONS.get(args.instructions, {})
    random_work = [work for work in args.work if work not in OF_TEXT]
    if random_work:
        for threads in args.threads or [2]:
            synthetic.run(random_work, args, threads)
    if "translate" in args.work:
        translate.run(args, args.threads or [1, 2])
    if "train-text" in args.work:
        for threads in args.threads or [2]:
            train_text.run(args, threads)
    if "students" in args.work:
        students.run(args)


if __name__ == "__main__":
    main()
