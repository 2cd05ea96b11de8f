"""The models of --work translate in the formats of all systems: the small one, and a base model with random weights, which
is made anew in each run."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import synthetic
from systems import HERE, ours

# With the paper's layers, 59 463 680 parameters.
BASE_VOCAB_SIZE = 30_000


@dataclass(frozen=True)
class Model:
    """A model in all formats: `directory` is ours, with CTranslate2's inside; `int8` is ours in 8 bits."""

    name: str
    directory: Path
    int8: Path
    # Tokens of each translation; None where a sentence ends by itself.
    length: int | None


def larger_tokenizer(path, size, out):
    """Writes a byte-level BPE with more entries, which no text has, so that the vocabulary has this size."""
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    if tokenizer["model"]["type"] != "BPE":
        sys.exit(f"error: {path}: a tokenizer of type {tokenizer['model']['type']}; the base model needs BPE")
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary |= {f"entry{id}": id for id in range(len(vocabulary), size)}
    out.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


def convert(name, directory, folder, program, length):
    """A model directory of ours in all formats, below `folder`."""
    copy = folder / name
    if directory != copy:
        copy.mkdir()
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            (copy / file).symlink_to((directory / file).resolve())
    int8 = folder / f"{name}-int8"
    subprocess.run([str(program), "quantize", "--model", str(copy), "--out", str(int8)], check=True)
    script = [sys.executable, str(HERE / "ctranslate2_model.py"), str(copy)]
    subprocess.run([*script, str(copy / "ctranslate2-f32")], check=True)
    subprocess.run([*script, str(copy / "ctranslate2-int8"), "--quantization", "int8"], check=True)
    return Model(name, copy, int8, length)


def base_model(tokenizer, folder, features):
    """Writes the base model with random weights, and the small model's tokenizer with more entries."""
    directory = folder / "base"
    directory.mkdir()
    (directory / "work.json").write_text(json.dumps({**synthetic.sizes(False), "vocab_size": BASE_VOCAB_SIZE}))
    write = ours(features, "ndarray", "write", directory)
    subprocess.run(write, check=True, stdout=subprocess.DEVNULL)
    larger_tokenizer(tokenizer, BASE_VOCAB_SIZE, directory / "tokenizer.json")
    return directory


def mean_length(tokenizer, references):
    """Tokens of a reference, on average."""
    from train_translation import load_tokenizer

    encodings = load_tokenizer(tokenizer).encode_batch(references, add_special_tokens=False)
    return sum(len(encoding.ids) for encoding in encodings) / len(encodings)
