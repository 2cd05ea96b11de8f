//! Types that describe operations, for these kernels and those of other devices.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The memory layout of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightLayout {
    /// `[d_input, d_output]`
    InputByOutput,
    /// `[d_output, d_input]`: stored transposed, as an embedding that is also the projection to logits.
    OutputByInput,
}

impl WeightLayout {
    /// Converts between the memory order of a weight's `[rows, columns]` and `[d_input, d_output]`.
    pub fn oriented<T>(self, [rows, columns]: [T; 2]) -> [T; 2] {
        match self {
            Self::InputByOutput => [rows, columns],
            Self::OutputByInput => [columns, rows],
        }
    }
}

/// The precision of matrix multiplications where gradients are computed, forward and backward: in linear layers,
/// and on libtorch also in attention (`Q Kᵀ`, and weights times values), except tiled attention.
///
/// Everything else is in f32 in either case: parameters and gradients, inputs and outputs of operations, biases,
/// softmax and norms. Without gradients, matrix multiplications are in f32, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProductPrecision {
    /// f32.
    #[default]
    F32,
    /// Both operands are rounded to bf16, which has the range of f32 and 8 bits of precision, so that each is off
    /// by at most 1/256 of itself. Sums are in f32; libtorch rounds each completed sum to bf16.
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
    /// Number of attention heads.
    pub n_heads: usize,
    /// Width of a head's queries and keys.
    pub d_k: usize,
    /// Width of a head's values.
    pub d_v: usize,
}

/// The activation of the position-wise feed-forward network (§3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(0, x)`, as in the paper.
    Relu,
    /// `x Φ(x)`, computed exactly (by the error function).
    Gelu,
    /// `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`, the approximation of GELU in T5 v1.1 and GPT-2.
    GeluTanh,
    /// `x σ(x)`.
    Silu,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 4] = [Self::Relu, Self::Gelu, Self::GeluTanh, Self::Silu];
}

/// The hyperparameters of one Adam step, the same for all parameters (§5.3).
#[derive(Debug, Clone, Copy)]
pub struct AdamStep {
    /// β₁, the decay of the first moment.
    pub beta_1: f32,
    /// β₂, the decay of the second moment.
    pub beta_2: f32,
    /// ε, added to the root of the bias-corrected second moment.
    pub epsilon: f32,
    /// Learning rate.
    pub learning_rate: f64,
    /// Number of steps of the parameter, including this one.
    pub time: usize,
}

impl AdamStep {
    /// `(s, e)` of the step `parameter -= s · moment_1 / (√moment_2 + e)`, which includes bias correction.
    pub fn size_and_epsilon(&self) -> (f32, f32) {
        let [first, root] = self.corrections();
        (
            self.learning_rate as f32 * root / first,
            self.epsilon * root,
        )
    }

    /// The bias corrections of the first moment and of the root of the second.
    pub fn corrections(&self) -> [f32; 2] {
        let time = self.time as i32;
        [
            1.0 - self.beta_1.powi(time),
            (1.0 - self.beta_2.powi(time)).sqrt(),
        ]
    }
}

/// Which gradients of attention are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionParents {
    /// The gradient of the queries.
    pub query: bool,
    /// The gradients of keys and values.
    pub key_value: bool,
}

/// Which gradients of layer normalization are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NormParents {
    /// The gradient of the rows.
    pub x: bool,
    /// The gradients of gamma and beta.
    pub parameters: bool,
}
