//! One update.

use burn::lr_scheduler::LrScheduler;
use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::ElementConversion;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{EventProcessorTraining, ItemLazy, LearnerEvent, TrainingItem};

use super::{MODEL, Run};
use crate::data::{CorpusError, LoadedUpdate, Update};
use crate::error::TrainError;
use crate::evaluate::check;
use crate::metrics::{DeviceStatistics, Statistics, UpdateItem};
use crate::objective::{Objective, Trainable};
use crate::optimizer::global_norm;
#[cfg(feature = "tui")]
use crate::progress::let_ctrl_c_through;
use crate::ranks::sum_gradients;
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

    /// The gradients of the next update, added up from every device of every process, and its loss and their norm.
    fn gradients(
        &mut self,
        model: &TrainingModel<B, M>,
        mut update: Update<<M as Objective<B>>::Example>,
    ) -> (GradientsParams, UpdateItem) {
        let ranks = &self.strategy.ranks;
        // Each gradient is divided by the tokens of all.
        let [tokens] = ranks.sum([update.loss_tokens as f64]);
        update.loss_tokens = tokens as usize;
        let (grads, sums) = self.own_gradients(model, update);
        if ranks.is_alone() {
            // Both are read back before the optimizer's step, which depends on them: once, in one transfer.
            let sums = sums.expect("an update has a batch");
            let norm = global_norm::<B, TrainingModel<B, M>>(model, &grads);
            return (grads, UpdateItem::read(sums, norm));
        }
        let own = sums.map_or(Statistics::default(), ItemLazy::sync);
        let statistics = ranks.sum_statistics(&own);
        let summed = &mut self.summed;
        let grads = sum_gradients::<B, TrainingModel<B, M>>(ranks, model, grads, summed);
        let norm = global_norm::<B, TrainingModel<B, M>>(model, &grads);
        // Rank 0's, so that all clip alike, and skip the same updates.
        let [gradient_norm] = ranks.of_first([norm.into_scalar().elem()]);
        let item = UpdateItem {
            statistics,
            gradient_norm,
            skipped: 0,
        };
        (grads, item)
    }

    /// The gradients of this process's batches, added up from every device, and the sums over their tokens; `None`
    /// if it has no batch.
    fn own_gradients(
        &self,
        model: &TrainingModel<B, M>,
        update: Update<<M as Objective<B>>::Example>,
    ) -> (GradientsParams, Option<DeviceStatistics<B::InnerBackend>>) {
        let devices = &self.strategy.devices;
        let main = &devices[0];
        for device in devices {
            B::seed(device, self.seed());
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
        (accumulator.grads(), sums)
    }

    /// The seed of the next update's dropout: a function of the update's number, so that a resumed run draws the
    /// same. Each rank draws its own, and rank 0 that of a process by itself.
    fn seed(&self) -> u64 {
        let number = self.state.update + 1;
        let seed = mix(self.strategy.config.seed, number as u64);
        match self.strategy.ranks.rank() {
            0 => seed,
            rank => mix(seed, rank as u64),
        }
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

    /// Fails if as many updates in a row were skipped as may be, `item` being the last: only in rank 0, which reports
    /// for all.
    fn check_skipped(&self, item: &UpdateItem) -> Result<(), TrainError> {
        let skipped = self.state.skipped_in_a_row;
        if skipped < self.strategy.config.skip_limit || !self.strategy.ranks.is_first() {
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
