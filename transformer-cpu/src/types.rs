//! Types that describe an operation, for these kernels and those of other devices.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which dimension of a weight is the input's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightLayout {
    /// `[d_input, d_output]`
    InputByOutput,
    /// `[d_output, d_input]`: stored transposed, as an embedding that serves as a projection to logits.
    OutputByInput,
}

impl WeightLayout {
    /// Reorders `[rows, columns]` of a weight in memory to `[d_input, d_output]`, or the reverse.
    pub fn oriented<T>(self, [rows, columns]: [T; 2]) -> [T; 2] {
        match self {
            Self::InputByOutput => [rows, columns],
            Self::OutputByInput => [columns, rows],
        }
    }
}

/// The precision of products where gradients are taken, forward and backward: of linear maps, and on libtorch also
/// of attention (`Q Kᵀ`, and weights times values), except where attention is computed in tiles.
///
/// Everything else is in f32 in either case: parameters and gradients, inputs and outputs of operations, biases,
/// softmax and norms. Where no gradients are taken, products are in f32, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProductPrecision {
    /// f32.
    #[default]
    F32,
    /// Both factors are rounded to bf16: the range of f32 with 8 bits of precision, so that each is off by 1/256
    /// of itself at most. Sums are in f32; libtorch rounds them to bf16 once, when they are complete.
    Bf16,
}

impl fmt::Display for ProductPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

/// Number and widths of attention heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Attention heads.
    pub n_heads: usize,
    /// Width of a head's queries and keys.
    pub d_k: usize,
    /// Width of a head's values.
    pub d_v: usize,
}

/// The non-linearity of the position-wise feed-forward network (§3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(0, x)`, as in the paper.
    Relu,
    /// `x Φ(x)`, exact (by the error function).
    Gelu,
    /// `x σ(x)`.
    Silu,
}

/// The hyperparameters of a step of Adam, the same for all parameters.
#[derive(Debug, Clone, Copy)]
pub struct AdamStep {
    /// Decay factor of the first moment.
    pub beta_1: f32,
    /// Decay factor of the second moment.
    pub beta_2: f32,
    /// Added to the root of the bias-corrected second moment.
    pub epsilon: f32,
    /// Learning rate.
    pub learning_rate: f64,
    /// Steps of the parameter, this one included.
    pub time: usize,
}

impl AdamStep {
    /// `(s, e)` of the step `parameter -= s · moment_1 / (√moment_2 + e)`, the moments' bias corrected.
    pub fn size_and_epsilon(&self) -> (f32, f32) {
        let [first, root] = self.corrections();
        (
            self.learning_rate as f32 * root / first,
            self.epsilon * root,
        )
    }

    /// Bias corrections of the first moment, and of the root of the second.
    pub fn corrections(&self) -> [f32; 2] {
        let time = self.time as i32;
        [
            1.0 - self.beta_1.powi(time),
            (1.0 - self.beta_2.powi(time)).sqrt(),
        ]
    }
}

/// Which gradients of attention are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionParents {
    /// The gradient of the queries.
    pub query: bool,
    /// The gradients of keys and values.
    pub key_value: bool,
}

/// Which gradients of layer normalisation are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NormParents {
    /// The gradient of the rows.
    pub x: bool,
    /// The gradients of gamma and beta.
    pub parameters: bool,
}
