#!/usr/bin/env python3
"""Train a Transformer for translation with PyTorch's own nn.Transformer, on the CPU.

The peer of this project's translation training: the same data, tokenizer, recipe and
measures, so that the learning curves can be laid side by side. The recipe is that of
"Attention Is All You Need": post-norm layers, one matrix for both embeddings and the
output projection, sinusoidal positions, label smoothing, Adam with the warm-up schedule.

Where nn.Transformer departs from the paper it is left as people use it:
  - biases in the attention projections;
  - dropout also on the attention weights and inside the feed-forward block;
  - a LayerNorm after the last layer of either stack (LayerNorm epsilon 1e-5).
Only its initialization is replaced (see `Translator.reset_parameters`).

Needs torch, numpy, tokenizers, sacrebleu and safetensors. For example:

    python train_translation.py --train train.tsv.gz --valid valid.tsv \
        --tokenizer tokenizer.json --updates 2000 --eval-at 500,1000,2000 \
        --bleu-sentences 500 --threads 2 --out runs/pytorch-seed1 --seed 1

With --save-every, a run that was stopped continues where it was last saved when the same
command is given again, with the updates that it would have made.

Writes to --out:
  curve.json         settings, versions and every measurement
  log.jsonl          the measurements, which `transformer curves` draws
  hypotheses.txt     the greedy translations behind the final BLEU, one per line
                     (hypotheses.N.txt for those asked for after update N)
  model.safetensors  the final parameters; model.N.safetensors those after update N, with
                     --keep
  training.pt        the state of an unfinished run, with --save-every
"""

import argparse
import gzip
import itertools
import json
import math
import os
import random
import time
from pathlib import Path

import sacrebleu
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers import __version__ as tokenizers_version
from torch import nn

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = {"<pad>": PAD, "<bos>": BOS, "<eos>": EOS, "<unk>": UNK}
REPORT_EVERY = 50
DECODE_ROWS = 100
DECODE_EXTRA = 50


# Data


def read_pairs(path):
    """The (source, target) texts of a tab-separated file, plain or gzip."""
    opener = gzip.open if path.suffix == ".gz" else open
    pairs = []
    with opener(path, "rt", encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) != 2:
                raise ValueError(f"{path}:{number}: {len(fields)} fields, expected 2")
            pairs.append(tuple(fields))
    if not pairs:
        raise ValueError(f"{path}: no pairs")
    return pairs


def load_tokenizer(path):
    tokenizer = Tokenizer.from_file(str(path))
    for token, expected in SPECIALS.items():
        if tokenizer.token_to_id(token) != expected:
            raise ValueError(f"{path}: {token} must have id {expected}")
    tokenizer.encode_special_tokens = True  # "<eos>" in a text is plain text
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def encode_pairs(tokenizer, pairs):
    """Piece ids of either side, each with <eos> at its end."""

    def encode(texts):
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids + [EOS] for encoding in encodings]

    sources, targets = zip(*pairs)
    return list(zip(encode(sources), encode(targets)))


def cut_batches(pairs, batch_tokens):
    """Cut into runs whose padded size is at most `batch_tokens` on either side."""
    batches, batch, longest = [], [], 0
    for source, target in pairs:
        longest = max(longest, len(source), len(target))
        if batch and (len(batch) + 1) * longest > batch_tokens:
            batches.append(batch)
            batch, longest = [], max(len(source), len(target))
        batch.append((source, target))
    batches.append(batch)
    return batches


def lengths(pair):
    """Sort key: the longer side, which limits a batch, then target and source."""
    source, target = pair
    return max(len(source), len(target)), len(target), len(source)


def training_batches(pairs, batch_tokens, rng):
    """Batches of pairs of like length, in random order, epoch after epoch, for ever."""
    while True:
        epoch = rng.sample(pairs, len(pairs))
        epoch.sort(key=lengths)
        batches = cut_batches(epoch, batch_tokens)
        rng.shuffle(batches)
        yield from batches


