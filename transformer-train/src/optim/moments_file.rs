//! Validates the file of Adam's moments before Burn reads it. Burn's reader panics on malformed names and on
//! tensors whose data does not fit their shape, and Adam panics on moments whose shape differs from their
//! parameter's.
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

/// Checks the moments of a module's parameters, which are numbered in order, after this number of updates. The
/// file of an optimizer with other state than [`Adam`](crate::optim::Adam)'s is not checked.
///
/// # Errors
/// Describes the problem with the file.
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
            return Err(format!("moments of an unknown parameter `{id}`"));
        };
        for (rank, AdamState { momentum }) in states {
            let Momentum {
                time,
                moment_1,
                moment_2,
                max_moment_2,
            } = momentum;
            if *time > updates as u64 {
                return Err(format!("{time} parameter steps after {updates} updates"));
            }
            let moments = [Some(moment_1), Some(moment_2), max_moment_2.as_ref()];
            for moment in moments.into_iter().flatten() {
                moment.check(shape, rank)?;
            }
        }
    }
    Ok(())
}

/// The shapes of parameters, by the ids of [`number_parameters`](crate::run::checkpoints::number_parameters).
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
    /// One state, by `Rank` followed by the number of dimensions.
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
                "a moment of shape {shape:?} and rank {dimensions} for a parameter of shape {parameter:?}"
            ));
        }
        let numbers: usize = parameter.iter().product();
        if *dtype != DType::F32 || bytes.0 != numbers * size_of::<f32>() {
            return Err(format!(
                "a moment of shape {shape:?} has {} bytes of type {}",
                bytes.0,
                dtype.name()
            ));
        }
        Ok(())
    }
}

/// The number of bytes, which are not kept.
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
