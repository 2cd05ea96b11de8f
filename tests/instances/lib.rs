//! Code that every program runs on every backend, compiled once: here, and not in each of them.
//!
//! rustc shares such instances between crates up to `opt-level` 1, that of cargo's dev profile. To compile
//! them is most of the work of building the examples and tests. A release build has nothing of it.
//!
//! A test finds the instances by `use transformer_instances as _;`.

#![cfg(debug_assertions)]

use std::error::Error;
use std::hint::black_box;
use std::path::Path;

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor};
use transformer_core::backend::Autodiff;
use transformer_core::{
    DecodeOptions, ModelDirectory, Request, Search, Transformer, TransformerConfig, Translator,
};
use transformer_train::data::TokenizedPair;
use transformer_train::objective::LossOptions;
use transformer_train::validation::evaluate;
use transformer_train::{Trainer, TrainingConfig};

/// Keeps the instances of every backend that is compiled in. There is no reason to call it.
#[doc(hidden)]
pub fn keep() {
    #[cfg(feature = "ndarray")]
    of::<transformer_core::backend::NdArray>();
    #[cfg(feature = "flex")]
    of::<transformer_core::backend::Flex>();
    #[cfg(feature = "wgpu")]
    of::<transformer_core::backend::Wgpu>();
    #[cfg(feature = "tch")]
    of::<transformer_core::backend::LibTorch>();
    #[cfg(feature = "cuda")]
    of::<transformer_core::backend::Cuda>();
}

fn of<B: Backend>() {
    black_box(model::<B> as fn(_, _, _, _) -> _);
    black_box(model::<Autodiff<B>> as fn(_, _, _, _) -> _);
    black_box(training::<Autodiff<B>> as fn(_, _, _) -> _);
}

fn model<B: Backend>(
    config: &TransformerConfig,
    directory: &Path,
    tokens: Tensor<B, 2, Int>,
    device: &B::Device,
) -> Result<Tensor<B, 3>, Box<dyn Error>> {
    config.init::<B>(0, device)?.save(directory)?;
    let model = Transformer::<B>::load(directory, device)?;
    Ok(model.forward(tokens.clone(), tokens))
}

fn training<B: AutodiffBackend>(
    model: Transformer<B>,
    pairs: Vec<TokenizedPair>,
    device: B::Device,
) -> Result<(), Box<dyn Error>> {
    let trainer = Trainer::new(model, TrainingConfig::default());
    let model = trainer.train(pairs.clone(), pairs.clone())?.model;
    evaluate(&model, pairs, 1, &LossOptions::smoothed(0.0))?;
    let search = Search::new(&model, DecodeOptions::default())?;
    search.run(&[Request::new([0])])?;
    Translator::<Transformer<B::InnerBackend>>::of(&[ModelDirectory::open("")?], &device)?
        .translate("")?;
    Ok(())
}
