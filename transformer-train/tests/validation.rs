//! The hook of a validation: its numbers are shown and recorded, and it can end the run.

mod support;

use std::fs;
use std::ops::ControlFlow;
use transformer_instances as _;

use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_core::Transformer;
use transformer_train::metrics::Criterion;
use transformer_train::objective::LossOptions;
use transformer_train::progress::{PlainLines, ProgressDisplay};
use transformer_train::run::StopReason;
use transformer_train::validation::{
    HookError, Measurement, ValidationContext, ValidationMetrics, evaluate,
};
use transformer_train::{Trainer, TrainingConfig};

use support::run::{Page, alone, pairs, tiny_config};

type B = Autodiff<NdArray>;

fn model() -> Transformer<B> {
    tiny_config().init(3, &Default::default()).unwrap()
}

fn config() -> TrainingConfig {
    TrainingConfig {
        batch_tokens: 20,
        updates: 12,
        warmup: 4,
        validate_every: 4,
        ..TrainingConfig::default()
    }
}

fn trainer() -> Trainer<B, Transformer<B>> {
    Trainer::new(model(), config()).display(ProgressDisplay::Silent)
}

#[test]
fn numbers_are_recorded_and_survive_a_resume() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let measured = || {
        trainer()
            .directory(&out)
            .validate_with_fn(["Update", "Loss again"], |at| {
                let again =
                    evaluate(at.model, pairs(), 20, &LossOptions::smoothed(0.1))?.mean_loss();
                assert!((again - at.statistics.mean_loss()).abs() < 1e-9);
                Ok(ControlFlow::Continue([at.update as f64, again]))
            })
    };
    let trained = measured().train(pairs(), pairs()).unwrap();
    assert_eq!(trained.stopped, StopReason::Updates);
    for validation in &trained.validations {
        assert_eq!(validation.numbers["Update"], validation.update as f64);
        assert!((validation.numbers["Loss again"] - validation.valid_loss).abs() < 1e-9);
    }
    assert_eq!(trained.validations.len(), 3);
    let resumed = measured().resume(true).train(pairs(), pairs()).unwrap();
    assert_eq!(resumed.validations, trained.validations);
    let record = out.join("checkpoints/update-00000012/run.json");
    let record = fs::read_to_string(record).unwrap();
    assert!(record.contains("\"Update\": 12.0"), "{record}");
}

#[test]
fn a_hook_ends_the_run_and_resuming_goes_on() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let stopped = trainer()
        .directory(&out)
        .validate_with_fn(["Earlier"], |at| {
            let earlier = [at.earlier.len() as f64];
            Ok(match at.update {
                8 => ControlFlow::Break(earlier),
                _ => ControlFlow::Continue(earlier),
            })
        })
        .train(pairs(), pairs())
        .unwrap();
    assert_eq!(stopped.stopped, StopReason::Validation);
    assert_eq!(stopped.updates, 8);
    let numbers = stopped.validations.iter().map(|v| v.numbers["Earlier"]);
    let earlier: Vec<_> = numbers.collect();
    assert_eq!(earlier, [0.0, 1.0]);
    let resumed = trainer()
        .directory(&out)
        .resume(true)
        .train(pairs(), pairs())
        .unwrap();
    assert_eq!((resumed.updates, resumed.validations.len()), (12, 3));
}

/// A hook without numbers can end the run, too.
#[test]
fn a_hook_that_measures_nothing_can_end_the_run() {
    let _alone = alone();
    let trained = trainer()
        .validate_with_fn([], |_| Ok(ControlFlow::Break([])))
        .train(pairs(), pairs())
        .unwrap();
    assert_eq!(
        (trained.stopped, trained.updates),
        (StopReason::Validation, 4)
    );
    assert!(trained.validations[0].numbers.is_empty());
}

#[test]
fn a_hook_changes_no_weight() {
    let _alone = alone();
    let out = |name: &str, folder: &tempfile::TempDir| folder.path().join(name);
    let folder = tempfile::tempdir().unwrap();
    trainer()
        .directory(out("without", &folder))
        .train(pairs(), pairs())
        .unwrap();
    trainer()
        .directory(out("with", &folder))
        .validate_with_fn(["Draw"], |_| {
            use burn::tensor::{Distribution, Tensor};
            let device = Default::default();
            let draw = Tensor::<NdArray, 1>::random([1], Distribution::Default, &device);
            Ok(ControlFlow::Continue([f64::from(draw.into_scalar())]))
        })
        .train(pairs(), pairs())
        .unwrap();
    let weights = |name| {
        let last = "checkpoints/update-00000012/model.safetensors";
        fs::read(out(name, &folder).join(last)).unwrap()
    };
    assert!(weights("without") == weights("with"));
}

