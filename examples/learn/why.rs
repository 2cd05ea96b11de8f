//! Page 0: recurrence and attention.

use burn::tensor::{Bool, Tensor};

use crate::annotated::attention;
use crate::svg::{DARK, Svg};
use crate::{B, Listing, Picture};

pub const LISTINGS: &[Listing] = &[("influence", influence), ("table_1", table_1)];
pub const PICTURES: &[Picture] = &[("recurrence-and-attention", recurrence_and_attention)];

fn influence() {
    let device = Default::default();
    let row = |values: &[f32]| {
        Tensor::<B, 1>::from_floats(values, &device).reshape([1, 1, values.len(), 1])
    };
    println!("words   recurrence   attention, equal keys   attention, matching key");
    for n in [2, 5, 10, 20, 50, 100] {
        let mut words = vec![0.0; n];
        words[0] = 1.0; // What is found at the end comes from the first word.
        let state = words.iter().fold(0.0, |state: f32, word| (0.8 * state + word).tanh());
        let attended = |key_of_first: f32| {
            let mut keys = vec![0.0; n];
            keys[0] = key_of_first;
            let mask = Tensor::<B, 4, Bool>::from_data([[[[false]]]], &device);
            attention(row(&[2.0]), row(&keys), row(&words), mask).into_scalar()
        };
        println!("{n:5}   {state:10.3}   {:21.3}   {:23.3}", attended(0.0), attended(3.0));
    }
}

fn table_1() {
    let (d, width, near) = (512, 3, 32);
    println!("    n   layer                   operations   steps in a row   longest path");
    for n in [50_u64, 512, 5000] {
        let layers_to_the_end = (n as f64).log(width as f64).ceil() as u64;
        for (layer, operations, steps, path) in [
            ("attention", n * n * d, 1, 1),
            ("recurrence", n * d * d, n, n),
            ("convolution", width * n * d * d, 1, layers_to_the_end),
            ("attention, restricted", near * n * d, 1, n.div_ceil(near)),
        ] {
            let millions = operations as f64 / 1e6;
            println!("{n:5}   {layer:21} {millions:10.1} M   {steps:14}   {path:12}");
        }
    }
}

fn recurrence_and_attention() -> String {
    let words = ["the", "animal", "was", "so", "tired"];
    let (grey, white, blue) = ("#bbb", "#fff", "#dce8f5");
    let mut svg = Svg::new(760.0, 270.0);
    svg.text([185.0, 24.0], "middle", 14, "Recurrence: 4 steps from h1 to h5");
    svg.text([575.0, 24.0], "middle", 14, "Attention: 1 step from each word to each output");
    let middle = |left: f64, word: usize| left + 70.0 * word as f64;
    for (i, word) in words.iter().enumerate() {
        let x = middle(45.0, i);
        svg.boxed([x - 28.0, 205.0], [56.0, 32.0], white, &[word]);
        svg.arrow(&[[x, 205.0], [x, 152.0]], "#444");
        svg.boxed([x - 22.0, 118.0], [44.0, 32.0], blue, &[&format!("h{}", i + 1)]);
        svg.text([x, 105.0], "middle", 12, &format!("step {}", i + 1));
        if i > 0 {
            svg.line(&[[middle(45.0, i - 1) + 22.0, 134.0], [x - 26.0, 134.0]], DARK, 4.0);
            svg.arrow(&[[x - 27.0, 134.0], [x - 22.0, 134.0]], "#444");
        }
    }
    for i in 0..words.len() {
        for j in 0..words.len() {
            svg.line(&[[middle(435.0, j), 205.0], [middle(435.0, i), 102.0]], grey, 1.0);
        }
    }
    svg.line(&[[middle(435.0, 0), 205.0], [middle(435.0, 4), 102.0]], DARK, 4.0);
    for (i, word) in words.iter().enumerate() {
        let x = middle(435.0, i);
        svg.boxed([x - 28.0, 205.0], [56.0, 32.0], white, &[word]);
        svg.boxed([x - 22.0, 70.0], [44.0, 32.0], blue, &[&format!("y{}", i + 1)]);
    }
    svg.text([575.0, 58.0], "middle", 12, "all in one step");
    svg.finish()
}
