//! A language model shaped like Llama is trained, decodes with a cache after a prompt, is packed, and is saved.

use burn::tensor::{Int, Tensor, TensorData};
use transformer_core::backend::{Autodiff, NdArray};
use transformer_core::burn;
use transformer_core::decoding::{Hypothesis, MaxLength, NextToken};
use transformer_core::models::WeightTying;
use transformer_core::nn::{Activation, AttentionWeights, NormKind, NormPlacement, Positions};
use transformer_core::packed::PackedPrecision;
use transformer_core::{
    DecodeOptions, LanguageModel, PackedModel, Request, Search, TransformerConfig,
};
use transformer_train::progress::ProgressDisplay;
use transformer_train::{Trainer, TrainingConfig};

type Inner = NdArray;
type Training = Autodiff<Inner>;

/// RMS normalization before each sub-layer, a gated feed-forward network, rotary positions, two query heads per
/// head of keys and values, and no bias.
fn config() -> TransformerConfig {
    TransformerConfig {
        d_model: 32,
        n_heads: 4,
        n_kv_heads: Some(2),
        d_ff: 48,
        n_decoder_layers: 2,
        norm: NormPlacement::Pre,
        final_norm: true,
        layer_norm: NormKind::RootMeanSquare,
        positions: Positions::Rotary { base: 10_000.0 },
        activation: Activation::Silu,
        gated: true,
        feed_forward_bias: false,
        embedding_scale: false,
        tying: WeightTying::None,
        dropout: 0.0,
        ..TransformerConfig::language_model(FIRST + COUNT)
    }
}

/// Number 0 is this token, and the others follow.
const FIRST: usize = 3;
/// Count of distinct numbers.
const COUNT: usize = 8;
/// Length of a sequence.
const LEN: usize = 10;

/// Numbers modulo `COUNT`, starting at `start`, in steps of 1 or 3; two consecutive numbers determine the step.
fn sequence(start: usize, step: usize) -> Vec<u32> {
    let number = |at: usize| (FIRST + (start + at * step) % COUNT) as u32;
    (0..LEN).map(number).collect()
}

fn sequences() -> Vec<Vec<u32>> {
    let starts = (0..COUNT).flat_map(|start| [sequence(start, 1), sequence(start, 3)]);
    starts.collect()
}

fn trained() -> LanguageModel<Inner> {
    let device = Default::default();
    let model = config()
        .init_language_model::<Training>(1, &device)
        .unwrap();
    let run = TrainingConfig {
        updates: 60,
        warmup: 15,
        batch_tokens: 16 * (LEN + 1),
        validate_every: 60,
        peak_rate: Some(0.02),
        label_smoothing: 0.0,
        ..TrainingConfig::default()
    };
    let trained = Trainer::new(model, run)
        .display(ProgressDisplay::Silent)
        .train(sequences(), sequences())
        .unwrap();
    // The first number can be any of eight, the second one of two; the rest is determined.
    let least = ((COUNT * 2) as f64).ln() / (LEN + 1) as f64;
    let found = trained.validations.last().unwrap().valid_loss;
    assert!(found < least + 0.05, "{found}; the minimum is {least}");
    trained.model
}

/// The sequences are continued after their first three numbers.
fn continued(model: &impl NextToken, options: &DecodeOptions) -> Vec<Hypothesis> {
    let prompts = sequences().into_iter();
    let prompts: Vec<_> = prompts
        .map(|sequence| Request::prompt(sequence[..3].to_vec()))
        .collect();
    let options = DecodeOptions {
        max_length: MaxLength::Tokens(LEN + 2),
        ..options.clone()
    };
    let search = Search::new(model, options).unwrap();
    search.run(&prompts).unwrap().concat()
}

/// The logits of the last token of a sequence: in one pass, or after a prompt in a cache, token by token.
fn last_logits(model: &LanguageModel<Inner>, sequence: &[u32], prompt: Option<usize>) -> Vec<f32> {
    let tensor = |tokens: &[u32]| -> Tensor<Inner, 2, Int> {
        let numbers: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
        Tensor::from_data(
            TensorData::new(numbers, [1, tokens.len()]),
            &Default::default(),
        )
    };
    let logits = match prompt {
        None => model.forward(tensor(sequence)),
        Some(len) => {
            let (prompt, rest) = sequence.split_at(len);
            let mut cache = model.start_decoding(1);
            let parts = std::iter::once(prompt).chain(rest.chunks(1));
            let hidden = parts.map(|part| {
                model
                    .decode_next(tensor(part), &mut cache, AttentionWeights::Discard)
                    .hidden
            });
            model.generate(hidden.last().unwrap())
        }
    };
    let [_, len, _] = logits.dims();
    logits
        .slice_dim(1, len - 1..len)
        .into_data()
        .into_vec()
        .unwrap()
}

#[test]
fn it_learns_and_decodes_cached_packed_and_loaded_alike() {
    let _alone = super::alone();
    let model = trained();
    let found = continued(&model, &DecodeOptions::greedy());
    for (found, expected) in found.iter().zip(sequences()) {
        assert_eq!(found.tokens, expected);
        assert!(found.finished);
    }

    let read = [&[1], &sequence(5, 3)[..]].concat();
    let whole = last_logits(&model, &read, None);
    for prompt in [1, 4, 10] {
        let cached = last_logits(&model, &read, Some(prompt));
        let pairs = whole.iter().zip(&cached);
        assert!(
            pairs.clone().all(|(a, b)| (a - b).abs() < 1e-4),
            "{whole:?}, {cached:?}"
        );
    }

    let packed = PackedModel::of_language_model(model.clone(), PackedPrecision::F32);
    for options in [DecodeOptions::greedy(), DecodeOptions::beam(3)] {
        let (found, expected) = (continued(&packed, &options), continued(&model, &options));
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.tokens, expected.tokens);
            assert!((found.log_prob - expected.log_prob).abs() < 1e-4);
        }
    }

    let directory = tempfile::tempdir().unwrap();
    model.save(directory.path()).unwrap();
    let loaded = LanguageModel::<Inner>::load(directory.path(), &Default::default()).unwrap();
    assert_eq!(loaded.config(), &config());
    assert_eq!(last_logits(&loaded, &read, None), whole);
}
