#!/usr/bin/env python3
"""The peers' side of --work train-text: makes the updates of train-text.json in --directory once for each line of standard
input, and prints their duration in JSON."""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from theirs import turns
from train_translation import EOS, PAD, Translator, learning_rate, to_tensors


class Training:
    """PyTorch's nn.Transformer in training. Logits are computed where there is a label."""

    def __init__(self, work, setting, device):
        self.device = device
        size = work["model"]
        self.batches = [
            [(source + [EOS], target + [EOS]) for source, target in batch] for batch in work["batches"]
        ]
        longest = max(len(side) for batch in self.batches for pair in batch for side in pair)
        self.model = Translator(
            work["vocab_size"], size["d_model"], size["layers"], size["n_heads"], size["d_ff"], 0.1, longest, "each"
        ).to(device)
        self.model.train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.bf16 = setting.get("bf16", False)
        self.states = self.decode
        if setting.get("compile"):
            # Lengths that are equal in the first batch are not so in others.
            torch.fx.experimental._config.use_duck_shape = False
            self.states = torch.compile(self.decode, dynamic=True)
        self.updates = 0

    def decode(self, source, inputs):
        return self.model.decode(inputs, self.model.encode(source), source)

    def loss(self, source, inputs, labels):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            has_label = labels != PAD
            logits = self.model.generate(self.states(source, inputs)[has_label])
            return F.cross_entropy(logits, labels[has_label], label_smoothing=0.1)

    def work(self):
        """One turn: an update with each batch."""
        tokens = 0
        for batch in self.batches:
            source, inputs, labels = (side.to(self.device) for side in to_tensors(batch))
            self.updates += 1
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.updates, self.model.embedding.embedding_dim, 4000)
            loss = self.loss(source, inputs, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()
            tokens += (labels != PAD).sum().item()
        return tokens, []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=("pytorch",))
    parser.add_argument("--work", choices=("train-text",), required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--setting", type=json.loads, default={}, help="bf16, medium, compile")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    if args.setting.get("medium"):
        # Factors of f32 products are rounded to bf16, where the processor has such products.
        torch.set_float32_matmul_precision("medium")
    training = Training(json.loads((args.directory / "train-text.json").read_text()), args.setting, args.device)
    if args.setting.get("compile"):
        try:
            training.work()
        except Exception as error:  # whatever the compiler lacks on this machine
            reason = str(error).strip().splitlines()[0]
            print(json.dumps({"skipped": f"torch.compile: {type(error).__name__}: {reason}"}), flush=True)
            return
    turns(training.work)


if __name__ == "__main__":
    main()
