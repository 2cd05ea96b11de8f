//! Page 4: heads.

use burn::module::Module;
use burn::tensor::{Bool, Tensor};

use crate::annotated::{MultiHeadAttention, attention_weights, positions};
use crate::svg::Svg;
use crate::{B, Listing, Picture, show};

pub const LISTINGS: &[Listing] = &[
    ("cost", cost),
    ("einsum", einsum),
    ("forgotten_swap", forgotten_swap),
    ("shapes", shapes),
    ("split", split),
];
pub const PICTURES: &[Picture] = &[("heads", heads_picture)];

fn nothing_hidden() -> Tensor<B, 4, Bool> {
    Tensor::<B, 4, Bool>::from_data([[[[false]]]], &Default::default())
}

fn split() {
    let rows = [
        [11.0, 12.0, 13.0, 14.0, 15.0, 16.0], // word 1: features 1 to 6
        [21.0, 22.0, 23.0, 24.0, 25.0, 26.0],
        [31.0, 32.0, 33.0, 34.0, 35.0, 36.0],
        [41.0, 42.0, 43.0, 44.0, 45.0, 46.0],
    ];
    let x = Tensor::<B, 3>::from_data([rows], &Default::default());
    let cut = x.clone().reshape([1, 4, 2, 3]);
    let heads = cut.clone().swap_dims(1, 2);
    println!("{:?} reshape {:?} swap_dims {:?}", x.dims(), cut.dims(), heads.dims());
    let head = |heads: &Tensor<B, 4>, number: usize| {
        heads.clone().slice_dim(1, number..number + 1).squeeze_dims::<2>(&[0, 1])
    };
    show("head 1", head(&heads, 0));
    show("head 2", head(&heads, 1));
    let joined = heads.swap_dims(1, 2).flatten::<3>(2, 3);
    println!("joined {:?}, equal to x: {}", joined.dims(), joined.to_data() == x.to_data());
    show("head 1 of reshape([1, 2, 4, 3])", head(&x.reshape([1, 2, 4, 3]), 0));
}

fn forgotten_swap() {
    let x = positions::<B>(4, 6, &Default::default()).unsqueeze::<3>();
    let other = x.clone().slice_fill([0..1, 0..1, 0..6], 2.0); // another word 1
    for (shape, swaps) in [([1, 4, 2, 3], true), ([1, 4, 2, 3], false), ([1, 2, 4, 3], false)] {
        let swap = |heads: Tensor<B, 4>| if swaps { heads.swap_dims(1, 2) } else { heads };
        let attend = |x: &Tensor<B, 3>| {
            let heads = swap(x.clone().reshape(shape));
            let weights = attention_weights(heads.clone(), heads.clone(), nothing_hidden());
            (weights.dims(), swap(weights.matmul(heads)).reshape([1, 4, 6]))
        };
        let ((weights, before), (_, after)) = (attend(&x), attend(&other));
        let change = (after - before).abs().max_dim(2).into_data();
        let changed = (1..=4).zip(change.iter::<f32>()).filter(|(_, change)| *change > 1e-3);
        let words = Vec::from_iter(changed.map(|(word, _)| word));
        println!("reshape({shape:?}), swap_dims: {swaps}");
        println!("  weights {weights:?}, outputs that change: {words:?}");
    }
}

fn shapes() {
    let device = Default::default();
    let layer = MultiHeadAttention::<B>::new(512, 8, &device);
    let x = Tensor::<B, 3>::zeros([2, 5, 512], &device);
    let memory = Tensor::<B, 3>::zeros([2, 7, 512], &device);
    println!("x, memory       {:?}, {:?}", x.dims(), memory.dims());
    let q = layer.query.forward(x);
    println!("x W^Q           {:?}", q.dims());
    let q = layer.split(q);
    let k = layer.split(layer.key.forward(memory.clone()));
    let v = layer.split(layer.value.forward(memory));
    println!("queries, keys   {:?}, {:?}", q.dims(), k.dims());
    let weights = attention_weights(q, k, nothing_hidden());
    println!("weights         {:?}", weights.dims());
    let heads = weights.matmul(v);
    println!("heads           {:?}", heads.dims());
    let joined = heads.swap_dims(1, 2).flatten::<3>(2, 3);
    println!("side by side    {:?}", joined.dims());
    println!("times W^O       {:?}", layer.output.forward(joined).dims());
}

