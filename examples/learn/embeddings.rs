//! Page 1: tokens and embeddings.

use burn::module::Param;
use burn::nn::Embedding;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};

use crate::annotated::{EOS, Sizes, Transformer, ids, positions};
use crate::svg::{DARK, Svg};
use crate::{B, Listing, Picture, show};

pub const LISTINGS: &[Listing] =
    &[("lookup", lookup), ("scale", scale), ("text_to_batch", text_to_batch)];
pub const PICTURES: &[Picture] = &[("tokens-to-vectors", tokens_to_vectors)];

const VOCABULARY: [&str; 11] =
    ["<pad>", "<bos>", "<eos>", "<unk>", "the", "animal", "was", "tired", "it", "slept", "because"];

fn id(token: &str) -> u32 {
    let found = VOCABULARY.iter().position(|known| *known == token);
    found.unwrap_or(3) as u32 // 3: <unk>
}

fn text_to_batch() {
    let mut rows = vec![];
    for text in ["it slept because it was tired", "the zebra slept"] {
        let tokens = Vec::from_iter(text.split(' '));
        rows.push(Vec::from_iter(tokens.iter().map(|token| id(token))));
        println!("tokens {}: ids {:?}", tokens.join(" | "), rows[rows.len() - 1]);
    }
    let batch = ids::<B>(&[], &rows, &[EOS], &Default::default());
    let [_, len] = batch.dims();
    println!("batch {:?}", batch.dims());
    for row in Vec::from_iter(batch.into_data().iter::<u32>()).chunks(len) {
        println!("{row:?}");
    }
}

fn lookup() {
    let device = Default::default();
    let matrix = Tensor::<B, 2>::from_data(
        [[0.0, 0.1, 0.2], [1.0, 1.1, 1.2], [2.0, 2.1, 2.2], [3.0, 3.1, 3.2], [4.0, 4.1, 4.2]],
        &device,
    );
    let tokens = Tensor::<B, 2, Int>::from_data([[3, 1, 3]], &device);
    let embedding = Embedding { weight: Param::from_tensor(matrix.clone()) };
    show("rows 3, 1 and 3", embedding.forward(tokens.clone()).squeeze_dim(0));
    let one_hot = tokens.one_hot::<3>(5).float().squeeze_dim::<2>(0);
    show("one-hot", one_hot.clone());
    show("one-hot times the matrix", one_hot.matmul(matrix));
}

fn scale() {
    let device = Default::default();
    B::seed(&device, 0);
    let size = |x: Tensor<B, 2>| x.powf_scalar(2.0).mean().sqrt().into_scalar();
    println!("d_model   matrix   matrix · √d_model   positions   logits   logits · √d_model");
    for d_model in [16, 256, 512] {
        let root = (d_model as f32).sqrt();
        let tiny = Sizes { vocabulary: 1000, d_model, heads: 1, d_ff: 1, layers: 0, dropout: 0.0 };
        let rows = Transformer::<B>::new(&tiny, &device).embedding.weight.val();
        let position = size(positions(50, d_model, &device));
        let decoded = Tensor::random([500, d_model], Distribution::Normal(0.0, 1.0), &device);
        let (row, logit) = (size(rows.clone()), size(decoded.matmul(rows.transpose())));
        let (scaled, larger) = (row * root, logit * root);
        println!(
            "{d_model:7}   {row:6.2}   {scaled:17.1}   {position:9.1}   {logit:6.1}   {larger:17.0}"
        );
    }
}

fn tokens_to_vectors() -> String {
    let text = ["it", "slept", "because", "it", "was", "tired"];
    let features = 6;
    let row = |token: usize| {
        let value = |feature| (1.7 * (token * features + feature) as f32).sin();
        Vec::from_iter((0..features).map(value))
    };
    let (token_x, id_x, matrix, output) = (62.0, 150.0, [310.0, 70.0], [560.0, 98.0]);
    let (step, cell) = (34.0, 24.0);
    let mut svg = Svg::new(740.0, 350.0);
    for (x, title) in [(token_x, "tokens"), (id_x, "ids")] {
        svg.text([x, 44.0], "middle", 13, title);
    }
    svg.text([matrix[0] + 72.0, 30.0], "middle", 13, "embedding matrix");
    svg.text([matrix[0] + 72.0, 48.0], "middle", 11, "[vocabulary, d_model]");
    svg.text([output[0] + 72.0, 58.0], "middle", 13, "vectors");
    svg.text([output[0] + 72.0, 76.0], "middle", 11, "[len, d_model]");
    let rows = Vec::from_iter((0..VOCABULARY.len()).map(row));
    svg.heat_map(matrix, cell, &rows, &VOCABULARY, &[]);
    let found = text.map(|token| id(token) as usize);
    svg.heat_map(output, cell, &found.map(row), &[], &[]);
    for (i, (token, id)) in text.iter().zip(found).enumerate() {
        let y = 90.0 + step * i as f64;
        svg.boxed([token_x - 40.0, y - 14.0], [80.0, 28.0], "#fff", &[token]);
        svg.arrow(&[[token_x + 40.0, y], [id_x - 18.0, y]], "#444");
        svg.boxed([id_x - 18.0, y - 14.0], [36.0, 28.0], "#dce8f5", &[&id.to_string()]);
        let of_row = matrix[1] + cell * (id as f64 + 0.5);
        svg.line(&[[id_x + 18.0, y], [matrix[0] - 62.0, of_row]], DARK, 1.2);
        let of_vector = output[1] + cell * (i as f64 + 0.5);
        let right = matrix[0] + cell * features as f64;
        svg.arrow(&[[right, of_row], [output[0], of_vector]], DARK);
    }
    svg.finish()
}
