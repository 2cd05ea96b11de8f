//! Writes a model directory with 8-bit matrices.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError};

use crate::formats::directory::ModelDirectory;
use crate::formats::error::{ModelError, TensorProblem};
use crate::formats::files::{self, replace_file_with};
use crate::formats::names::{CONFIG_FILE, GENERATION_FILE, WEIGHTS_FILE};
use crate::formats::options::to_keys;
use crate::formats::own::config::QUANTIZED_FORMAT;
use crate::formats::own::quantized::{layout, rows_by_width, scale_name, transposed};
use crate::formats::own::weights::save_files;
use transformer_cpu::quantized_rows;
use transformer_kernels::WeightLayout;

/// Writes a model to another directory, which is created if missing, with its matrices in 8-bit integers, for decoding
/// at a quarter of the size. The model may be an encoder–decoder or a language model, in our format or Hugging Face's;
/// the new directory is in ours.
///
/// Each output of a linear layer and each token's embedding has its own scale: its largest magnitude / 127. Norms,
/// biases and learned positions stay in 32 bits. The tokenizers and the decoding options are copied, for a checkpoint
/// from its run. [`Transformer::load`](crate::Transformer::load) reads the new directory and dequantizes the weights;
/// [`PackedModel::load`](crate::PackedModel::load) computes with the integers.
///
/// Memory holds the quantized model and one tensor in 32 bits.
///
/// ```no_run
/// # fn main() -> Result<(), transformer_core::formats::ModelError> {
/// use transformer_core::ModelDirectory;
/// use transformer_core::formats::quantize;
///
/// quantize(&ModelDirectory::open("model")?, "model-int8")?;
/// assert!(ModelDirectory::open("model-int8")?.is_int8());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the model cannot be read, is already in 8 bits, or has a matrix with a non-finite value; when its decoding options
/// have no key in `generation_config.json` ([`DecodeOptions::save`](crate::DecodeOptions::save)); when the new directory
/// already holds a model, or a file cannot be written.
pub fn quantize(directory: &ModelDirectory, out: impl AsRef<Path>) -> Result<(), ModelError> {
    let out = out.as_ref();
    if directory.is_int8() {
        return Err(ModelError::Weights {
            path: directory.path().to_owned(),
            problem: "the model is already in 8 bits".to_owned(),
        });
    }
    let holds_model = [CONFIG_FILE, WEIGHTS_FILE]
        .iter()
        .any(|name| out.join(name).exists());
    if holds_model {
        let error = io::Error::new(ErrorKind::AlreadyExists, "already holds a model");
        return Err(ModelError::io(out)(error));
    }
    let config = directory.config();
    let tokenizers = directory.files().read_tokenizers()?;
    let path = out.join(GENERATION_FILE);
    let options = directory.options()?;
    let options = options.map(|options| to_keys(&path, Some(&options), config));
    let options = options.transpose()?;
    let tensors = quantized(directory)?;

    fs::create_dir_all(out).map_err(ModelError::io(out))?;
    for (name, bytes) in tokenizers {
        let path = out.join(name);
        replace_file_with(&path, bytes).map_err(ModelError::io(path))?;
    }
    if let Some(options) = options {
        replace_file_with(&path, options.to_json()).map_err(ModelError::io(path))?;
    }
    // Configuration and weights come last, so that an incomplete directory is not a model.
    save_files(QUANTIZED_FORMAT, config.kind(), config, out, |side| {
        write(&tensors, side)
    })
}

/// A tensor to be written.
struct NewTensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl NewTensor {
    fn f32(name: String, shape: Vec<usize>, numbers: &[f32]) -> Self {
        Self {
            name,
            dtype: Dtype::F32,
            shape,
            bytes: numbers.iter().copied().flat_map(f32::to_le_bytes).collect(),
        }
    }
}

/// Quantizes the tensors of a model, one at a time.
fn quantized(directory: &ModelDirectory) -> Result<Vec<NewTensor>, ModelError> {
    let mut tensors = Vec::new();
    for parameter in directory.parameters() {
        let numbers = parameter.numbers();
        let numbers = numbers.map_err(|problem| directory.tensor_error(&problem))?;
        let (name, shape) = (parameter.path().to_owned(), parameter.shape().to_vec());
        let Some(layout) = layout(&name) else {
            tensors.push(NewTensor::f32(name, shape, &numbers));
            continue;
        };
        if let Some(number) = numbers.iter().find(|number| !number.is_finite()) {
            let problem = TensorProblem::Number {
                name,
                found: number.to_string(),
                rule: "only finite values can be quantized",
            };
            return Err(directory.tensor_error(&problem));
        }
        let [rows, width] = rows_by_width(&shape, layout);
        let numbers = match layout {
            WeightLayout::OutputByInput => numbers,
            WeightLayout::InputByOutput => transposed(&numbers, rows),
        };
        let (weights, scales) = quantized_rows(&numbers, width);
        tensors.push(NewTensor::f32(scale_name(&name), vec![rows], &scales));
        tensors.push(NewTensor {
            name,
            dtype: Dtype::I8,
            shape: vec![rows, width],
            bytes: weights.into_iter().map(i8::cast_unsigned).collect(),
        });
    }
    Ok(tensors)
}

fn write(tensors: &[NewTensor], path: &Path) -> io::Result<()> {
    let views = tensors
        .iter()
        .map(|tensor| {
            let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes)?;
            Ok((tensor.name.as_str(), view))
        })
        .collect::<Result<Vec<_>, SafeTensorError>>()
        .map_err(io::Error::other)?;
    safetensors::serialize_to_file(views, None, path).map_err(files::system_error)
}
