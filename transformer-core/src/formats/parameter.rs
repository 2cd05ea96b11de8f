//! A model parameter stored in a file.

use std::collections::BTreeMap;
use std::rc::Rc;

use burn::tensor::TensorData;
use transformer_kernels::WeightLayout;

use crate::formats::error::TensorProblem;
use crate::formats::fill::Readable;
use crate::formats::own::quantized::{layout, rows_by_width, scale_name, transposed};
use crate::nn::parameters::Parameter;

/// A model parameter whose values are still in a file: its path and shape in the module, and how to read it.
pub struct StoredParameter {
    path: String,
    shape: Vec<usize>,
    values: Values,
}

type Read<T> = Box<dyn Fn() -> Result<T, TensorProblem>>;

/// The integers of a matrix, in row-major order, and the scale of each row.
pub type Int8Rows = (Vec<i8>, Vec<f32>);

enum Values {
    Floats(Read<Vec<f32>>),
    Int8(Read<Int8Rows>),
}

impl StoredParameter {
    /// A parameter that is read in single precision.
    ///
    /// # Shapes
    /// - shape: as in [`TransformerConfig::parameter_shapes`](crate::TransformerConfig::parameter_shapes) at this path;
    ///   matrices of linear layers are `[d_input, d_output]`, embeddings `[vocab_size, d_model]`
    /// - `read`: returns all values in row-major order
    pub fn floats(
        path: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        read: impl Fn() -> Result<Vec<f32>, TensorProblem> + 'static,
    ) -> Self {
        Self {
            path: path.into(),
            shape: shape.into(),
            values: Values::Floats(Box::new(read)),
        }
    }

    /// A matrix in 8-bit integers, of a linear layer or an embedding. An 8-bit [`PackedModel`](crate::PackedModel)
    /// multiplies the integers directly; elsewhere a weight is `scale · q`.
    ///
    /// # Shapes
    /// - shape: as for [`floats`](Self::floats)
    /// - `read`: returns the integers, from −127 to 127, as `[d_output, d_input]` or `[vocab_size, d_model]`, and the
    ///   scale of each row, finite and at least 0
    pub fn int8(
        path: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        read: impl Fn() -> Result<Int8Rows, TensorProblem> + 'static,
    ) -> Self {
        Self {
            path: path.into(),
            shape: shape.into(),
            values: Values::Int8(Box::new(read)),
        }
    }

    /// The path in the module.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The shape in the module.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Whether the parameter is stored in 8-bit integers.
    pub fn is_int8(&self) -> bool {
        matches!(self.values, Values::Int8(_))
    }

    /// Reads the values, in the module's row-major order.
    ///
    /// # Errors
    /// When they cannot be read or their number does not match the shape; in 8 bits, as [`rows`](Self::rows).
    pub fn numbers(&self) -> Result<Vec<f32>, TensorProblem> {
        let numbers = match &self.values {
            Values::Floats(read) => read()?,
            Values::Int8(_) => self.expanded()?,
        };
        match numbers.len() == self.shape.iter().product::<usize>() {
            true => Ok(numbers),
            false => Err(self.other_shape(numbers.len())),
        }
    }

    /// Reads the integers and the scale of each row; `None` if the parameter is not stored in 8 bits.
    ///
    /// # Errors
    /// When they cannot be read, their number does not match the shape, or one is out of range; when the parameter is
    /// not a matrix of a linear layer or an embedding, whose paths end in `.weight`.
    pub fn rows(&self) -> Option<Result<Int8Rows, TensorProblem>> {
        match &self.values {
            Values::Floats(_) => None,
            Values::Int8(read) => Some(read().and_then(|(weights, scales)| {
                self.check_rows(&weights, &scales)?;
                Ok((weights, scales))
            })),
        }
    }

    fn check_rows(&self, weights: &[i8], scales: &[f32]) -> Result<(), TensorProblem> {
        if weights.contains(&i8::MIN) {
            return Err(TensorProblem::Number {
                name: self.path.clone(),
                found: i8::MIN.to_string(),
                rule: "8-bit weights must be from -127 to 127",
            });
        }
        let is_wrong = |scale: &&f32| !scale.is_finite() || **scale < 0.0;
        if let Some(scale) = scales.iter().find(is_wrong) {
            return Err(TensorProblem::Number {
                name: scale_name(&self.path),
                found: scale.to_string(),
                rule: "a scale must be finite and at least 0",
            });
        }
        let [rows, width] = rows_by_width(&self.shape, self.layout()?);
        match (weights.len(), scales.len()) == (rows * width, rows) {
            true => Ok(()),
            false => Err(self.other_shape(weights.len())),
        }
    }

    /// The layout of the matrix in the module.
    fn layout(&self) -> Result<WeightLayout, TensorProblem> {
        match layout(&self.path) {
            Some(layout) if self.shape.len() == 2 => Ok(layout),
            _ => Err(TensorProblem::OtherType {
                name: self.path.clone(),
                found: "i8".to_owned(),
                expected: "f32".to_owned(),
            }),
        }
    }

    fn expanded(&self) -> Result<Vec<f32>, TensorProblem> {
        let (weights, scales) = self.rows().expect("a matrix in 8 bits")?;
        let layout = self.layout()?;
        let [_, width] = rows_by_width(&self.shape, layout);
        let mut numbers = Vec::with_capacity(weights.len());
        for (row, scale) in weights.chunks(width.max(1)).zip(scales) {
            numbers.extend(row.iter().map(|&weight| f32::from(weight) * scale));
        }
        drop(weights);
        Ok(match layout {
            WeightLayout::OutputByInput => numbers,
            WeightLayout::InputByOutput => transposed(&numbers, width),
        })
    }

    fn other_shape(&self, found: usize) -> TensorProblem {
        TensorProblem::Shape {
            name: self.path.clone(),
            found: vec![found],
            expected: self.shape.clone(),
        }
    }
}

impl Readable for Rc<StoredParameter> {
    fn path(&self) -> &str {
        StoredParameter::path(self)
    }

    fn shape(&self) -> &[usize] {
        StoredParameter::shape(self)
    }

    fn read(&self) -> Result<TensorData, TensorProblem> {
        Ok(TensorData::new(self.numbers()?, self.shape.clone()))
    }
}

/// The parameters that are missing, unknown, or of the wrong shape for a model.
pub(crate) fn problems(found: &[StoredParameter], expected: Vec<Parameter>) -> Vec<TensorProblem> {
    let mut rest: BTreeMap<&str, &[usize]> = found
        .iter()
        .map(|parameter| (parameter.path(), parameter.shape()))
        .collect();
    let mut problems = Vec::new();
    for (name, expected) in expected {
        match rest.remove(&name[..]) {
            None => problems.push(TensorProblem::Missing { name }),
            Some(found) if found != expected => problems.push(TensorProblem::Shape {
                found: found.to_vec(),
                name,
                expected,
            }),
            Some(_) => {}
        }
    }
    let unknown = rest.into_keys().map(str::to_owned);
    problems.extend(unknown.map(|name| TensorProblem::Unknown { name }));
    problems
}
