//! Attention against its equation, computed by plain loops in double precision, at sizes around the borders of
//! tiles.

use super::tiles::{KEYS, QUERIES};
use super::*;

const D_K: usize = 8;
const D_V: usize = 5;
const HEADS: usize = 2;

impl Attended {
    fn view(&self) -> Attended<&[f32]> {
        Attended {
            output: &self.output,
            largest_scores: &self.largest_scores,
            reciprocal_sums: &self.reciprocal_sums,
        }
    }
}

/// Sizes and values of one call.
struct Case {
    batch: usize,
    query_len: usize,
    key_len: usize,
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    grad: Vec<f32>,
}

impl Case {
    fn new([batch, query_len, key_len]: [usize; 3]) -> Self {
        let numbers = |seed: usize, len: usize, width: usize| -> Vec<f32> {
            let number = |i: usize| ((i * 7919 + seed * 104_729) % 65_537) as f32 / 32_768.5 - 1.0;
            (0..batch * HEADS * len * width).map(number).collect()
        };
        Self {
            batch,
            query_len,
            key_len,
            query: numbers(1, query_len, D_K),
            key: numbers(2, key_len, D_K),
            value: numbers(3, key_len, D_V),
            grad: numbers(4, query_len, D_V),
        }
    }

    fn heads(&self) -> [HeadRows<'_>; 3] {
        let shape = |len, width| [self.batch, HEADS, len, width];
        [
            HeadRows::split(&self.query, shape(self.query_len, D_K)),
            HeadRows::split(&self.key, shape(self.key_len, D_K)),
            HeadRows::split(&self.value, shape(self.key_len, D_V)),
        ]
    }

    /// The kernels' output, and gradients of queries, keys and values.
    fn found(&self, mask: Mask<'_>, keep: Option<Keep>) -> [Vec<f32>; 4] {
        let attended = attention_forward(self.heads(), mask, keep);
        let wanted = AttentionParents {
            query: true,
            key_value: true,
        };
        let view = attended.view();
        let gradients = attention_backward(&self.grad, self.heads(), view, mask, keep, wanted);
        let [keys, values] = gradients.key_value.expect("wanted");
        [
            attended.output,
            gradients.query.expect("wanted"),
            keys,
            values,
        ]
    }

    /// The same by the equation.
    fn expected(
        &self,
        blocked: impl Fn([usize; 4]) -> bool,
        bias: impl Fn([usize; 4]) -> f64,
        keep: Option<Keep>,
    ) -> [Vec<f64>; 4] {
        let (queries, keys) = (self.query_len, self.key_len);
        let scale = 1.0 / (D_K as f64).sqrt();
        let mut output = vec![0.0; self.grad.len()];
        let [mut query_grad, mut key_grad, mut value_grad] =
            [&self.query, &self.key, &self.value].map(|x| vec![0.0; x.len()]);
        for head in 0..self.batch * HEADS {
            let (sentence, head_of_sentence) = (head / HEADS, head % HEADS);
            for i in 0..queries {
                let row = head * queries + i;
                let query = doubles(&self.query[row * D_K..][..D_K]);
                // The index of the output and its gradient.
                let at = ((sentence * queries + i) * HEADS + head_of_sentence) * D_V;
                let grad = doubles(&self.grad[at..][..D_V]);
                let key = |j: usize| doubles(&self.key[(head * keys + j) * D_K..][..D_K]);
                let value = |j: usize| doubles(&self.value[(head * keys + j) * D_V..][..D_V]);
                let exponentials: Vec<f64> = (0..keys)
                    .map(|j| {
                        let index = [sentence, head_of_sentence, i, j];
                        match blocked(index) {
                            true => 0.0,
                            false => (dot(&query, &key(j)) * scale + bias(index)).exp(),
                        }
                    })
                    .collect();
                let sum = exponentials.iter().sum::<f64>().max(f64::MIN_POSITIVE);
                let factor = |j| keep.map_or(1.0, |keep| f64::from(keep.row(row)(j)));
                let weight_grads: Vec<f64> = (0..keys)
                    .map(|j| factor(j) * dot(&grad, &value(j)))
                    .collect();
                let mean = dot(&weight_grads, &exponentials) / sum;
                let of_keys = exponentials.iter().zip(&weight_grads).enumerate();
                for (j, (exponential, weight_grad)) in of_keys {
                    let weight = exponential / sum;
                    let kept = weight * factor(j);
                    let score_grad = weight * (weight_grad - mean) * scale;
                    add(&mut output[at..], kept, &value(j));
                    add(&mut value_grad[(head * keys + j) * D_V..], kept, &grad);
                    add(&mut query_grad[row * D_K..], score_grad, &key(j));
                    add(&mut key_grad[(head * keys + j) * D_K..], score_grad, &query);
                }
            }
        }
        [output, query_grad, key_grad, value_grad]
    }

