//! Page 5: masks.

use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};

use crate::annotated::{BOS, Sizes, Transformer, causal_mask, ids, padding_mask};
use crate::svg::Svg;
use crate::{B, Listing, Picture};

pub const LISTINGS: &[Listing] = &[
    ("padding_rows", padding_rows),
    ("causal_rows", causal_rows),
    ("ways_to_hide", ways_to_hide),
    ("change_a_later_token", change_a_later_token),
    ("padded_targets", padded_targets),
];
pub const PICTURES: &[Picture] = &[("masks", three_masks)];

type Mask = Tensor<B, 4, Bool>;

/// Sentences as rows of token ids: each new word gets the next free id.
fn rows_of(sentences: &[&str]) -> Vec<Vec<u32>> {
    let mut known = Vec::new();
    let mut id = |word| {
        let at = known.iter().position(|other| *other == word);
        let at = at.unwrap_or_else(|| {
            known.push(word);
            known.len() - 1
        });
        at as u32 + 3 // after <pad>, <bos>, <eos>
    };
    let rows = sentences.iter().map(|sentence| sentence.split(' ').map(&mut id).collect());
    rows.collect()
}

/// Prints a mask, a row per query: `x` is hidden.
fn print_mask(mask: Mask, names: &[&str]) {
    let [_, _, _, key_len] = mask.dims();
    let hidden: Vec<bool> = mask.into_data().iter().collect();
    for (row, name) in hidden.chunks(key_len).zip(names) {
        let row = row.iter().map(|&hidden| if hidden { "  x" } else { "  ." });
        println!("{name:>6}{}", row.collect::<String>());
    }
}

fn padding_rows() {
    let sentences = ["the dog runs very fast", "a small child in a red coat walks along the beach"];
    let tokens = ids::<B>(&[], &rows_of(&sentences), &[], &Default::default());
    println!("token ids {:?}", tokens.dims());
    for (row, number) in tokens.to_data().iter::<u32>().collect::<Vec<_>>().chunks(11).zip(1..) {
        let row = row.iter().map(|id| format!("{id:3}"));
        println!(" row {number}{}", row.collect::<String>());
    }
    let mask = padding_mask(tokens);
    println!("mask {:?}", mask.dims());
    print_mask(mask, &["row 1", "row 2"]);
}

fn causal_rows() {
    let words = ["<bos>", "le", "chien", "court", "vite"];
    print_mask(causal_mask(words.len(), &Default::default()), &words);
}

fn ways_to_hide() {
    let scores = || Tensor::<B, 2>::from_data([[2.0, 1.0, 3.0]], &Default::default());
    let third = || Tensor::<B, 2, Bool>::from_data([[false, false, true]], &Default::default());
    let before = |value: f32| softmax(scores().mask_fill(third(), value), 1);
    let ways = [
        ("nothing hidden", softmax(scores(), 1)),
        ("0 after the softmax", softmax(scores(), 1).mask_fill(third(), 0.0)),
        ("0 before the softmax", before(0.0)),
        ("-1e-20 before the softmax", before(-1e-20)),
        ("-1e9 before the softmax", before(-1e9)),
        ("-∞ before the softmax", before(f32::NEG_INFINITY)),
    ];
    for (way, weights) in ways {
        let weights: Vec<f32> = weights.into_data().iter().collect();
        println!("{way:26} {weights:.2?}  sum {:.2}", weights.iter().sum::<f32>());
    }
}

fn small_model() -> Transformer<B> {
    let device = Default::default();
    B::seed(&device, 0);
    let sizes = Sizes { vocabulary: 23, d_model: 16, heads: 2, d_ff: 32, layers: 2, dropout: 0.0 };
    Transformer::new(&sizes, &device)
}

/// `Transformer::decode` with a mask of your choice.
fn decode(
    model: &Transformer<B>,
    target: Tensor<B, 2, Int>,
    mask: Mask,
    memory: &(Tensor<B, 3>, Mask),
) -> Tensor<B, 3> {
    let mut x = model.embed(target);
    for layer in &model.decoder {
        x = layer.forward(x, mask.clone(), Some(memory.clone()));
    }
    x.matmul(model.embedding.weight.val().transpose().unsqueeze())
}

