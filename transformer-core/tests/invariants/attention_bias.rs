//! A bias on the scores: a term of the equation, learned where it requires gradients, and without power over
//! the mask.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, Tensor, TensorData};
use transformer_core::nn::{AttentionHeads, AttentionWeights, Dropout, Mask, padding_positions};
use transformer_core::ops::{Heads, Operands, join_heads};

use crate::common::*;

const BATCH: usize = 2;
const LEN: usize = 4;
const HEADS: Heads = Heads {
    n_heads: 3,
    d_k: 5,
    d_v: 2,
};

/// The second sentence begins with padding: its first query may attend to nothing.
const TOKENS: [[u32; LEN]; BATCH] = [[7, 7, 7, 0], [0, 7, 0, 7]];

/// Queries, keys and values of all heads: `[BATCH, n_heads, LEN, d]` each.
struct Inputs<B: Backend>([Tensor<B, 4>; 3]);

impl<B: Backend> Inputs<B> {
    fn new(seed: u64) -> Self {
        let Heads { n_heads, d_k, d_v } = HEADS;
        let rng = &mut rng(seed);
        Self([d_k, d_k, d_v].map(|width| uniform(rng, [BATCH, n_heads, LEN, width])))
    }

    /// Attention by the library, in rows: `[BATCH, LEN, n_heads · d_v]`, and the weights where asked for,
    /// without which there are kernels.
    fn attend(
        &self,
        mask: &Mask<B>,
        wanted: AttentionWeights,
    ) -> (Tensor<B, 3>, Option<Tensor<B, 4>>) {
        let rows = self.0.clone().map(join_heads);
        let packed = Tensor::cat(rows.to_vec(), 2);
        let operands = Operands::SelfPacked(&packed);
        let attention = heads().forward(operands, Some(mask), wanted);
        (attention.output, attention.weights)
    }

    /// [`attend`](Self::attend) without weights.
    fn output(&self, mask: &Mask<B>) -> Tensor<B, 3> {
        self.attend(mask, AttentionWeights::Discard).0
    }

    /// The equation in plain loops, in double precision: the output in rows.
    fn plain(&self, bias: &[f64], blocked: impl Fn(usize, usize, usize) -> bool) -> Vec<f64> {
        let Heads { n_heads, d_k, d_v } = HEADS;
        let [query, key, value] = self.0.clone().map(values);
        let mut output = vec![0.0; BATCH * LEN * n_heads * d_v];
        for sentence in 0..BATCH {
            for head in 0..n_heads {
                let first = (sentence * n_heads + head) * LEN;
                for i in 0..LEN {
                    let exponentials = (0..LEN).map(|j| {
                        if blocked(sentence, i, j) {
                            return 0.0;
                        }
                        let products = (0..d_k)
                            .map(|c| query[(first + i) * d_k + c] * key[(first + j) * d_k + c]);
                        let score = products.sum::<f64>() / (d_k as f64).sqrt();
                        (score + bias[(first + i) * LEN + j]).exp()
                    });
                    let exponentials: Vec<f64> = exponentials.collect();
                    let sum: f64 = exponentials.iter().sum();
                    for c in 0..d_v {
                        let terms = exponentials.iter().enumerate();
                        let terms = terms.map(|(j, e)| e * value[(first + j) * d_v + c]);
                        let row = (sentence * LEN + i) * n_heads + head;
                        output[row * d_v + c] = terms.sum::<f64>() / sum.max(f64::MIN_POSITIVE);
                    }
                }
            }
        }
        output
    }
}

/// Heads whose `W^O` is the identity.
fn heads<B: Backend>() -> AttentionHeads<B> {
    let width = HEADS.n_heads * HEADS.d_v;
    let projection = Linear {
        weight: Param::from_tensor(Tensor::eye(width, &Default::default())),
        bias: None,
    };
    AttentionHeads::new(projection, Dropout::new(0.0), HEADS)
}

fn causal_padding<B: Backend>() -> Mask<B> {
    Mask::causal_padding(LEN, padding_positions(tokens(&TOKENS), 0))
}

fn is_blocked(sentence: usize, query: usize, key: usize) -> bool {
    key > query || TOKENS[sentence][key] == 0
}

