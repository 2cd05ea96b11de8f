"""The text and the small model that --work translate and --work train-text measure with.

The pairs are those of examples/data. The small model is trained on them once, by train_translation.py, and kept in
.peers/models/small.
"""

import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from systems import HERE, ROOT
from train_translation import SPECIALS, read_pairs

PAIRS = ROOT / "examples/data/tatoeba.en-fr.tsv.gz"
SMALL = ROOT / ".peers/models/small"
VOCAB_SIZE = 8000
HELD_OUT = 1000
# The fewest words of a sentence in each group of lengths. Most sentences of the collection have 4 to 8 words: a file with
# as many of each group is of mixed length.
WORDS = (1, 5, 7, 9, 11, 14)
# Of the recipe for the small model. Its sizes are those of the preset `multi30k`.
RECIPE = {
    "d-model": 128, "layers": 4, "heads": 4, "d-ff": 256, "dropout": 0.2, "updates": 2000, "batch-tokens": 4096,
    "warmup": 800, "peak-rate": 0.003, "projections": "each", "eval-at": "500,1000,1500", "seed": 1,
}


@dataclass
class Text:
    """Sentences to translate, and a translation of each."""

    sources: list[str]
    references: list[str]

    def words(self):
        return sum(len(source.split()) for source in self.sources)

    def first(self, count):
        return Text(self.sources[:count], self.references[:count])


def group(source):
    words = len(source.split())
    return max(index for index, fewest in enumerate(WORDS) if words >= fewest)


def hold_out(pairs, count, seed):
    """The pairs to train on, and `count` to measure with, whose source sentences are in none of the others. A source
    sentence that has several translations is held out with one of them."""
    translations = defaultdict(list)
    for source, target in pairs:
        translations[source].append(target)
    rng = random.Random(seed)
    by_group = defaultdict(list)
    for source in rng.sample(sorted(translations), len(translations)):
        by_group[group(source)].append(source)
    groups = list(by_group.values())
    chosen = [groups[index % len(groups)].pop() for index in range(count)]
    rng.shuffle(chosen)
    held_out = set(chosen)
    rest = [pair for pair in pairs if pair[0] not in held_out]
    return rest, [(source, translations[source][0]) for source in chosen]


def train_tokenizer(texts, path):
    """A byte-level BPE for both languages, as `transformer train` makes it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    # A word has the same pieces at the beginning of a sentence as within it.
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


def prepare_text():
    """The folder of the small model, with the pairs to train on and those held out, and the tokenizer."""
    if not (SMALL / "tokenizer.json").exists():
        SMALL.mkdir(parents=True, exist_ok=True)
        train, valid = hold_out(read_pairs(PAIRS), HELD_OUT, seed=1)
        for name, pairs in (("train.tsv", train), ("valid.tsv", valid)):
            lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
            (SMALL / name).write_text(lines, encoding="utf-8")
        train_tokenizer((text for pair in train for text in pair), SMALL / "unfinished.json")
        (SMALL / "unfinished.json").rename(SMALL / "tokenizer.json")
    return SMALL


def small_model(threads):
    """The directory of the small model, which is trained if there is none."""
    prepare_text()
    if not (SMALL / "model.safetensors").exists():
        import pytorch_model

        print(f"training the small model, which is kept in {SMALL}", flush=True)
        run = SMALL / "pytorch"
        command = [sys.executable, str(HERE / "train_translation.py"), "--threads", str(threads), "--out", str(run)]
        files = {"train": "train.tsv", "valid": "valid.tsv", "tokenizer": "tokenizer.json"}
        flags = RECIPE | {name: SMALL / file for name, file in files.items()}
        command += [part for name, value in flags.items() for part in (f"--{name}", str(value))]
        subprocess.run(command, check=True)
        pytorch_model.write(run, SMALL / "tokenizer.json", SMALL / "unfinished")
        for name in ("config.json", "model.safetensors"):
            os.replace(SMALL / "unfinished" / name, SMALL / name)
        shutil.rmtree(SMALL / "unfinished")
    return SMALL


def read_text(path):
    sources, references = zip(*read_pairs(path))
    return Text(list(sources), list(references))
