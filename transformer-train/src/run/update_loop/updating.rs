//! One update.

use burn::lr_scheduler::LrScheduler;
use burn::optim::{GradientsAccumulator, GradientsParams, Optimizer};
use burn::tensor::ElementConversion;
use burn::tensor::backend::AutodiffBackend;
use burn::train::ItemLazy;

use crate::data::{CorpusError, LoadedUpdate, Update};
use crate::error::TrainError;
use crate::loaders::check;
use crate::objective::gradients::gradients;
use crate::objective::statistics::{DeviceStatistics, Statistics, UpdateItem};
use crate::objective::{Objective, Trainable};
use crate::optim::adam::{global_norm, scaled_down};
use crate::ranks::sum_gradients;
use crate::run::update_loop::Run;

impl<B, M, O, S> Run<B, M, O, S>
where
    B: AutodiffBackend,
    M: Trainable<B>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler,
{
    /// Checks that the examples of an update fit the model.
    pub(crate) fn checked(
        &self,
        model: &M,
        update: Result<LoadedUpdate<<M as Objective<B>>::Example>, CorpusError>,
    ) -> Result<Update<<M as Objective<B>>::Example>, TrainError> {
        let loaded = update?;
        for (index, example) in loaded.numbered() {
            check::<B, M>(model, example, index, "training")?;
        }
        Ok(loaded.update)
    }

    /// One update: gradients, one step of the schedule, and one optimizer step unless the loss or the gradients
    /// are not finite. The update counts in either case, so that the next one has other examples.
    pub(crate) fn update(
        &mut self,
        model: M,
        update: Update<<M as Objective<B>>::Example>,
    ) -> Result<(M, UpdateItem), TrainError> {
        let (grads, item) = self.gradients(&model, update);
        let learning_rate = self.schedule.step();
        let model = match item.is_finite() {
            true => self.step(model, grads, item.gradient_norm, learning_rate),
            false => model,
        };
        self.state.count(&item);
        if item.is_finite() {
            let made = self.state.made();
            let average = self.average.take();
            self.average = average.map(|average| average.next::<B, M>(&model, made));
        }
        self.watch.count(&item, learning_rate, self.state.skipped);
        self.check_skipped(&item)?;
        Ok((model, item))
    }

    /// One optimizer step, with gradients of this norm.
    fn step(&mut self, model: M, grads: GradientsParams, norm: f64, learning_rate: f64) -> M {
        let grads = match self.config.clip_norm {
            Some(max_norm) => scaled_down::<B, M>(&model, grads, norm, max_norm),
            None => grads,
        };
        self.optimizer.step(learning_rate, model, grads)
    }

    /// The gradients of the next update, summed over every device of every process, with its loss and gradient
    /// norm.
    fn gradients(
        &mut self,
        model: &M,
        mut update: Update<<M as Objective<B>>::Example>,
    ) -> (GradientsParams, UpdateItem) {
        let ranks = &self.ranks;
        // Each gradient is divided by the total weight.
        let [weight] = ranks.sum([update.loss_weight as f64]);
        update.loss_weight = weight as usize;
        let (grads, sums) = self.own_gradients(model, update);
        if ranks.is_alone() {
            // The optimizer's step depends on both, so they are read back first, in one transfer.
            let sums = sums.expect("an update has a batch");
            let norm = global_norm::<B, M>(model, &grads);
            return (grads, UpdateItem::read(sums, norm));
        }
        let own = sums.map_or(Statistics::default(), ItemLazy::sync);
        let statistics = ranks.sum_statistics(&own);
        let summed = &mut self.summed;
        let grads = sum_gradients::<B, M>(ranks, model, grads, summed);
        let norm = global_norm::<B, M>(model, &grads);
        // Rank 0's norm, so that all ranks clip alike and skip the same updates.
        let [gradient_norm] = ranks.of_first([norm.into_scalar().elem()]);
        let item = UpdateItem {
            statistics,
            gradient_norm,
        };
        (grads, item)
    }

    /// The gradients of this process's batches, summed over its devices, and the sums over their tokens; `None` if
    /// it has no batches.
    fn own_gradients(
        &self,
        model: &M,
        update: Update<<M as Objective<B>>::Example>,
    ) -> (GradientsParams, Option<DeviceStatistics<B::InnerBackend>>) {
        let devices = &self.devices;
        let main = &devices[0];
        let mut accumulator = GradientsAccumulator::new();
        let mut sums: Option<DeviceStatistics<B::InnerBackend>> = None;
        for (index, part) in update.deal(devices.len()).into_iter().enumerate() {
            let device = &devices[index];
            // Directly before its part, because libtorch seeds the generators of all GPUs at once.
            B::seed(device, self.seed(index));
            let (grads, part_sums) = if device == main {
                gradients::<B, M>(model, &part, &self.loss)
            } else {
                gradients::<B, M>(&model.clone().fork(device), &part, &self.loss)
            };
            accumulator.accumulate(model, grads.to_device(main, model));
            sums = Some(part_sums.added_to(sums));
        }
        (accumulator.grads(), sums)
    }

    /// The seed of the next update's dropout on a device, a function of the update's number, so that a resumed run draws
    /// the same. Each rank and each of its devices has its own seed; the first have the seed of a single process and
    /// device.
    fn seed(&self, device: usize) -> u64 {
        let number = self.state.update + 1;
        let seed = mix(self.config.seed, number as u64);
        match (device as u64) << 32 | self.ranks.rank() as u64 {
            0 => seed,
            other => mix(seed, other),
        }
    }

    /// Fails if `item` is the last of too many consecutive skipped updates: only on rank 0, which reports for all.
    fn check_skipped(&self, item: &UpdateItem) -> Result<(), TrainError> {
        let skipped = self.state.skipped_in_a_row;
        if skipped < self.config.skip_limit || !self.ranks.is_first() {
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

/// Hashes two numbers into one (the finalizer of SplitMix64), so that neighboring inputs give independent seeds.
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
