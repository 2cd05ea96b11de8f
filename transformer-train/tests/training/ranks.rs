//! Several processes train as one does, and end together.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use burn::tensor::backend::AutodiffBackend;
use burn::train::Interrupter;
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use transformer_core::TransformerConfig;
use transformer_train::data::{CorpusError, Example, ExampleSource, Lengths, TokenizedPair};
use transformer_train::progress::{ObserverError, ProgressDisplay, RunObserver, TrainingPoint};
use transformer_train::ranks::Ranks;
use transformer_train::run::StopReason;
use transformer_train::{Trainer, TrainingConfig};

use super::support::run::alone;
use super::support::threads::{all_of, together, together_with};
use super::{B, model_config, pairs, run, weights};

/// Four batches to an update, but for the last one of an epoch; gradients are clipped.
fn config() -> TrainingConfig {
    TrainingConfig {
        batches_per_update: 4,
        clip_norm: Some(0.5),
        peak_rate: Some(0.01),
        warmup: 10,
        updates: 50,
        validate_every: 20,
        ..run()
    }
}

fn model_without_dropout() -> TransformerConfig {
    TransformerConfig {
        dropout: 0.0,
        ..model_config()
    }
}

/// The loss of each update.
#[derive(Clone, Default)]
struct Losses(Arc<Mutex<Vec<f64>>>);

impl RunObserver for Losses {
    fn on_training(&mut self, point: &TrainingPoint) -> Result<(), ObserverError> {
        self.0.lock().unwrap().push(point.loss);
        Ok(())
    }
}

/// The result of a run.
struct Outcome {
    losses: Vec<f64>,
    valid_losses: Vec<f64>,
    weights: Vec<Vec<f32>>,
}

/// Trains, or goes on in that directory.
fn trained<T: AutodiffBackend>(
    ranks: &Ranks,
    model: &TransformerConfig,
    config: &TrainingConfig,
    out: Option<&Path>,
) -> Outcome {
    let model = model.init::<T>(3, &Default::default()).unwrap();
    let losses = Losses::default();
    let mut trainer = Trainer::new(model, config.clone())
        .ranks(ranks)
        .display(ProgressDisplay::Silent)
        .observer(losses.clone())
        .observe_every(1);
    if let Some(out) = out {
        trainer = trainer.directory(out).resume(true);
    }
    let trained = trainer.train(pairs(60), pairs(10)).unwrap();
    assert_eq!(trained.updates, config.updates);
    let losses = losses.0.lock().unwrap().clone();
    let validations = trained.validations.iter();
    Outcome {
        losses,
        valid_losses: validations
            .map(|validation| validation.valid_loss)
            .collect(),
        weights: weights::<T::InnerBackend, _>(&trained.model),
    }
}

fn assert_same(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (update, (found, expected)) in (1..).zip(found.iter().zip(expected)) {
        let difference = (found - expected).abs();
        assert!(difference <= 1e-5, "{update}: {found}, not {expected}");
    }
}

fn several_ranks_have_the_losses_of_one<T: AutodiffBackend>(config: &TrainingConfig) {
    let _alone = alone();
    let model = model_without_dropout();
    let one = trained::<T>(&Ranks::alone(), &model, config, None);
    assert_eq!(one.losses.len(), 50);
    assert!(one.losses[49] < one.losses[0]);
    for size in [2, 4] {
        let all = all_of(size, |ranks| trained::<T>(ranks, &model, config, None));
        assert_same(&all[0].losses, &one.losses);
        assert_same(&all[0].valid_losses, &one.valid_losses);
        for other in &all[1..] {
            assert!(other.losses.is_empty() && other.valid_losses.is_empty());
            // Rank 0's model is the average, if there is one.
            assert!(other.weights == all[if config.ema_decay.is_some() { 1 } else { 0 }].weights);
        }
    }
}

#[test]
fn two_and_four_ranks_have_the_losses_of_one_process_on_ndarray() {
    several_ranks_have_the_losses_of_one::<B>(&config());
}

#[test]
fn two_and_four_ranks_have_the_losses_of_one_process_on_flex() {
    several_ranks_have_the_losses_of_one::<Autodiff<Flex>>(&TrainingConfig {
        ema_decay: Some(0.9),
        weight_decay: 0.01,
        ..config()
    });
}