def pad(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def to_tensors(batch):
    """Source, decoder input (<bos> + target) and labels (target + <eos>)."""
    sources, labels = zip(*batch)
    inputs = [[BOS] + row[:-1] for row in labels]
    return pad(sources), pad(inputs), pad(labels)


# Model


def sinusoids(length, d_model):
    position = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    table = torch.empty(length, d_model)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table


class Translator(nn.Module):
    def __init__(self, vocab, d_model, layers, heads, d_ff, dropout, positions, projections):
        super().__init__()
        self.projections = projections
        self.scale = math.sqrt(d_model)
        self.embedding = nn.Embedding(vocab, d_model)  # source, target and generator
        self.register_buffer("positions", sinusoids(positions, d_model), persistent=False)
        self.dropout = nn.Dropout(dropout)
        self.transformer = nn.Transformer(
            d_model=d_model,
            nhead=heads,
            num_encoder_layers=layers,
            num_decoder_layers=layers,
            dim_feedforward=d_ff,
            dropout=dropout,
            activation="relu",
            batch_first=True,
            norm_first=False,
        )
        self.reset_parameters()

    def reset_parameters(self):
        """Xavier-uniform matrices, zero biases, N(0, 1/d_model) embeddings.

        nn.MultiheadAttention packs the query, key and value projections into one
        matrix. PyTorch draws it as one, which makes its entries smaller by the square
        root of 2 than those of three matrices drawn each by its own fan-in and fan-out.
        """
        for name, parameter in self.transformer.named_parameters():
            if name.endswith("in_proj_weight") and self.projections == "each":
                for projection in parameter.chunk(3):
                    nn.init.xavier_uniform_(projection)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        nn.init.normal_(self.embedding.weight, std=self.embedding.embedding_dim**-0.5)

    def embed(self, ids):
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.size(1)])

    def encode(self, source):
        return self.transformer.encoder(
            self.embed(source), src_key_padding_mask=source == PAD
        )

    def decode(self, target, memory, source):
        width = target.size(1)
        future = torch.ones(width, width, dtype=torch.bool, device=target.device).triu(1)
        return self.transformer.decoder(
            self.embed(target),
            memory,
            tgt_mask=future,
            tgt_is_causal=True,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
        )

    def generate(self, states):
        return F.linear(states, self.embedding.weight)

    def forward(self, source, target):
        return self.generate(self.decode(target, self.encode(source), source))


# Training and evaluation


def learning_rate(step, d_model, warmup, peak=None):
    """The paper's schedule, or the same curve with another rate at its peak."""
    scale = d_model**-0.5 if peak is None else peak * warmup**0.5
    return scale * min(step**-0.5, step * warmup**-1.5)


@torch.inference_mode()
def validate(model, pairs, batch_tokens, smoothing):
    """Nats per target token over all pairs, with label smoothing and without, and accuracy in percent."""
    model.eval()
    smoothed = plain = 0.0
    tokens = right = 0
    for batch in cut_batches(sorted(pairs, key=lengths), batch_tokens):
        source, inputs, labels = to_tensors(batch)
        logits = model(source, inputs).flatten(0, 1)
        labels = labels.flatten()

        def total(label_smoothing):
            return F.cross_entropy(
                logits,
                labels,
                ignore_index=PAD,
                label_smoothing=label_smoothing,
                reduction="sum",
            ).item()

        smoothed += total(smoothing)
        plain += total(0.0)
        tokens += (labels != PAD).sum().item()
        right += ((logits.argmax(-1) == labels) & (labels != PAD)).sum().item()
    model.train()
    return smoothed / tokens, plain / tokens, 100 * right / tokens


def decode_limit(source):
    """The most pieces greedy decoding gives a source that ends in <eos>."""
    return len(source) - 1 + DECODE_EXTRA


