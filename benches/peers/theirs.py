#!/usr/bin/env python3
"""The peers' side of benches/peers/run: does one kind of work once for each line of standard input, and
prints its duration in JSON."""

import argparse
import json
import sys
import time
from pathlib import Path


def peak_mib():
    """The most memory that the process has had."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def turns(work):
    """Does the work for each line, after one run that is not measured."""
    work()
    print("{}", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        tokens, targets = work()
        seconds = time.perf_counter() - start
        turn = {"seconds": seconds, "tokens": tokens, "peak_mib": peak_mib(), "targets": targets}
        print(json.dumps(turn), flush=True)


def ctranslate2_decoder(directory, sizes, beam, threads):
    import ctranslate2

    translator = ctranslate2.Translator(
        str(directory / "ctranslate2"), compute_type="float32", inter_threads=1, intra_threads=threads
    )
    vocabulary = json.loads((directory / "ctranslate2" / "shared_vocabulary.json").read_text())
    ids = {token: id for id, token in enumerate(vocabulary)}
    sources = [[vocabulary[token] for token in source] for source in sizes["sources"]]

    def work():
        results = translator.translate_batch(
            sources,
            beam_size=beam,
            min_decoding_length=sizes["new_tokens"],
            max_decoding_length=sizes["new_tokens"],
        )
        targets = [[ids[token] for token in result.hypotheses[0]] for result in results]
        return sum(map(len, targets)), targets

    return work


def marian(directory):
    """A model directory of ours as Hugging Face's Marian, and its configuration."""
    from safetensors.torch import load_file
    from transformers import MarianConfig, MarianMTModel

    ours = json.loads((directory / "config.json").read_text())
    d_model = ours["d_model"]
    config = MarianConfig(
        vocab_size=ours["src_vocab_size"],
        d_model=d_model,
        encoder_layers=ours["n_encoder_layers"],
        decoder_layers=ours["n_decoder_layers"],
        encoder_attention_heads=ours["n_heads"],
        decoder_attention_heads=ours["n_heads"],
        encoder_ffn_dim=ours["d_ff"],
        decoder_ffn_dim=ours["d_ff"],
        activation_function="relu",
        scale_embedding=True,
        dropout=0.0,
        pad_token_id=ours["pad_id"],
        eos_token_id=ours["eos_id"],
        decoder_start_token_id=ours["bos_id"],
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).eval()
    load_marian(model, load_file(directory / "model.safetensors"), ours)
    return model, ours


def transformers_decoder(directory, sizes, beam, threads, device):
    import torch
    from transformers import GenerationConfig

    torch.set_num_threads(threads)
    model, ours = marian(directory)
    model = model.to(device)
    sources = torch.tensor(sizes["sources"], device=device)
    options = GenerationConfig(
        num_beams=beam,
        do_sample=False,
        min_new_tokens=sizes["new_tokens"],
        max_new_tokens=sizes["new_tokens"],
        pad_token_id=ours["pad_id"],
        eos_token_id=ours["eos_id"],
        decoder_start_token_id=ours["bos_id"],
    )

    def work():
        with torch.inference_mode():
            output = model.generate(
                sources, attention_mask=torch.ones_like(sources), generation_config=options
            )
        targets = output[:, 1:].tolist()
        return sum(map(len, targets)), targets

    return work


