//! Page 9: training.

use burn::tensor::backend::Backend;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::annotated::{BOS, EOS, Sizes, Transformer, ids, loss, rate};
use crate::svg::{DARK, Svg};
use crate::{B, Listing, Picture};

pub const LISTINGS: &[Listing] =
    &[("adam_steps", adam_steps), ("rates", rates), ("loss_at_the_start", loss_at_the_start)];
pub const PICTURES: &[Picture] = &[("learning-rate", schedules)];

fn adam_steps() {
    let (beta_1, beta_2, epsilon) = (0.9_f64, 0.98_f64, 1e-9);
    for gradients in [[1.0, 1.0, 1.0], [0.001, 0.001, 0.001], [1.0, -1.0, 1.0]] {
        print!("gradients {gradients:?}, steps");
        let (mut m, mut v) = (0.0, 0.0);
        for (t, g) in (1..).zip(gradients) {
            m = beta_1 * m + (1.0 - beta_1) * g;
            v = beta_2 * v + (1.0 - beta_2) * g * g;
            let m_hat = m / (1.0 - beta_1.powi(t));
            let v_hat: f64 = v / (1.0 - beta_2.powi(t));
            print!("{:7.3}", m_hat / (v_hat.sqrt() + epsilon));
        }
        println!(" times the rate");
    }
}

fn rates() {
    for step in [1, 100, 1000, 4000, 16_000, 100_000] {
        println!("update {step:6}: rate {:.3e}", rate(step, 512, 4000));
    }
}

fn loss_at_the_start() {
    let device = Default::default();
    B::seed(&device, 0);
    let mut random = ChaCha8Rng::seed_from_u64(0);
    for vocabulary in [23, 1000, 8000] {
        let sizes = Sizes { vocabulary, d_model: 64, heads: 4, d_ff: 256, layers: 2, dropout: 0.0 };
        let model = Transformer::<B>::new(&sizes, &device);
        let mut token = |_| random.random_range(3..vocabulary as u32);
        let rows = Vec::from_iter((0..50).map(|_| Vec::from_iter((0..10).map(&mut token))));
        let memory = model.encode(ids(&[], &rows, &[], &device));
        let logits = model.decode(ids(&[BOS], &rows, &[], &device), &memory);
        let loss = loss(logits, ids(&[], &rows, &[EOS], &device), 0.0).into_scalar();
        let expected = (vocabulary as f32).ln();
        let is_near = (loss - expected).abs() < 1.0;
        println!("vocabulary {vocabulary:4}: ln V = {expected:.1}, loss within 1 of it: {is_near}");
    }
}

/// The rate for three warm-ups, d_model 512.
fn schedules() -> String {
    let (left, bottom, width, height) = (70.0, 270.0, 520.0, 230.0);
    let place =
        |step: f64, rate: f64| [left + width * step / 20_000.0, bottom - height * rate / 0.0015];
    let mut svg = Svg::new(640.0, 320.0);
    for tick in 0..=3 {
        let rate = 0.0005 * f64::from(tick);
        svg.line(&[place(0.0, rate), place(20_000.0, rate)], "#ddd", 1.0);
        let [x, y] = place(0.0, rate);
        svg.text([x - 8.0, y + 4.0], "end", 12, &format!("{rate:.4}"));
    }
    for tick in 0..=4 {
        let step = 5000.0 * f64::from(tick);
        let [x, y] = place(step, 0.0);
        svg.line(&[[x, y], [x, y + 5.0]], "#444", 1.0);
        svg.text([x, y + 20.0], "middle", 12, &format!("{step}"));
    }
    svg.line(&[place(0.0, 0.0015), place(0.0, 0.0), place(20_000.0, 0.0)], "#444", 1.0);
    svg.text([left + width / 2.0, bottom + 42.0], "middle", 13, "update");
    svg.text([left - 55.0, 22.0], "start", 13, "learning rate");
    for (warmup, colour) in [(1000, "#c98a2b"), (4000, DARK), (8000, "#3f8f5b")] {
        let steps = (0..=200).map(|point| 100 * point);
        let points = steps.map(|step| place(step as f64, rate(step, 512, warmup)));
        svg.line(&Vec::from_iter(points), colour, 2.0);
        let [x, y] = place(warmup as f64, rate(warmup, 512, warmup));
        svg.text([x + 8.0, y - 6.0], "start", 12, &format!("warm-up {warmup}"));
    }
    svg.finish()
}
