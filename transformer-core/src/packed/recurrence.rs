//! A recurrence in place of self-attention.

use crate::nn::recurrence::RecurrenceConfig;
use crate::packed::layers::PackedLinear;
use crate::packed::state::{Reading, TokenKind};
use crate::packed::weights::NamedWeights;
use crate::packed::workspace::Buffers;
use transformer_cpu::rows;
use transformer_cpu::sized;
use transformer_kernels::Activation;

/// The recurrence of a decoder layer; [`Recurrence`](crate::nn::Recurrence) has the formula. A slot holds the state
/// after its token instead of keys and values.
pub struct Recurrence {
    input: PackedLinear,
    forget: PackedLinear,
}

impl Recurrence {
    pub fn read<W: NamedWeights>(
        weights: &mut W,
        path: &str,
        config: &RecurrenceConfig,
    ) -> Result<Self, W::Error> {
        let mut linear = |part, bias| {
            let path = format!("{path}.{part}");
            PackedLinear::read(weights, &path, [config.d_model; 2], bias)
        };
        Ok(Self {
            input: linear("input", false)?,
            forget: linear("forget", true)?,
        })
    }

    /// Reads new tokens, each of which continues its target.
    ///
    /// # Shapes
    /// - x and output: `[rows, d_model]`, for the rows of `reading`
    pub fn forward(
        &self,
        x: &[f32],
        layer: usize,
        reading: &mut Reading<'_>,
        output: &mut Vec<f32>,
        buffers: &mut Buffers,
    ) {
        let Buffers {
            projected,
            inner,
            products,
            ..
        } = buffers;
        let d_model = self.input.matrix.d_output();
        let inputs = self.input.forward(x, projected, products);
        let gates = self.forget.forward(x, inner, products);
        let states = sized(output, x.len());
        let each = inputs.chunks(d_model).zip(gates.chunks(d_model));
        let each = each.zip(states.chunks_mut(d_model));
        for (((input, gate), state), query) in each.zip(reading.queries.iter()) {
            let source = &mut reading.sources[query.source];
            match query.before() {
                Some(slot) => {
                    let states = source.key_values(layer);
                    state.copy_from_slice(&states[slot as usize * d_model..][..d_model]);
                }
                None => state.fill(0.0),
            }
            if query.kind == TokenKind::Attended {
                rows::forget(state, input, gate);
            }
            source.keep(layer, state);
        }
        rows::activate(states, Activation::Relu);
    }
}
