#!/usr/bin/env python3
"""Write tests/fixtures/malicious.pt: a state dict that makes Python run a command when it is loaded
without `weights_only`. The command is `true`.

    python3 tests/pytorch/make_malicious.py
"""

import os
import pathlib

import torch

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"


class Command:
    def __reduce__(self):
        return os.system, ("true",)


if __name__ == "__main__":
    torch.save({"embedding.weight": torch.zeros(2, 2), "x": Command()}, FIXTURES / "malicious.pt")