/// A bias of each shape that fits.
fn shapes() -> [[usize; 4]; 5] {
    let n_heads = HEADS.n_heads;
    [
        [BATCH, n_heads, LEN, LEN],
        [1, n_heads, LEN, LEN],
        [BATCH, 1, LEN, LEN],
        [1, 1, LEN, LEN],
        [1, n_heads, 1, LEN],
    ]
}

/// The numbers of a bias, broadcast to every score.
fn broadcast<B: Backend>(bias: &Tensor<B, 4>) -> Vec<f64> {
    values(bias.clone().expand([BATCH, HEADS.n_heads, LEN, LEN]))
}

#[test]
fn a_bias_is_added_to_the_scores() {
    bias_added_to_the_scores::<NdArray>();
    bias_added_to_the_scores::<Flex>();
}

fn bias_added_to_the_scores<B: Backend>() {
    for (seed, shape) in (1..).zip(shapes()) {
        let inputs = Inputs::<B>::new(seed);
        let bias = uniform::<B, 4>(&mut rng(seed + 100), shape) * 3.0;
        let all = broadcast(&bias);
        let mask = causal_padding().with_bias(bias.clone());
        let expected = inputs.plain(&all, is_blocked);
        assert_close(inputs.output(&mask), &expected, 1e-5);
        let (output, _) = inputs.attend(&mask, AttentionWeights::Return);
        assert_close(output, &expected, 1e-5);

        // Without blocked keys, and in two parts.
        let mask = Mask::from_bias(bias.clone() * 0.25).with_bias(bias * 0.75);
        let expected = inputs.plain(&all, |_, _, _| false);
        assert_close(inputs.output(&mask), &expected, 1e-5);
    }
}

#[test]
fn a_learned_bias_gets_the_gradient_of_finite_differences() {
    learned_bias::<Autodiff<NdArray>>();
    learned_bias::<Autodiff<Flex>>();
}

/// The differences are those of the plain loops, in double precision.
fn learned_bias<B: AutodiffBackend>() {
    const STEP: f64 = 1e-5;
    for (seed, shape) in (1..).zip(shapes()) {
        let inputs = Inputs::<B>::new(seed);
        let bias = uniform::<B, 4>(&mut rng(seed + 100), shape).require_grad();
        let output = inputs.output(&causal_padding().with_bias(bias.clone()));
        let weights = uniform::<B, 3>(&mut rng(seed + 200), output.dims());
        let weights_of_loss = values(weights.clone());
        let gradients = (output * weights).sum().backward();
        let found = values(bias.grad(&gradients).expect("a gradient"));

        let numbers = values(bias);
        let loss = |index: usize, step: f64| -> f64 {
            let mut moved = numbers.clone();
            moved[index] += step;
            let output = inputs.plain(&expanded(&moved, shape), is_blocked);
            output
                .iter()
                .zip(&weights_of_loss)
                .map(|(y, w)| y * w)
                .sum()
        };
        let expected: Vec<f64> = (0..numbers.len())
            .map(|index| (loss(index, STEP) - loss(index, -STEP)) / (2.0 * STEP))
            .collect();
        assert!(expected.iter().any(|g| g.abs() > 1e-3), "{expected:?}");
        assert_close(&found, &expected, 1e-5);
    }
}

/// Numbers of this shape for every score.
fn expanded(numbers: &[f64], shape: [usize; 4]) -> Vec<f64> {
    let at = |size: usize, index: usize| if size == 1 { 0 } else { index };
    let mut all = Vec::new();
    for sentence in 0..BATCH {
        for head in 0..HEADS.n_heads {
            for query in 0..LEN {
                let row = at(shape[0], sentence) * shape[1] + at(shape[1], head);
                let row = row * shape[2] + at(shape[2], query);
                all.extend_from_slice(&numbers[row * LEN..][..LEN]);
            }
        }
    }
    all
}

#[test]
fn padding_and_the_future_stay_blocked_whatever_the_bias() {
    blocked_whatever_the_bias::<Autodiff<NdArray>>();
    blocked_whatever_the_bias::<Autodiff<Flex>>();
}