def load_marian(model, tensors, ours):
    """Loads our weights into Hugging Face's Marian: the paper's model, except for the order of the sines
    and cosines, which is set to ours. Where our stacks end in one more norm, so do the last layers here."""
    import torch
    from train_translation import sinusoids

    theirs = model.state_dict()
    d_model = ours["d_model"]

    def linear(names, ours_name):
        """Our projection as one or several of theirs."""
        weights = tensors[f"{ours_name}.weight"].chunk(len(names), 1)
        bias = tensors.get(f"{ours_name}.bias", torch.zeros(d_model * len(names)))
        for name, weight, bias in zip(names, weights, bias.chunk(len(names))):
            theirs[f"{name}.weight"].copy_(weight.T)
            theirs[f"{name}.bias"].copy_(bias)

    def norm(name, ours_name):
        theirs[f"{name}.weight"].copy_(tensors[f"{ours_name}.gamma"])
        theirs[f"{name}.bias"].copy_(tensors[f"{ours_name}.beta"])

    for stack in ("encoder", "decoder"):
        positions = theirs[f"model.{stack}.embed_positions.weight"]
        positions.copy_(sinusoids(len(positions), d_model))
        for index in range(ours[f"n_{stack}_layers"]):
            a, b = f"model.{stack}.layers.{index}", f"{stack}.layers.{index}"
            parts = [f"{a}.self_attn.{part}_proj" for part in "qkv"]
            linear(parts, f"{b}.self_attention.query_key_value")
            linear([f"{a}.self_attn.out_proj"], f"{b}.self_attention.heads.projection")
            norm(f"{a}.self_attn_layer_norm", f"{b}.self_attention_sublayer.norm")
            if stack == "decoder":
                linear([f"{a}.encoder_attn.q_proj"], f"{b}.cross_attention.query")
                parts = [f"{a}.encoder_attn.{part}_proj" for part in "kv"]
                linear(parts, f"{b}.cross_attention.key_value")
                linear([f"{a}.encoder_attn.out_proj"], f"{b}.cross_attention.heads.projection")
                norm(f"{a}.encoder_attn_layer_norm", f"{b}.cross_attention_sublayer.norm")
            linear([f"{a}.fc1"], f"{b}.feed_forward.inner")
            linear([f"{a}.fc2"], f"{b}.feed_forward.outer")
            norm(f"{a}.final_layer_norm", f"{b}.feed_forward_sublayer.norm")
    theirs["model.shared.weight"].copy_(tensors["src_embedding.weight"])
    theirs["final_logits_bias"].zero_()
    model.load_state_dict(theirs)
    model.tie_weights()
    if ours["final_norm"]:
        for stack, layers in (("encoder", model.model.encoder.layers), ("decoder", model.model.decoder.layers)):
            final = torch.nn.LayerNorm(d_model)
            final.load_state_dict(
                {"weight": tensors[f"{stack}.final_norm.gamma"], "bias": tensors[f"{stack}.final_norm.beta"]}
            )
            layers[-1].final_layer_norm = torch.nn.Sequential(layers[-1].final_layer_norm, final)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = ours["layer_norm_eps"]


def pytorch_training(sizes, size, threads):
    import torch
    import torch.nn.functional as F
    from train_translation import Translator, learning_rate

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    vocab_size = sizes["vocab_size"]
    model = Translator(
        vocab_size, size["d_model"], size["layers"], size["n_heads"], size["d_ff"], 0.1, size["len"], "each"
    )
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    shape = (size["rows"], size["len"])
    source, target, labels = (torch.randint(4, vocab_size, shape) for _ in range(3))
    update = 0

    def work():
        nonlocal update
        for _ in range(size["updates"]):
            update += 1
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(update, size["d_model"], 4000)
            logits = model(source, target).flatten(0, 1)
            loss = F.cross_entropy(logits, labels.flatten(), ignore_index=0, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
        return size["updates"] * labels.numel(), []

    return work


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=("pytorch", "transformers", "ctranslate2"))
    parser.add_argument("--work", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--device", default="cpu", help="of transformers")
    args = parser.parse_args()
    sizes = json.loads((args.directory / "work.json").read_text())
    beam = {"greedy": 1, "beam": sizes["beam"]}.get(args.work)
    if args.system == "pytorch":
        work = pytorch_training(sizes, sizes["training"][args.work], args.threads)
    elif args.system == "transformers":
        work = transformers_decoder(args.directory, sizes, beam, args.threads, args.device)
    else:
        work = ctranslate2_decoder(args.directory, sizes, beam, args.threads)
    turns(work)


if __name__ == "__main__":
    main()
