//! Page 2: positions.

use std::f64::consts::TAU;

use burn::tensor::{Bool, Tensor};

use crate::annotated::{attention, positions};
use crate::svg::Svg;
use crate::{B, Listing, Picture, show};

pub const LISTINGS: &[Listing] = &[
    ("distances", distances),
    ("order", order),
    ("sign_slip", sign_slip),
    ("small_matrix", small_matrix),
];
pub const PICTURES: &[Picture] = &[("positions", positions_picture)];

fn order() {
    let device = Default::default();
    let dog_bites_man = Tensor::<B, 2>::from_data(
        [[2.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 1.0], [1.0, 0.0, 2.0, 0.0]],
        &device,
    );
    let man_bites_dog = dog_bites_man.clone().flip([0]);
    let attend = |words: Tensor<B, 2>| {
        let x = words.unsqueeze::<4>();
        let mask = Tensor::<B, 4, Bool>::from_data([[[[false]]]], &device);
        attention(x.clone(), x.clone(), x, mask).squeeze_dims::<2>(&[0, 1])
    };
    show("dog, bites, man", attend(dog_bites_man.clone()));
    show("man, bites, dog", attend(man_bites_dog.clone()));
    let encoding = positions(3, 4, &device);
    show("dog, bites, man with positions", attend(dog_bites_man + encoding.clone()));
    show("man, bites, dog with positions", attend(man_bites_dog + encoding));
}

fn small_matrix() {
    let encoding = positions::<B>(5, 8, &Default::default()).into_data();
    for (position, row) in Vec::from_iter(encoding.iter::<f32>()).chunks(8).enumerate() {
        let row = row.iter().map(|value| format!("{value:7.3}"));
        println!("position {position}:{}", row.collect::<String>());
    }
    for pair in 0..4 {
        let frequency = 10_000_f64.powf(-2.0 * pair as f64 / 8.0);
        let (sine, cosine) = (2 * pair, 2 * pair + 1);
        print!("features {sine} and {cosine}: frequency {frequency:.3}, ");
        println!("one turn in {:.0} positions", TAU / frequency);
    }
}

fn distances() {
    let encoding = positions::<B>(200, 64, &Default::default());
    let products = encoding.clone().matmul(encoding.transpose());
    println!("distance        0      1      2      4      8     16     64");
    for p in [0, 10, 100] {
        let product = |distance| {
            let later = p + distance;
            products.clone().slice([p..p + 1, later..later + 1]).into_scalar()
        };
        let row = [0, 1, 2, 4, 8, 16, 64].map(|distance| format!("{:7.1}", product(distance)));
        println!("from {p:5}{}", row.concat());
    }
}

fn sign_slip() {
    println!(
        "exponent   frequencies          distance 0      1      2      4      8     16     64"
    );
    for sign in [-1.0, 1.0] {
        let frequency = |pair: i32| 10_000_f64.powf(sign * 2.0 * f64::from(pair) / 64.0);
        let product =
            |distance: f64| (0..32).map(|pair| (distance * frequency(pair)).cos()).sum::<f64>();
        let row = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0]
            .map(|distance| format!("{:7.1}", product(distance)));
        println!("{sign:8}   {:.4} to {:9.4}     {}", frequency(0), frequency(31), row.concat());
    }
}

fn positions_picture() -> String {
    let encoding = positions::<B>(50, 64, &Default::default()).into_data();
    let values = Vec::from_iter(encoding.iter::<f32>());
    let rows = Vec::from_iter(values.chunks(64).map(<[f32]>::to_vec));
    let (left, top, cell) = (70.0, 60.0, 9.0);
    let mut svg = Svg::new(700.0, 570.0);
    svg.fine_heat_map([left, top], cell, &rows);
    svg.text([left + 32.0 * cell, 24.0], "middle", 14, "feature");
    for feature in (0..64).step_by(8) {
        let x = left + cell * (f64::from(feature) + 0.5);
        svg.text([x, top - 8.0], "middle", 12, &feature.to_string());
    }
    svg.text([14.0, 40.0], "start", 14, "position");
    for position in (0..50).step_by(10) {
        let y = top + cell * (f64::from(position) + 0.5) + 4.0;
        svg.text([left - 8.0, y], "end", 12, &position.to_string());
    }
    let legend = Vec::from_iter((-13..=13).map(|level| level as f32 / 13.0));
    svg.fine_heat_map([left + 126.0, 530.0], 12.0, &[legend]);
    svg.text([left + 118.0, 541.0], "end", 12, "-1");
    svg.text([left + 288.0, 558.0], "middle", 12, "0");
    svg.text([left + 458.0, 541.0], "start", 12, "1");
    svg.finish()
}
