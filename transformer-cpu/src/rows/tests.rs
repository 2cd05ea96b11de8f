use super::*;
use crate::types::Heads;

/// Distinct values between -1 and 1.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 7919 + seed * 104_729) % 65_537) as f32 / 32_768.5 - 1.0;
    (0..count).map(number).collect()
}

fn doubles(x: &[f32]) -> Vec<f64> {
    x.iter().copied().map(f64::from).collect()
}

/// Equal within the error of single-precision sums of a few hundred values.
fn assert_close(case: &str, found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{case}");
    let largest = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs() / largest;
        // NaN fails, too.
        assert!(error < 3e-6, "{case}, {at}: {found} for {expected}");
    }
}

#[test]
fn sums_are_added_in_place() {
    let mut x = numbers(37, 1);
    let expected: Vec<f32> = x.iter().zip(numbers(37, 2)).map(|(x, y)| x + y).collect();
    add(&mut x, &numbers(37, 2));
    assert_eq!(x, expected);
}

#[test]
fn layer_norm_is_the_formula() {
    for width in [2, 5, 37, 128] {
        let x: Vec<f32> = numbers(3 * width, 1)
            .iter()
            .map(|x| x * 3.0 + 5.0)
            .collect();
        let (gamma, beta) = (numbers(width, 2), numbers(width, 3));
        for spread in [Spread::Variance, Spread::UnbiasedDeviation] {
            let mut expected = vec![];
            for x in doubles(&x).chunks_exact(width) {
                let m = x.iter().sum::<f64>() / width as f64;
                let squares: f64 = x.iter().map(|x| (x - m) * (x - m)).sum();
                let spread = match spread {
                    Spread::Variance => (squares / width as f64 + 1e-3).sqrt(),
                    Spread::UnbiasedDeviation => (squares / (width - 1) as f64).sqrt() + 1e-3,
                };
                let parameters = doubles(&gamma).into_iter().zip(doubles(&beta));
                let row = x.iter().zip(parameters);
                expected.extend(row.map(|(x, (g, b))| g * (x - m) / spread + b));
            }
            let mut found = x.clone();
            layer_norm(&mut found, &gamma, &beta, 1e-3, spread);
            assert_close(&format!("{spread:?}, {width}"), &found, &expected);
        }
    }
}

#[test]
fn rms_norm_is_the_formula() {
    for width in [1, 2, 5, 37, 128] {
        let x: Vec<f32> = numbers(3 * width, 1)
            .iter()
            .map(|x| x * 3.0 + 5.0)
            .collect();
        let gamma = numbers(width, 2);
        let mut expected = vec![];
        for x in doubles(&x).chunks_exact(width) {
            let square = x.iter().map(|x| x * x).sum::<f64>() / width as f64;
            let row = x.iter().zip(doubles(&gamma));
            expected.extend(row.map(|(x, g)| g * x / (square + 1e-3).sqrt()));
        }
        let mut found = x;
        rms_norm(&mut found, &gamma, 1e-3);
        assert_close(&format!("{width}"), &found, &expected);
    }
}

#[test]
fn equal_numbers_are_normalised_to_beta() {
    for spread in [Spread::Variance, Spread::UnbiasedDeviation] {
        let mut x = [3.0; 4];
        layer_norm(&mut x, &[2.0; 4], &[5.0; 4], 1e-6, spread);
        assert_eq!(x, [5.0; 4]);
    }
}

#[test]
fn activations_of_extremes() {
    let infinity = f32::INFINITY;
    let mut x = [0.0, -0.0, -1e30, 1e30, infinity];
    activate(&mut x, Activation::Relu);
    assert_eq!(x, [0.0, 0.0, 0.0, 1e30, infinity]);
    for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Silu] {
        let mut x = [0.0, -1e30, 1e30, infinity];
        activate(&mut x, activation);
        assert_eq!(x, [0.0, 0.0, 1e30, infinity], "{activation:?}");
    }
    for activation in Activation::ALL {
        let mut x = [1.0, f32::NAN, -1.0];
        activate(&mut x, activation);
        assert_eq!(x.map(f32::is_nan), [false, true, false], "{activation:?}");
    }
}

#[test]
fn log_softmax_is_the_formula() {
    for width in [1, 3, 16, 100, 1000] {
        let x: Vec<f32> = numbers(2 * width, 1).iter().map(|x| x * 20.0).collect();
        let mut expected = vec![];
        for x in doubles(&x).chunks_exact(width) {
            let all = x.iter().map(|x| x.exp()).sum::<f64>().ln();
            expected.extend(x.iter().map(|x| x - all));
        }
        let mut found = x.clone();
        log_softmax(&mut found, width);
        assert_close(&format!("{width}"), &found, &expected);
    }
}

