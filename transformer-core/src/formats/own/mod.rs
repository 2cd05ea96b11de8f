//! Our own model directories.

pub mod config;
pub mod quantized;
pub mod weights;

use std::collections::BTreeMap;

use crate::formats::error::{ModelError, TensorProblem};
use crate::formats::format::{Files, Format, Opened};
use crate::formats::own::config::{QUANTIZED_FORMAT, read_config};
use crate::formats::own::quantized::{layout, rows_by_width, scale_name};
use crate::formats::own::weights::{check_matched, file_of_weights, take};
use crate::formats::parameter::StoredParameter;
use crate::formats::state_dict::StateDict;
use crate::formats::state_dict::stored::{ElementType, StoredTensor};
use crate::nn::parameters::Parameter;

/// Directories that this library writes: `config.json` and `model.safetensors`.
pub(crate) struct Own;

impl Format for Own {
    fn recognizes(&self, files: &Files) -> bool {
        files.config().is_some()
    }

    fn open(&self, files: &Files) -> Result<Opened, ModelError> {
        let (format, config) = read_config(files, None)?;
        let is_int8 = format == Some(QUANTIZED_FORMAT);
        let bytes = match is_int8 {
            true => size_of::<i8>(),
            false => size_of::<f32>(),
        };
        let path = file_of_weights(files.directory(), config.size(), bytes)?;
        let dict = StateDict::read_safetensors(&path).map_err(|error| error.into_model(&path))?;
        // A file has at most as many layers as tensors, so one more is sure to be reported as missing.
        let parameters = config.parameters(dict.tensors.len() + 1);
        let parameters = matched(parameters, dict, is_int8);
        Ok(Opened {
            format: match format {
                Some(QUANTIZED_FORMAT) => {
                    format!("{QUANTIZED_FORMAT}, with 8-bit integer matrices")
                }
                Some(format) => format.to_string(),
                None => "unnumbered".to_owned(),
            },
            config,
            parameters: parameters.map_err(|problems| ModelError::tensors(&path, problems))?,
            weights: path,
            options: None,
            unused: Vec::new(),
        })
    }
}

/// Matches our parameters with the tensors of one of our files.
///
/// # Errors
/// The tensors that are missing, unknown, or of the wrong type or shape.
fn matched(
    parameters: Vec<Parameter>,
    mut dict: StateDict,
    is_int8: bool,
) -> Result<Vec<StoredParameter>, Vec<TensorProblem>> {
    let mut matched = Vec::new();
    let mut problems = Vec::new();
    for parameter in parameters {
        let found = match is_int8 && layout(&parameter.0).is_some() {
            true => int8(parameter, &mut dict.tensors),
            false => floats(parameter, &mut dict.tensors),
        };
        match found {
            Ok(found) => matched.push(found),
            Err(problem) => problems.push(problem),
        }
    }
    check_matched(dict, problems)?;
    Ok(matched)
}

fn floats(
    (path, shape): Parameter,
    tensors: &mut BTreeMap<String, StoredTensor>,
) -> Result<StoredParameter, TensorProblem> {
    let tensor = take(tensors, &path, &shape, ElementType::F32)?;
    let name = path.clone();
    Ok(StoredParameter::floats(path, shape, move || {
        let numbers = tensor.floats();
        numbers.map_err(|error| TensorProblem::unreadable(&name, &error))
    }))
}

/// An 8-bit matrix, with the tensor of its scales.
fn int8(
    (path, shape): Parameter,
    tensors: &mut BTreeMap<String, StoredTensor>,
) -> Result<StoredParameter, TensorProblem> {
    let [rows, width] = rows_by_width(&shape, layout(&path).expect("a matrix"));
    let (name, scale_name) = (path.clone(), scale_name(&path));
    // Both are taken, so that neither is reported as unknown if the other has a problem.
    let weights = take(tensors, &path, &[rows, width], ElementType::I8);
    let scales = take(tensors, &scale_name, &[rows], ElementType::F32);
    let (weights, scales) = (weights?, scales?);
    Ok(StoredParameter::int8(path, shape, move || {
        let weights = weights.int8s();
        let weights = weights.map_err(|error| TensorProblem::unreadable(&name, &error))?;
        let scales = scales.floats();
        let scales = scales.map_err(|error| TensorProblem::unreadable(&scale_name, &error))?;
        Ok((weights, scales))
    }))
}
