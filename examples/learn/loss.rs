//! Page 8: the loss.

use std::f64::consts::LN_2;

use burn::backend::Autodiff;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::annotated::{BOS, EOS, Sizes, Transformer, greedy, ids, loss};
use crate::svg::{DARK, Svg};
use crate::{B, Listing, Picture};

pub const LISTINGS: &[Listing] = &[
    ("three_tensors", three_tensors),
    ("cross_entropy", cross_entropy),
    ("smoothing", smoothing),
    ("smallest_loss", smallest_loss),
    ("real_labels", real_labels),
    ("unshifted", unshifted),
];
pub const PICTURES: &[Picture] = &[("label-smoothing", smoothed_bars)];

fn show_ids(name: &str, tokens: Tensor<B, 2, Int>) {
    let [_, len] = tokens.dims();
    println!("{name}");
    for row in tokens.into_data().iter::<u32>().collect::<Vec<_>>().chunks(len) {
        println!("{}", row.iter().map(|id| format!("{id:4}")).collect::<String>());
    }
}

fn three_tensors() {
    // 3 the, 4 cat, 5 is, 6 asleep, 7 it, 8 rains; 9 die, 10 katze, 11 schläft, 12 es, 13 regnet
    let sources = vec![vec![3, 4, 5, 6], vec![7, 8]];
    let targets = vec![vec![9, 10, 11], vec![12, 13]];
    let device = Default::default();
    show_ids("source", ids(&[], &sources, &[], &device));
    show_ids("decoder input", ids(&[BOS], &targets, &[], &device));
    show_ids("labels", ids(&[], &targets, &[EOS], &device));
}

/// The vocabulary of the examples.
const TOKENS: [&str; 5] = ["<pad>", "<bos>", "<eos>", "a", "b"];
/// Logits of probabilities 1/16, 1/16, 1/8, 1/4, 1/2.
const LOGITS: [f64; 5] = [0.0, 0.0, LN_2, 2.0 * LN_2, 3.0 * LN_2];

fn cross_entropy() {
    let lse = LOGITS.map(f64::exp).iter().sum::<f64>().ln();
    println!("lse(x) = {lse:.3}");
    for (token, x) in TOKENS.iter().zip(LOGITS) {
        let (loss, perplexity) = (lse - x, (lse - x).exp());
        println!("label {token:5}  x {x:.3}  loss {loss:.3}  perplexity {perplexity:.1}");
    }
}

/// 1 - ε for the label, and ε shared by the five tokens.
fn smoothed(label: usize, epsilon: f64) -> [f64; 5] {
    std::array::from_fn(|token| epsilon / 5.0 + if token == label { 1.0 - epsilon } else { 0.0 })
}

fn smoothing() {
    type A = Autodiff<B>;
    let device = Default::default();
    let labels = Tensor::<A, 2, Int>::from_data([[4]], &device); // b
    for epsilon in [0.0, 0.1] {
        let x = Tensor::<A, 3>::from_data([[LOGITS]], &device).require_grad();
        let loss = loss(x.clone(), labels.clone(), epsilon);
        let gradient = x.grad(&loss.backward()).unwrap().into_data();
        println!("ε = {epsilon}: loss {:.3}", loss.into_scalar());
        for (token, slope) in gradient.iter::<f64>().enumerate() {
            let target = smoothed(4, epsilon)[token];
            println!("  {:5}  target {target:.2}  gradient {slope:7.4}", TOKENS[token]);
        }
    }
}

fn smallest_loss() {
    let epsilon = 0.1;
    for vocabulary in [5, 23, 1000, 37_000] {
        let other = epsilon / f64::from(vocabulary);
        let label = 1.0 - epsilon + other;
        let least = -label * label.ln() - (epsilon - other) * other.ln();
        println!("vocabulary of {vocabulary:5}: {least:.3}");
    }
}

fn real_labels() {
    let device = Default::default();
    let labels = Tensor::<B, 2, Int>::from_data([[4, 3, 2], [2, 0, 0]], &device); // b a <eos>; <eos>
    let logits = Tensor::<B, 3>::from_data([[LOGITS; 3]; 2], &device);
    let of_labels = log_softmax(logits.clone(), 2).gather(2, labels.clone().unsqueeze_dim(2));
    println!("mean over all positions {:.2}", of_labels.mean().neg().into_scalar());
    println!("mean over real labels   {:.2}", loss(logits, labels, 0.0).into_scalar());
}

fn unshifted() {
    let device = Default::default();
    Autodiff::<B>::seed(&device, 0);
    let sizes = Sizes { vocabulary: 13, d_model: 16, heads: 2, d_ff: 32, layers: 1, dropout: 0.0 };
    let mut model = Transformer::<Autodiff<B>>::new(&sizes, &device);
    let (mut adam, mut random) = (AdamConfig::new().init(), ChaCha8Rng::seed_from_u64(0));
    let mut word = |_| random.random_range(3..13);
    let mut rows = || Vec::from_iter((0..20).map(|_| Vec::from_iter((0..6).map(&mut word))));
    for update in 1..=20 {
        let source = ids(&[], &rows(), &[], &device);
        let target = ids(&[BOS], &rows(), &[EOS], &device); // random, as the source is
        let logits = model.decode(target.clone(), &model.encode(source.clone()));
        let loss = loss(logits, target, 0.0); // the decoder's input as labels: not shifted
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = adam.step(0.03, model, gradients);
        if update == 20 {
            println!("update {update}: loss {:.1}", loss.into_scalar());
            println!("a translation: {:?}", greedy(&model, source, 6)[0]);
        }
    }
}

/// Hard and smoothed targets beside the model's probabilities.
fn smoothed_bars() -> String {
    let sum: f64 = LOGITS.map(f64::exp).iter().sum();
    let model = LOGITS.map(|x| x.exp() / sum);
    let mut svg = Svg::new(720.0, 250.0);
    let panels = [
        ("target, ε = 0", smoothed(4, 0.0), DARK),
        ("target, ε = 0.1", smoothed(4, 0.1), DARK),
        ("the model's probabilities", model, "#c98a2b"),
    ];
    for (panel, (title, values, colour)) in panels.into_iter().enumerate() {
        let left = 15.0 + 235.0 * panel as f64;
        svg.text([left + 110.0, 22.0], "middle", 13, title);
        svg.line(&[[left, 220.0], [left + 220.0, 220.0]], "#444", 1.0);
        for (bar, (value, token)) in values.into_iter().zip(TOKENS).enumerate() {
            let (x, height) = (left + 6.0 + 44.0 * bar as f64, 160.0 * value);
            svg.rect([x, 220.0 - height], [32.0, height], colour);
            svg.text([x + 16.0, 214.0 - height], "middle", 11, &short(value));
            svg.text([x + 16.0, 236.0], "middle", 11, token);
        }
    }
    svg.finish()
}

/// Four decimals without zeros at the end.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}