    /// Which positions are padding: short first and last sentences, in both cases with padding inside, too.
    fn padding(&self) -> Vec<bool> {
        let len = self.key_len;
        (0..self.batch * len)
            .map(|at| match (at / len, at % len) {
                (0, j) => j >= len.div_ceil(2) || j % 7 == 5,
                (1, j) => j < len / 3,
                // Every key.
                _ => true,
            })
            .collect()
    }
}

fn doubles(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().copied().map(f64::from).collect()
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn add(sums: &mut [f64], factor: f64, x: &[f64]) {
    for (sum, x) in sums.iter_mut().zip(x) {
        *sum += factor * x;
    }
}

fn assert_close(case: &str, found: &[Vec<f32>], expected: &[Vec<f64>]) {
    for (part, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{case}, part {part}");
        let largest = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
        for (index, (f, e)) in found.iter().zip(expected).enumerate() {
            // NaN fails, too.
            assert!(
                (f64::from(*f) - e).abs() / largest < 3e-6,
                "{case}, part {part}, index {index}: {f} for {e}"
            );
        }
    }
}

/// The length of a tile, one less, one more, and several tiles.
fn lens(tile: usize) -> [usize; 5] {
    [1, tile - 1, tile, tile + 1, 3 * tile + 5]
}

#[test]
fn tiles_are_the_equation_under_every_mask() {
    let squares = lens(QUERIES).into_iter().chain([KEYS + 1]);
    let sizes = squares.map(|len| [3, len, len]);
    let wide = lens(KEYS).into_iter().zip([2, 1, 3, QUERIES + 1, 5]);
    let sizes = sizes.chain(wide.map(|(key_len, query_len)| [3, query_len.min(key_len), key_len]));
    for (which, sizes) in sizes.enumerate() {
        let [batch, query_len, key_len] = sizes;
        let case = Case::new(sizes);
        let keep = [None, Some(Keep::new(0.3, 7))][which % 2];
        let padding = case.padding();
        let padded = Mask::default().padding(&padding, [batch, key_len]);
        let first = key_len - query_len;
        let pads = |[sentence, _, _, j]: [usize; 4]| padding[sentence * key_len + j];
        let future = |[_, _, i, j]: [usize; 4]| j > first + i;
        let no_bias = |_: [usize; 4]| 0.0;
        let check = |name: &str, mask: Mask<'_>, expected: [Vec<f64>; 4]| {
            let name = format!("{name}, {sizes:?}, {keep:?}");
            assert_close(&name, &case.found(mask, keep), &expected);
        };
        let none = case.expected(|_| false, no_bias, keep);
        check("no mask", Mask::default(), none);
        check("padding", padded, case.expected(pads, no_bias, keep));
        let causal = case.expected(future, no_bias, keep);
        check("causal", Mask::default().causal(first), causal);
        let both = case.expected(|at| pads(at) || future(at), no_bias, keep);
        check("both", padded.causal(first), both);
    }
}

