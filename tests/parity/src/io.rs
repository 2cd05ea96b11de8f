//! The tensors of a fixture's `io.safetensors`: inputs, and another system's results.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{BoolStore, DType, TensorData};
use safetensors::SafeTensors;
use transformer_program::read_regular;

use super::Result;
use super::report::{Difference, Row, difference};

/// Largest absolute error of the loss.
const LOSS_BOUND: f64 = 1e-5;
/// Largest error of a gradient: this, …
const GRADIENT_BOUND: f64 = 1e-6;
/// … and this share of the largest entry of its tensor.
const GRADIENT_SHARE: f64 = 1e-4;

/// The tensors of `io.safetensors`.
pub(super) struct Io(BTreeMap<String, TensorData>);

impl Io {
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = read_regular(path)?;
        let tensors = SafeTensors::deserialize(&bytes)?;
        let mut io = BTreeMap::new();
        for (name, tensor) in tensors.tensors() {
            let dtype = match tensor.dtype() {
                safetensors::Dtype::F32 => DType::F32,
                safetensors::Dtype::I32 => DType::I32,
                safetensors::Dtype::I64 => DType::I64,
                safetensors::Dtype::BOOL => DType::Bool(BoolStore::Native),
                other => return Err(format!("`{name}` is {other:?}").into()),
            };
            let mut bytes = tensor.data().to_vec();
            if matches!(dtype, DType::Bool(_)) {
                bytes
                    .iter_mut()
                    .for_each(|byte| *byte = u8::from(*byte != 0));
            }
            let data = TensorData::from_bytes_vec(bytes, tensor.shape(), dtype);
            io.insert(name, data);
        }
        Ok(Self(io))
    }

    fn get(&self, name: &str) -> Result<&TensorData> {
        Ok(self
            .0
            .get(name)
            .ok_or_else(|| format!("`{name}` is missing"))?)
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A tensor of `D` dimensions and of the type `dtype`, not empty.
    pub fn of_rank<const D: usize>(
        &self,
        name: &str,
        dtype: DType,
    ) -> Result<(&TensorData, [usize; D])> {
        let data = self.get(name)?;
        match <[usize; D]>::try_from(&data.shape[..]) {
            Ok(dims) if data.dtype == dtype && dims.contains(&0) => {
                Err(format!("`{name}` is empty").into())
            }
            Ok(dims) if data.dtype == dtype => Ok((data, dims)),
            _ => Err(format!(
                "`{name}` is {} {:?}, not {D} dimensions of {}",
                data.dtype.name(),
                &data.shape[..],
                dtype.name()
            )
            .into()),
        }
    }

    /// Rows of tokens of a vocabulary.
    pub fn tokens(&self, name: &str, vocab_size: usize) -> Result<Vec<Vec<u32>>> {
        let dtype = match self.get(name)?.dtype {
            DType::I32 => DType::I32,
            _ => DType::I64,
        };
        let (data, [_, len]) = self.of_rank(name, dtype)?;
        let tokens = data
            .iter::<i64>()
            .map(|token| {
                let known = u32::try_from(token).ok();
                known.filter(|&token| (token as usize) < vocab_size)
            })
            .collect::<Option<Vec<u32>>>()
            .ok_or_else(|| format!("`{name}` holds tokens outside the vocabulary"))?;
        Ok(tokens.chunks(len).map(<[u32]>::to_vec).collect())
    }

    /// The difference between a tensor and the expected one of that name.
    fn difference(&self, name: &str, found: &TensorData) -> Result<Difference> {
        let expected = self.get(name)?;
        let shapes = [&expected.shape[..], &found.shape[..]];
        if shapes[0] != shapes[1] {
            return Err(format!("`{name}` is {:?}, not {:?}", shapes[0], shapes[1]).into());
        }
        Ok(difference(found.iter(), expected.iter()))
    }

    pub fn row(&self, name: &str, found: TensorData, bound: f64) -> Result<Row> {
        Ok(Row::new(name, self.difference(name, &found)?, bound))
    }

    pub fn loss_row(&self, found: f64) -> Result<Row> {
        let [expected] = self.get("loss")?.iter().collect::<Vec<f64>>()[..] else {
            return Err("`loss` is not one number".into());
        };
        let error = difference([found].into_iter(), [expected].into_iter());
        Ok(Row::new("loss", error, LOSS_BOUND))
    }

    /// The gradient with the largest error relative to its bound.
    pub fn gradient_row(&self, found: &BTreeMap<String, TensorData>) -> Result<Row> {
        let mut worst: Option<Row> = None;
        let mut count = 0;
        for (name, gradient) in found {
            let key = format!("grad.{name}");
            // A tied tensor has one gradient, under one of its names.
            let twin = |(other, data): (&String, &TensorData)| {
                self.0.contains_key(&format!("grad.{other}"))
                    && data.as_bytes() == gradient.as_bytes()
            };
            if !self.0.contains_key(&key) && found.iter().any(twin) {
                continue;
            }
            let error = self.difference(&key, gradient)?;
            let bound = GRADIENT_SHARE * error.largest + GRADIENT_BOUND;
            let mut row = Row::new("", error, bound);
            row.note = format!("  {name}");
            count += 1;
            if worst
                .as_ref()
                .is_none_or(|worst| row.share() > worst.share())
            {
                worst = Some(row);
            }
        }
        for key in self.0.keys() {
            if let Some(name) = key.strip_prefix("grad.")
                && !found.contains_key(name)
            {
                return Err(format!("the model has no `{name}`").into());
            }
        }
        let mut worst = worst.ok_or("no gradients to compare")?;
        worst.quantity = format!("worst of {count} gradients");
        Ok(worst)
    }
}
