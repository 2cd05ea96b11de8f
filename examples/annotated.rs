//! "Attention Is All You Need" in one file of plain Burn: model, loss, training and decoding.
//!
//! `cargo run --release --example annotated` trains it. `docs/learn` explains it part by part. A test
//! gives it the library's weights, and compares logits and gradients with the library's.
#![allow(missing_docs)] // docs/learn has more than fits here.

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::nn::{Dropout, DropoutConfig, Embedding, EmbeddingConfig, Initializer};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::{log_softmax, relu, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorData};
use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

type Rows = Vec<Vec<u32>>; // token ids
type Tokens<B> = Tensor<B, 2, Int>; // [batch, len]
type Vectors<B> = Tensor<B, 3>; // [batch, len, d_model]
type Heads<B> = Tensor<B, 4>; // [batch, heads, len, d_model / heads]
type Mask<B> = Tensor<B, 4, Bool>; // [batch, heads, query_len, key_len], or 1 for a size
type Memory<B> = (Vectors<B>, Mask<B>); // the encoder's output, and which of it is padding

// §3.2.1 Scaled dot-product attention
/// softmax(Q Kᵀ / √d_k): `[batch, heads, query_len, key_len]`. True in the mask: hidden.
pub fn attention_weights<B: Backend>(q: Heads<B>, k: Heads<B>, mask: Mask<B>) -> Tensor<B, 4> {
    let d_k = q.dims()[3] as f64;
    let scores = q.matmul(k.transpose()) / d_k.sqrt();
    let mask = mask.expand(scores.dims());
    softmax(scores.mask_fill(mask, f32::NEG_INFINITY), 3)
}

/// softmax(Q Kᵀ / √d_k) V: for each query, the mean of the values by the weights of their keys.
pub fn attention<B: Backend>(q: Heads<B>, k: Heads<B>, v: Heads<B>, mask: Mask<B>) -> Heads<B> {
    attention_weights(q, k, mask).matmul(v)
}

// §3.2.2 Multi-head attention
#[derive(Module, Debug)]
pub struct MultiHeadAttention<B: Backend> {
    pub query: Linear<B>,
    pub key: Linear<B>,
    pub value: Linear<B>,
    pub output: Linear<B>,
    pub heads: usize,
}

impl<B: Backend> MultiHeadAttention<B> {
    pub fn new(d_model: usize, heads: usize, device: &B::Device) -> Self {
        let [query, key, value, output] = [(); 4].map(|()| linear(d_model, d_model, false, device));
        Self { query, key, value, output, heads }
    }

    /// The positions of `x` ask, the positions of `memory` answer; in self-attention they are the same.
    pub fn forward(&self, x: Vectors<B>, memory: Vectors<B>, mask: Mask<B>) -> Vectors<B> {
        let q = self.split(self.query.forward(x));
        let k = self.split(self.key.forward(memory.clone()));
        let v = self.split(self.value.forward(memory));
        let heads = attention(q, k, v, mask);
        self.output.forward(heads.swap_dims(1, 2).flatten(2, 3)) // side by side again
    }

    pub fn split(&self, x: Vectors<B>) -> Heads<B> {
        let [batch, len, d_model] = x.dims();
        x.reshape([batch, len, self.heads, d_model / self.heads]).swap_dims(1, 2)
    }
}

fn linear<B: Backend>(inputs: usize, outputs: usize, bias: bool, device: &B::Device) -> Linear<B> {
    let xavier = Initializer::XavierUniform { gain: 1.0 };
    LinearConfig::new(inputs, outputs).with_bias(bias).with_initializer(xavier).init(device)
}

// §3.2.3 Masks
pub const PAD: u32 = 0;
pub const BOS: u32 = 1;
pub const EOS: u32 = 2;

/// True where a key is `<pad>`: `[batch, 1, 1, key_len]`.
pub fn padding_mask<B: Backend>(tokens: Tokens<B>) -> Mask<B> {
    let [batch, len] = tokens.dims();
    tokens.equal_elem(PAD).reshape([batch, 1, 1, len])
}

/// True above the diagonal, where a key comes after the query: `[1, 1, len, len]`.
pub fn causal_mask<B: Backend>(len: usize, device: &B::Device) -> Mask<B> {
    Tensor::<B, 2, Bool>::tril_mask([len, len], 0, device).unsqueeze()
}

// §3.3 Position-wise feed-forward network
/// max(0, x W₁ + b₁) W₂ + b₂, at each position by itself.
#[derive(Module, Debug)]
pub struct FeedForward<B: Backend> {
    pub inner: Linear<B>,
    pub outer: Linear<B>,
}

impl<B: Backend> FeedForward<B> {
    pub fn forward(&self, x: Vectors<B>) -> Vectors<B> {
        self.outer.forward(relu(self.inner.forward(x)))
    }
}

