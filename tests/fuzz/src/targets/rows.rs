//! The public functions of the kernels on slices, those of packed decoding, against plain loops in double precision.

use std::f64::consts::PI;
use std::path::Path;

use transformer_cpu::rows::{self, Slots, Spread};
use transformer_cpu::{
    Activation, Heads, PackedMatrix, PackedPrecision, ProductBuffer, Threads, WeightLayout,
    quantized_rows,
};

use super::choices::Choices;
use super::{Run, Target};
use crate::guard::panics;
use crate::mutate::Format;

fn target(check: fn(&mut Choices)) -> Target {
    let run: Run = Box::new(move |input| {
        check(&mut Choices::new(input));
        true
    });
    Target {
        format: Format::Choices,
        seeds: Vec::new(),
        run,
    }
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let is_close = (f64::from(found) - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(is_close, "number {at}: {found}, not {expected}");
    }
}

/// `x W + b` of a row, `weight` being `[d_input, d_output]`.
fn product(x: &[f32], weight: &[f64], bias: Option<&[f32]>, d_output: usize) -> Vec<f64> {
    let output = |column: usize| {
        let terms = x.iter().zip(weight.iter().skip(column).step_by(d_output));
        let sum: f64 = terms.map(|(&x, weight)| f64::from(x) * weight).sum();
        sum + bias.map_or(0.0, |bias| f64::from(bias[column]))
    };
    (0..d_output).map(output).collect()
}

/// Products by packed weights, in single precision, in 8 bits, and of weights that are in 8 bits.
pub fn packed(_folder: &Path) -> Target {
    target(|choices| {
        let (n_rows, d_input, d_output) = (choices.size(40), choices.size(97), choices.size(97));
        let x = choices.rows(n_rows, d_input);
        let weight = choices.numbers(d_input * d_output);
        let bias = choices.flag().then(|| choices.numbers(d_output));
        let layout = choices.pick(&[WeightLayout::InputByOutput, WeightLayout::OutputByInput]);
        let precision = choices.pick(&[PackedPrecision::F32, PackedPrecision::Int8]);
        let threads = choices.pick(&[Threads::This, Threads::All]);
        let sizes = [d_input, d_output];
        let matrix = match choices.one_in(3) && precision == PackedPrecision::Int8 {
            true => {
                // Rows of outputs.
                let (q, scales) = quantized_rows(&weight, d_input);
                let d_output_of_rows = q.len().checked_div(d_input).unwrap_or(0);
                match d_output_of_rows == d_output {
                    true => PackedMatrix::from_int8(&q, &scales, sizes),
                    false => return,
                }
            }
            false => PackedMatrix::new(&weight, sizes, layout, precision),
        };
        let mut weights = vec![0.0; d_input * d_output];
        let mut one = vec![0.0; d_input];
        for output in 0..d_output {
            matrix.read_output(output, &mut one);
            for (input, &number) in one.iter().enumerate() {
                weights[input * d_output + output] = f64::from(number);
            }
        }
        let mut out = vec![f32::NAN; n_rows * d_output];
        let mut buffer = ProductBuffer::default();
        matrix.product(&x.values, bias.as_deref(), &mut out, &mut buffer, threads);
        if d_input * d_output > 0 {
            for (row, is_ordinary) in x.is_ordinary.iter().enumerate() {
                let found = &out[row * d_output..][..d_output];
                let own = &x.values[row * d_input..][..d_input];
                if *is_ordinary {
                    let expected = product(own, &weights, bias.as_deref(), d_output);
                    // A row in 8 bits is off by half a step at each of its numbers.
                    let tolerance = match matrix.precision() {
                        PackedPrecision::F32 => 1e-4,
                        PackedPrecision::Int8 => 0.005 * d_input as f64 + 1e-4,
                    };
                    assert_close(found, &expected, tolerance);
                } else if own.iter().any(|number| !number.is_finite())
                    && matrix.precision() == PackedPrecision::Int8
                {
                    assert!(found.iter().all(|number| number.is_nan()));
                }
            }
        }
        // Numbers that are no whole rows.
        if d_input > 1 {
            let mut wrong = x.values.clone();
            wrong.push(0.0);
            assert!(panics(|| matrix.product(
                &wrong,
                None,
                &mut out,
                &mut buffer,
                threads
            )));
        }
    })
}