fn cost() {
    let (d_model, n) = (512, 100);
    println!("heads   d_k   parameters   multiplications   elements of weights");
    for heads in [1, 2, 4, 8, 16] {
        let d_k = d_model / heads;
        let layer = MultiHeadAttention::<B>::new(d_model, heads, &Default::default());
        let projections = 4 * n * d_model * d_model;
        let attention = heads * (n * n * d_k + n * n * d_k); // Q Kᵀ, weights times V
        let multiplications = projections + attention;
        let parameters = layer.num_params();
        println!(
            "{heads:5}   {d_k:3}   {parameters:10}   {multiplications:15}   {:19}",
            heads * n * n
        );
    }
}

fn einsum() {
    let matrix = |first: i64| {
        let numbers = Vec::from_iter((first..first + 16).map(|number| number as f32));
        Tensor::<B, 1>::from_floats(numbers.as_slice(), &Default::default()).reshape([4, 4])
    };
    let (a, b): (Tensor<B, 2>, Tensor<B, 2>) = (matrix(1), matrix(100));
    let print = |name: &str, first_row: Tensor<B, 1>| {
        println!("{name}: {:?}", Vec::from_iter(first_row.into_data().iter::<i64>()));
    };
    let product = a.clone().matmul(b.clone());
    print("ij,jk->ik  ", product.slice_dim(0, 0..1).squeeze_dim(0));
    let product = a.clone().matmul(b.clone().transpose());
    print("ij,kj->ik  ", product.slice_dim(0, 0..1).squeeze_dim(0));
    let product = a.clone().unsqueeze_dim::<3>(1) * b.clone().unsqueeze_dim::<3>(0);
    print("ij,kj->ikj ", product.slice([0..1, 0..1, 0..4]).flatten(0, 2));
    let product = a.reshape([4, 4, 1, 1]) * b.reshape([1, 1, 4, 4]);
    print("ij,kl->ijkl", product.slice([0..1, 0..1, 0..1, 0..4]).flatten(0, 3));
}

fn heads_picture() -> String {
    let colours = ["#9ecae1", "#fdd49e", "#c7e9c0", "#dadaeb"];
    let (left, cell, middle) = (140.0, 30.0, 260.0);
    let mut svg = Svg::new(680.0, 464.0);
    let feature = |svg: &mut Svg, x: f64, y: f64, fill: &str| svg.rect([x, y], [cell, cell], fill);
    for place in 0..8 {
        let x = left + cell * place as f64;
        for (y, fill) in [(20.0, "#eee"), (94.0, colours[place / 2])] {
            feature(&mut svg, x, y, fill);
            feature(&mut svg, x, 434.0 - y, fill); // the way back
        }
    }
    svg.arrow(&[[middle, 50.0], [middle, 92.0]], "#444");
    svg.arrow(&[[middle, 370.0], [middle, 412.0]], "#444");
    for (head, colour) in colours.iter().enumerate() {
        let x = middle - 198.0 + 112.0 * head as f64;
        let together = left + cell * (2.0 * head as f64 + 1.0);
        svg.arrow(&[[together, 124.0], [x + cell, 164.0]], "#444");
        for y in [166.0, 268.0] {
            feature(&mut svg, x, y, colour);
            feature(&mut svg, x + cell, y, colour);
        }
        let name = format!("head {}", head + 1);
        svg.arrow(&[[x + cell, 196.0], [x + cell, 210.0]], "#444");
        svg.boxed([x - 12.0, 212.0], [84.0, 40.0], "#fff", &["attention", &name]);
        svg.arrow(&[[x + cell, 252.0], [x + cell, 266.0]], "#444");
        svg.arrow(&[[x + cell, 298.0], [together, 338.0]], "#444");
    }
    for (y, label) in [
        (39.0, "x: d_model = 8 features"),
        (75.0, "times W^Q; W^K, W^V alike"),
        (113.0, "queries of all heads: 8"),
        (149.0, "split"),
        (185.0, "4 heads of d_k = 2"),
        (287.0, "4 outputs of 2"),
        (323.0, "side by side"),
        (359.0, "outputs of all heads: 8"),
        (395.0, "times W^O: mixes the heads"),
        (433.0, "output: 8"),
    ] {
        svg.text([476.0, y], "start", 12, label);
    }
    svg.finish()
}
