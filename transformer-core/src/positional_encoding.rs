//! Positional encodings (§3.5).

use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use crate::init::WeightInit;
use crate::layer_config::Positions;
use crate::validation::assert_sizes;

/// Positions whose sines and cosines are stored; longer sequences compute theirs.
const TABLE_LEN: usize = 512;

/// Sines and cosines of geometrically decreasing frequencies (§3.5):
///
/// `PE(pos, 2i) = sin(pos / 10000^(2i/d_model))`,
/// `PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))`.
///
/// The frequencies are computed in log space, in double precision.
///
/// # Shapes
/// - output: `[len, d_model]`, the positions from `first` on
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_core::sinusoidal_encoding;
///
/// // Position 1, d_model 4: sin 1, cos 1, sin 1/100, cos 1/100.
/// let encoding = sinusoidal_encoding::<NdArray>(1, 1, 4, &Default::default());
/// let expected = [0.841471, 0.540302, 0.0099998, 0.99995];
/// for (value, expected) in encoding.into_data().iter::<f64>().zip(expected) {
///     assert!((value - expected).abs() < 1e-6);
/// }
/// ```
pub fn sinusoidal_encoding<B: Backend>(
    first: usize,
    len: usize,
    d_model: usize,
    device: &B::Device,
) -> Tensor<B, 2> {
    let mut values = Vec::with_capacity(len * d_model);
    for position in first..first + len {
        values.extend((0..d_model).map(|at| sinusoid(position, at, d_model) as f32));
    }
    let data = TensorData::new(values, [len, d_model]).convert::<B::FloatElem>();
    Tensor::from_data(data, device)
}

/// `PE(position, dimension)`.
pub(crate) fn sinusoid(position: usize, dimension: usize, d_model: usize) -> f64 {
    let pair = (dimension - dimension % 2) as f64;
    let angle = position as f64 * (-pair * 10_000_f64.ln() / d_model as f64).exp();
    if dimension.is_multiple_of(2) {
        angle.sin()
    } else {
        angle.cos()
    }
}

/// The configuration of [`PositionalEncoding`].
#[derive(Config, Debug)]
pub struct PositionalEncodingConfig {
    /// Width of the embeddings.
    pub d_model: usize,
    /// Fixed or learned; the paper's are sinusoidal.
    #[config(default = "Positions::Sinusoidal")]
    pub positions: Positions,
}

impl PositionalEncodingConfig {
    /// A positional encoding; learned vectors are drawn from the backend's generator.
    ///
    /// # Panics
    /// When a size is zero.
    pub fn init<B: Backend>(&self, device: &B::Device) -> PositionalEncoding<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A positional encoding; learned vectors are drawn from `init`.
    ///
    /// Learned vectors are `N(0, 1)`, the variance of the embeddings that they are added to.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> PositionalEncoding<B> {
        assert_sizes(&[("d_model", self.d_model)]);
        match self.positions {
            Positions::Sinusoidal => PositionalEncoding {
                learned: None,
                sinusoidal: Some(sinusoidal_encoding(0, TABLE_LEN, self.d_model, device)),
            },
            Positions::Learned { max_len } => {
                assert_sizes(&[("max_len", max_len)]);
                PositionalEncoding {
                    learned: Some(init.normal([max_len, self.d_model], 1.0, device)),
                    sinusoidal: None,
                }
            }
        }
    }
}

/// Adds the encoding of its position to each token's embedding (§3.5).
#[derive(Module, Debug)]
pub struct PositionalEncoding<B: Backend> {
    /// One learned vector per position, `[max_len, d_model]`; `None` where positions are sinusoidal.
    pub learned: Option<Param<Tensor<B, 2>>>,
    /// The first positions' sines and cosines, `[TABLE_LEN, d_model]`: a constant, not a weight.
    sinusoidal: Option<Tensor<B, 2>>,
}

impl<B: Backend> PositionalEncoding<B> {
    /// Adds the encodings of the positions from `first` on.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When positions are learned and there are fewer than `first + len`, or `x` is not `d_model` wide.
    pub fn forward(&self, x: Tensor<B, 3>, first: usize) -> Tensor<B, 3> {
        let [_, len, d_model] = x.dims();
        let end = first + len;
        let encoding = match (&self.learned, &self.sinusoidal) {
            (Some(learned), _) => {
                let [max_len, _] = learned.dims();
                assert!(
                    end <= max_len,
                    "{end} positions asked of a model that has {max_len}"
                );
                learned.val().slice_dim(0, first..end)
            }
            (None, Some(table)) if end <= table.dims()[0] => table.clone().slice_dim(0, first..end),
            (None, _) => sinusoidal_encoding(first, len, d_model, &x.device()),
        };
        x + encoding.unsqueeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    fn init(positions: Positions) -> PositionalEncoding<NdArray> {
        let config = PositionalEncodingConfig::new(6).with_positions(positions);
        config.init_from(&mut WeightInit::new(0), &Default::default())
    }

    fn encoded(positions: &PositionalEncoding<NdArray>, first: usize, len: usize) -> Vec<f32> {
        let zeros = Tensor::zeros([1, len, 6], &Default::default());
        values(positions.forward(zeros, first))
    }

    fn values<const D: usize>(tensor: Tensor<NdArray, D>) -> Vec<f32> {
        tensor.into_data().iter().collect()
    }

    #[test]
    fn sines_and_cosines_are_the_paper_s() {
        let encoding = sinusoidal_encoding::<NdArray>(0, 5001, 6, &Default::default());
        let found = values(encoding);
        for position in [0, 1, 2, 511, 5000] {
            for pair in 0..3 {
                let angle = f64::from(position) / 10_000_f64.powf(2.0 * f64::from(pair) / 6.0);
                let at = (position * 6 + 2 * pair) as usize;
                assert!((f64::from(found[at]) - angle.sin()).abs() < 1e-6);
                assert!((f64::from(found[at + 1]) - angle.cos()).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn positions_after_the_table_continue_it() {
        let positions = init(Positions::Sinusoidal);
        for (first, len) in [
            (0, 3),
            (TABLE_LEN - 3, 3),
            (TABLE_LEN - 3, 4),
            (TABLE_LEN, 1),
            (900, 2),
        ] {
            let expected = sinusoidal_encoding::<NdArray>(first, len, 6, &Default::default());
            assert_eq!(encoded(&positions, first, len), values(expected));
        }
    }

    #[test]
    fn learned_positions_are_rows_of_their_table() {
        let positions = init(Positions::Learned { max_len: 5 });
        let table = values(positions.learned.as_ref().unwrap().val());
        assert_eq!(encoded(&positions, 0, 5), table);
        assert_eq!(encoded(&positions, 2, 3), table[12..]);
    }

    #[test]
    #[should_panic(expected = "6 positions asked of a model that has 5")]
    fn learned_positions_end() {
        let positions = init(Positions::Learned { max_len: 5 });
        encoded(&positions, 4, 2);
    }
}