/// Operations on rows, in place.
pub fn rows(_folder: &Path) -> Target {
    target(|choices| {
        let (n_rows, width) = (choices.size(20), choices.size(130));
        let given = choices.rows(n_rows, width);
        let own = |numbers: &[f32], row: usize| numbers[row * width..][..width].to_vec();
        let check = |found: &[f32], expected: &dyn Fn(&[f64]) -> Vec<f64>| {
            assert_eq!(found.len(), given.values.len());
            for (row, is_ordinary) in given.is_ordinary.iter().enumerate() {
                if *is_ordinary {
                    let x: Vec<f64> = own(&given.values, row).into_iter().map(f64::from).collect();
                    assert_close(&own(found, row), &expected(&x), 1e-4);
                }
            }
        };
        let mut x = given.values.clone();
        match choices.below(4) {
            0 => {
                let y = choices.numbers(n_rows * width);
                rows::add(&mut x, &y);
                let sums = given.values.iter().zip(&y);
                let sums: Vec<f32> = sums.map(|(x, y)| x + y).collect();
                let has_same = x
                    .iter()
                    .zip(&sums)
                    .all(|(found, sum)| found == sum || (found.is_nan() && sum.is_nan()));
                assert!(has_same);
                assert!(panics(|| rows::add(&mut vec![0.0; y.len() + 1], &y)));
            }
            1 => {
                let activation = choices.pick(&Activation::ALL);
                rows::activate(&mut x, activation);
                if activation == Activation::Gelu {
                    // The error function has no name in the standard library.
                    return;
                }
                check(&x, &|x: &[f64]| {
                    let one = |&x: &f64| match activation {
                        Activation::Silu => x / (1.0 + (-x).exp()),
                        Activation::GeluTanh => {
                            let u = (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x);
                            x * (1.0 + u.tanh()) / 2.0
                        }
                        _ => x.max(0.0),
                    };
                    x.iter().map(one).collect()
                });
            }
            2 => {
                rows::log_softmax(&mut x, width);
                check(&x, &|x: &[f64]| {
                    let sum: f64 = x.iter().map(|x| x.exp()).sum();
                    x.iter().map(|x| x - sum.ln()).collect()
                });
                likeliest(&given.values, &x, width, 1 + choices.below(9));
            }
            _ => {
                let (gamma, beta) = (choices.numbers(width), choices.numbers(width));
                let epsilon = 1e-3;
                rows::layer_norm(&mut x, &gamma, &beta, epsilon, Spread::Variance);
                check(&x, &|x: &[f64]| {
                    let mean = x.iter().sum::<f64>() / width as f64;
                    let squares = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
                    let spread = (squares / width as f64 + f64::from(epsilon)).sqrt();
                    let scaled = x.iter().zip(&gamma).zip(&beta);
                    scaled
                        .map(|((x, &gamma), &beta)| {
                            (x - mean) / spread * f64::from(gamma) + f64::from(beta)
                        })
                        .collect()
                });
                let mut y = given.values.clone();
                rows::rms_norm(&mut y, &gamma, epsilon);
                check(&y, &|x: &[f64]| {
                    let square = x.iter().map(|x| x * x).sum::<f64>() / width as f64;
                    let spread = (square + f64::from(epsilon)).sqrt();
                    let scaled = x.iter().zip(&gamma);
                    scaled
                        .map(|(x, &gamma)| x / spread * f64::from(gamma))
                        .collect()
                });
                // One number has no deviation.
                rows::layer_norm(&mut x, &gamma, &beta, epsilon, Spread::UnbiasedDeviation);
            }
        }
    })
}

