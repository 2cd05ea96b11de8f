//! Page 7: encoder, decoder and the whole model.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::Backend;
use transformer_core::TransformerConfig;

use crate::annotated::{BOS, EOS, Sizes, Transformer, attention_weights, ids};
use crate::svg::{DARK, Svg};
use crate::{B, Listing, Picture};

pub const LISTINGS: &[Listing] = &[
    ("model_shapes", model_shapes),
    ("shifted_right", shifted_right),
    ("no_softmax", no_softmax),
    ("encode_once", encode_once),
    ("parameters", parameters),
];
pub const PICTURES: &[Picture] = &[("architecture", architecture)];

fn sizes([vocabulary, d_model, heads, d_ff, layers]: [usize; 5]) -> Sizes {
    Sizes { vocabulary, d_model, heads, d_ff, layers, dropout: 0.1 }
}

fn model() -> Transformer<B> {
    let device = Default::default();
    B::seed(&device, 0);
    Transformer::new(&sizes([100, 64, 4, 256, 2]), &device)
}

fn model_shapes() {
    let (model, device) = (model(), Default::default());
    let source = ids::<B>(&[], &vec![vec![3; 7], vec![4; 5]], &[], &device);
    let target = ids::<B>(&[BOS], &vec![vec![5; 4], vec![6; 2]], &[], &device);
    let memory = model.encode(source.clone());
    let x = model.embed(target.clone());
    let cross = model.decoder[0].cross_attention.as_ref().unwrap();
    let q = cross.split(cross.query.forward(x.clone()));
    let k = cross.split(cross.key.forward(memory.0.clone()));
    let weights = attention_weights(q.clone(), k.clone(), memory.1.clone());
    println!("source, target     {:?}, {:?}", source.dims(), target.dims());
    println!("embedded           {:?}, {:?}", model.embed(source).dims(), x.dims());
    println!("memory             {:?}, its padding {:?}", memory.0.dims(), memory.1.dims());
    println!("cross-attention    queries {:?}, keys {:?}", q.dims(), k.dims());
    println!("                   weights {:?}", weights.dims());
    println!("logits             {:?}", model.decode(target, &memory).dims());
}

fn shifted_right() {
    let words = ["<pad>", "<bos>", "<eos>", "le", "chien", "court", "vite", "elle", "dort"];
    let (rows, device) = (vec![vec![3, 4, 5, 6], vec![7, 8]], Default::default());
    let input = ids::<B>(&[BOS], &rows, &[], &device);
    let labels = ids::<B>(&[], &rows, &[EOS], &device);
    for (name, tokens) in [("input", input), ("labels", labels)] {
        for row in tokens.into_data().iter::<u32>().collect::<Vec<_>>().chunks(5) {
            let row = row.iter().map(|&id| format!("{:>8}", words[id as usize]));
            println!("{name:7}{}", row.collect::<String>());
        }
    }
}

fn no_softmax() {
    let row = |values: [f32; 3]| Tensor::<B, 2>::from_data([values], &Default::default());
    let show = |name: &str, row: Tensor<B, 2>| {
        let values: Vec<f32> = row.into_data().iter().map(|value: f32| value + 0.0).collect();
        println!("{name:37}{values:.2?}");
    };
    let once = softmax(row([5.0, 0.0, 0.0]), 1);
    show("5 0 0: softmax", once.clone());
    show("5 0 0: softmax of the softmax", softmax(once, 1));
    show("120 0 0: softmax", softmax(row([120.0, 0.0, 0.0]), 1));
    show("120 0 0: logarithm of the softmax", softmax(row([120.0, 0.0, 0.0]), 1).log());
    show("120 0 0: log_softmax", log_softmax(row([120.0, 0.0, 0.0]), 1));
}