@torch.inference_mode()
def translate(model, sources):
    """Greedy translations (piece ids, without <bos> and <eos>), in the order given."""
    model.eval()
    outputs = [None] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for start in range(0, len(order), DECODE_ROWS):
        rows = order[start : start + DECODE_ROWS]
        source = pad([sources[i] for i in rows])
        memory = model.encode(source)
        target = torch.full((len(rows), 1), BOS)
        while rows:
            logits = model.generate(model.decode(target, memory, source)[:, -1])
            logits[:, [PAD, BOS]] = -math.inf
            target = torch.cat([target, logits.argmax(-1, keepdim=True)], dim=1)
            going = []
            for k, i in enumerate(rows):
                if target[k, -1] == EOS:
                    outputs[i] = target[k, 1:-1].tolist()
                elif target.size(1) - 1 >= decode_limit(sources[i]):
                    outputs[i] = target[k, 1:].tolist()
                else:
                    going.append(k)
            if len(going) < len(rows):
                rows = [rows[k] for k in going]
                source, memory, target = source[going], memory[going], target[going]
    model.train()
    return outputs


def score(model, tokenizer, sources, references, path):
    """Corpus BLEU of the greedy translations, which are written to `path`."""
    started = time.perf_counter()
    texts = tokenizer.decode_batch(translate(model, sources))
    hypotheses = [" ".join(text.splitlines()) for text in texts]
    path.write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
    bleu = sacrebleu.metrics.BLEU()
    result = bleu.corpus_score(hypotheses, [references])
    return {
        "bleu": result.score,
        "bleu_detail": str(result),
        "bleu_signature": str(bleu.get_signature()),
        "decode_s": time.perf_counter() - started,
    }


class Curve:
    """The measurements of a run; the files are rewritten at each one."""

    def __init__(self, folder, about):
        self.folder = folder
        self.about = about
        self.records = []

    def add(self, **record):
        self.records.append(record)
        content = {**self.about, "curve": self.records}
        (self.folder / "curve.json").write_text(json.dumps(content, indent=1) + "\n")
        lines = "".join(json.dumps(line) + "\n" for line in log_lines(self.records))
        (self.folder / "log.jsonl").write_text(lines)


def log_lines(records):
    """The measurements as the events of `transformer train`; null is what was not measured."""
    update = tokens = 0
    for record in records:
        at = {"update": record["update"], "skipped": 0, "seconds": record["elapsed_s"]}
        if "train_loss" in record:
            yield at | {
                "event": "training",
                "updates": record["update"] - update,
                "tokens": record["target_tokens"] - tokens,
                "loss": record["train_loss"],
                "perplexity": None,
                "accuracy": None,
                "learning_rate": record["lr"],
                "tokens_per_second": record["tokens_per_s"],
                "gradient_norm": None,
            }
            update, tokens = record["update"], record["target_tokens"]
            loss = record["train_loss"]
        else:
            yield at | {
                "event": "validation",
                "train_tokens": tokens,
                "train_loss": loss,
                "valid_loss": record["valid_loss_smoothed"],
                "valid_nll": record["valid_loss_plain"],
                "valid_accuracy": record["valid_accuracy"],
                "numbers": {"BLEU": record["bleu"]} if "bleu" in record else {},
            }


def say(text):
    print(text, flush=True)


def updates_list(text):
    """Update numbers separated by commas; the empty string is none."""
    return sorted({int(part) for part in text.split(",") if part.strip()})


