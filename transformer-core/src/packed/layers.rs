//! Linear layers, norms, the connection around sub-layers, and the feed-forward network.

use std::mem;
use std::sync::Arc;

use crate::nn::feed_forward::FeedForwardConfig;
use crate::nn::norm::{NormConfig, NormKind};
use crate::nn::sublayer::{NormPlacement, SublayerConfig};
use crate::packed::weights::NamedWeights;
use crate::packed::workspace::{Buffers, Products};
use transformer_cpu::rows::{self, Spread};
use transformer_cpu::{PackedMatrix, sized};
use transformer_kernels::{Activation, WeightLayout};

/// Hidden features of a feed-forward network that are in memory at a time. In tests there are several parts.
const HIDDEN: usize = if cfg!(test) { 100 } else { 1 << 19 };

/// `x W + b`
pub struct PackedLinear {
    /// `[d_input, d_output]`; a tied generator shares its embedding's.
    pub matrix: Arc<PackedMatrix>,
    /// `[d_output]`
    pub bias: Option<Vec<f32>>,
}

impl PackedLinear {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        sizes: [usize; 2],
        has_bias: bool,
    ) -> Result<Self, W::Error> {
        let name = format!("{path}.weight");
        let matrix = weights.matrix(&name, sizes, WeightLayout::InputByOutput)?;
        let bias = has_bias.then(|| weights.numbers(&format!("{path}.bias"), sizes[1]));
        Ok(Self {
            matrix: Arc::new(matrix),
            bias: bias.transpose()?,
        })
    }

    /// Writes the result to the beginning of `out`, and returns it.
    ///
    /// # Shapes
    /// - x: `[rows, d_input]`
    /// - output: `[rows, d_output]`
    pub fn forward<'o>(
        &self,
        x: &[f32],
        out: &'o mut Vec<f32>,
        products: &mut Products,
    ) -> &'o mut [f32] {
        let rows = x.len() / self.matrix.d_input();
        let out = sized(out, rows * self.matrix.d_output());
        self.forward_into(x, out, products);
        out
    }

    /// [`forward`](Self::forward) into a slice of the result's size.
    pub fn forward_into(&self, x: &[f32], out: &mut [f32], products: &mut Products) {
        let Products { buffer, threads } = products;
        self.matrix
            .product(x, self.bias.as_deref(), out, buffer, *threads);
    }
}

/// Layer normalization; [`Norm`](crate::nn::Norm) has the formulas.
pub struct Norm {
    gamma: Vec<f32>,
    /// Empty in a norm without a shift.
    beta: Vec<f32>,
    epsilon: f32,
    kind: NormKind,
}

impl Norm {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &NormConfig,
    ) -> Result<Self, W::Error> {
        let mut vector = |name| weights.numbers(&format!("{path}.{name}"), config.d_model);
        Ok(Self {
            gamma: vector("gamma")?,
            beta: match config.kind.has_shift() {
                true => vector("beta")?,
                false => Vec::new(),
            },
            epsilon: config.epsilon as f32,
            kind: config.kind,
        })
    }

    /// Normalizes every row of `x`: `[rows, d_model]`.
    pub fn forward(&self, x: &mut [f32]) {
        let (gamma, beta, epsilon) = (&self.gamma, &self.beta, self.epsilon);
        match self.kind {
            NormKind::Variance => rows::layer_norm(x, gamma, beta, epsilon, Spread::Variance),
            NormKind::UnbiasedDeviation => {
                rows::layer_norm(x, gamma, beta, epsilon, Spread::UnbiasedDeviation);
            }
            NormKind::RootMeanSquare => rows::rms_norm(x, gamma, epsilon),
        }
    }
}

/// The residual connection around a sub-layer (§3.1): `LayerNorm(x + f(x))` with post-norm, `x + f(LayerNorm(x))` with
/// pre-norm.
pub struct Sublayer {
    norm: Norm,
    placement: NormPlacement,
}

impl Sublayer {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &SublayerConfig,
    ) -> Result<Self, W::Error> {
        Ok(Self {
            norm: Norm::read(weights, &format!("{path}.norm"), &config.norm)?,
            placement: config.placement,
        })
    }

    /// Applies `f` with the connection around it. `f` writes its output to the beginning of the given vector.
    ///
    /// # Shapes
    /// - x, and `f`'s input and output: `[rows, d_model]`
    pub fn forward(
        &self,
        x: &mut [f32],
        buffers: &mut Buffers,
        f: impl FnOnce(&[f32], &mut Vec<f32>, &mut Buffers),
    ) {
        let mut output = mem::take(&mut buffers.output);
        let count = x.len();
        match self.placement {
            NormPlacement::Post => {
                f(x, &mut output, buffers);
                rows::add(x, &output[..count]);
                self.norm.forward(x);
            }
            NormPlacement::Pre => {
                let mut normed = mem::take(&mut buffers.normed);
                normed.clear();
                normed.extend_from_slice(x);
                self.norm.forward(&mut normed);
                f(&normed, &mut output, buffers);
                rows::add(x, &output[..count]);
                buffers.normed = normed;
            }
        }
        buffers.output = output;
    }
}

/// The position-wise feed-forward network (§3.3); [`FeedForward`](crate::nn::FeedForward) has the formulas.
pub struct FeedForward {
    inner: PackedLinear,
    gate: Option<PackedLinear>,
    outer: PackedLinear,
    activation: Activation,
}

impl FeedForward {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &FeedForwardConfig,
    ) -> Result<Self, W::Error> {
        let (d_model, d_ff, bias) = (config.d_model, config.d_ff, config.bias);
        let mut linear =
            |part, sizes| PackedLinear::read(weights, &format!("{path}.{part}"), sizes, bias);
        Ok(Self {
            inner: linear("inner", [d_model, d_ff])?,
            gate: match config.gated {
                true => Some(linear("gate", [d_model, d_ff])?),
                false => None,
            },
            outer: linear("outer", [d_ff, d_model])?,
            activation: config.activation,
        })
    }

    /// Applies the network to every row, some rows at a time: the hidden features of all rows of a batch would need
    /// most of the memory of decoding.
    ///
    /// # Shapes
    /// - x and output: `[rows, d_model]`
    pub fn forward(&self, x: &[f32], output: &mut Vec<f32>, buffers: &mut Buffers) {
        let matrix = &self.inner.matrix;
        let part = (HIDDEN / matrix.d_output().max(1)).max(1) * matrix.d_input();
        let output = sized(output, x.len());
        for (x, output) in x.chunks(part).zip(output.chunks_mut(part)) {
            self.forward_part(x, output, buffers);
        }
    }

    fn forward_part(&self, x: &[f32], output: &mut [f32], buffers: &mut Buffers) {
        let Buffers {
            inner, products, ..
        } = buffers;
        let Some(gate) = &self.gate else {
            let hidden = self.inner.forward(x, inner, products);
            rows::activate(hidden, self.activation);
            self.outer.forward_into(hidden, output, products);
            return;
        };
        let count = x.len() / gate.matrix.d_input() * gate.matrix.d_output();
        let (hidden, gated) = sized(inner, 2 * count).split_at_mut(count);
        gate.forward_into(x, hidden, products);
        self.inner.forward_into(x, gated, products);
        rows::activate(hidden, self.activation);
        let pairs = hidden.iter_mut().zip(gated);
        pairs.for_each(|(hidden, gated)| *hidden *= *gated);
        self.outer.forward_into(hidden, output, products);
    }
}
