#!/usr/bin/env python3
"""Write a model directory of ours as a CTranslate2 model: the same weights, in 32 bits or in 8.

    python ctranslate2_model.py MODEL OUT [--quantization int8]

For models with sinusoidal positions, the usual layer normalization, ReLU and d_k = d_v =
d_model / n_heads. Needs ctranslate2, numpy and safetensors.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from ctranslate2.specs import TransformerSpec, common_spec
from safetensors.numpy import load_file

POSITIONS = 2048


def sinusoids(d_model):
    """The paper's table (section 3.5)."""
    position = np.arange(POSITIONS)[:, None]
    angle = position / 10000.0 ** (np.arange(0, d_model, 2) / d_model)
    table = np.empty((POSITIONS, d_model), dtype=np.float32)
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle)
    return table


class Weights:
    """Copies our tensors into their specifications."""

    def __init__(self, path):
        self.tensors = load_file(path)

    def linear(self, spec, name, slices=None):
        weight = self.tensors[f"{name}.weight"].T
        bias = self.tensors.get(f"{name}.bias", np.zeros(weight.shape[0], dtype=np.float32))
        rows = slices or slice(None)
        spec.weight = np.ascontiguousarray(weight[rows])
        spec.bias = np.ascontiguousarray(bias[rows])

    def norm(self, spec, name):
        spec.gamma = self.tensors[f"{name}.gamma"]
        spec.beta = self.tensors[f"{name}.beta"]

    def self_attention(self, spec, name):
        self.linear(spec.linear[0], f"{name}.self_attention.query_key_value")
        self.linear(spec.linear[1], f"{name}.self_attention.heads.projection")
        self.norm(spec.layer_norm, f"{name}.self_attention_sublayer.norm")

    def cross_attention(self, spec, name):
        self.linear(spec.linear[0], f"{name}.cross_attention.query")
        self.linear(spec.linear[1], f"{name}.cross_attention.key_value")
        self.linear(spec.linear[2], f"{name}.cross_attention.heads.projection")
        self.norm(spec.layer_norm, f"{name}.cross_attention_sublayer.norm")

    def feed_forward(self, spec, name):
        self.linear(spec.linear_0, f"{name}.feed_forward.inner")
        self.linear(spec.linear_1, f"{name}.feed_forward.outer")
        self.norm(spec.layer_norm, f"{name}.feed_forward_sublayer.norm")

    def stack(self, spec, name, config):
        for index, layer in enumerate(spec.layer):
            self.self_attention(layer.self_attention, f"{name}.layers.{index}")
            if name == "decoder":
                self.cross_attention(layer.attention, f"{name}.layers.{index}")
            self.feed_forward(layer.ffn, f"{name}.layers.{index}")
        if config["final_norm"]:
            # Their post-norm models have no final norm by default, but run one that is present.
            vars(spec)["layer_norm"] = common_spec.LayerNormSpec()
            self.norm(spec.layer_norm, f"{name}.final_norm")
        spec.scale_embeddings = config["embedding_scale"]
        spec.position_encodings.encodings = sinusoids(config["d_model"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--quantization", choices=("int8",))
    args = parser.parse_args()

    config = json.loads((args.model / "config.json").read_text())
    weights = Weights(args.model / "model.safetensors")
    spec = TransformerSpec.from_config(
        (config["n_encoder_layers"], config["n_decoder_layers"]),
        config["n_heads"],
        pre_norm=config["norm"] == "pre",
        no_final_norm=not config["final_norm"],
        activation=common_spec.Activation.RELU,
    )
    source = weights.tensors["src_embedding.weight"]
    target = weights.tensors.get("tgt_embedding.weight", source)
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    weights.stack(spec.encoder, "encoder", config)
    weights.stack(spec.decoder, "decoder", config)
    if "generator.weight" in weights.tensors:
        target = np.ascontiguousarray(weights.tensors["generator.weight"].T)
    spec.decoder.projection.weight = target
    bias = weights.tensors.get("generator.bias")
    spec.decoder.projection.bias = np.zeros(len(target), np.float32) if bias is None else bias

    path = args.model / "tokenizer.json"
    if path.exists():
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        ids = tokenizer["model"]["vocab"]
        ids |= {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        names = {id: name for name, id in ids.items()}
    else:
        names = {config["pad_id"]: "<pad>", config["bos_id"]: "<bos>", config["eos_id"]: "<eos>"}
        names[3] = "<unk>"
    vocabulary = lambda size: [names.get(id, f"<{id}>") for id in range(size)]
    spec.register_source_vocabulary(vocabulary(config["src_vocab_size"]))
    spec.register_target_vocabulary(vocabulary(config["tgt_vocab_size"]))
    spec.config.bos_token = names[config["bos_id"]]
    spec.config.eos_token = names[config["eos_id"]]
    spec.config.unk_token = names[3]
    spec.config.decoder_start_token = spec.config.bos_token
    spec.config.layer_norm_epsilon = config["layer_norm_eps"]
    spec.validate()
    # As their converters do.
    spec.optimize(quantization=args.quantization)
    args.out.mkdir(parents=True, exist_ok=True)
    spec.save(str(args.out))


if __name__ == "__main__":
    main()
