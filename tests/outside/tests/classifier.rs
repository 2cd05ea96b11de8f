//! The classifier is trained, saved, resumed and loaded; its frozen embedding does not change.

use std::path::Path;

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use outside::{Classifier, Labelled};
use transformer_core::backend::{Autodiff, NdArray};
use transformer_core::burn;
use transformer_core::decoding::padded;
use transformer_train::objective::LossOptions;
use transformer_train::progress::ProgressDisplay;
use transformer_train::validation::evaluate;
use transformer_train::{Trained, Trainer, TrainingConfig};

type Inner = NdArray;
type Training = Autodiff<Inner>;

/// Texts of three to eight tokens; the class tells whether they contain token 5.
fn texts(count: u32) -> Vec<Labelled> {
    let text = |n: u32| -> Vec<u32> {
        let mut state = n.wrapping_mul(2_654_435_761).wrapping_add(12_345);
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        let len = 3 + next(6);
        let mut text: Vec<u32> = (0..len).map(|_| 6 + next(6)).collect();
        if n.is_multiple_of(2) {
            let position = next(len) as usize;
            text[position] = 5;
        }
        text
    };
    let labelled = (0..count).map(|n| {
        let text = text(n);
        let class = u32::from(text.contains(&5));
        Labelled { text, class }
    });
    labelled.collect()
}

fn model() -> Classifier<Training> {
    let device = Default::default();
    Training::seed(&device, 3);
    Classifier::new(&device).unwrap().with_frozen_embedding()
}

fn train(updates: usize, directory: &Path, resume: bool) -> Trained<Classifier<Inner>> {
    let run = TrainingConfig {
        updates,
        warmup: 60,
        batch_tokens: 256,
        validate_every: 60,
        ..TrainingConfig::default()
    };
    Trainer::new(model(), run)
        .directory(directory)
        .resume(resume)
        .display(ProgressDisplay::Silent)
        .train(texts(1000), texts(100))
        .unwrap()
}

fn values<const D: usize>(tensor: Tensor<Inner, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

fn logits(model: &Classifier<Inner>) -> Vec<f32> {
    let texts = texts(50);
    let texts: Vec<&[u32]> = texts.iter().map(|example| &example.text[..]).collect();
    values(model.forward(padded(&texts, 0, &Default::default())))
}

#[test]
fn it_learns_with_a_frozen_embedding_and_resumes_to_the_same_model() {
    let _alone = super::alone();
    let whole = tempfile::tempdir().unwrap();
    let trained = train(240, whole.path(), false);
    let embedding = |model: &Classifier<Inner>| values(model.embedding.weight.val());
    let first = values(model().embedding.weight.val().inner());
    assert_eq!(embedding(&trained.model), first, "the embedding is frozen");

    let statistics = evaluate(
        &trained.model,
        texts(400),
        1000,
        &LossOptions::smoothed(0.0),
    )
    .unwrap();
    assert!(statistics.accuracy() > 95.0, "{statistics:?}");

    // Stopped halfway, and resumed.
    let halves = tempfile::tempdir().unwrap();
    train(120, halves.path(), false);
    let resumed = train(240, halves.path(), true);
    assert_eq!(resumed.updates, 240);
    assert_eq!(logits(&resumed.model), logits(&trained.model));
    assert_eq!(
        embedding(&resumed.model),
        first,
        "the embedding is still frozen"
    );
    assert_eq!(resumed.model.num_params(), trained.model.num_params());

    // The directory has the best model, which can be loaded.
    let loaded = Classifier::<Inner>::load(halves.path(), &Default::default()).unwrap();
    let best = trained
        .validations
        .iter()
        .min_by(|a, b| a.valid_loss.total_cmp(&b.valid_loss));
    if best.unwrap().update == 240 {
        assert_eq!(logits(&loaded), logits(&resumed.model));
    }
    let statistics = evaluate(&loaded, texts(100), 1000, &LossOptions::smoothed(0.1)).unwrap();
    assert!((statistics.mean_loss() - best.unwrap().valid_loss).abs() < 1e-5);
}
