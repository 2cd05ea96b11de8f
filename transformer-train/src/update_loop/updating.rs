//! One update.

use burn::lr_scheduler::LrScheduler;
use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::backend::AutodiffBackend;
use burn::train::{EventProcessorTraining, LearnerEvent, TrainingItem};

use super::{MODEL, Run};
use crate::data::{CorpusError, LoadedUpdate, Update};
use crate::error::TrainError;
use crate::evaluate::check;
use crate::metrics::{DeviceStatistics, UpdateItem};
use crate::objective::{Objective, Trainable};
use crate::optimizer::global_norm;
#[cfg(feature = "tui")]
use crate::progress::let_ctrl_c_through;
use crate::training_model::TrainingModel;

impl<B: AutodiffBackend, M: Trainable<B>> Run<'_, B, M> {
    /// An update that was read, whose examples fit the model.
    pub(super) fn checked(
        &self,
        update: Result<LoadedUpdate<<M as Objective<B>>::Example>, CorpusError>,
    ) -> Result<Update<<M as Objective<B>>::Example>, TrainError> {
        let loaded = update?;
        let model = &self.model.as_ref().expect(MODEL).model;
        for (index, example) in loaded.numbered() {
            check::<B, M>(model, example, index, "training")?;
        }
        Ok(loaded.update)
    }

    /// One update: gradients, one step of the schedule, and one of the optimizer unless loss or gradients are
    /// not finite. The update counts in either case, so that the next one has other examples.
    pub(super) fn update(
        &mut self,
        update: Update<<M as Objective<B>>::Example>,
    ) -> Result<(), TrainError> {
        let model = self.model.take().expect(MODEL);
        let (grads, mut item) = self.gradients(&model, update);
        let learning_rate = self.schedule.step();
        self.model = Some(match item.is_finite() {
            true => {
                let norm = item.gradient_norm;
                self.optimizer
                    .step_with_norm(learning_rate, model, grads, norm)
            }
            false => model,
        });
        self.state.count(&item);
        if item.is_finite() {
            self.average_weights();
        }
        item.skipped = self.state.skipped;
        self.watch.count(&item, learning_rate);
        self.show(item, learning_rate);
        self.check_skipped(&item)
    }

    /// Takes the weights of an update into their average.
    fn average_weights(&mut self) {
        let model = self.model.as_ref().expect(MODEL);
        let made = self.state.made();
        let average = self.average.take();
        self.average = average.map(|average| average.next::<B, _>(model, made));
    }

    /// The gradients of the next update, added up from every device, and its loss and their norm. These are
    /// read back before the optimizer's step, which depends on them: once, in one transfer.
    fn gradients(
        &self,
        model: &TrainingModel<B, M>,
        update: Update<<M as Objective<B>>::Example>,
    ) -> (GradientsParams, UpdateItem) {
        let devices = &self.strategy.devices;
        let main = &devices[0];
        // Dropout is a function of the seed and the update, so that a resumed run draws the same.
        let number = self.state.update + 1;
        for device in devices {
            B::seed(device, mix(self.strategy.config.seed, number as u64));
        }
        let mut accumulator = GradientsAccumulator::new();
        let mut sums: Option<DeviceStatistics<B::InnerBackend>> = None;
        for (device, part) in devices.iter().zip(update.deal(devices.len())) {
            let (grads, part_sums) = if device == main {
                model.gradients(&part)
            } else {
                model.clone().fork(device).gradients(&part)
            };
            accumulator.accumulate(model, grads.to_device(main, model));
            sums = Some(match sums {
                Some(sums) => sums.add(part_sums),
                None => part_sums,
            });
        }
        let grads = accumulator.grads();
        let norm = global_norm::<B, TrainingModel<B, M>>(model, &grads);
        let sums = sums.expect("an update has a batch");
        (grads, UpdateItem::read(sums, norm))
    }

    /// Passes an update to the displays.
    fn show(&mut self, item: UpdateItem, learning_rate: f64) {
        let (progress, round) = self.progress();
        #[cfg(feature = "tui")]
        let_ctrl_c_through();
        self.processor
            .process_train(LearnerEvent::ProcessedItem(TrainingItem::new(
                item,
                progress,
                round,
                Some(self.state.update),
                Some(learning_rate),
            )));
    }

    /// Fails if as many updates in a row were skipped as may be, `item` being the last.
    fn check_skipped(&self, item: &UpdateItem) -> Result<(), TrainError> {
        let skipped = self.state.skipped_in_a_row;
        if skipped < self.strategy.config.skip_limit {
            return Ok(());
        }
        Err(TrainError::Diverged {
            skipped,
            update: self.state.update,
            loss: item.statistics.mean_loss(),
            gradient_norm: item.gradient_norm,
        })
    }
}

/// Hashes two numbers into one (the finaliser of SplitMix64), so that neighbours are independent.
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