// §3.1, §5.4 Around each sub-layer: dropout, residual connection, layer normalization
/// LayerNorm(x + Dropout(Sublayer(x))).
#[derive(Module, Debug)]
pub struct AddAndNorm<B: Backend> {
    pub norm: LayerNorm<B>,
    pub dropout: Dropout,
}

impl<B: Backend> AddAndNorm<B> {
    pub fn forward(&self, x: Vectors<B>, sublayer: Vectors<B>) -> Vectors<B> {
        self.norm.forward(x + self.dropout.forward(sublayer))
    }
}

// §3.1 A layer of the encoder, or, with attention to the encoder's output, of the decoder
#[derive(Module, Debug)]
pub struct Layer<B: Backend> {
    pub self_attention: MultiHeadAttention<B>,
    pub cross_attention: Option<MultiHeadAttention<B>>,
    pub feed_forward: FeedForward<B>,
    pub norms: Vec<AddAndNorm<B>>, // one per sub-layer
}

impl<B: Backend> Layer<B> {
    pub fn forward(&self, x: Vectors<B>, mask: Mask<B>, memory: Option<Memory<B>>) -> Vectors<B> {
        let attended = self.self_attention.forward(x.clone(), x.clone(), mask);
        let mut x = self.norms[0].forward(x, attended);
        if let (Some(attention), Some((memory, padding))) = (&self.cross_attention, memory) {
            let attended = attention.forward(x.clone(), memory, padding);
            x = self.norms[1].forward(x, attended);
        }
        self.norms[self.norms.len() - 1].forward(x.clone(), self.feed_forward.forward(x))
    }
}

// §3.5 Positional encoding
/// PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(...): `[len, d_model]`.
pub fn positions<B: Backend>(len: usize, d_model: usize, device: &B::Device) -> Tensor<B, 2> {
    let position = Tensor::<B, 1, Int>::arange(0..len as i64, device).float().reshape([len, 1]);
    let even = Tensor::<B, 1, Int>::arange_step(0..d_model as i64, 2, device).float();
    let frequency = (even * (-(10_000_f64.ln()) / d_model as f64)).exp().reshape([1, d_model / 2]);
    let angle = position.matmul(frequency);
    Tensor::stack::<3>(vec![angle.clone().sin(), angle.cos()], 2).reshape([len, d_model])
}

// §3.1, §3.4 The model: embeddings, encoder, decoder, projection to the vocabulary
pub struct Sizes {
    pub vocabulary: usize,
    pub d_model: usize,
    pub heads: usize,
    pub d_ff: usize,
    pub layers: usize,
    pub dropout: f64,
}

#[derive(Module, Debug)]
pub struct Transformer<B: Backend> {
    pub embedding: Embedding<B>, // one matrix for source, target and output (§3.4)
    pub encoder: Vec<Layer<B>>,
    pub decoder: Vec<Layer<B>>,
    pub dropout: Dropout,
}

impl<B: Backend> Transformer<B> {
    pub fn new(sizes: &Sizes, device: &B::Device) -> Self {
        let Sizes { vocabulary, d_model, heads, d_ff, layers, dropout } = *sizes;
        let normal = Initializer::Normal { mean: 0.0, std: (d_model as f64).powf(-0.5) };
        let embedding = EmbeddingConfig::new(vocabulary, d_model).with_initializer(normal);
        let dropout = DropoutConfig::new(dropout).init();
        let attention = || MultiHeadAttention::new(d_model, heads, device);
        let norm = || AddAndNorm {
            norm: LayerNormConfig::new(d_model).init(device),
            dropout: dropout.clone(),
        };
        let layer = |is_decoder: bool| Layer {
            self_attention: attention(),
            cross_attention: is_decoder.then(attention),
            feed_forward: FeedForward {
                inner: linear(d_model, d_ff, true, device),
                outer: linear(d_ff, d_model, true, device),
            },
            norms: (0..2 + usize::from(is_decoder)).map(|_| norm()).collect(),
        };
        let [encoder, decoder] =
            [false, true].map(|is_decoder| (0..layers).map(|_| layer(is_decoder)).collect());
        Self { embedding: embedding.init(device), encoder, decoder, dropout }
    }

    /// Embeddings times √d_model, plus positions.
    pub fn embed(&self, tokens: Tokens<B>) -> Vectors<B> {
        let x = self.embedding.forward(tokens);
        let [_, len, d_model] = x.dims();
        let positions = positions(len, d_model, &x.device()).unsqueeze();
        self.dropout.forward(x * (d_model as f64).sqrt() + positions)
    }

    pub fn encode(&self, source: Tokens<B>) -> Memory<B> {
        let (mut x, padding) = (self.embed(source.clone()), padding_mask(source));
        for layer in &self.encoder {
            x = layer.forward(x, padding.clone(), None);
        }
        (x, padding)
    }