/// Each rank drops out other entries, at the same rate. The loss then differs by chance, by less than it
/// falls.
#[test]
fn ranks_learn_with_dropout_as_one_process_does() {
    let _alone = alone();
    let model = TransformerConfig {
        dropout: 0.1,
        ..model_config()
    };
    let last = |outcome: &Outcome| outcome.losses[40..].iter().sum::<f64>() / 10.0;
    let one = trained::<B>(&Ranks::alone(), &model, &config(), None);
    let two = all_of(2, |ranks| trained::<B>(ranks, &model, &config(), None));
    let fallen = one.losses[0] - last(&one);
    let difference = (last(&two[0]) - last(&one)).abs();
    assert!(difference < 0.5 * fallen, "{difference} of {fallen}");
    assert!(two[0].weights == two[1].weights);
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let model = model_without_dropout();
    let until = |updates| TrainingConfig {
        updates,
        ema_decay: Some(0.9),
        average_last: 2,
        ..config()
    };
    let other = folder.path().join("other");
    let whole = trained::<B>(&Ranks::alone(), &model, &until(50), Some(&other));
    let mut losses = Vec::new();
    // In the middle of an epoch, and between two validations.
    for (size, updates) in [(2, 14), (1, 21), (4, 50)] {
        let all = all_of(size, |ranks| {
            trained::<B>(ranks, &model, &until(updates), Some(&out))
        });
        losses.extend_from_slice(&all[0].losses);
    }
    assert_same(&losses, &whole.losses);
    // It has ended, and there is nothing to do for any rank.
    let all = all_of(2, |ranks| {
        let trainer = Trainer::new(model.init::<B>(3, &Default::default()).unwrap(), until(50));
        let trainer = trainer.ranks(ranks).directory(&out).resume(true);
        let trainer = trainer.display(ProgressDisplay::Silent);
        trainer.train(pairs(60), pairs(10)).unwrap().updates
    });
    assert_eq!(all, [50, 0]);
}

#[test]
fn an_interruption_of_any_rank_ends_all() {
    let _alone = alone();
    let all = all_of(2, |ranks| {
        let interrupter = Interrupter::new();
        if ranks.rank() == 1 {
            interrupter.stop(None);
        }
        let model = model_config().init::<B>(3, &Default::default()).unwrap();
        Trainer::new(model, config())
            .ranks(ranks)
            .interrupter(interrupter)
            .display(ProgressDisplay::Silent)
            .train(pairs(60), pairs(10))
            .unwrap()
            .stopped
    });
    assert_eq!(all, [StopReason::Interrupted; 2]);
}

/// The errors of two ranks that train on these; `None` of one that was ended.
fn errors<S>(config: &TrainingConfig, source: impl Fn(usize) -> S + Sync) -> Vec<Option<String>>
where
    S: ExampleSource<Example = TokenizedPair>,
{
    let results = together(2, |ranks| {
        let model = model_config().init::<B>(3, &Default::default()).unwrap();
        let trained = Trainer::new(model, config.clone())
            .ranks(ranks)
            .display(ProgressDisplay::Silent)
            .train(source(ranks.rank()), pairs(10));
        trained.unwrap_err().to_string()
    });
    results.into_iter().map(Result::ok).collect()
}

#[test]
fn a_rank_with_other_examples_is_named() {
    let _alone = alone();
    let expected = "rank 1 of 2 has different training examples from rank 0; all ranks must use the same settings and files";
    let found = errors(&config(), |rank| pairs(60 - rank));
    assert_eq!(found, [Some(expected.to_owned()), None]);
}

/// The sums of rank 1 differ in their last bit.
#[test]
fn a_rank_with_other_weights_is_named_at_the_next_checkpoint() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let round_otherwise = |rank, sums: &mut [f32]| {
        if rank == 1 {
            for sum in sums {
                *sum = f32::from_bits(sum.to_bits() ^ 1);
            }
        }
    };
    let results = together_with(2, round_otherwise, |ranks| {
        let model = model_config().init::<B>(3, &Default::default()).unwrap();
        let trained = Trainer::new(model, config())
            .ranks(ranks)
            .directory(folder.path().join("model"))
            .display(ProgressDisplay::Silent)
            .train(pairs(60), pairs(10));
        trained.unwrap_err().to_string()
    });
    let found: Vec<_> = results.into_iter().map(Result::ok).collect();
    let error = found[0].as_deref().unwrap();
    let expected = "after update 20, rank 1 of 2 has different weights or moments from rank 0: ";
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(found[1], None);
    assert!(
        !folder
            .path()
            .join("model/checkpoints/update-00000020")
            .exists()
    );
}

#[test]
fn fewer_batches_than_ranks_are_refused() {
    let _alone = alone();
    let one_batch = TrainingConfig {
        batches_per_update: 1,
        ..config()
    };
    let expected = "`batches_per_update` is 1; it must be at least 2, the number of processes";
    let found = errors(&one_batch, |_| pairs(60));
    assert_eq!(
        found,
        [Some(expected.to_owned()), Some(expected.to_owned())]
    );
}

/// Pairs one of which cannot be read.
struct Torn(Vec<TokenizedPair>);

impl ExampleSource for Torn {
    type Example = TokenizedPair;

    fn lengths(&self) -> Cow<'_, [Lengths]> {
        self.0.iter().map(Example::lengths).collect()
    }

    fn get(&self, index: usize, _epoch: usize) -> Result<TokenizedPair, CorpusError> {
        match index {
            7 => Err(CorpusError::Other("pair 7 is torn".into())),
            index => Ok(self.0[index].clone()),
        }
    }

    fn checksum(&self) -> u32 {
        0
    }
}

/// One rank reads the pair, which is in one batch.
#[test]
fn a_rank_that_cannot_read_its_data_ends_the_others() {
    let _alone = alone();
    let mut found = errors(&config(), |_| Torn(pairs(60)));
    found.sort();
    assert_eq!(found, [None, Some("pair 7 is torn".to_owned())]);
}
