//! Rows of zeros after those of a file, for tokens that only our model has.

use std::path::Path;

use crate::formats::error::ModelError;
use crate::formats::name_map::{Import, Map};
use crate::formats::parameter::StoredParameter;
use crate::formats::state_dict::StateDict;
use crate::formats::vocabularies::Vocabularies;
use crate::models::config::TransformerConfig;

/// The parameters in the tensors of a file, with rows for the tokens that it lacks, which are added to the
/// configuration.
///
/// # Errors
/// When tensors are missing, unknown, or of the wrong type or shape, or the configuration, which is read from the same
/// file, is invalid.
pub(crate) fn with_padding(
    map: &Map,
    dict: &StateDict,
    path: &Path,
    vocabularies: &Vocabularies,
    config: &mut TransformerConfig,
) -> Result<Vec<StoredParameter>, ModelError> {
    let mut problems = map.problems(dict);
    // Tied matrices are one tensor.
    problems.dedup();
    if !problems.is_empty() {
        return Err(ModelError::tensors(path, problems));
    }
    config.src_vocab_size += vocabularies.source.appended;
    config.tgt_vocab_size += vocabularies.target().appended;
    config.validate().map_err(|source| ModelError::Config {
        path: path.to_owned(),
        source,
    })?;
    let parameters = map.imports(dict).into_iter().map(Import::into_parameter);
    Ok(parameters
        .map(|parameter| padded(parameter, vocabularies))
        .collect())
}

/// The parameter with rows for the tokens that the file lacks.
fn padded(parameter: StoredParameter, vocabularies: &Vocabularies) -> StoredParameter {
    let count = match parameter.path() {
        "src_embedding.weight" => vocabularies.source.appended,
        "tgt_embedding.weight" | "generator.weight" | "generator.bias" => {
            vocabularies.target().appended
        }
        _ => 0,
    };
    match count {
        0 => parameter,
        count => with_tokens(parameter, count),
    }
}

/// The parameter with `count` more tokens, whose values are zero.
fn with_tokens(parameter: StoredParameter, count: usize) -> StoredParameter {
    let path = parameter.path().to_owned();
    let mut shape = parameter.shape().to_vec();
    // An embedding has a row per token, the generator's weight a column and its bias a value.
    let is_embedding = path.ends_with("embedding.weight");
    let tokens = if is_embedding { 0 } else { shape.len() - 1 };
    let before = shape[tokens];
    shape[tokens] += count;
    let len: usize = shape.iter().product();
    if parameter.is_int8() {
        return StoredParameter::int8(path, shape, move || {
            let (integers, mut scales) = parameter.rows().expect("8-bit integers")?;
            scales.resize(before + count, 1.0);
            Ok((extended(integers, len), scales))
        });
    }
    StoredParameter::floats(path, shape, move || {
        let numbers = parameter.numbers()?;
        if is_embedding {
            return Ok(extended(numbers, len));
        }
        let mut padded = Vec::with_capacity(len);
        for of_row in numbers.chunks(before.max(1)) {
            padded.extend_from_slice(of_row);
            padded.resize(padded.len() + count, 0.0);
        }
        Ok(padded)
    })
}

/// The values, and zeros up to `len`. Reserves no more than these, because an embedding is often most of a model.
fn extended<T: Default + Clone>(mut values: Vec<T>, len: usize) -> Vec<T> {
    values.reserve_exact(len - values.len());
    values.resize(len, T::default());
    values
}
