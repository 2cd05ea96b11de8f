//! The moving average of the weights.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_core::formats::{WEIGHTS_FILE, save_weights};
use transformer_train::TrainingConfig;
use transformer_train::objective::{LossOptions, Objective};
use transformer_train::run::RunRecord;
use transformer_train::validation::evaluate;

use crate::points::{
    Points, Weights, alone, checkpoint, checkpoints, first_weights, held_out, left, model, points,
    run, trainer, weights,
};

type Tracked = Autodiff<NdArray>;

const TRAINING_WEIGHTS: &str = "training.safetensors";

/// A checkpoint after each of 8 updates, some of which are skipped.
fn config() -> TrainingConfig {
    TrainingConfig {
        updates: 8,
        validate_every: 4,
        checkpoint_every: Some(1),
        keep_checkpoints: 8,
        ema_decay: Some(0.3),
        ..run()
    }
}

fn weights_of<B: Backend>(model: &impl Module<B>, folder: &Path) -> Weights {
    let file = folder.join("some.safetensors");
    save_weights(model, &file).unwrap();
    weights(&file)
}

/// In double precision, from the weights that were trained.
#[test]
fn checkpoints_have_the_average_by_its_formula() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let trained = trainer::<Tracked>(&config(), &out)
        .train(points(), held_out())
        .unwrap();
    assert!((1..5).contains(&trained.skipped), "{}", trained.skipped);
    assert_eq!(checkpoints(&out), [1, 2, 3, 4, 5, 6, 7, 8]);

    let first = first_weights();
    let mut before = first.clone();
    let mut averages: Vec<(String, Vec<f64>)> = first
        .iter()
        .map(|(name, numbers)| {
            let numbers = numbers.iter().map(|&number| f64::from(number));
            (name.clone(), numbers.collect())
        })
        .collect();
    let mut made: u8 = 0;
    for update in 1..=8 {
        let checkpoint = checkpoint(&out, update);
        let trained = weights(&checkpoint.join(TRAINING_WEIGHTS));
        // A skipped update changes neither.
        if trained != before {
            made += 1;
            let d = f64::min(0.3, f64::from(1 + made) / f64::from(10 + made));
            for (name, average) in &mut averages {
                for (e, w) in average.iter_mut().zip(&trained[name]) {
                    *e = d * *e + (1.0 - d) * f64::from(*w);
                }
            }
        }
        let found = model(&checkpoint);
        for (name, expected) in &averages {
            for (found, expected) in found[name].iter().zip(expected) {
                let off = (f64::from(*found) - expected).abs();
                assert!(
                    off < 1e-6,
                    "update {update}, {name}: {found}, not {expected}"
                );
            }
        }
        assert_eq!(found["frozen"], first["frozen"]);
        assert_eq!(trained["frozen"], first["frozen"]);
        before = trained;
    }
    assert_eq!(usize::from(made), 8 - trained.skipped);
}

#[test]
fn the_averaged_model_is_validated_kept_and_returned_and_the_other_one_trained() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let [out, plain] = ["run", "plain"].map(|name| folder.path().join(name));
    let side = folder.path().to_owned();
    let trained = trainer::<Tracked>(&config(), &out)
        .validate_with_fn(["First weight"], move |at| {
            let first = weights_of(at.model, &side)["weight"][0];
            Ok(ControlFlow::Continue([first.into()]))
        })
        .train(points(), held_out())
        .unwrap();
    for validation in &trained.validations {
        let averaged = checkpoint(&out, validation.update);
        let first = model(&averaged)["weight"][0];
        assert_eq!(validation.numbers["First weight"], f64::from(first));
        let model = Points::<NdArray>::init().restore(&averaged).unwrap();
        let statistics = evaluate(&model, held_out(), 2, &LossOptions::smoothed(0.1)).unwrap();
        let off = statistics.mean_loss() - validation.valid_loss;
        assert!(off.abs() < 1e-6, "{off}");
    }
    let losses = trained.validations.iter();
    let best = losses.min_by(|a, b| a.valid_loss.total_cmp(&b.valid_loss));
    let best = checkpoint(&out, best.unwrap().update);
    assert_eq!(model(&out), model(&best));
    let last = checkpoint(&out, 8);
    assert_eq!(weights_of(&trained.model, folder.path()), model(&last));

    // The average has no effect on the trained weights.
    let without = TrainingConfig {
        ema_decay: None,
        ..config()
    };
    trainer::<Tracked>(&without, &plain)
        .train(points(), held_out())
        .unwrap();
    for update in 1..=8 {
        let [averaged, plain] = [&out, &plain].map(|out| checkpoint(out, update));
        let [trained, expected] = [averaged.join(TRAINING_WEIGHTS), plain.join(WEIGHTS_FILE)];
        assert_eq!(weights(&trained), weights(&expected), "update {update}");
        assert!(!plain.join(TRAINING_WEIGHTS).exists());
    }
    assert_ne!(model(&last), weights(&last.join(TRAINING_WEIGHTS)));
}

#[test]
fn a_run_is_resumed_with_its_decay_and_both_files_or_not_at_all() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let half = TrainingConfig {
        updates: 4,
        ..config()
    };
    trainer::<Tracked>(&half, &out)
        .train(points(), held_out())
        .unwrap();
    let before = left(&out);
    for (decay, expected) in [(Some(0.5), "0.3, not 0.5"), (None, "0.3, not absent")] {
        let other = TrainingConfig {
            ema_decay: decay,
            ..config()
        };
        let error = trainer::<Tracked>(&other, &out).train(points(), held_out());
        let error = error.unwrap_err().to_string();
        let expected = format!("made with `ema_decay` {expected}");
        assert!(error.ends_with(&expected), "{error}");
    }
    let file = checkpoint(&out, 4).join(TRAINING_WEIGHTS);
    let whole = fs::read(&file).unwrap();
    for damaged in [Some(&whole[..whole.len() / 2]), Some(&whole[..0]), None] {
        match damaged {
            Some(bytes) => fs::write(&file, bytes).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let error = trainer::<Tracked>(&config(), &out).train(points(), held_out());
        let error = error.unwrap_err().to_string();
        assert!(error.contains(TRAINING_WEIGHTS), "{error}");
    }
    fs::write(&file, whole).unwrap();
    assert!(left(&out) == before);
    trainer::<Tracked>(&config(), &out)
        .train(points(), held_out())
        .unwrap();
    assert_eq!(RunRecord::load(&out).unwrap().unwrap().updates, 8);
}