fn encode_once() {
    let (model, device) = (model(), Default::default());
    let memory = model.encode(ids(&[], &vec![vec![3, 4, 5, 6, 7]], &[], &device));
    let target = [8, 9, 10, 11];
    let all = model.decode(ids(&[BOS], &vec![target.to_vec()], &[], &device), &memory);
    println!("training: one call, logits {:?}", all.dims());
    for read in 0..=target.len() {
        let so_far = ids(&[BOS], &vec![target[..read].to_vec()], &[], &device);
        let logits = model.decode(so_far, &memory);
        let dims = logits.dims();
        let change = logits.slice_dim(1, -1..) - all.clone().slice_dim(1, read..read + 1);
        let is_same = change.abs().max().into_scalar() < 1e-4;
        println!(
            "inference: <bos> and {read} tokens, logits {dims:?}, last row the same: {is_same}"
        );
    }
}

/// Parameters of the encoder and of the decoder.
fn stacks(Sizes { d_model, d_ff, layers, .. }: &Sizes) -> [usize; 2] {
    let attention = 4 * d_model * d_model; // four matrices without biases
    let feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model; // two, with biases
    let norm = 2 * d_model; // gain and shift
    let encoder_layer = attention + feed_forward + 2 * norm;
    let decoder_layer = 2 * attention + feed_forward + 3 * norm;
    [layers * encoder_layer, layers * decoder_layer]
}

fn parameters() {
    println!("                   vocabulary     encoder     decoder  last norms        total");
    for (name, sizes, matrices, norms) in [
        ("annotated.rs", sizes([23, 64, 4, 256, 2]), 1, 0),
        ("the paper's base", sizes([37_000, 512, 8, 2048, 6]), 1, 0),
        ("the paper's big", sizes([37_000, 1024, 16, 4096, 6]), 1, 0),
        ("document 002", sizes([10_000, 512, 8, 2048, 6]), 3, 2),
    ] {
        let vocabulary = matrices * sizes.vocabulary * sizes.d_model;
        let [encoder, decoder] = stacks(&sizes);
        let norms = norms * 2 * sizes.d_model;
        let total = vocabulary + encoder + decoder + norms;
        println!("{name:17}{vocabulary:12}{encoder:12}{decoder:12}{norms:12}{total:13}");
    }
    let model = Transformer::<B>::new(&sizes([23, 64, 4, 256, 2]), &Default::default());
    println!("annotated.rs, counted by Burn: {}", model.num_params());
    let shapes = TransformerConfig::paper_readme(10_000, 10_000).parameter_shapes();
    let sizes = shapes.iter().map(|(_, shape)| shape.iter().product::<usize>());
    println!("document 002, counted by the library: {}", sizes.sum::<usize>());
}

/// A box of the architecture: its name, its item in annotated.rs, its file in the library, its color.
type Part = (&'static str, &'static str, &'static str, &'static str);

const ATTENTION: &str = "#f9dcc4";
const FEED_FORWARD: &str = "#cfe5f5";
const NORM: &str = "#fdf3c8";
const TOKENS: &str = "#f7d4dc";
const OUTPUT: &str = "#d9ecd2";

const LOSS: &str = "objective/loss.rs in transformer-train";

const BOX: [f64; 2] = [250.0, 58.0];
const PITCH: f64 = 82.0;

/// The top of the box on a floor; 0 is the lowest.
fn top(floor: usize) -> f64 {
    // More room below the layers, and above them.
    let gap = [0.0, 22.0, 52.0][usize::from(floor > 1) + usize::from(floor > 7)];
    950.0 - PITCH * floor as f64 - gap
}

