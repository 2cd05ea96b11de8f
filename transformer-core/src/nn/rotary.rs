//! Rotary positions (Su et al., 2021).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use transformer_kernels::turn_heads;

use crate::nn::error::ConfigError;
use crate::nn::positions::{TABLE_LEN, tensor};

/// Checks the base, and that heads of this width can be rotated.
pub(crate) fn check_rotary(base: f64, d_k: usize) -> Result<(), ConfigError> {
    if !(base >= 1.0 && base.is_finite()) {
        return Err(ConfigError::RotaryBase { value: base });
    }
    match d_k.is_multiple_of(2) {
        true => Ok(()),
        false => Err(ConfigError::RotaryWidth { d_k }),
    }
}

/// The rotations at the positions from `first` on, `[len, d_k]`: per position, the cosines of its `d_k / 2` angles,
/// then their sines.
pub(crate) fn turns(base: f64, first: usize, len: usize, d_k: usize) -> Vec<f32> {
    let half = d_k / 2;
    let mut values = Vec::with_capacity(len * d_k);
    for position in first..first + len {
        let angle = |i: usize| position as f64 * base.powf(-(i as f64) / half as f64);
        values.extend((0..half).map(|i| angle(i).cos() as f32));
        values.extend((0..half).map(|i| angle(i).sin() as f32));
    }
    values
}

/// Rotates queries and keys by their positions (RoPE; Su et al., 2021, §3.2.2), so that positions affect a score only
/// by their distance.
///
/// The features of a head form pairs. Pair `i` at position `m` is rotated by the angle `m base^(-2i/d_k)`:
///
/// `(a, b) → (a cos - b sin, b cos + a sin)`
///
/// Pair `i` consists of the features `i` and `i + d_k/2`, as in Hugging Face's Llama (`rotate_half`); in the paper, and
/// in Meta's Llama checkpoints, of `2i` and `2i + 1`. The two differ by a permutation of the columns of `W^Q` and
/// `W^K`.
///
/// A [`SelfAttention`](crate::nn::SelfAttention) has it if its configuration sets
/// [`rotary_base`](crate::nn::AttentionConfig::rotary_base).
#[derive(Module, Debug)]
pub struct Rotary<B: Backend> {
    /// The cosines and sines of the first positions, `[TABLE_LEN, d_k]`: a constant, not a weight.
    table: Tensor<B, 2>,
    base: f64,
}

impl<B: Backend> Rotary<B> {
    /// Rotations by `base` for heads of width `d_k`.
    ///
    /// # Panics
    /// When `d_k` is odd.
    pub fn new(base: f64, d_k: usize, device: &B::Device) -> Self {
        assert!(d_k.is_multiple_of(2), "{d_k} features are no pairs");
        Self {
            table: tensor(turns(base, 0, TABLE_LEN, d_k), [TABLE_LEN, d_k], device),
            base,
        }
    }

    /// Rotates the heads at the positions from `first` on.
    ///
    /// # Shapes
    /// - x: `[batch, len, n_heads · d_k]`, for any number of heads
    /// - output: `[batch, len, n_heads · d_k]`
    ///
    /// # Panics
    /// When the width of `x` is not a multiple of `d_k`.
    pub fn forward(&self, x: Tensor<B, 3>, first: usize) -> Tensor<B, 3> {
        let ([_, _, width], [_, d_k]) = (x.dims(), self.table.dims());
        assert!(
            width.is_multiple_of(d_k),
            "heads of {d_k} in {width} features"
        );
        self.turn(x, first, width / d_k)
    }

    /// [`forward`](Self::forward), where other features follow the heads; they do not change.
    pub(crate) fn turn(&self, x: Tensor<B, 3>, first: usize, n_heads: usize) -> Tensor<B, 3> {
        let ([_, len, _], [stored, d_k]) = (x.dims(), self.table.dims());
        let end = first + len;
        let turns = match end <= stored {
            true => self.table.clone().slice_dim(0, first..end),
            false => tensor(turns(self.base, first, len, d_k), [len, d_k], &x.device()),
        };
        turn_heads(x, turns, n_heads)
    }
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;

    /// Two heads of four features, whose pairs are rotated as complex numbers; position 1000 is beyond the table.
    #[test]
    fn pairs_are_turned_by_their_angles() {
        let device = Default::default();
        let rotary = Rotary::<NdArray>::new(100.0, 4, &device);
        let x = [0.5, -1.0, 2.0, 3.0, 1.5, 0.25, -0.75, -2.0];
        for first in [0, 3, 1000] {
            let row = Tensor::<NdArray, 1>::from_data(x, &device).reshape([1, 1, 8]);
            let found: Vec<f32> = rotary.forward(row, first).into_data().into_vec().unwrap();
            for (found, x) in found.chunks(4).zip(x.chunks(4)) {
                // 100^0 and 100^(-2/4).
                for (pair, frequency) in [(0, 1.0), (1, 0.1)] {
                    let (sin, cos) = (first as f64 * frequency).sin_cos();
                    let (a, b) = (x[pair], x[pair + 2]);
                    let expected = [a * cos - b * sin, a * sin + b * cos];
                    for (found, expected) in [found[pair], found[pair + 2]].iter().zip(expected) {
                        assert!((f64::from(*found) - expected).abs() < 1e-6);
                    }
                }
            }
        }
    }
}
