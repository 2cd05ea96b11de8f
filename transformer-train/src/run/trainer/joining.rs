//! Shares the run with every process.

use burn::module::Module;
use burn::optim::Optimizer;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Record, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};

use crate::config::TrainingConfig;
use crate::error::TrainError;
use crate::objective::{Objective, Trainable};
use crate::ranks::{Fingerprint, Ranks};
use crate::run::checkpoints::Checkpoint;
use crate::run::state::RunState;
use crate::run::trainer::start::Data;

/// The run with rank 0's weights, moments and counts; unchanged on rank 0.
///
/// # Errors
/// On rank 0, when another process has different settings, examples or parameters.
pub(crate) fn join<B: AutodiffBackend, M: Trainable<B>, O: Optimizer<M, B>>(
    ranks: &Ranks,
    config: &TrainingConfig,
    run: Checkpoint<M, O>,
    data: &Data<<M as Objective<B>>::Example>,
    device: &B::Device,
) -> Result<Checkpoint<M, O>, TrainError> {
    if ranks.is_alone() {
        return Ok(run);
    }
    Fingerprint::new::<B>(config, data.train_set, data.valid_set, &run.model).compare(ranks)?;
    let Checkpoint {
        mut model,
        average,
        mut optimizer,
        state,
    } = run;
    let weights = || Module::<B>::into_record(model.clone());
    if let Some(weights) = record_of_first::<B, _>(ranks, weights, device) {
        model = Module::<B>::load_record(model, weights);
    }
    let moments = || optimizer.to_record();
    if let Some(moments) = record_of_first::<B, _>(ranks, moments, device) {
        optimizer = optimizer.load_record(moments);
    }
    let counts = [state.update, state.skipped, state.skipped_in_a_row];
    // Integers up to 2⁵³.
    let [update, skipped, skipped_in_a_row] = ranks
        .of_first(counts.map(|count| count as f64))
        .map(|count| count as usize);
    Ok(Checkpoint {
        model,
        average,
        optimizer,
        state: RunState {
            update,
            skipped,
            skipped_in_a_row,
            ..state
        },
    })
}

/// Rank 0's record, in the other processes; `None` on rank 0.
fn record_of_first<B: Backend, R: Record<B>>(
    ranks: &Ranks,
    own: impl FnOnce() -> R,
    device: &B::Device,
) -> Option<R> {
    let recorder = NamedMpkBytesRecorder::<FullPrecisionSettings>::new();
    if ranks.is_first() {
        let bytes = Recorder::<B>::record(&recorder, own(), ());
        ranks.bytes_of_first(bytes.expect("a record can be written into memory"));
        return None;
    }
    let bytes = ranks.bytes_of_first(Vec::new());
    let record = Recorder::<B>::load(&recorder, bytes, device);
    Some(record.expect("the record that rank 0 has written"))
}
