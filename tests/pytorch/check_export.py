#!/usr/bin/env python3
"""Check that PyTorch loads the files that transformer-core exports, and computes the same from them.

For each fixture, both exported files are loaded with `load_state_dict(strict=True)` into the classes
of systems.py, run in double precision, and compared with the outputs that PyTorch computed for the
fixture; the weights themselves must be those of the fixture, bit for bit. Exits 1 otherwise. Needs
PyTorch and safetensors.

    cargo run --release -p parity -- --export exported tests/fixtures/*
    python3 tests/pytorch/check_export.py exported tests/fixtures/*
"""

import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file

sys.dont_write_bytecode = True
import systems  # noqa: E402

BOUND = 2e-5


def load(path):
    if path.suffix == ".safetensors":
        return load_file(path)
    return torch.load(path, weights_only=True)


def outputs(model, io):
    if isinstance(model, systems.EncoderLayer):
        y, weights = model(io["x"].double(), io["key_blocked"])
        return {"y": y, "attention_weights": weights}
    memory = model.encode(io["src"])
    logits = model.project(model.decode(io["tgt"], memory, io["src"]))
    return {"memory": memory, "logits": logits}


def check(exported, fixture):
    """A line about the file, and whether it is as it should be."""
    config = json.loads((fixture / "config.json").read_text())
    # Not in inference mode: nn.Transformer's shortcuts for it are not the reference.
    model = systems.SYSTEMS[config["system"]](config).train()
    weights = load(exported)
    model.load_state_dict(weights, strict=True)
    original = load_file(fixture / "weights.safetensors")
    parameters = [name for name in original if name in dict(model.named_parameters())]
    same = sum(torch.equal(weights[name], original[name]) for name in parameters)
    io = load_file(fixture / "io.safetensors")
    found = outputs(model.double(), io)
    errors = {name: (x - io[name]).abs().max().item() for name, x in found.items()}
    listed = ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
    line = f"{exported}: {same} of {len(parameters)} parameters bit for bit; {listed}"
    return line, same == len(parameters) and max(errors.values()) <= BOUND


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("exported", type=pathlib.Path, help="the directory that --export was given")
    parser.add_argument("fixtures", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    good = True
    for fixture in args.fixtures:
        for file in ("weights.pt", "weights.safetensors"):
            line, passed = check(args.exported / fixture.name / file, fixture)
            print(line if passed else f"{line}  FAILED")
            good &= passed
    sys.exit(not good)


if __name__ == "__main__":
    main()