#[test]
fn an_error_of_a_hook_is_reported_and_the_run_can_be_resumed() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let error = trainer()
        .directory(&out)
        .validate_with_fn(["BLEU"], |at| match at.update {
            8 => Err("no reference".into()),
            _ => Ok(ControlFlow::Continue([0.0])),
        })
        .train(pairs(), pairs())
        .unwrap_err();
    assert_eq!(error.to_string(), "validation after update 8: no reference");
    // The resumed run begins with the validation that failed.
    let resumed = trainer()
        .directory(&out)
        .resume(true)
        .validate_with_fn(["BLEU"], |at| Ok(ControlFlow::Continue([at.update as f64])))
        .train(pairs(), pairs())
        .unwrap();
    let numbers = resumed.validations.iter().map(|v| v.numbers["BLEU"]);
    let bleu: Vec<_> = numbers.collect();
    assert_eq!(bleu, [0.0, 8.0, 12.0]);
    assert!(resumed.validations[1].train_loss.is_finite());
}

#[test]
fn names_of_numbers_differ_from_each_other_and_from_the_means() {
    for names in [["BLEU", "BLEU"], ["BLEU", "Loss"]] {
        let error = trainer()
            .validate_with_fn(names, |_| Ok(ControlFlow::Continue([0.0, 0.0])))
            .train(pairs(), pairs())
            .unwrap_err();
        let name = names[1];
        let expected = format!("two validation metrics are named `{name}`; names must be unique");
        assert_eq!(error.to_string(), expected);
    }
}

/// A hook with this many numbers, under the names `a` and `b`.
struct Numbers(usize);

impl ValidationMetrics<NdArray, Transformer<NdArray>> for Numbers {
    fn names(&self) -> Vec<String> {
        ["a", "b"].map(str::to_owned).into()
    }

    fn measure(
        &mut self,
        at: ValidationContext<'_, Transformer<NdArray>>,
    ) -> Result<Measurement, HookError> {
        Ok(Measurement::new(vec![at.update as f64; self.0]))
    }
}

#[test]
fn several_hooks_measure_side_by_side() {
    let _alone = alone();
    let trained = trainer()
        .validate_with_fn(["first"], |_| Ok(ControlFlow::Continue([1.0])))
        .validate_with(Numbers(2))
        .validate_with_fn(["last"], |at| {
            let number = [at.earlier.len() as f64];
            Ok(match at.update {
                8 => ControlFlow::Break(number),
                _ => ControlFlow::Continue(number),
            })
        })
        .train(pairs(), pairs())
        .unwrap();
    assert_eq!(trained.stopped, StopReason::Validation);
    let last = trained.validations.last().unwrap();
    let numbers: Vec<_> = last.numbers.iter().collect();
    let expected = [("a", 8.0), ("b", 8.0), ("first", 1.0), ("last", 1.0)];
    assert_eq!(numbers.len(), 4);
    for ((name, number), expected) in numbers.into_iter().zip(expected) {
        assert_eq!((name.as_str(), *number), expected);
    }
}

#[test]
fn numbers_without_a_name_are_an_error() {
    let _alone = alone();
    let error = trainer()
        .validate_with(Numbers(3))
        .train(pairs(), pairs())
        .unwrap_err();
    let expected = "validation after update 4: 3 values for the metrics `a`, `b`";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn numbers_are_in_the_plain_line_of_a_validation() {
    let _alone = alone();
    let page = Page::default();
    trainer()
        .observer(PlainLines::new(page.clone()))
        .validate_with_fn(["BLEU", "chrF2"], |at| {
            Ok(ControlFlow::Continue([at.update as f64 + 0.25, f64::NAN]))
        })
        .train(pairs(), pairs())
        .unwrap();
    let text = page.text();
    let lines: Vec<_> = text.lines().collect();
    let validations: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("validation"))
        .collect();
    assert_eq!(validations.len(), 3, "{text}");
    for (line, bleu) in validations.iter().zip(["4.2500", "8.2500", "12.25"]) {
        assert!(line.contains("  smoothed loss "), "{line}");
        assert!(line.ends_with(&format!("  BLEU {bleu}")), "{line}");
    }
    assert!(
        lines
            .iter()
            .all(|line| !line.starts_with("update") || !line.contains("BLEU")),
        "{text}"
    );
}

/// A resumed run has the values that the run had: JSON has no others.
#[test]
fn values_that_are_not_finite_are_never_the_best() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    let train = |updates, resume| {
        let run = TrainingConfig {
            updates,
            best_by: Criterion::highest("Score"),
            ..config()
        };
        Trainer::new(model(), run)
            .display(ProgressDisplay::Silent)
            .directory(&out)
            .resume(resume)
            .validate_with_fn(["Score"], |at| {
                let score = match at.update {
                    4 => f64::INFINITY,
                    8 => 1.0,
                    _ => f64::NAN,
                };
                Ok(ControlFlow::Continue([score]))
            })
            .train(pairs(), pairs())
            .unwrap()
    };
    let first = train(12, false);
    assert!(first.validations[0].numbers["Score"].is_nan());
    let resumed = train(16, true);
    assert_eq!(resumed.validations.len(), 4);
    let best = Criterion::highest("Score").best(&resumed.validations);
    assert_eq!(best.map(|best| best.update), Some(8));
}
