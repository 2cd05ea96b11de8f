"""The PyTorch systems that transformer-core knows by name, as PyTorch modules.

The five reference systems (docs/learn/references.md) keep the structure and the parameter names of
their documents, with the corrections that the fixtures list, and without dropout; `torch-nn` is
PyTorch's own `nn.Transformer` inside the model of PyTorch's translation tutorial; `annotated` is The
Annotated Transformer.

Every whole model offers `encode(src)`, `decode(tgt, memory, src)` and `project(hidden)`, so that
`project(decode(tgt, encode(src), src))` are its logits. Source padding is blocked in the encoder and
in cross-attention, target padding and the future in decoder self-attention.
"""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

PAD = 0


def source_mask(src):
    """[batch, 1, 1, src_len], true = visible."""
    return (src != PAD)[:, None, None, :]


def target_mask(tgt):
    """[batch, 1, tgt_len, tgt_len], true = visible."""
    length = tgt.size(1)
    past = torch.ones(length, length, dtype=torch.bool).tril()
    return (tgt != PAD)[:, None, None, :] & past


def sinusoids(max_len, d_model):
    """[max_len, d_model], as all the systems compute it."""
    position = torch.arange(max_len, dtype=torch.float64).unsqueeze(1)
    frequency = torch.exp(
        torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model)
    )
    table = torch.zeros(max_len, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency[: d_model // 2])
    return table


def attend(query, key, value, mask):
    """Scaled dot-product attention and its weights."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ value, weights


def split(x, heads):
    return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).flatten(2)


class PositionTable(nn.Module):
    """A buffer `pe`, [1, max_len, d_model]."""

    def __init__(self, d_model, max_len, persistent=True):
        super().__init__()
        table = sinusoids(max_len, d_model).float().unsqueeze(0)
        self.register_buffer("pe", table, persistent=persistent)

    def forward(self, x):
        return x + self.pe[:, : x.size(1)]


# --- notebook-mini ------------------------------------------------------------------------------


class MiniAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask):
        q, k, v = (split(f(x), self.heads) for f, x in zip((self.W_q, self.W_k, self.W_v), (q, k, v)))
        return self.W_o(join(attend(q, k, v, mask)[0]))


class MiniFeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))

    def forward(self, x):
        return self.net(x)


class MiniEncoderBlock(nn.Module):
    def __init__(self, d_model, heads, d_ff):
        super().__init__()
        self.mha = MiniAttention(d_model, heads)
        self.ffn = MiniFeedForward(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x, mask):
        x = self.norm1(x + self.mha(x, x, x, mask))
        return self.norm2(x + self.ffn(x))


class MiniDecoderBlock(nn.Module):
    def __init__(self, d_model, heads, d_ff):
        super().__init__()
        self.self_attn = MiniAttention(d_model, heads)
        self.enc_attn = MiniAttention(d_model, heads)
        self.ffn = MiniFeedForward(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.norm1(x + self.self_attn(x, x, x, tgt_mask))
        x = self.norm2(x + self.enc_attn(x, memory, memory, src_mask))
        return self.norm3(x + self.ffn(x))


class NotebookMini(nn.Module):
    def __init__(self, config):
        super().__init__()
        sizes = config["d_model"], config["n_heads"], config["d_ff"]
        layers = range(config["n_layers"])
        self.embedding = nn.Embedding(config["src_vocab"], config["d_model"])
        self.positional_encoding = PositionTable(config["d_model"], config["max_len"])
        self.encoders = nn.ModuleList([MiniEncoderBlock(*sizes) for _ in layers])
        self.decoders = nn.ModuleList([MiniDecoderBlock(*sizes) for _ in layers])
        self.fc_out = nn.Linear(config["d_model"], config["tgt_vocab"])

    def encode(self, src):
        x = self.positional_encoding(self.embedding(src))
        for encoder in self.encoders:
            x = encoder(x, source_mask(src))
        return x

    def decode(self, tgt, memory, src):
        x = self.positional_encoding(self.embedding(tgt))
        for decoder in self.decoders:
            x = decoder(x, memory, source_mask(src), target_mask(tgt))
        return x

    def project(self, hidden):
        return self.fc_out(hidden)


# --- encoder-layer ------------------------------------------------------------------------------


class LayerAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.Wq = nn.Linear(d_model, d_model)
        self.Wk = nn.Linear(d_model, d_model)
        self.Wv = nn.Linear(d_model, d_model)
        self.Wo = nn.Linear(d_model, d_model)

    def forward(self, x, mask):
        q, k, v = (split(f(x), self.heads) for f in (self.Wq, self.Wk, self.Wv))
        context, weights = attend(q, k, v, mask)
        return self.Wo(join(context)), weights


class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        d_model = config["d_model"]
        self.self_attn = LayerAttention(d_model, config["n_heads"])
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.fc1 = nn.Linear(d_model, config["d_ff"])
        self.fc2 = nn.Linear(config["d_ff"], d_model)

    def forward(self, x, key_blocked):
        """The output and the attention weights."""
        attended, weights = self.self_attn(x, ~key_blocked[:, None, None, :])
        x = self.norm1(x + attended)
        return self.norm2(x + self.fc2(torch.relu(self.fc1(x)))), weights


# --- paper-readme and prenorm-notebook ----------------------------------------------------------


class NamedFeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.linear2(F.relu(self.linear1(x)))


class PaperAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, q, k, v, mask):
        q, k, v = (split(f(x), self.heads) for f, x in zip((self.w_q, self.w_k, self.w_v), (q, k, v)))
        return self.w_o(join(attend(q, k, v, mask)[0]))


class PostNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, sublayer):
        return self.norm(x + sublayer(x))


class NotebookAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask):
        q, k, v = (split(f(x), self.heads) for f, x in zip((self.w_q, self.w_k, self.w_v), (q, k, v)))
        return self.out_proj(join(attend(q, k, v, mask)[0]))


class PreNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, sublayer):
        return x + sublayer(self.norm(x))


class SublayerEncoderLayer(nn.Module):
    def __init__(self, config, attention, sublayer):
        super().__init__()
        d_model = config["d_model"]
        self.self_attn = attention(d_model, config["n_heads"])
        self.feed_forward = NamedFeedForward(d_model, config["d_ff"])
        self.sublayers = nn.ModuleList([sublayer(d_model) for _ in range(2)])

    def forward(self, x, mask):
        x = self.sublayers[0](x, lambda x: self.self_attn(x, x, x, mask))
        return self.sublayers[1](x, self.feed_forward)


class SublayerDecoderLayer(nn.Module):
    def __init__(self, config, attention, sublayer, cross_attention):
        super().__init__()
        d_model = config["d_model"]
        self.self_attn = attention(d_model, config["n_heads"])
        self.cross_attention = cross_attention
        setattr(self, cross_attention, attention(d_model, config["n_heads"]))
        self.feed_forward = NamedFeedForward(d_model, config["d_ff"])
        self.sublayers = nn.ModuleList([sublayer(d_model) for _ in range(3)])

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.sublayers[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        cross = getattr(self, self.cross_attention)
        x = self.sublayers[1](x, lambda x: cross(x, memory, memory, src_mask))
        return self.sublayers[2](x, self.feed_forward)


class NormedStack(nn.Module):
    def __init__(self, layers, d_model):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, *rest):
        for layer in self.layers:
            x = layer(x, *rest)
        return self.norm(x)


class PaperReadme(nn.Module):
    def __init__(self, config):
        super().__init__()
        d_model, layers = config["d_model"], range(config["n_layers"])
        self.scale = math.sqrt(d_model)
        self.src_embed = nn.Embedding(config["src_vocab"], d_model)
        self.tgt_embed = nn.Embedding(config["tgt_vocab"], d_model)
        # The reference system does not show the name of its table.
        self.positions = PositionTable(d_model, config["max_len"], persistent=False)
        self.encoder = NormedStack(
            [SublayerEncoderLayer(config, PaperAttention, PostNorm) for _ in layers], d_model
        )
        self.decoder = NormedStack(
            [SublayerDecoderLayer(config, PaperAttention, PostNorm, "cross_attn") for _ in layers],
            d_model,
        )
        self.output_projection = nn.Linear(d_model, config["tgt_vocab"], bias=False)

    def encode(self, src):
        return self.encoder(self.positions(self.src_embed(src) * self.scale), source_mask(src))

    def decode(self, tgt, memory, src):
        x = self.positions(self.tgt_embed(tgt) * self.scale)
        return self.decoder(x, memory, source_mask(src), target_mask(tgt))

    def project(self, hidden):
        return self.output_projection(hidden)


class PrenormNotebook(nn.Module):
    def __init__(self, config):
        super().__init__()
        d_model, layers = config["d_model"], range(config["n_layers"])
        self.src_embed = nn.Embedding(config["src_vocab"], d_model)
        self.tgt_embed = nn.Embedding(config["tgt_vocab"], d_model)
        self.positional_encoding = PositionTable(d_model, config["max_len"])
        self.encoder = NormedStack(
            [SublayerEncoderLayer(config, NotebookAttention, PreNorm) for _ in layers], d_model
        )
        self.decoder = NormedStack(
            [SublayerDecoderLayer(config, NotebookAttention, PreNorm, "src_attn") for _ in layers],
            d_model,
        )
        self.generator = nn.Linear(d_model, config["tgt_vocab"])

    def encode(self, src):
        return self.encoder(self.positional_encoding(self.src_embed(src)), source_mask(src))

    def decode(self, tgt, memory, src):
        x = self.positional_encoding(self.tgt_embed(tgt))
        return self.decoder(x, memory, source_mask(src), target_mask(tgt))

    def project(self, hidden):
        return self.generator(hidden)


# --- learned-positions --------------------------------------------------------------------------


class BlockAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.W_k = nn.Linear(d_model, d_model)
        self.W_q = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.fc = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask):
        q, k, v = (split(f(x), self.heads) for f, x in zip((self.W_q, self.W_k, self.W_v), (q, k, v)))
        return self.fc(join(attend(q, k, v, mask)[0]))


class TransformerBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        d_model = config["d_model"]
        self.attention = BlockAttention(d_model, config["n_heads"])
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.fc = nn.Sequential(
            nn.Linear(d_model, config["d_ff"]), nn.ReLU(), nn.Linear(config["d_ff"], d_model)
        )

    def forward(self, query, key, value, mask):
        x = self.norm1(self.attention(query, key, value, mask) + query)
        return self.norm2(self.fc(x) + x)


class DecoderBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = BlockAttention(config["d_model"], config["n_heads"])
        self.transformer_block = TransformerBlock(config)
        self.norm = nn.LayerNorm(config["d_model"])

    def forward(self, x, memory, src_mask, tgt_mask):
        query = self.norm(self.attention(x, x, x, tgt_mask) + x)
        return self.transformer_block(query, memory, memory, src_mask)


class LearnedEncoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding_layer = nn.Embedding(config["src_vocab"], config["d_model"])
        self.positional_encoding = nn.Embedding(config["max_len"], config["d_model"])
        self.transformer_layers = nn.ModuleList(
            [TransformerBlock(config) for _ in range(config["n_layers"])]
        )

    def forward(self, src):
        x = self.embedding_layer(src) + self.positional_encoding(torch.arange(src.size(1)))
        for layer in self.transformer_layers:
            x = layer(x, x, x, source_mask(src))
        return x


class LearnedDecoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding_layer = nn.Embedding(config["tgt_vocab"], config["d_model"])
        self.positional_embedding = nn.Embedding(config["max_len"], config["d_model"])
        self.decoder_layers = nn.ModuleList(
            [DecoderBlock(config) for _ in range(config["n_layers"])]
        )
        self.fc = nn.Linear(config["d_model"], config["tgt_vocab"])

    def forward(self, tgt, memory, src):
        x = self.embedding_layer(tgt) + self.positional_embedding(torch.arange(tgt.size(1)))
        for layer in self.decoder_layers:
            x = layer(x, memory, source_mask(src), target_mask(tgt))
        return x


class LearnedPositions(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.encoder = LearnedEncoder(config)
        self.decoder = LearnedDecoder(config)

    def encode(self, src):
        return self.encoder(src)

    def decode(self, tgt, memory, src):
        return self.decoder(tgt, memory, src)

    def project(self, hidden):
        return self.decoder.fc(hidden)


# --- torch-nn: nn.Transformer inside PyTorch's translation tutorial ------------------------------


class TokenEmbedding(nn.Module):
    def __init__(self, vocab_size, d_model, scaled):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.scale = math.sqrt(d_model) if scaled else 1.0

    def forward(self, tokens):
        return self.embedding(tokens) * self.scale


class TutorialPositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.register_buffer("pos_embedding", sinusoids(max_len, d_model).float().unsqueeze(-2))

    def forward(self, x):
        return x + self.pos_embedding[: x.size(0)]


class TorchNn(nn.Module):
    """As in the tutorial, tensors inside are [length, batch, d_model]."""

    def __init__(self, config):
        super().__init__()
        d_model = config["d_model"]
        self.transformer = nn.Transformer(
            d_model=d_model,
            nhead=config["n_heads"],
            num_encoder_layers=config["n_layers"],
            num_decoder_layers=config["n_layers"],
            dim_feedforward=config["d_ff"],
            dropout=0.0,
            activation=config["activation"],
            layer_norm_eps=config["layer_norm_eps"],
            norm_first=config["norm"] == "pre",
        )
        self.generator = nn.Linear(d_model, config["tgt_vocab"], bias=config["generator_bias"])
        scaled = config["embedding_scale"]
        self.src_tok_emb = TokenEmbedding(config["src_vocab"], d_model, scaled)
        self.tgt_tok_emb = TokenEmbedding(config["tgt_vocab"], d_model, scaled)
        self.positional_encoding = TutorialPositionalEncoding(d_model, config["max_len"])
        tied = config["tied"]
        if tied in ("src-tgt", "all"):
            self.tgt_tok_emb.embedding.weight = self.src_tok_emb.embedding.weight
        if tied in ("tgt-generator", "all"):
            self.generator.weight = self.tgt_tok_emb.embedding.weight

    def encode(self, src):
        x = self.positional_encoding(self.src_tok_emb(src.T))
        return self.transformer.encoder(x, src_key_padding_mask=src == PAD).transpose(0, 1)

    def decode(self, tgt, memory, src):
        x = self.positional_encoding(self.tgt_tok_emb(tgt.T))
        length = tgt.size(1)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        return self.transformer.decoder(
            x,
            memory.transpose(0, 1),
            tgt_mask=future,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
        ).transpose(0, 1)

    def project(self, hidden):
        return self.generator(hidden)


# --- annotated: The Annotated Transformer -------------------------------------------------------


def clones(module, n):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(n)])


class AnnotatedLayerNorm(nn.Module):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(features))
        self.b_2 = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        std = x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class AnnotatedSublayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = AnnotatedLayerNorm(size)

    def forward(self, x, sublayer):
        return x + sublayer(self.norm(x))


class AnnotatedAttention(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.linears = clones(nn.Linear(d_model, d_model), 4)

    def forward(self, query, key, value, mask):
        q, k, v = (split(f(x), self.h) for f, x in zip(self.linears, (query, key, value)))
        return self.linears[-1](join(attend(q, k, v, mask)[0]))


class AnnotatedFeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w_2(self.w_1(x).relu())


class AnnotatedEncoderLayer(nn.Module):
    def __init__(self, size, self_attn, feed_forward):
        super().__init__()
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(AnnotatedSublayer(size), 2)
        self.size = size

    def forward(self, x, mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
        return self.sublayer[1](x, self.feed_forward)


class AnnotatedDecoderLayer(nn.Module):
    def __init__(self, size, self_attn, src_attn, feed_forward):
        super().__init__()
        self.size = size
        self.self_attn = self_attn
        self.src_attn = src_attn
        self.feed_forward = feed_forward
        self.sublayer = clones(AnnotatedSublayer(size), 3)

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)


class AnnotatedStack(nn.Module):
    def __init__(self, layer, n):
        super().__init__()
        self.layers = clones(layer, n)
        self.norm = AnnotatedLayerNorm(layer.size)

    def forward(self, x, *rest):
        for layer in self.layers:
            x = layer(x, *rest)
        return self.norm(x)


class AnnotatedEmbeddings(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.d_model = d_model

    def forward(self, x):
        return self.lut(x) * math.sqrt(self.d_model)


class AnnotatedGenerator(nn.Module):
    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)


class Annotated(nn.Module):
    """`EncoderDecoder` as `make_model` builds it; its logits are those before the log-softmax."""

    def __init__(self, config):
        super().__init__()
        d_model, n = config["d_model"], config["n_layers"]
        attn = AnnotatedAttention(config["n_heads"], d_model)
        ff = AnnotatedFeedForward(d_model, config["d_ff"])
        position = PositionTable(d_model, config["max_len"])
        c = copy.deepcopy
        self.encoder = AnnotatedStack(AnnotatedEncoderLayer(d_model, c(attn), c(ff)), n)
        self.decoder = AnnotatedStack(AnnotatedDecoderLayer(d_model, c(attn), c(attn), c(ff)), n)
        self.src_embed = nn.Sequential(
            AnnotatedEmbeddings(d_model, config["src_vocab"]), c(position)
        )
        self.tgt_embed = nn.Sequential(
            AnnotatedEmbeddings(d_model, config["tgt_vocab"]), c(position)
        )
        self.generator = AnnotatedGenerator(d_model, config["tgt_vocab"])

    def encode(self, src):
        return self.encoder(self.src_embed(src), source_mask(src))

    def decode(self, tgt, memory, src):
        return self.decoder(self.tgt_embed(tgt), memory, source_mask(src), target_mask(tgt))

    def project(self, hidden):
        return self.generator.proj(hidden)


SYSTEMS = {
    "notebook-mini": NotebookMini,
    "encoder-layer": EncoderLayer,
    "paper-readme": PaperReadme,
    "prenorm-notebook": PrenormNotebook,
    "learned-positions": LearnedPositions,
    "torch-nn": TorchNn,
    "annotated": Annotated,
}
