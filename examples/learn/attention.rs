//! Page 3: scaled dot-product attention.

use burn::tensor::{Bool, Tensor};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::annotated::{attention, attention_weights};
use crate::svg::Svg;
use crate::{B, Listing, Picture, show};

pub const LISTINGS: &[Listing] = &[
    ("four_by_four", four_by_four),
    ("one_query", one_query),
    ("without_the_root", without_the_root),
];
pub const PICTURES: &[Picture] = &[("attention-4x4", four_by_four_picture)];

/// The queries, keys and values of four words.
fn example() -> [Tensor<B, 4>; 3] {
    let device = Default::default();
    let q = [[[
        [2.0, 0.0, 0.0, 0.0],
        [0.0, 2.0, 0.0, 0.0],
        [0.0, 0.0, 2.0, 0.0],
        [1.0, 1.0, 1.0, 1.0],
    ]]];
    let k = [[[
        [0.0, 2.0, 0.0, 0.0],
        [2.0, 0.0, 0.0, 0.0],
        [2.0, 0.0, 2.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
    ]]];
    let v = [[[
        [1.0, 0.0, 0.0, 0.0],
        [2.0, 1.0, 0.0, 0.0],
        [3.0, 0.0, 1.0, 0.0],
        [4.0, 0.0, 0.0, 1.0],
    ]]];
    [q, k, v].map(|rows| Tensor::from_data(rows, &device))
}

fn nothing_hidden() -> Tensor<B, 4, Bool> {
    Tensor::<B, 4, Bool>::from_data([[[[false]]]], &Default::default())
}

fn four_by_four() {
    let [q, k, v] = example();
    let matrix = |tensor: Tensor<B, 4>| tensor.squeeze_dims::<2>(&[0, 1]);
    show("scores Q Kᵀ / √4", matrix(q.clone().matmul(k.clone().transpose()) / 2.0));
    let weights = attention_weights(q.clone(), k.clone(), nothing_hidden());
    show("weights", matrix(weights.clone()));
    show("sums of their rows", matrix(weights.sum_dim(3)).transpose());
    show("output", matrix(attention(q, k, v, nothing_hidden())));
}

fn one_query() {
    let query = [2.0_f64, 0.0, 0.0, 0.0];
    let keys = [[0.0, 2.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0], [2.0, 0.0, 2.0, 0.0], [0.0; 4]];
    let dot = |key: &[f64; 4]| query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>();
    let scores = keys.each_ref().map(|key| dot(key) / 4_f64.sqrt());
    let powers = scores.map(f64::exp);
    let sum: f64 = powers.iter().sum();
    for ((score, power), word) in scores.iter().zip(powers).zip(1..) {
        println!(
            "word {word}: score {score:.2}, e^score {power:.2}, weight {power:.2} / {sum:.2} = {:.2}",
            power / sum
        );
    }
}

fn without_the_root() {
    let mut uniform = ChaCha8Rng::seed_from_u64(0);
    // A sum of 12 numbers in [0, 1) has variance 1 and mean 6.
    let mut random = || (0..12).map(|_| uniform.random::<f32>()).sum::<f32>() - 6.0;
    println!("  d_k   deviation of q·k   largest of 8 weights: with √d_k   without");
    for d_k in [4, 16, 64, 256, 1024] {
        let mut rows = |len| {
            let data: Vec<f32> = (0..len * d_k).map(|_| random()).collect();
            Tensor::<B, 1>::from_data(&data[..], &Default::default()).reshape([1, 1, len, d_k])
        };
        let (q, k) = (rows(1000), rows(8));
        let dots = q.clone().matmul(k.clone().transpose());
        let deviation = dots.powf_scalar(2.0).mean().sqrt().into_scalar();
        let largest = |q: Tensor<B, 4>| {
            attention_weights(q, k.clone(), nothing_hidden()).max_dim(3).mean().into_scalar()
        };
        let (with, without) = (largest(q.clone()), largest(q * (d_k as f64).sqrt()));
        println!("{d_k:5}   {deviation:16.1}   {with:32.2}   {without:7.2}");
    }
}

fn four_by_four_picture() -> String {
    let [q, k, _] = example();
    let weights = attention_weights(q, k, nothing_hidden()).into_data();
    let weights: Vec<f32> = weights.iter().collect();
    let rows = Vec::from_iter(weights.chunks(4).map(<[f32]>::to_vec));
    let words = ["word 1", "word 2", "word 3", "word 4"];
    let mut svg = Svg::new(340.0, 290.0);
    svg.text([195.0, 22.0], "middle", 13, "attends to");
    svg.heat_map([80.0, 60.0], 55.0, &rows, &words, &words);
    for (i, row) in rows.iter().enumerate() {
        for (j, weight) in row.iter().enumerate() {
            let place = [80.0 + 55.0 * (j as f64 + 0.5), 64.0 + 55.0 * (i as f64 + 0.5)];
            svg.text(place, "middle", 12, &format!("{weight:.2}"));
        }
    }
    svg.finish()
}
