#!/usr/bin/env python3
"""Write a run of train_translation.py as a model directory of ours: the same weights, config.json and tokenizer.json.

    python pytorch_model.py RUN TOKENIZER OUT
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file


def our_config(settings, vocab_size):
    """The config.json of a model with the settings of a run."""
    return {
        "format": 1,
        "model": "transformer",
        "src_vocab_size": vocab_size,
        "tgt_vocab_size": vocab_size,
        "d_model": settings["d_model"],
        "n_heads": settings["heads"],
        "d_ff": settings["d_ff"],
        "n_encoder_layers": settings["layers"],
        "n_decoder_layers": settings["layers"],
        "norm": "post",
        "final_norm": True,
        "layer_norm": "variance",
        "layer_norm_eps": 1e-5,
        "positions": "sinusoidal",
        "attention_bias": True,
        "generator_bias": False,
        "embedding_scale": True,
        "tying": "all",
        "activation": "relu",
        "dropout": settings["dropout"],
        "attention_dropout": settings["dropout"],
        "activation_dropout": settings["dropout"],
        "pad_id": 0,
        "bos_id": 1,
        "eos_id": 2,
    }


def our_tensors(theirs, config):
    """Our tensors of a state dict. PyTorch's weights are [outputs, inputs], ours [inputs, outputs]."""
    d_model = config["d_model"]
    ours = {"src_embedding.weight": theirs["embedding.weight"]}

    def linear(name, weight, bias):
        ours[f"{name}.weight"] = np.ascontiguousarray(weight.T)
        ours[f"{name}.bias"] = np.ascontiguousarray(bias)

    def norm(name, theirs_name):
        ours[f"{name}.gamma"] = theirs[f"{theirs_name}.weight"]
        ours[f"{name}.beta"] = theirs[f"{theirs_name}.bias"]

    def module(name, theirs_name):
        linear(name, theirs[f"{theirs_name}.weight"], theirs[f"{theirs_name}.bias"])

    def projections(name, theirs_name, rows):
        """Rows of the matrix that projects queries, keys and values."""
        weight, bias = theirs[f"{theirs_name}.in_proj_weight"], theirs[f"{theirs_name}.in_proj_bias"]
        linear(name, weight[rows], bias[rows])

    for stack in ("encoder", "decoder"):
        norm(f"{stack}.final_norm", f"transformer.{stack}.norm")
        for index in range(config[f"n_{stack}_layers"]):
            a, b = f"{stack}.layers.{index}", f"transformer.{stack}.layers.{index}"
            projections(f"{a}.self_attention.query_key_value", f"{b}.self_attn", slice(None))
            module(f"{a}.self_attention.heads.projection", f"{b}.self_attn.out_proj")
            norm(f"{a}.self_attention_sublayer.norm", f"{b}.norm1")
            if stack == "decoder":
                projections(f"{a}.cross_attention.query", f"{b}.multihead_attn", slice(d_model))
                projections(f"{a}.cross_attention.key_value", f"{b}.multihead_attn", slice(d_model, None))
                module(f"{a}.cross_attention.heads.projection", f"{b}.multihead_attn.out_proj")
                norm(f"{a}.cross_attention_sublayer.norm", f"{b}.norm2")
            module(f"{a}.feed_forward.inner", f"{b}.linear1")
            module(f"{a}.feed_forward.outer", f"{b}.linear2")
            norm(f"{a}.feed_forward_sublayer.norm", f"{b}.norm{3 if stack == 'decoder' else 2}")
    return ours


def write(run, tokenizer, out):
    """Writes the directory. The weights come last: a directory that has them is whole."""
    theirs = load_file(run / "model.safetensors")
    settings = json.loads((run / "curve.json").read_text())["settings"]
    config = our_config(settings, len(theirs["embedding.weight"]))
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(tokenizer, out / "tokenizer.json")
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(our_tensors(theirs, config), out / "unfinished.safetensors")
    (out / "unfinished.safetensors").rename(out / "model.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    write(args.run, args.tokenizer, args.out)


if __name__ == "__main__":
    main()
