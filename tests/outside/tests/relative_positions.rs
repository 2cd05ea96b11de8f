//! An encoder–decoder with T5's positions learns to reverse a sequence, and decodes it by beam search, unpacked
//! and packed.

use transformer_core::backend::{Autodiff, NdArray};
use transformer_core::burn;
use transformer_core::decoding::{MaxLength, NextToken};
use transformer_core::nn::{NormPlacement, Positions};
use transformer_core::packed::PackedPrecision;
use transformer_core::{DecodeOptions, PackedModel, Request, Search, TransformerConfig};
use transformer_train::data::TokenizedPair;
use transformer_train::progress::ProgressDisplay;
use transformer_train::{Trainer, TrainingConfig};

const VOCAB_SIZE: usize = 8;

/// Every sequence of three distinct tokens from 3 on, and its reverse.
fn pairs() -> Vec<TokenizedPair> {
    let tokens = 3..VOCAB_SIZE as u32;
    let mut pairs = Vec::new();
    for first in tokens.clone() {
        for second in tokens.clone() {
            for third in tokens.clone() {
                if first != second && second != third && first != third {
                    pairs.push(TokenizedPair {
                        source: vec![first, second, third],
                        target: vec![third, second, first],
                    });
                }
            }
        }
    }
    pairs
}

fn best(model: &impl NextToken, pairs: &[TokenizedPair]) -> Vec<Vec<u32>> {
    let options = DecodeOptions {
        max_length: MaxLength::SourcePlus(3),
        ..DecodeOptions::beam(4)
    };
    let requests: Vec<Request> = pairs
        .iter()
        .map(|pair| Request::new(pair.source.clone()))
        .collect();
    let found = Search::new(model, options).unwrap().run(&requests).unwrap();
    found
        .into_iter()
        .map(|mut hypotheses| hypotheses.remove(0).tokens)
        .collect()
}

#[test]
fn it_learns_where_tokens_are_and_decodes_by_beam_search() {
    let _alone = super::alone();
    let config = TransformerConfig {
        d_model: 32,
        n_heads: 4,
        d_ff: 64,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        norm: NormPlacement::Pre,
        final_norm: true,
        positions: Positions::RelativeBias {
            buckets: 8,
            max_distance: 16,
        },
        attention_scale: false,
        generator_scale: true,
        embedding_scale: false,
        dropout: 0.0,
        ..TransformerConfig::base(VOCAB_SIZE)
    };
    let device = Default::default();
    let model = config.init::<Autodiff<NdArray>>(3, &device).unwrap();
    let tables = |biases: [&transformer_core::nn::PositionBias<NdArray>; 2]| {
        biases.map(|bias| bias.learned.as_ref().unwrap().val().into_data())
    };
    let before = burn::module::AutodiffModule::valid(&model);
    let recipe = TrainingConfig {
        warmup: 40,
        peak_rate: Some(0.01),
        label_smoothing: 0.0,
        batch_tokens: 128,
        updates: 250,
        validate_every: 125,
        ..TrainingConfig::default()
    };
    let pairs = pairs();
    let trained = Trainer::new(model, recipe)
        .display(ProgressDisplay::Silent)
        .train(pairs.clone(), pairs.clone())
        .unwrap();

    // Both tables were trained.
    let [before, after] = [&before, &trained.model].map(|model| {
        let biases =
            [&model.encoder, &model.decoder].map(|stack| stack.position_bias.as_ref().unwrap());
        tables(biases)
    });
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(before, after)| before != after)
    );

    let expected: Vec<Vec<u32>> = pairs.iter().map(|pair| pair.target.clone()).collect();
    assert_eq!(best(&trained.model, &pairs), expected);
    let packed = PackedModel::new(trained.model, PackedPrecision::F32);
    assert_eq!(best(&packed, &pairs), expected);
}
