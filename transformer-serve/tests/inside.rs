//! The inside of a model is what the model computes.

#[path = "../../transformer-text/tests/support/mod.rs"]
#[allow(dead_code, reason = "only the tokenizer is used")]
mod support;

use burn_ndarray::NdArray;
use support::{Reverser, translator};
use transformer_core::decoding::{MaxLength, NextToken, SourceTarget, Strategy, score};
use transformer_core::{DecodeOptions, Transformer, TransformerConfig, Translator};
use transformer_instances as _;
use transformer_serve::inside;

#[test]
fn the_beam_and_the_maps_are_those_of_the_translation() {
    let tokenizers = translator(Reverser::default()).tokenizers().clone();
    let config = TransformerConfig {
        d_model: 16,
        n_heads: 4,
        d_ff: 16,
        n_encoder_layers: 2,
        n_decoder_layers: 3,
        ..TransformerConfig::base(tokenizers.source().vocab_size())
    };
    let model: Transformer<NdArray> = config.init(5, &Default::default()).unwrap();
    let options = DecodeOptions {
        strategy: Strategy::Beam { size: 3 },
        max_length: MaxLength::Tokens(6),
        ..DecodeOptions::greedy()
    };
    let translator = Translator::new(model, tokenizers.clone()).unwrap();
    let translator = translator.with_options(options).unwrap();
    let sentence = "ab c";
    let found = inside(&translator, sentence).unwrap();
    let best = translator.translate_n_best(&[sentence], "").unwrap();
    let target = &best[0][0].hypothesis.tokens;
    assert_eq!(found.target.len(), target.len());
    assert_eq!(found.source_parts.concat(), sentence);
    assert_eq!(found.target_parts.concat(), best[0][0].text);
    assert_eq!(found.source_parts[..2], ["a", "b"]);
    let (src_len, tgt_len) = (found.source.len(), target.len().max(1));
    assert_eq!(src_len, 5);
    for (maps, layers, queries, keys) in [
        (&found.encoder, 2, src_len, src_len),
        (&found.decoder, 3, tgt_len, tgt_len),
        (&found.cross, 3, tgt_len, src_len),
    ] {
        assert_eq!(maps.len(), layers);
        for map in maps.iter().flatten() {
            assert_eq!([map.len(), map[0].len()], [queries, keys]);
            for row in map {
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 0.01);
            }
        }
        assert_eq!(maps[0].len(), 4);
    }
    // Each hypothesis has the probability that scoring gives its tokens.
    let pair = |count: usize| {
        let source = tokenizers.encode_source(sentence).unwrap();
        SourceTarget::unfinished(source, &target[..count])
    };
    let mut chosen = 0;
    for (step, nodes) in found.beam.iter().enumerate() {
        assert!(nodes.len() <= 3 && !nodes.is_empty());
        let before = step.checked_sub(1).map(|before| &found.beam[before]);
        assert!(before.is_none_or(|before| nodes.iter().all(|node| node.parent < before.len())));
        if let Some(node) = nodes.iter().find(|node| node.is_chosen) {
            chosen += 1;
            let expected = score(translator.model(), &[pair(step + 1)], 100).unwrap();
            let expected = expected[0].log_prob();
            assert!(
                (node.log_prob - expected).abs() < 1e-4,
                "{}, not {expected}",
                node.log_prob
            );
        }
    }
    // The last token may be read by no step, where it reaches the limit.
    assert!(chosen + 1 >= target.len(), "{chosen} of {}", target.len());
    assert!(translator.model().max_target_len().is_none());
}
