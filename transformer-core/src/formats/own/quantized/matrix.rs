//! A matrix in 8 bits, in the file of a model directory.

use std::collections::BTreeMap;

use burn::tensor::TensorData;

use crate::formats::error::TensorProblem;
use crate::formats::fill::Readable;
use crate::formats::own::quantized::{layout, rows_by_width, scale_name, transposed};
use crate::formats::state_dict::stored::{ElementType, StoredTensor};
use crate::formats::weights::take;
use crate::nn::parameters::Parameter;
use transformer_kernels::WeightLayout;

/// A matrix in 8 bits and its scales. They have the type and shape of a model's parameter; no number has been read.
pub(crate) struct QuantizedMatrix {
    path: String,
    /// Its shape in the module.
    shape: Vec<usize>,
    layout: WeightLayout,
    /// `[d_output, d_input]`
    weights: StoredTensor,
    /// `[d_output]`
    scales: StoredTensor,
}

impl QuantizedMatrix {
    /// Takes the tensors of a parameter from those of a file; `None` for a parameter that stays in 32 bits.
    ///
    /// # Errors
    /// When one is missing, or of another type or shape.
    pub fn take(
        (path, shape): &Parameter,
        tensors: &mut BTreeMap<String, StoredTensor>,
    ) -> Option<Result<Self, TensorProblem>> {
        let layout = layout(path)?;
        let [rows, width] = rows_by_width(shape, layout);
        // Both are taken, so that neither is reported as unknown where the other has a problem.
        let weights = take(tensors, path, &[rows, width], ElementType::I8);
        let scales = take(tensors, &scale_name(path), &[rows], ElementType::F32);
        Some(weights.and_then(|weights| {
            Ok(Self {
                path: path.clone(),
                shape: shape.clone(),
                layout,
                weights,
                scales: scales?,
            })
        }))
    }

    /// The weights, `[d_output, d_input]`, from −127 to 127, and the scale of each output.
    ///
    /// # Errors
    /// When they cannot be read, or one is a number that quantization does not make.
    pub fn rows(&self) -> Result<(Vec<i8>, Vec<f32>), TensorProblem> {
        let weights = self.weights.int8s();
        let weights = weights.map_err(|error| TensorProblem::unreadable(&self.path, &error))?;
        if weights.contains(&i8::MIN) {
            return Err(TensorProblem::Number {
                name: self.path.clone(),
                found: i8::MIN.to_string(),
                rule: "weights in 8 bits are from -127 to 127",
            });
        }
        Ok((weights, self.read_scales()?))
    }

    fn read_scales(&self) -> Result<Vec<f32>, TensorProblem> {
        let name = scale_name(&self.path);
        let mut scales = Vec::new();
        let mut read = || -> std::io::Result<()> {
            let mut parts = self.scales.parts()?;
            while let Some(part) = parts.read()? {
                scales.extend_from_slice(part);
            }
            Ok(())
        };
        read().map_err(|error| TensorProblem::unreadable(&name, &error))?;
        let is_wrong = |scale: &f32| !scale.is_finite() || *scale < 0.0;
        let wrong = scales.iter().copied().find(is_wrong);
        match wrong {
            None => Ok(scales),
            Some(scale) => Err(TensorProblem::Number {
                name,
                found: scale.to_string(),
                rule: "a scale is a finite number, 0 or more",
            }),
        }
    }
}

impl Readable for QuantizedMatrix {
    fn path(&self) -> &str {
        &self.path
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn read(&self) -> Result<TensorData, TensorProblem> {
        let (weights, scales) = self.rows()?;
        let [rows, width] = rows_by_width(&self.shape, self.layout);
        let mut numbers = Vec::with_capacity(rows * width);
        for (row, scale) in weights.chunks(width).zip(scales) {
            numbers.extend(row.iter().map(|&weight| f32::from(weight) * scale));
        }
        drop(weights);
        let numbers = match self.layout {
            WeightLayout::OutputByInput => numbers,
            WeightLayout::InputByOutput => transposed(&numbers, width),
        };
        Ok(TensorData::new(numbers, self.shape.clone()))
    }
}