/// The most likely tokens of each row, whose log-softmax is `all`: without NaN, no other token is more likely.
fn likeliest(logits: &[f32], all: &[f32], width: usize, count: usize) {
    let rows = logits.len() / width.max(1);
    let (mut tokens, mut log_probs) = (vec![0; rows * count], vec![0.0; rows * count]);
    rows::likeliest(logits, width, &mut tokens, &mut log_probs);
    let found = tokens.chunks(count).zip(log_probs.chunks(count));
    for ((tokens, log_probs), all) in found.zip(all.chunks(width.max(1))) {
        if all.iter().any(|log_prob| log_prob.is_nan()) {
            assert!(log_probs.iter().all(|log_prob| log_prob.is_nan()));
            continue;
        }
        let mut expected = all.to_vec();
        expected.sort_by(|a, b| b.total_cmp(a));
        expected.resize(count, f32::NEG_INFINITY);
        let mut sorted = log_probs.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(sorted, expected);
        for (&token, &log_prob) in tokens.iter().zip(log_probs) {
            let own = all.get(token as usize).copied();
            assert_eq!(log_prob, own.unwrap_or(f32::NEG_INFINITY));
        }
        assert!(tokens.is_sorted());
    }
}

/// Attention of one position to chosen slots.
pub fn attend(_folder: &Path) -> Target {
    target(|choices| {
        let (of_slots, group) = (1 + choices.below(4), 1 + choices.below(3));
        let heads = Heads {
            n_heads: of_slots * group,
            d_k: 1 + choices.below(33),
            d_v: 1 + choices.below(33),
        };
        let Heads { n_heads, d_k, d_v } = heads;
        let keys = choices.below(4);
        let values = keys + of_slots * d_k + choices.below(4);
        let stride = values + of_slots * d_v + choices.below(4);
        let n_slots = choices.size(40);
        let numbers = choices.numbers(n_slots * stride);
        let query = choices.numbers(n_heads * d_k);
        let count = match n_slots {
            0 => 0,
            _ => choices.below(20),
        };
        let mut chosen: Vec<u32> = (0..count).map(|_| choices.below(n_slots) as u32).collect();
        let slots = Slots {
            rows: &numbers,
            stride,
            n_heads: of_slots,
            keys,
            values,
            bias: None,
        };
        let mut out = vec![f32::NAN; n_heads * d_v];
        let mut scores = Vec::new();
        let mut weights = vec![0.0; count];
        rows::attend(
            &query,
            slots,
            &chosen,
            heads,
            &mut out,
            Some(&mut weights),
            &mut scores,
        );
        let mut expected = Vec::new();
        for head in 0..n_heads {
            let score = |&slot: &u32| -> f64 {
                let key = &numbers[slot as usize * stride + keys + head / group * d_k..][..d_k];
                let query = &query[head * d_k..][..d_k];
                let sum: f64 = key
                    .iter()
                    .zip(query)
                    .map(|(&k, &q)| f64::from(k) * f64::from(q))
                    .sum();
                (sum / (d_k as f64).sqrt()).exp()
            };
            let scores: Vec<f64> = chosen.iter().map(score).collect();
            let all: f64 = scores.iter().sum();
            for column in 0..d_v {
                let value = |slot: u32| {
                    let first = slot as usize * stride + values + head / group * d_v;
                    f64::from(numbers[first + column])
                };
                let terms = chosen.iter().zip(&scores);
                let sum: f64 = terms.map(|(&slot, score)| score * value(slot)).sum();
                expected.push(if count == 0 { 0.0 } else { sum / all });
            }
        }
        assert_close(&out, &expected, 1e-4);
        let sum: f32 = weights.iter().sum();
        let expected = if count == 0 { 0.0 } else { n_heads as f64 };
        assert_close(&[sum], &[expected], 1e-3);
        // A slot that does not exist.
        chosen.push(n_slots as u32);
        assert!(panics(|| rows::attend(
            &query,
            slots,
            &chosen,
            heads,
            &mut out,
            None,
            &mut scores
        )));
    })
}