fn architecture() -> String {
    let norm: Part = ("Add & Norm", "AddAndNorm", "nn/sublayer.rs, nn/norm.rs", NORM);
    let forward: Part = ("Feed Forward", "FeedForward", "nn/feed_forward.rs", FEED_FORWARD);
    let positions: Part = ("+ Positional Encoding", "positions", "nn/positions.rs", "#fff");
    let embedding: Part = ("Embedding", "Transformer::embed", "nn/embedding.rs", TOKENS);
    let attention = "MultiHeadAttention";
    let encoder = [
        embedding,
        positions,
        ("Multi-Head Attention", attention, "nn/self_attention.rs", ATTENTION),
        norm,
        forward,
        norm,
    ];
    let masked = "MultiHeadAttention, causal_mask";
    let decoder = [
        embedding,
        positions,
        ("Masked Multi-Head Attention", masked, "nn/self_attention.rs, nn/mask.rs", ATTENTION),
        norm,
        ("Multi-Head Attention to the memory", attention, "nn/multi_head_attention.rs", ATTENTION),
        norm,
        forward,
        norm,
        ("Linear", "last line of Transformer::decode", "nn/generator.rs", OUTPUT),
        ("Softmax", "in loss; greedy needs the largest only", LOSS, OUTPUT),
    ];
    let mut svg = Svg::new(1000.0, 1080.0);
    let (left, right) = (150.0, 600.0);
    for (x, floors, aside) in [(left, 2..6, left - 130.0), (right, 2..8, right + BOX[0] + 130.0)] {
        let (first, last) = (floors.start, floors.end - 1);
        let (y, bottom) = (top(last) - 18.0, top(first) + BOX[1] + 30.0);
        svg.boxed([x - 45.0, y], [BOX[0] + 90.0, bottom - y], "#f6f6f6", &[]);
        let anchor = if x == left { "start" } else { "end" };
        let middle = (y + bottom) / 2.0;
        svg.text([aside, middle - 10.0], anchor, 14, "N ×");
        svg.text([aside, middle + 8.0], anchor, 12, "Layer");
        svg.text([aside, middle + 24.0], anchor, 11, "nn/layer.rs");
        svg.text([aside, middle + 40.0], anchor, 11, "nn/stack.rs");
    }
    column(&mut svg, left, &encoder, -1.0);
    column(&mut svg, right, &decoder, 1.0);

    // The memory, from the top of the encoder to the decoder's second attention.
    let [centre, between] = [left + BOX[0] / 2.0, 500.0];
    let (up, to) = (top(5) - 40.0, top(4) + BOX[1] / 2.0);
    let memory = [[centre, top(5)], [centre, up], [between, up], [between, to], [right, to]];
    svg.arrow(&memory, DARK);
    svg.text([between + 6.0, to - 7.0], "start", 12, "K, V");
    svg.text([centre + 10.0, up - 8.0], "start", 13, "memory: Transformer::encode");

    let below = 1046.0;
    svg.text([centre, below], "middle", 13, "source tokens [batch, src_len]");
    let centre = right + BOX[0] / 2.0;
    svg.text([centre, below], "middle", 13, "target tokens, shifted right [batch, tgt_len]");
    svg.text([centre, top(9) - 34.0], "middle", 13, "probabilities of the next tokens");
    svg.text([left - 130.0, 40.0], "start", 13, "in each box: its name in the paper,");
    svg.text([left - 130.0, 58.0], "start", 13, "its item in examples/annotated.rs,");
    svg.text([left - 130.0, 76.0], "start", 13, "its file in transformer-core/src");
    svg.text([left - 130.0, 112.0], "start", 13, "whole model: Transformer, models/transformer.rs");
    svg.finish()
}

/// A column of boxes with arrows, and a residual connection around each sub-layer on one side.
fn column(svg: &mut Svg, x: f64, parts: &[Part], side: f64) {
    let centre = x + BOX[0] / 2.0;
    for (floor, (name, item, file, fill)) in parts.iter().enumerate() {
        let y = top(floor);
        let from = if floor == 0 { 1028.0 } else { top(floor - 1) };
        svg.arrow(&[[centre, from], [centre, y + BOX[1] + 1.0]], "#444");
        svg.boxed([x, y], BOX, fill, &[name, item, file]);
        if *name == "Add & Norm" {
            let edge = centre + side * BOX[0] / 2.0;
            let (aside, below) = (edge + side * 24.0, top(floor - 1) + BOX[1] + 14.0);
            let middle = y + BOX[1] / 2.0;
            svg.arrow(&[[centre, below], [aside, below], [aside, middle], [edge, middle]], "#444");
        }
    }
    if side > 0.0 {
        svg.arrow(&[[centre, top(parts.len() - 1)], [centre, top(parts.len() - 1) - 26.0]], "#444");
    }
}
