//! Positional encodings (§3.5).

use burn::module::{Module, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use crate::config::{Positions, TransformerConfig};
use crate::init::WeightInit;

/// Positions whose sines and cosines are kept at hand; longer sequences compute theirs.
const TABLE_LEN: usize = 512;

/// Sines and cosines of geometrically falling frequency (§3.5):
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
    let step = -(10_000_f64.ln()) / d_model as f64;
    let mut values = Vec::with_capacity(len * d_model);
    for position in first..first + len {
        for dimension in 0..d_model {
            let pair = dimension - dimension % 2;
            let angle = position as f64 * (pair as f64 * step).exp();
            let value = if dimension % 2 == 0 {
                angle.sin()
            } else {
                angle.cos()
            };
            values.push(value as f32);
        }
    }
    let data = TensorData::new(values, [len, d_model]).convert::<B::FloatElem>();
    Tensor::from_data(data, device)
}

/// Adds to each token's embedding where it stands.
#[derive(Module, Debug)]
pub struct PositionalEncoding<B: Backend> {
    /// One learned vector per position, `[max_len, d_model]`; `None` where positions are sinusoidal.
    pub learned: Option<Param<Tensor<B, 2>>>,
    /// The first positions' sines and cosines, `[TABLE_LEN, d_model]`: a constant, not a weight.
    sinusoidal: Option<Tensor<B, 2>>,
}

impl<B: Backend> PositionalEncoding<B> {
    /// A new one, of the kind that the configuration names.
    ///
    /// Learned vectors are `N(0, 1)`, the variance of what they are added to.
    pub fn new(config: &TransformerConfig, init: &mut WeightInit, device: &B::Device) -> Self {
        match config.positions {
            Positions::Sinusoidal => Self {
                learned: None,
                sinusoidal: Some(sinusoidal_encoding(0, TABLE_LEN, config.d_model, device)),
            },
            Positions::Learned { max_len } => Self {
                learned: Some(init.normal([max_len, config.d_model], 1.0, device)),
                sinusoidal: None,
            },
        }
    }

    /// Adds the encodings of the positions from `first` on.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: `[batch, len, d_model]`
    ///
    /// # Panics
    /// When positions are learned and there are fewer than `first + len`.
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
                learned.val().slice([first..end])
            }
            (None, Some(table)) if end <= table.dims()[0] => table.clone().slice([first..end]),
            (None, _) => sinusoidal_encoding(first, len, d_model, &x.device()),
        };
        x + encoding.unsqueeze()
    }
}
