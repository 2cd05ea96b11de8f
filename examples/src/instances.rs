//! Generic code that several examples run, compiled once, here, and not in each of them. rustc shares such code
//! between crates in cargo's dev profile; in a release build this module is empty.

#![cfg(debug_assertions)]

use std::hint::black_box;

use transformer_core::backend::Autodiff;
use transformer_core::{DecodeOptions, Request, Search, TransformerConfig};
use transformer_train::data::TokenizedPair;
use transformer_train::{Trainer, TrainingConfig};

use crate::{Backend, Failure};

/// Keeps it. There is no reason to call it.
pub fn keep() {
    black_box(trained as fn(_, _) -> _);
}

fn trained(config: &TransformerConfig, pairs: Vec<TokenizedPair>) -> Result<(), Failure> {
    let model = config.init::<Autodiff<Backend>>(0, &Default::default())?;
    let trainer = Trainer::new(model, TrainingConfig::default());
    let model = trainer.train(pairs.clone(), pairs)?.model;
    Search::new(&model, DecodeOptions::default())?.run(&[Request::new([0])])?;
    Ok(())
}