    /// The logits of the token after each token of `target`: `[batch, tgt_len, vocabulary]`.
    pub fn decode(&self, target: Tokens<B>, memory: &Memory<B>) -> Tensor<B, 3> {
        let mask = causal_mask(target.dims()[1], &target.device());
        let mut x = self.embed(target);
        for layer in &self.decoder {
            x = layer.forward(x, mask.clone(), Some(memory.clone()));
        }
        x.matmul(self.embedding.weight.val().transpose().unsqueeze())
    }
}

// §5.4 Label smoothing
/// Cross entropy against 1 - ε for the label and ε shared by all tokens; the mean over real labels.
pub fn loss<B: Backend>(logits: Tensor<B, 3>, labels: Tokens<B>, epsilon: f64) -> Tensor<B, 1> {
    let labels = labels.unsqueeze_dim::<3>(2);
    let log_probs = log_softmax(logits, 2);
    let of_label = log_probs.clone().gather(2, labels.clone());
    let real = labels.not_equal_elem(PAD).float();
    let losses = (of_label * (1.0 - epsilon) + log_probs.mean_dim(2) * epsilon).neg();
    (losses * real.clone()).sum() / real.sum()
}

// §5.3 Learning rate
/// d_model^-0.5 · min(step^-0.5, step · warmup^-1.5).
pub fn rate(step: usize, d_model: usize, warmup: usize) -> f64 {
    let (step, warmup) = (step as f64, warmup as f64);
    (d_model as f64).powf(-0.5) * step.powf(-0.5).min(step * warmup.powf(-1.5))
}

// §5 Training: forward, loss, backward, step
/// Trains a small Transformer to copy sequences, and decodes 100 that it has not seen.
#[derive(Parser)]
struct Flags {
    /// Number of updates
    #[arg(long, default_value_t = 600)]
    updates: usize,
}

fn main() {
    type B = Autodiff<transformer_examples::Backend>;
    let (flags, device) = (Flags::parse(), Default::default());
    let mut random = ChaCha8Rng::seed_from_u64(0);
    B::seed(&device, 0);
    let sizes = Sizes { vocabulary: 23, d_model: 64, heads: 4, d_ff: 256, layers: 2, dropout: 0.0 };
    let mut model = Transformer::<B>::new(&sizes, &device);
    let mut adam = AdamConfig::new().with_beta_2(0.98).with_epsilon(1e-9).init();
    for step in 1..=flags.updates {
        let rows = sequences(&mut random);
        let memory = model.encode(ids(&[], &rows, &[], &device));
        let logits = model.decode(ids(&[BOS], &rows, &[], &device), &memory);
        let loss = loss(logits, ids(&[], &rows, &[EOS], &device), 0.1);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = adam.step(0.25 * rate(step, sizes.d_model, 200), model, gradients);
        if step % 100 == 0 {
            println!("update {step}: loss {:.3}", loss.into_scalar());
        }
    }
    let test = sequences(&mut random);
    let copies = greedy(&model.valid(), ids(&[], &test, &[], &device), 12);
    let exact = copies.iter().zip(&test).filter(|(copy, row)| copy == row).count();
    println!("exact copies: {exact} of {}", test.len());
}

/// 100 sequences of 8 to 10 random symbols.
fn sequences(random: &mut ChaCha8Rng) -> Rows {
    let mut symbols = |len| (0..len).map(|_| random.random_range(3..23)).collect();
    (0..100).map(|row| symbols(8 + row % 3)).collect()
}

/// Token ids as a tensor, with tokens before and after each row, and `<pad>` after shorter rows.
pub fn ids<B: Backend>(first: &[u32], rows: &Rows, last: &[u32], device: &B::Device) -> Tokens<B> {
    let mut rows = Vec::from_iter(rows.iter().map(|row| [first, row, last].concat()));
    let len = rows.iter().map(Vec::len).max().unwrap_or(0);
    rows.iter_mut().for_each(|row| row.resize(len, PAD));
    Tensor::from_data(TensorData::new(rows.concat(), [rows.len(), len]), device)
}

// §6.1 Greedy decoding
/// The tokens before `<eos>`, at most `longest`, for each row of the source.
pub fn greedy<B: Backend>(model: &Transformer<B>, source: Tokens<B>, longest: usize) -> Rows {
    let memory = model.encode(source);
    let mut rows = vec![vec![]; memory.0.dims()[0]];
    for _ in 0..longest {
        let logits = model.decode(ids(&[BOS], &rows, &[], &memory.0.device()), &memory);
        let last = logits.slice_dim(1, -1..).argmax(2);
        for (row, token) in rows.iter_mut().zip(last.into_data().iter::<u32>()) {
            row.push(token);
        }
    }
    rows.iter().map(|row| row.split(|&token| token == EOS).next().unwrap().to_vec()).collect()
}