/// Prints which positions have other vectors than before, a row per sequence.
pub fn print_changes(names: &[&str], before: Tensor<B, 3>, after: Tensor<B, 3>) {
    let [_, len, _] = before.dims();
    let change = (before - after).abs().max_dim(2).into_data();
    let change: Vec<f32> = change.iter().collect();
    for (row, name) in change.chunks(len).zip(names) {
        let row = row.iter().map(|&change| if change < 1e-5 { "same" } else { "changed" });
        println!("{name:16}{}", row.map(|word| format!("{word:>9}")).collect::<String>());
    }
}

fn change_a_later_token() {
    let (model, device) = (small_model(), Default::default());
    let memory = model.encode(ids(&[], &rows_of(&["the dog runs fast"]), &[], &device));
    let rows = rows_of(&["le chien court vite", "le chien dort vite"]);
    let target = |row: usize| ids::<B>(&[BOS], &rows[row..=row].to_vec(), &[], &device);
    println!("{:>25}{:>9}{:>9}{:>9}{:>9}", "<bos>", "le", "chien", "dort", "vite");
    let nothing = Tensor::from_data([[[[false]]]], &device);
    for (name, mask) in [("causal mask", causal_mask(5, &device)), ("nothing hidden", nothing)] {
        let logits = |row| decode(&model, target(row), mask.clone(), &memory);
        print_changes(&[name], logits(0), logits(1));
    }
}

fn padded_targets() {
    let (model, device) = (small_model(), Default::default());
    let sources = rows_of(&["the dog sleeps", "the dog runs fast"]);
    let memory = model.encode(ids(&[], &sources, &[], &device));
    let targets = rows_of(&["le chien", "le chien court vite"]);
    let targets = ids::<B>(&[BOS], &targets, &[], &device);
    let causal = causal_mask(5, &device).expand([2, 1, 5, 5]);
    let both = causal.clone().bool_or(padding_mask(targets.clone()).expand([2, 1, 5, 5]));
    let logits = |mask| decode(&model, targets.clone(), mask, &memory);
    print_changes(&["row 1", "row 2"], logits(causal), logits(both));
}

fn three_masks() -> String {
    let words = ["<bos>", "le", "chien", "<pad>", "<pad>"];
    let device = Default::default();
    let row = ids::<B>(&[BOS], &vec![vec![3, 4, 0, 0]], &[], &device);
    let causal: Mask = causal_mask(5, &device);
    let padding = padding_mask(row).expand([1, 1, 5, 5]);
    let both = causal.clone().bool_or(padding.clone());
    let panels = [
        (causal, "causal mask", "[1, 1, 5, 5]: the future"),
        (padding, "padding mask", "[batch, 1, 1, 5]: the same row for each query"),
        (both, "combined", "[batch, 1, 5, 5]: hidden by one or the other"),
    ];
    let mut svg = Svg::new(880.0, 324.0);
    for (number, (mask, title, below)) in panels.into_iter().enumerate() {
        let (x, middle) = (95.0 + 262.0 * number as f64, 207.5 + 262.0 * number as f64);
        let hidden: Vec<bool> = mask.into_data().iter().collect();
        let shade = |hidden: &bool| if *hidden { 0.75 } else { 0.0 };
        let rows = hidden.chunks(5).map(|row| row.iter().map(shade).collect());
        svg.text([middle, 22.0], "middle", 14, title);
        let beside = if number == 0 { &words[..] } else { &[] };
        svg.heat_map([x, 60.0], 45.0, &rows.collect::<Vec<_>>(), beside, &words);
        svg.text([middle, 306.0], "middle", 11, below);
    }
    svg.text([4.0, 34.0], "start", 11, "blue: hidden");
    svg.text([4.0, 50.0], "start", 11, "query ↓ key →");
    svg.finish()
}
