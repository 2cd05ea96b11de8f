//! Page 6: the feed-forward network, and what is around each sub-layer.

use burn::backend::Autodiff;
use burn::module::Param;
use burn::nn::{DropoutConfig, LayerNorm, LayerNormConfig, Linear};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Distribution, Tensor, TensorData};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::annotated::{FeedForward, MultiHeadAttention};
use crate::masks::print_changes;
use crate::svg::{DARK, Svg};
use crate::{B, Listing, Picture, show};

pub const LISTINGS: &[Listing] = &[
    ("absolute_values", absolute_values),
    ("change_one_position", change_one_position),
    ("one_row", one_row),
    ("gradient_path", gradient_path),
    ("dropout_twice", dropout_twice),
];
pub const PICTURES: &[Picture] = &[("sublayer", post_and_pre_norm)];

/// A tensor for training: it keeps what the backward pass needs.
type Vectors = Tensor<Autodiff<B>, 3>;

fn absolute_values() {
    let device = Default::default();
    let linear = |weight| Linear { weight: Param::from_tensor(weight), bias: None };
    let inner = [[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]];
    let outer = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]];
    let network = FeedForward::<B> {
        inner: linear(Tensor::from_data(inner, &device)),
        outer: linear(Tensor::from_data(outer, &device)),
    };
    let x = Tensor::<B, 2>::from_data([[1.0, -2.0], [-3.0, 0.5], [0.0, 4.0]], &device);
    let forward = |x: Tensor<B, 2>| network.forward(x.unsqueeze()).squeeze_dim::<2>(0);
    show("x: a row per position", x.clone());
    show("x W₁, then max(0, ·)", relu(network.inner.forward(x.clone())));
    show("FFN(x)", forward(x.clone()));
    show("FFN of the rows of x in reverse order", forward(x.flip([0])));
}

/// A network of `d_model` 32 whose weights are the same on every backend.
fn feed_forward<B: Backend>(random: &mut ChaCha8Rng) -> FeedForward<B> {
    let mut linear = |inputs: usize, outputs: usize| {
        let limit = (6.0 / (inputs + outputs) as f32).sqrt(); // Xavier's
        let weight = Tensor::<B, 3>::from_data(
            uniform(random, [1, inputs, outputs], limit),
            &Default::default(),
        );
        Linear { weight: Param::from_tensor(weight.squeeze_dim(0)), bias: None }
    };
    FeedForward { inner: linear(32, 128), outer: linear(128, 32) }
}

/// Random values between -limit and limit.
fn uniform(random: &mut ChaCha8Rng, shape: [usize; 3], limit: f32) -> TensorData {
    let values = (0..shape.iter().product()).map(|_| random.random_range(-limit..limit));
    TensorData::new(values.collect::<Vec<f32>>(), shape)
}

fn change_one_position() {
    let device = Default::default();
    B::seed(&device, 0);
    let network = feed_forward::<B>(&mut ChaCha8Rng::seed_from_u64(0));
    let attention = MultiHeadAttention::<B>::new(32, 4, &device);
    let x = Tensor::<B, 3>::random([1, 5, 32], Distribution::Normal(0.0, 1.0), &device);
    let other = x.clone().slice_assign([0..1, 2..3, 0..32], Tensor::ones([1, 1, 32], &device));
    let nothing = Tensor::<B, 4, Bool>::from_data([[[[false]]]], &device);
    let attend = |x: Tensor<B, 3>| attention.forward(x.clone(), x, nothing.clone());
    print_changes(&["input"], x.clone(), other.clone());
    print_changes(&["feed-forward"], network.forward(x.clone()), network.forward(other.clone()));
    print_changes(&["self-attention"], attend(x), attend(other));
}

fn one_row() {
    let device = Default::default();
    let mut norm = LayerNormConfig::new(4).init::<B>(&device);
    let row = [[1.0, 9.0, 7.0, 7.0]];
    let row = || Tensor::<B, 2>::from_data(row, &device);
    show("norm of 1 9 7 7", norm.forward(row()));
    show("norm of 110 190 170 170", norm.forward(row() * 10.0 + 100.0));
    show("norm of 5 5 5 5", norm.forward(row() * 0.0 + 5.0));
    norm.gamma = Param::from_tensor(Tensor::from_data([2.0, 1.0, 1.0, 1.0], &device));
    norm.beta = Some(Param::from_tensor(Tensor::from_data([0.0, 0.0, 0.0, 8.0], &device)));
    show("norm of 1 9 7 7 with gain 2 1 1 1 and shift 0 0 0 8", norm.forward(row()));
}

