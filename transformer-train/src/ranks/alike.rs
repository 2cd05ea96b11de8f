//! Checks that all processes train the same model on the same data.

use std::any::Any;

use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::{AdamState, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, Transaction};

use crate::config::TrainingConfig;
use crate::data::{Checksum, ExampleSet};
use crate::error::TrainError;
use crate::optim::adam::AdamRecord;
use crate::ranks::Ranks;

/// Checksums of everything that must be the same in every process before the first update.
pub(crate) struct Fingerprint([(&'static str, u32); 4]);

impl Fingerprint {
    /// The checksums of a run with these settings and examples.
    pub fn new<B: Backend>(
        config: &TrainingConfig,
        train: ExampleSet,
        valid: ExampleSet,
        model: &impl Module<B>,
    ) -> Self {
        let mut settings = Checksum::default();
        settings.bytes(format!("{config:?}").as_bytes());
        let mut shapes = Shapes(Checksum::default());
        model.visit(&mut shapes);
        Self([
            ("settings", settings.sum()),
            ("training examples", train.checksum),
            ("validation examples", valid.checksum),
            ("parameters", shapes.0.sum()),
        ])
    }

    /// Compares it across processes.
    ///
    /// # Errors
    /// On rank 0, the first rank that differs, and what differs.
    pub fn compare(&self, ranks: &Ranks) -> Result<(), TrainError> {
        for (what, checksum) in self.0 {
            if let Some(rank) = differing(ranks, checksum) {
                return Err(TrainError::OtherProcess {
                    rank,
                    size: ranks.size(),
                    what,
                });
            }
        }
        Ok(())
    }
}

/// The first rank whose checksum differs from rank 0's; only rank 0 learns it, and reports for all.
pub(crate) fn differing(ranks: &Ranks, checksum: u32) -> Option<usize> {
    let all = ranks.of_each(f64::from(checksum));
    let differing = all.iter().position(|other| *other != all[0]);
    differing.filter(|_| ranks.is_first())
}

/// Hashes the shapes of parameters.
struct Shapes(Checksum);

impl<B: Backend> ModuleVisitor<B> for Shapes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let weight = param.val();
        for size in weight.dims() {
            self.0.bytes(&(size as u64).to_le_bytes());
        }
        self.0.bytes(&[u8::from(weight.is_require_grad())]);
    }
}

/// The checksum of a model's weights and of Adam's moments, in the order of the model. The state of other
/// optimizers is not included: where it differs, the weights differ after the next update.
pub(crate) fn checksum<B, M, O>(model: &M, optimizer: &O) -> u32
where
    B: AutodiffBackend,
    M: AutodiffModule<B> + 'static,
    O: Optimizer<M, B> + 'static,
{
    let record: Box<dyn Any> = Box::new(optimizer.to_record());
    let mut numbers = Numbers::<M, B> {
        moments: record.downcast().ok(),
        checksum: Checksum::default(),
    };
    Module::<B>::visit(model, &mut numbers);
    numbers.checksum.sum()
}

/// Hashes the weights and moments of each parameter, which are read from the device together.
struct Numbers<M: AutodiffModule<B>, B: AutodiffBackend> {
    moments: Option<Box<AdamRecord<M, B>>>,
    checksum: Checksum,
}

impl<M: AutodiffModule<B>, B: AutodiffBackend> ModuleVisitor<B> for Numbers<M, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let mut read = Transaction::<B::InnerBackend>::default().register(param.val().inner());
        let moments = self.moments.as_mut();
        if let Some(record) = moments.and_then(|moments| moments.remove(&param.id)) {
            let AdamState { momentum } = record.into_state::<D>();
            self.checksum.bytes(&(momentum.time as u64).to_le_bytes());
            read = read.register(momentum.moment_1).register(momentum.moment_2);
        }
        for data in read.execute() {
            self.checksum.bytes(data.as_bytes());
        }
    }
}
