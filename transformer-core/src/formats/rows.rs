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
/// When tensors are missing, unknown, or of the wrong type or shape.
pub(crate) fn with_padding(
    map: &Map,
    dict: &StateDict,
    path: &Path,
    vocabularies: &Vocabularies,
    config: &mut TransformerConfig,
) -> Result<Vec<StoredParameter>, ModelError> {
    let problems = map.problems(dict);
    if !problems.is_empty() {
        return Err(ModelError::tensors(path, problems));
    }
    config.src_vocab_size += vocabularies.source.appended;
    config.tgt_vocab_size += vocabularies.target().appended;
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
    let width: usize = shape[tokens + 1..].iter().product();
    if parameter.is_int8() {
        return StoredParameter::int8(path, shape.clone(), move || {
            let (mut integers, mut scales) = parameter.rows().expect("8-bit integers")?;
            scales.resize(before + count, 1.0);
            let width = shape.iter().product::<usize>() / (before + count);
            integers.resize((before + count) * width, 0);
            Ok((integers, scales))
        });
    }
    StoredParameter::floats(path, shape, move || {
        let numbers = parameter.numbers()?;
        let groups = numbers.chunks((before * width).max(1));
        let zeros = vec![0.0; count * width];
        Ok(groups.flat_map(|group| [group, &zeros].concat()).collect())
    })
}