#[test]
fn excluded_numbers_stay_without_probability() {
    let excluded = f32::NEG_INFINITY;
    let mut x = [1.0, excluded, 1.0, 0.0, f32::NAN, 0.0];
    log_softmax(&mut x, 3);
    assert!((x[0] + 2.0_f32.ln()).abs() < 1e-6, "{x:?}");
    assert_eq!(x[1], excluded);
    assert!(x[3..].iter().all(|x| x.is_nan()), "{x:?}");
}

/// Widths around that of a chunk, with ties, excluded tokens and NaN.
#[test]
fn the_likeliest_are_those_of_the_log_softmax() {
    for width in [1, 63, 64, 65, 1000] {
        let mut logits: Vec<f32> = (0..4 * width)
            .map(|at| match at % 13 {
                5 => f32::NEG_INFINITY,
                _ => (at * 7919 % 257) as f32 / 16.0,
            })
            .collect();
        logits[2 * width..3 * width].fill(f32::NEG_INFINITY);
        logits[3 * width..4 * width - 1].fill(0.5);
        logits[4 * width - 1] = f32::NAN;
        for count in [1, 2, 9, 70] {
            let (mut tokens, mut found) = (vec![7; 4 * count], vec![0.5; 4 * count]);
            likeliest(&logits, width, &mut tokens, &mut found);
            let mut all = logits.clone();
            log_softmax(&mut all, width);
            for row in 0..2 {
                let all = &all[row * width..][..width];
                let mut best: Vec<usize> = (0..width).filter(|&at| all[at].is_finite()).collect();
                best.sort_by(|&a, &b| all[b].total_cmp(&all[a]).then(a.cmp(&b)));
                best.truncate(count);
                best.sort_unstable();
                let mut expected: Vec<(u32, f32)> =
                    best.into_iter().map(|at| (at as u32, all[at])).collect();
                expected.resize(count, (u32::MAX, f32::NEG_INFINITY));
                let tokens = tokens[row * count..].iter().copied();
                let found = tokens.zip(found[row * count..].iter().copied());
                let found: Vec<_> = found.take(count).collect();
                assert_eq!(found, expected, "{count} of {width}, row {row}");
            }
            assert!(found[2 * count..].iter().all(|value| value.is_nan()));
        }
    }
}

#[test]
#[should_panic(expected = "7 values do not fill rows of width 3")]
fn numbers_that_are_not_whole_rows_are_refused() {
    log_softmax(&mut [0.0; 7], 3);
}

#[test]
#[should_panic(expected = "2 values do not fill rows of width 0")]
fn numbers_of_rows_without_width_are_refused() {
    layer_norm(&mut [0.0; 2], &[], &[], 1e-5, Spread::Variance);
}

#[test]
#[should_panic(expected = "has more elements than memory can hold")]
fn heads_that_no_memory_can_hold_are_refused() {
    let heads = Heads {
        n_heads: 1 << (usize::BITS / 2),
        d_k: 1 << (usize::BITS / 2),
        d_v: 0,
    };
    attend(
        &[],
        two_slots(&[0.0; 4]),
        &[],
        heads,
        &mut [],
        None,
        &mut vec![],
    );
}

/// The output, and the weights of the chosen slots, in double precision.
fn exact(query: &[f32], slots: Slots<'_>, chosen: &[u32], heads: Heads) -> [Vec<f64>; 2] {
    let Heads { n_heads, d_k, d_v } = heads;
    let (mut out, mut all) = (vec![], vec![0.0; chosen.len()]);
    for head in 0..n_heads {
        let of_slot = head / (n_heads / slots.n_heads);
        let row = |slot: u32| slot as usize * slots.stride;
        let scores = chosen.iter().enumerate().map(|(at, &slot)| {
            let bias = slots
                .bias
                .map_or(0.0, |bias| f64::from(bias[at * n_heads + head]));
            let key = &slots.rows[row(slot) + slots.keys + of_slot * d_k..][..d_k];
            let query = &query[head * d_k..][..d_k];
            let products = query
                .iter()
                .zip(key)
                .map(|(&q, &k)| f64::from(q) * f64::from(k));
            (products.sum::<f64>() / (d_k as f64).sqrt() + bias).exp()
        });
        let scores: Vec<f64> = scores.collect();
        let total: f64 = scores.iter().sum();
        let weights: Vec<f64> = scores.iter().map(|score| score / total).collect();
        out.extend((0..d_v).map(|column| {
            let values = chosen.iter().map(|&slot| {
                f64::from(slots.rows[row(slot) + slots.values + of_slot * d_v + column])
            });
            values
                .zip(&weights)
                .map(|(value, weight)| value * weight)
                .sum::<f64>()
        }));
        all.iter_mut()
            .zip(weights)
            .for_each(|(all, weight)| *all += weight);
    }
    [out, all]
}