def parse_args():
    parser = argparse.ArgumentParser(
        description="Train nn.Transformer for translation on the CPU.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--train", type=Path, required=True, metavar="TSV", help="source<TAB>target, or .gz")
    add("--valid", type=Path, required=True, metavar="TSV", help="source<TAB>target, or .gz")
    add("--tokenizer", type=Path, required=True, metavar="JSON", help="tokenizer.json")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for the results")
    add("--seed", type=int, default=1, help="of parameters, dropout and batch order")
    add("--threads", type=int, default=2, help="CPU threads")
    add("--updates", type=int, default=2000)
    add("--batch-tokens", type=int, default=2048, help="rows x longest row, either side")
    add("--max-len", type=int, default=128, help="leave out training pairs with more pieces")
    add("--warmup", type=int, default=800, help="updates of rising learning rate")
    add("--peak-rate", type=float, help="rate at the end of the warm-up (default: the paper's)")
    add("--projections", choices=["packed", "each"], default="packed", help="how W^Q, W^K and W^V are drawn")
    add("--label-smoothing", type=float, default=0.1)
    add("--d-model", type=int, default=256)
    add("--layers", type=int, default=3, help="in the encoder and in the decoder")
    add("--heads", type=int, default=4)
    add("--d-ff", type=int, default=1024)
    add("--dropout", type=float, default=0.1)
    add("--eval-at", type=updates_list, default="500,1000,2000", metavar="N,N,...",
        help="updates after which to validate, besides the last")
    add("--bleu-sentences", type=int, default=0, metavar="N",
        help="translate the first N of --valid for BLEU; 0: none")
    add("--autocast", action="store_true", help="compute in bf16 where PyTorch's autocast does")
    add("--save-every", type=int, default=0, metavar="N",
        help="updates between saved states, from which a run continues; 0: none")
    add("--keep", action="store_true", help="keep the parameters of every evaluation")
    add("--bleu-at", type=updates_list, default="", metavar="N,N,...",
        help="updates after which to measure BLEU, besides the last")
    args = parser.parse_args()
    if args.updates < 1 or args.warmup < 1:
        parser.error("--updates and --warmup must be at least 1")
    if args.save_every % REPORT_EVERY:
        parser.error(f"--save-every must be a multiple of {REPORT_EVERY}")
    if args.d_model % 2:
        parser.error("--d-model must be even")
    if args.batch_tokens < args.max_len + 1:
        parser.error("--batch-tokens must hold one row of --max-len pieces and <eos>")
    return args