/// A network and what is around it.
type Layer = fn(&FeedForward<Autodiff<B>>, &LayerNorm<Autodiff<B>>, Vectors) -> Vectors;

/// The mean size of the gradient at the input of a stack, where it is 1 at the output.
fn gradient(layers: usize, layer: Layer) -> f32 {
    let (device, norm) = (Default::default(), LayerNormConfig::new(32).init(&Default::default()));
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let mut vectors =
        || Vectors::from_data(uniform(&mut random, [1, 50, 32], 3_f32.sqrt()), &device);
    let (x, direction) = (vectors().require_grad(), vectors());
    let up = |x, _| layer(&feed_forward(&mut random), &norm, x);
    let y = (0..layers).fold(x.clone(), up);
    let gradient = x.grad(&(y * direction.clone()).sum().backward()).unwrap();
    let size = |gradient: Tensor<B, 3>| gradient.powf_scalar(2.0).mean().sqrt().into_scalar();
    size(gradient) / size(direction.inner())
}

fn gradient_path() {
    println!("layers   network alone   residual   post-norm   pre-norm");
    for layers in [1, 6, 12, 24] {
        let alone = gradient(layers, |network, _, x| network.forward(x));
        let residual = gradient(layers, |network, _, x| x.clone() + network.forward(x));
        let post =
            gradient(layers, |network, norm, x| norm.forward(x.clone() + network.forward(x)));
        let pre = gradient(layers, |network, norm, x| x.clone() + network.forward(norm.forward(x)));
        println!("{layers:6} {alone:15.0e} {residual:10.1} {post:11.1} {pre:10.1}");
    }
}

fn dropout_twice() {
    let (dropout, device) = (DropoutConfig::new(0.1).init(), Default::default());
    B::seed(&device, 0);
    let training = dropout.forward(Tensor::<Autodiff<B>, 1>::ones([100_000], &device));
    let inference = dropout.forward(Tensor::<B, 1>::ones([100_000], &device));
    for (name, output) in [("training", training.inner()), ("inference", inference)] {
        let values: Vec<f32> = output.into_data().iter().collect();
        let zeros = values.iter().filter(|&&value| value == 0.0).count() as f64 / 1000.0;
        let largest = values.iter().copied().fold(0.0, f32::max);
        let mean = values.iter().sum::<f32>() / 100_000.0;
        println!("{name:9}: {zeros:2.0} % are 0, the others {largest:.2}, mean {mean:.2}");
    }
}

fn post_and_pre_norm() -> String {
    let mut svg = Svg::new(660.0, 400.0);
    let parts = [
        ("Post-norm, as in the paper", ["sub-layer", "dropout", "+", "layer norm"]),
        ("Pre-norm, as in many later models", ["layer norm", "sub-layer", "dropout", "+"]),
    ];
    for (column, (title, boxes)) in parts.into_iter().enumerate() {
        let middle = 180.0 + 320.0 * column as f64;
        svg.text([middle, 24.0], "middle", 14, title);
        svg.text([middle, 390.0], "middle", 13, "x");
        for (number, name) in boxes.into_iter().enumerate() {
            let bottom = 345.0 - 70.0 * number as f64;
            svg.arrow(&[[middle, bottom + 29.0], [middle, bottom + 2.0]], "#444");
            let (width, fill) = match name {
                "+" => (36.0, "#fff"),
                "layer norm" => (130.0, "#fdf3c8"),
                "dropout" => (130.0, "#eee"),
                _ => (130.0, "#d4e6f7"),
            };
            let place = [middle - width / 2.0, bottom - 40.0];
            svg.boxed(place, [width, 40.0], fill, &[name]);
            if name == "+" {
                let aside = middle - 100.0;
                let path = [
                    [middle, 362.0],
                    [aside, 362.0],
                    [aside, bottom - 20.0],
                    [middle - 19.0, bottom - 20.0],
                ];
                svg.arrow(&path, DARK);
                svg.text([aside - 6.0, 240.0], "end", 11, "residual");
            }
        }
        svg.arrow(&[[middle, 95.0], [middle, 62.0]], "#444");
        svg.text([middle, 54.0], "middle", 13, "output");
    }
    svg.finish()
}
