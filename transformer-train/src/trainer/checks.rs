//! Errors that are found before anything is read or written.

use std::collections::HashSet;

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::train::metric::{LearningRateMetric, Metric};
use transformer_core::ops::multiplies_in;

use super::setup::Setup;
use crate::error::TrainError;
use crate::metrics::{GradientNorm, SampleText, SkippedUpdates, Throughput, TokenMean};
use crate::objective::Trainable;
use crate::validation::OWN_NUMBERS;

impl<B: AutodiffBackend, M: Trainable<B>> Setup<B, M> {
    /// Checks the settings, each by itself and against the model.
    pub(super) fn check(&self, model: &M) -> Result<(), TrainError> {
        self.config.validate()?;
        self.watching.validate()?;
        self.check_names()?;
        #[cfg(feature = "text")]
        if let Some(tokenizers) = &self.tokenizers {
            model.check_tokenizers(tokenizers)?;
        }
        let checked = self.hook.check(&model.valid());
        checked.map_err(|source| TrainError::Metrics { source })
    }

    /// The model with its products in the run's precision.
    pub(super) fn with_precision(&self, model: M) -> Result<M, TrainError> {
        let precision = self.config.precision;
        let model = model.with_precision(precision);
        let model = model.ok_or(TrainError::ModelPrecision { precision })?;
        match multiplies_in::<B>(precision) {
            true => Ok(model),
            false => Err(TrainError::BackendPrecision {
                precision,
                backend: <B::InnerBackend as Backend>::name(&self.devices[0]),
            }),
        }
    }

    /// Checks that the names differ, because displays identify numbers by their names, and that there is the
    /// one by which validations are compared.
    fn check_names(&self) -> Result<(), TrainError> {
        let means = [
            TokenMean::loss(),
            TokenMean::perplexity(),
            TokenMean::accuracy(),
        ];
        let mut names: HashSet<_> = means.iter().map(|mean| mean.name().to_string()).collect();
        names.insert(Throughput::new().name().to_string());
        names.insert(LearningRateMetric::new().name().to_string());
        names.insert(GradientNorm::new().name().to_string());
        names.insert(SkippedUpdates::new().name().to_string());
        names.extend((0..self.hook.samples).map(SampleText::title));
        names.extend(OWN_NUMBERS.map(str::to_owned));
        for name in &self.hook.names {
            if !names.insert(name.clone()) {
                return Err(TrainError::SameName { name: name.clone() });
            }
        }
        let own = OWN_NUMBERS.map(str::to_owned).into_iter();
        let named: Vec<_> = own.chain(self.hook.names.iter().cloned()).collect();
        let name = &self.config.best_by.number;
        match named.contains(name) {
            true => Ok(()),
            false => Err(TrainError::NoSuchNumber {
                name: name.clone(),
                named,
            }),
        }
    }
}