def main():
    args = parse_args()
    os.environ.setdefault("RAYON_NUM_THREADS", str(args.threads))  # the tokenizer's
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    # Evaluation runs the same code as training, without fused inference kernels.
    torch.backends.mha.set_fastpath_enabled(False)
    args.out.mkdir(parents=True, exist_ok=True)

    tokenizer = load_tokenizer(args.tokenizer)
    everything = encode_pairs(tokenizer, read_pairs(args.train))
    train = [p for p in everything if max(map(len, p)) <= args.max_len + 1]
    if not train:
        raise ValueError(f"{args.train}: no pair within --max-len {args.max_len}")
    valid_texts = read_pairs(args.valid)
    valid = encode_pairs(tokenizer, valid_texts)
    bleu_sources = [source for source, _ in valid[: args.bleu_sentences]]
    references = [target for _, target in valid_texts[: args.bleu_sentences]]

    longest = max(len(side) for pair in train + valid for side in pair)
    positions = max([longest] + [decode_limit(source) for source in bleu_sources])
    model = Translator(
        tokenizer.get_vocab_size(),
        args.d_model,
        args.layers,
        args.heads,
        args.d_ff,
        args.dropout,
        positions,
        args.projections,
    )
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    parameters = sum(p.numel() for p in model.parameters())

    about = {
        "settings": {k: v.name if isinstance(v, Path) else v for k, v in vars(args).items()},
        "versions": {
            "torch": torch.__version__,
            "tokenizers": tokenizers_version,
            "sacrebleu": sacrebleu.__version__,
        },
        "parameters": parameters,
        "train_pairs": len(train),
        "train_pairs_left_out": len(everything) - len(train),
        "valid_pairs": len(valid),
        "valid_target_tokens": sum(len(target) for _, target in valid),
    }
    del everything
    say(
        f"{len(train)} training pairs ({about['train_pairs_left_out']} left out), "
        f"{len(valid)} validation pairs, {parameters} parameters"
    )

    curve = Curve(args.out, about)
    saved = args.out / "training.pt"
    batches = training_batches(train, args.batch_tokens, random.Random(args.seed))
    evaluate_at = {*args.eval_at, *args.bleu_at, args.updates}
    bleu_at = {*args.bleu_at, args.updates} if bleu_sources else set()
    elapsed = 0.0  # training only
    all_tokens = 0
    window_loss, window_tokens, window_elapsed = 0.0, 0, 0.0  # since the last report
    made = 0
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        if state["settings"] != json.dumps(about["settings"]):
            raise ValueError(f"{saved}: of a run with other settings")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        made, elapsed, all_tokens = state["update"], state["elapsed"], state["tokens"]
        curve.records = json.loads(state["curve"])
        say(f"continues after update {made}")

    model.train()
    batches = itertools.islice(batches, made, None)
    for update in range(made + 1, args.updates + 1):
        started = time.perf_counter()
        source, inputs, labels = to_tensors(next(batches))
        lr = learning_rate(update, args.d_model, args.warmup, args.peak_rate)
        for group in optimizer.param_groups:
            group["lr"] = lr
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.autocast):
            logits = model(source, inputs).flatten(0, 1)
        loss = F.cross_entropy(
            logits.float(),
            labels.flatten(),
            ignore_index=PAD,
            label_smoothing=args.label_smoothing,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tokens = (labels != PAD).sum().item()
        window_loss += loss.item() * tokens
        window_tokens += tokens
        all_tokens += tokens
        seconds = time.perf_counter() - started
        elapsed += seconds
        window_elapsed += seconds

        if update % REPORT_EVERY == 0 or update == args.updates:
            train_loss = window_loss / window_tokens
            speed = window_tokens / window_elapsed
            window_loss, window_tokens, window_elapsed = 0.0, 0, 0.0
            say(f"update {update}  loss {train_loss:.4f}  lr {lr:.3e}  {speed:.0f} tokens/s")
            curve.add(
                update=update,
                elapsed_s=elapsed,
                target_tokens=all_tokens,
                tokens_per_s=speed,
                lr=lr,
                train_loss=train_loss,
            )

        if update in evaluate_at:
            smoothed, plain, accuracy = validate(
                model, valid, args.batch_tokens, args.label_smoothing
            )
            record = {
                "valid_loss_smoothed": smoothed,
                "valid_loss_plain": plain,
                "valid_accuracy": accuracy,
            }
            say(
                f"update {update}  valid {smoothed:.4f} smoothed, {plain:.4f} plain  "
                f"after {elapsed:.1f} s of training, {all_tokens / elapsed:.0f} tokens/s"
            )
            if update in bleu_at:
                name = "hypotheses.txt" if update == args.updates else f"hypotheses.{update}.txt"
                record |= score(model, tokenizer, bleu_sources, references, args.out / name)
                say(
                    f"update {update}  {record['bleu_detail']}  "
                    f"{record['bleu_signature']}  {record['decode_s']:.1f} s"
                )
            curve.add(
                update=update,
                elapsed_s=elapsed,
                target_tokens=all_tokens,
                tokens_per_s=all_tokens / elapsed,
                **record,
            )
            if args.keep and update < args.updates:
                save_file(model.state_dict(), args.out / f"model.{update}.safetensors")

        if args.save_every and update % args.save_every == 0 and update < args.updates:
            state = {
                "settings": json.dumps(about["settings"]),
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "rng": torch.get_rng_state(),
                "update": update,
                "elapsed": elapsed,
                "tokens": all_tokens,
                "curve": json.dumps(curve.records),
            }
            torch.save(state, saved.with_suffix(".new"))
            saved.with_suffix(".new").replace(saved)

    saved.unlink(missing_ok=True)
    save_file(model.state_dict(), args.out / "model.safetensors")


if __name__ == "__main__":
    main()