#[test]
fn attention_is_the_formula() {
    for [n_heads, of_slots, d_k, d_v] in [
        [1, 1, 1, 1],
        [2, 2, 3, 5],
        [4, 4, 8, 8],
        [3, 3, 16, 32],
        [8, 8, 16, 16],
        [9, 9, 32, 16],
        [2, 2, 64, 128],
        [5, 5, 24, 40],
        // Grouped heads.
        [6, 3, 3, 5],
        [12, 2, 16, 32],
        [9, 3, 32, 16],
        [4, 1, 64, 128],
        [10, 5, 24, 40],
    ] {
        let heads = Heads { n_heads, d_k, d_v };
        // Values, a gap of three, keys.
        let keys = of_slots * d_v + 3;
        let stride = keys + of_slots * d_k + 1;
        let rows: Vec<f32> = numbers(12 * stride, 1).iter().map(|x| x * 2.0).collect();
        let slots = Slots {
            rows: &rows,
            stride,
            n_heads: of_slots,
            keys,
            values: 0,
            bias: None,
        };
        let query: Vec<f32> = numbers(n_heads * d_k, 2).iter().map(|x| x * 3.0).collect();
        let mut scores = vec![f32::NAN; 7];
        let biases = numbers(12 * n_heads, 3);
        let chosen = [vec![3], vec![11, 0, 5], (0..12).collect::<Vec<u32>>()];
        for (chosen, is_biased) in chosen
            .iter()
            .flat_map(|chosen| [(chosen, false), (chosen, true)])
        {
            let slots = Slots {
                bias: is_biased.then(|| &biases[..chosen.len() * n_heads]),
                ..slots
            };
            let mut out = vec![f32::NAN; n_heads * d_v];
            let mut weights = vec![1.0; chosen.len()];
            let asked = Some(weights.as_mut_slice());
            attend(&query, slots, chosen, heads, &mut out, asked, &mut scores);
            let case = format!("{heads:?}, {of_slots}, {chosen:?}, {is_biased}");
            let [expected, expected_weights] = exact(&query, slots, chosen, heads);
            assert_close(&case, &out, &expected);
            let added: Vec<f64> = expected_weights.iter().map(|weight| 1.0 + weight).collect();
            assert_close(&case, &weights, &added);
            let mut again = vec![f32::NAN; n_heads * d_v];
            attend(&query, slots, chosen, heads, &mut again, None, &mut scores);
            assert_eq!(again, out, "{case}");
        }
    }
}

const ONE: Heads = Heads {
    n_heads: 1,
    d_k: 1,
    d_v: 1,
};

fn two_slots(rows: &[f32]) -> Slots<'_> {
    Slots {
        rows,
        stride: 2,
        n_heads: 1,
        keys: 0,
        values: 1,
        bias: None,
    }
}

#[test]
fn attention_to_nothing_is_zero() {
    let mut out = [1.0];
    attend(
        &[1.0],
        two_slots(&[0.0; 4]),
        &[],
        ONE,
        &mut out,
        Some(&mut []),
        &mut vec![],
    );
    assert_eq!(out, [0.0]);
}

#[test]
fn scores_are_as_large_as_numbers_can_be() {
    let rows = [3e38, 1.0, -3e38, 2.0];
    let mut out = [0.0];
    attend(
        &[1.0],
        two_slots(&rows),
        &[0, 1],
        ONE,
        &mut out,
        None,
        &mut vec![],
    );
    assert_eq!(out, [1.0]);
    attend(
        &[f32::NAN],
        two_slots(&rows),
        &[0, 1],
        ONE,
        &mut out,
        None,
        &mut vec![],
    );
    assert!(out[0].is_nan());
}

#[test]
#[should_panic(expected = "slot 2 of 2")]
fn a_slot_that_is_not_there_is_refused() {
    attend(
        &[1.0],
        two_slots(&[0.0; 4]),
        &[2],
        ONE,
        &mut [0.0],
        None,
        &mut vec![],
    );
}

#[test]
#[should_panic(expected = "keys and values up to 3 in rows of 2")]
fn heads_wider_than_rows_are_refused() {
    let heads = Heads { d_v: 2, ..ONE };
    attend(
        &[1.0],
        two_slots(&[0.0; 4]),
        &[0],
        heads,
        &mut [0.0; 2],
        None,
        &mut vec![],
    );
}

#[test]
#[should_panic(expected = "2 heads of keys and values, for Heads { n_heads: 3")]
fn heads_that_are_not_groups_are_refused() {
    let heads = Heads { n_heads: 3, ..ONE };
    let slots = Slots {
        n_heads: 2,
        stride: 4,
        values: 2,
        ..two_slots(&[0.0; 8])
    };
    let (query, mut out) = ([1.0; 3], [0.0; 3]);
    attend(&query, slots, &[0], heads, &mut out, None, &mut vec![]);
}