fn blocked_whatever_the_bias<B: AutodiffBackend>() {
    let inputs = Inputs::<B>::new(1);
    let shape = [BATCH, HEADS.n_heads, LEN, LEN];
    let quiet = uniform::<B, 4>(&mut rng(2), shape);
    for loud in [1e4, 1e30, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let blocked = causal_padding().blocked().expand(shape);
        let loud = quiet.clone().mask_fill(blocked, loud);
        // With a kernel where there is one, and without.
        for is_learned in [false, true] {
            let [quiet, loud] = [&quiet, &loud].map(|bias| {
                let bias = bias.clone().set_require_grad(is_learned);
                inputs.output(&causal_padding().with_bias(bias))
            });
            assert_close(quiet, loud, 0.0);
        }

        let loud = loud.require_grad();
        let mask = causal_padding().with_bias(loud.clone());
        let (output, weights) = inputs.attend(&mask, AttentionWeights::Return);
        let gradients = output.powi_scalar(2).sum().backward();
        let gradient = values(loud.grad(&gradients).expect("a gradient"));
        let weights = values(weights.expect("asked for"));
        for (index, (weight, gradient)) in weights.into_iter().zip(gradient).enumerate() {
            let [sentence, query, key] = [
                index / (LEN * LEN * HEADS.n_heads),
                index / LEN % LEN,
                index % LEN,
            ];
            if is_blocked(sentence, query, key) {
                assert_eq!((weight, gradient), (0.0, 0.0), "{index}");
            } else {
                assert!(gradient.is_finite(), "{index}: {gradient}");
            }
        }
    }
}

#[test]
fn a_position_does_not_depend_on_later_ones_under_a_bias() {
    causal_under_a_bias::<NdArray>();
    causal_under_a_bias::<Flex>();
}

fn causal_under_a_bias<B: Backend>() {
    let device = Default::default();
    // Without the mask, all the weight would be on the last position.
    let bias: Vec<f32> = (0..LEN * LEN).map(|at| 9.0 * (at % LEN) as f32).collect();
    let bias = TensorData::new(bias, [1, 1, LEN, LEN]);
    let bias = Tensor::<B, 4>::from_data(bias, &device);
    let mask = Mask::causal(LEN, LEN, &device).with_bias(bias);
    let [before, other] = [1, 2].map(Inputs::<B>::new);
    for changed in 0..LEN {
        let position = changed..changed + 1;
        let after = Inputs(std::array::from_fn(|at| {
            let other = other.0[at].clone().slice_dim(2, position.clone());
            let [batch, n_heads, _, width] = other.dims();
            let ranges = [0..batch, 0..n_heads, position.clone(), 0..width];
            before.0[at].clone().slice_assign(ranges, other)
        }));
        let [before, after] = [&before, &after].map(|inputs| inputs.output(&mask));
        for position in 0..LEN {
            let [before, after] = [&before, &after]
                .map(|output| values(output.clone().slice_dim(1, position..position + 1)));
            let difference = largest_difference(&before, &after);
            if position < changed {
                assert!(difference == 0.0, "{position}, {changed}: {difference}");
            } else if position == changed {
                assert!(difference > 1e-3, "{position}, {changed}: {difference}");
            }
        }
    }
}

#[test]
#[should_panic(expected = "a bias [1, 3, 4, 4] for a mask [2, 2, 4, 4]")]
fn a_bias_of_other_heads_than_the_mask_is_refused() {
    let device = Default::default();
    let blocked = Tensor::<NdArray, 4, Bool>::zeros([2, 2, 4, 4], &device);
    let bias = Tensor::zeros([1, 3, 4, 4], &device);
    Mask::from_blocked(blocked).with_bias(bias);
}

#[test]
#[should_panic(expected = "a bias [1, 1, 4, 1] for a mask [1, 1, 4, 4]")]
fn a_bias_without_a_number_for_each_key_is_refused() {
    let device = Default::default();
    let bias = Tensor::<NdArray, 4>::zeros([1, 1, 4, 1], &device);
    Mask::causal(4, 4, &device).with_bias(bias);
}

#[test]
#[should_panic(expected = "rows of `W^O` for Heads { n_heads: 3, d_k: 5, d_v: 3 }")]
fn an_output_projection_of_another_width_is_refused() {
    let AttentionHeads {
        projection,
        dropout,
        ..
    } = heads::<NdArray>();
    AttentionHeads::new(projection, dropout, Heads { d_v: 3, ..HEADS });
}
