//! A model's parameter in a file.

use std::collections::BTreeMap;
use std::rc::Rc;

use burn::tensor::TensorData;
use transformer_kernels::WeightLayout;

use crate::formats::error::TensorProblem;
use crate::formats::fill::Readable;
use crate::formats::own::quantized::{layout, rows_by_width, scale_name, transposed};
use crate::nn::parameters::Parameter;

/// A parameter of a model whose values are still in a file: its path in the module, its shape there, and how to read it.
pub struct StoredParameter {
    path: String,
    shape: Vec<usize>,
    values: Values,
}

type Read<T> = Box<dyn Fn() -> Result<T, TensorProblem>>;

/// The integers of a matrix, row by row, and the scale of each row.
pub type Int8Rows = (Vec<i8>, Vec<f32>);

enum Values {
    Floats(Read<Vec<f32>>),
    Int8(Read<Int8Rows>),
}

impl StoredParameter {
    /// A parameter that is read in single precision.
    ///
    /// # Shapes
    /// - shape: as [`TransformerConfig::parameter_shapes`](crate::TransformerConfig::parameter_shapes) has it at this path; matrices
    ///   of linear layers are `[d_input, d_output]`, embeddings `[vocab_size, d_model]`
    /// - `read`: all values, in the order of their indices
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

    /// A matrix in 8-bit integers: a linear layer's, or a table of embeddings. A [`PackedModel`](crate::PackedModel) in 8
    /// bits multiplies the integers as they are; elsewhere a weight is `scale · q`.
    ///
    /// # Shapes
    /// - shape: as for [`floats`](Self::floats)
    /// - `read`: the integers from −127 to 127, `[d_output, d_input]` or `[vocab_size, d_model]`, and the scale of each row, finite and 0
    ///   or more
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

    /// Its path in the module.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its shape in the module.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Whether it is stored in 8-bit integers.
    pub fn is_int8(&self) -> bool {
        matches!(self.values, Values::Int8(_))
    }

    /// Its values, in the order of their indices in the module.
    ///
    /// # Errors
    /// When they cannot be read or are not as many as the shape has; in 8 bits, as [`rows`](Self::rows).
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

    /// The integers and the scale of each row; `None` where it is not stored in 8 bits.
    ///
    /// # Errors
    /// When they cannot be read, are not as many as the shape has, or are numbers that quantization does not make; when the
    /// path is not a matrix's: those of linear layers and embeddings end in `.weight`.
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
                rule: "weights in 8 bits are from -127 to 127",
            });
        }
        let is_wrong = |scale: &&f32| !scale.is_finite() || **scale < 0.0;
        if let Some(scale) = scales.iter().find(is_wrong) {
            return Err(TensorProblem::Number {
                name: scale_name(&self.path),
                found: scale.to_string(),
                rule: "a scale is a finite number, 0 or more",
            });
        }
        let [rows, width] = rows_by_width(&self.shape, self.layout()?);
        match (weights.len(), scales.len()) == (rows * width, rows) {
            true => Ok(()),
            false => Err(self.other_shape(weights.len())),
        }
    }

    /// How a matrix lies in the module.
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

/// What is wrong with parameters that are to be a model's: those that are missing, unknown, or of another shape.
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