/// A bias of each shape with structured masks, and blocked keys without structure.
#[test]
fn a_bias_is_a_term_of_the_equation() {
    let len = KEYS + 3;
    let case = Case::new([2, len, len]);
    let keep = Some(Keep::new(0.2, 3));
    let padding = case.padding();
    let hidden = |[sentence, _, i, j]: [usize; 4]| padding[sentence * len + j] || j > i;
    let structure = Mask::default().padding(&padding, [2, len]).causal(0);
    for shape in [[1, 1, 1, len], [2, HEADS, len, len], [1, HEADS, len, len]] {
        let index = |at: [usize; 4]| {
            let at = at.into_iter().zip(shape);
            at.fold(0, |index, (at, size)| {
                index * size + if size == 1 { 0 } else { at }
            })
        };
        let count: usize = shape.iter().product();
        let bias: Vec<f32> = (0..count)
            .map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0)
            .collect();
        let term = |at| f64::from(bias[index(at)]);
        let name = format!("bias {shape:?}");
        let found = case.found(structure.bias(&bias, None, shape), keep);
        assert_close(&name, &found, &case.expected(hidden, term, keep));

        // Its values at blocked keys have no effect.
        if shape == [2, HEADS, len, len] {
            let mut loud = bias.clone();
            for (at, x) in loud.iter_mut().enumerate() {
                let (sentence, i, j) = (at / (HEADS * len * len), at / len % len, at % len);
                if hidden([sentence, 0, i, j]) {
                    *x = f32::NAN;
                }
            }
            assert_eq!(case.found(structure.bias(&loud, None, shape), keep), found);
        }
    }

    let shape = [2, 1, len, len];
    let at = |index: usize| [index / (len * len), 0, index / len % len, index % len];
    let lowest = |index| {
        if hidden(at(index)) {
            f32::MIN / 2.0
        } else {
            0.0
        }
    };
    let bias: Vec<f32> = (0..2 * len * len).map(lowest).collect();
    let rows = bias.chunks(len).map(|row| row.iter().all(|&x| x < 0.0));
    let rows: Vec<bool> = rows.collect();
    assert!(rows.contains(&true));
    let mask = Mask::default().bias(&bias, Some(&rows), shape);
    let expected = case.expected(hidden, |_| 0.0, keep);
    assert_close("blocked by a bias", &case.found(mask, keep), &expected);
}

/// Scores so large that the logarithm of their sum would have no digits left for the sum.
#[test]
fn large_scores_that_tie_share_the_weight() {
    let rows = |value: f32, len: usize, width: usize| vec![value; len * width];
    let (query, key) = (rows(1e3, 1, 4), rows(1e3, KEYS + 9, 4));
    let value: Vec<f32> = (0..KEYS + 9).map(|j| j as f32).collect();
    let [query, key, value] = [
        HeadRows::split(&query, [1, 1, 1, 4]),
        HeadRows::split(&key, [1, 1, KEYS + 9, 4]),
        HeadRows::split(&value, [1, 1, KEYS + 9, 1]),
    ];
    let heads = [query, key, value];
    let attended = attention_forward(heads, Mask::default(), None);
    let mean = (KEYS + 8) as f32 / 2.0;
    assert!((attended.output[0] / mean - 1.0).abs() < 1e-5);
    let wanted = AttentionParents {
        query: false,
        key_value: true,
    };
    let none = Mask::default();
    let gradients = attention_backward(&[1.0], heads, attended.view(), none, None, wanted);
    let [_, values] = gradients.key_value.expect("wanted");
    for grad in values {
        assert!((grad * (KEYS + 9) as f32 - 1.0).abs() < 1e-5, "{grad}");
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let case = Case::new([2, 2 * QUERIES + 5, KEYS + 40]);
    let padding = case.padding();
    let mask = Mask::default().padding(&padding, [2, KEYS + 40]);
    let keep = Some(Keep::new(0.1, 5));
    let [one, three] = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build()
            .expect("threads")
            .install(|| case.found(mask, keep))
    });
    assert_eq!(one, three);
}

/// Two values per query and head; no weights.
#[test]
fn what_is_kept_grows_with_the_length_only() {
    for len in [10, 4 * QUERIES] {
        let case = Case::new([2, len, 2 * len]);
        let attended = attention_forward(case.heads(), Mask::default(), None);
        let kept = attended.largest_scores.len() + attended.reciprocal_sums.len();
        assert_eq!(kept, 2 * (2 * HEADS * len));
        assert_eq!(attended.output.len(), 2 * len * HEADS * D_V);
    }
}

#[test]
fn only_what_is_wanted_is_computed() {
    let case = Case::new([2, 7, 9]);
    let keep = Some(Keep::new(0.2, 5));
    let none = Mask::default();
    let attended = attention_forward(case.heads(), none, keep);
    let backward = |query, key_value| {
        let wanted = AttentionParents { query, key_value };
        let view = attended.view();
        let gradients = attention_backward(&case.grad, case.heads(), view, none, keep, wanted);
        (gradients.query, gradients.key_value)
    };
    let all = backward(true, true);
    assert!(all.0.is_some() && all.1.is_some());
    assert_eq!(backward(true, false), (all.0.clone(), None));
    assert_eq!(backward(false, true), (None, all.1));
}
