//! The file of Adam's moments, checked before Burn reads it: its reader panics on names that are none, and on
//! tensors of another shape than their numbers have, and Adam on moments of another shape than their parameter has.
//!
//! ```text
//! item: { a parameter's id: { V1: { Rank2: { momentum: { time, moment_1: { bytes, shape, dtype }, moment_2, max_moment_2 } } } } }
//! ```

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param, ParamId};
use burn::optim::Optimizer;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use crate::optim::adam::AdamRecord;

/// Checks the moments of a module's parameters, which are numbered in their order, after this number of updates. The
/// file of an optimizer that has others than [`Adam`](crate::optim::Adam) is Burn's alone.
///
/// # Errors
/// The problem with the file, in words.
pub(crate) fn check<B, M, O>(file: &[u8], module: &M, updates: usize) -> Result<(), String>
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + 'static,
    O: Optimizer<M, B> + 'static,
{
    if TypeId::of::<O::Record>() != TypeId::of::<AdamRecord<M, B>>() {
        return Ok(());
    }
    let file: File = rmp_serde::from_slice(file).map_err(|error| error.to_string())?;
    let mut shapes = Shapes::default();
    Module::<B>::visit(module, &mut shapes);
    for (id, Version::V1(states)) in &file.item {
        let Some(shape) = shapes.by_id.get(id) else {
            return Err(format!("moments of a parameter `{id}`, which there is not"));
        };
        for (rank, AdamState { momentum }) in states {
            let Momentum {
                time,
                moment_1,
                moment_2,
                max_moment_2,
            } = momentum;
            if *time > updates as u64 {
                return Err(format!("{time} steps of a parameter in {updates} updates"));
            }
            let moments = [Some(moment_1), Some(moment_2), max_moment_2.as_ref()];
            for moment in moments.into_iter().flatten() {
                moment.check(shape, rank)?;
            }
        }
    }
    Ok(())
}

/// The shapes of parameters, by their ids as [`number_parameters`](crate::run::checkpoints::number_parameters) gives them.
#[derive(Default)]
struct Shapes {
    by_id: HashMap<String, Vec<usize>>,
}

impl<B: Backend> ModuleVisitor<B> for Shapes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let id = ParamId::from(self.by_id.len() as u64 + 1);
        let shape = param.val().dims().to_vec();
        self.by_id.insert(id.serialize(), shape);
    }
}

/// A part of the file.
#[derive(Deserialize)]
struct File {
    item: HashMap<String, Version>,
}

#[derive(Deserialize)]
enum Version {
    /// One state, by `Rank` and the number of dimensions.
    V1(HashMap<String, AdamState>),
}

#[derive(Deserialize)]
struct AdamState {
    momentum: Momentum,
}

#[derive(Deserialize)]
struct Momentum {
    time: u64,
    moment_1: Moment,
    moment_2: Moment,
    max_moment_2: Option<Moment>,
}

#[derive(Deserialize)]
struct Moment {
    bytes: Bytes,
    shape: Vec<usize>,
    dtype: DType,
}

impl Moment {
    fn check(&self, parameter: &[usize], rank: &str) -> Result<(), String> {
        let Self {
            bytes,
            shape,
            dtype,
        } = self;
        if shape != parameter || rank != format!("Rank{}", parameter.len()) {
            let dimensions = rank.trim_start_matches("Rank");
            return Err(format!(
                "a moment {shape:?} of {dimensions} dimensions for a parameter {parameter:?}"
            ));
        }
        let numbers: usize = parameter.iter().product();
        if *dtype != DType::F32 || bytes.0 != numbers * size_of::<f32>() {
            return Err(format!(
                "a moment {shape:?} of {} bytes, of type {}",
                bytes.0,
                dtype.name()
            ));
        }
        Ok(())
    }
}

/// A number of bytes, which are not kept.
struct Bytes(usize);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.len()))
    }
}
