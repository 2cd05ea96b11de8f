//! Model directories with 8-bit matrices, for decoding at a quarter of the size.
//!
//! | tensor in `model.safetensors` | type | shape |
//! |---|---|---|
//! | matrix of a linear layer, by its path | I8 | `[d_output, d_input]` |
//! | embedding table, by its path | I8 | `[vocab_size, d_model]` |
//! | `PATH.scale` of either | F32 | `[d_output]`, `[vocab_size]` |
//! | norms, biases and learned positions, by their paths | F32 | as in other directories |
//!
//! A weight is `scale · q`, with one scale per row and q from −127 to 127. The format in `config.json` is 2.
//!
//! A [`PackedModel`](crate::PackedModel) multiplies the integers directly; a [`Transformer`](crate::Transformer) gets
//! the dequantized weights.

use transformer_kernels::WeightLayout;

/// The layout in a module of the matrix at this path; `None` for parameters that stay in 32 bits: norms, biases and
/// learned positions.
pub(crate) fn layout(path: &str) -> Option<WeightLayout> {
    let module = path.strip_suffix(".weight")?;
    Some(match module.ends_with("embedding") {
        true => WeightLayout::OutputByInput,
        false => WeightLayout::InputByOutput,
    })
}

/// The name of a matrix's scales.
pub(crate) fn scale_name(path: &str) -> String {
    format!("{path}.scale")
}

/// A matrix's shape as `[d_output, d_input]`, from its shape in a module.
pub(crate) fn rows_by_width(shape: &[usize], layout: WeightLayout) -> [usize; 2] {
    match (layout, shape) {
        (WeightLayout::InputByOutput, &[d_input, d_output]) => [d_output, d_input],
        (WeightLayout::OutputByInput, &[d_output, d_input]) => [d_output, d_input],
        _ => panic!("not a matrix: shape {shape:?}"),
    }
}

/// Transposes `[rows, columns]` to `[columns, rows]`.
pub(crate) fn transposed(numbers: &[f32], columns: usize) -> Vec<f32> {
    let mut transposed = Vec::with_capacity(numbers.len());
    for column in 0..columns {
        transposed.extend(numbers[column..].iter().step_by(columns));
    }
    transposed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::config::TransformerConfig;
    use crate::models::tying::WeightTying;
    use crate::nn::positions::Positions;

    /// Every two-dimensional parameter except the learned positions.
    #[test]
    fn matrices_are_quantized_and_nothing_else() {
        let learned = TransformerConfig {
            positions: Positions::Learned { max_len: 7 },
            tying: WeightTying::None,
            attention_bias: true,
            generator_bias: true,
            final_norm: true,
            embedding_norm: true,
            n_encoder_layers: 1,
            n_decoder_layers: 1,
            ..TransformerConfig::base(11)
        };
        let relative = TransformerConfig {
            positions: Positions::RelativeBias {
                buckets: 8,
                max_distance: 9,
            },
            ..learned.clone()
        };
        let parameters = [learned, relative].map(|config| config.parameters(usize::MAX));
        for (path, shape) in parameters.concat() {
            let is_matrix = shape.len() == 2 && !path.ends_with(".learned");
            assert_eq!(layout(&path).is_some(), is_matrix, "{path}");
            if path.contains("embedding.weight") {
                assert_eq!(layout(&path), Some(WeightLayout::OutputByInput), "{path}");
            }
        }
        let generator = layout("generator.weight");
        assert_eq!(generator, Some(WeightLayout::InputByOutput));
    }
}
