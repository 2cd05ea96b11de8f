//! Initial weights: the same seed gives the same model on every backend, and each weight has the
//! distribution that its layer requires.

use transformer_core::models::WeightTying;
use transformer_core::nn::{AttentionConfig, MultiHeadAttention, SelfAttention, WeightInit};
use transformer_core::{Transformer, TransformerConfig};

use crate::common::*;

#[test]
fn a_seed_is_the_same_model_on_every_backend() {
    for config in variants() {
        let ndarray: Transformer<NdArray> = config.init(5, &Default::default()).unwrap();
        let flex: Transformer<Flex> = config.init(5, &Default::default()).unwrap();
        let tracked: Transformer<Autodiff<NdArray>> = config.init(5, &Default::default()).unwrap();
        assert_eq!(parameters(&ndarray), parameters(&flex));
        assert_eq!(parameters(&ndarray), parameters(&tracked));
    }
}

#[test]
fn another_seed_is_another_model() {
    let first: Transformer<NdArray> = tiny().init(5, &Default::default()).unwrap();
    let second: Transformer<NdArray> = tiny().init(6, &Default::default()).unwrap();
    for (first, second) in parameters(&first).into_iter().zip(parameters(&second)) {
        let (name, shape, values) = first;
        // Biases and norms are not drawn.
        assert_eq!(shape.len() == 1, values == second.2, "{name}");
    }
}

#[test]
fn no_two_matrices_of_a_model_are_alike() {
    let model: Transformer<NdArray> = tiny().init(5, &Default::default()).unwrap();
    let mut first_values: Vec<f64> = parameters(&model)
        .into_iter()
        .filter(|(_, shape, _)| shape.len() == 2)
        .map(|(_, _, values)| values[0])
        .collect();
    let count = first_values.len();
    first_values.sort_by(f64::total_cmp);
    first_values.dedup();
    assert_eq!(first_values.len(), count);
}

/// `a = √(6 / (d_input + d_output))` of each projection by itself, divided by √2 for queries, keys and
/// values.
#[test]
fn each_projection_has_its_own_xavier_bound() {
    let config = AttentionConfig::new(64, 4)
        .with_d_k(Some(8))
        .with_d_v(Some(48));
    let assert_bounds = |init: &mut WeightInit, gain: f64| {
        let device = Default::default();
        let own: SelfAttention<NdArray> = config.init_self_from(init, &device);
        let cross: MultiHeadAttention<NdArray> = config.init_from(init, &device);
        let [keys, queries_and_keys, all] = [32, 64, 64 + 192];
        let own_parts = [
            (0..keys, 32.0),
            (keys..queries_and_keys, 32.0),
            (queries_and_keys..all, 192.0),
        ];
        let cross_parts = [(0..keys, 32.0), (keys..keys + 192, 192.0)];
        let bound = |d_output: f64| (6.0_f64 / (64.0 + d_output)).sqrt();
        for (packed, parts) in [
            (own.query_key_value.weight.val(), &own_parts[..]),
            (cross.query.weight.val(), &cross_parts[..1]),
            (cross.key_value.weight.val(), &cross_parts[..]),
        ] {
            for (columns, d_output) in parts.iter().cloned() {
                let part = values(packed.clone().slice_dim(1, columns));
                assert_uniform(&part, gain * bound(d_output));
            }
        }
        for heads in [own.heads, cross.heads] {
            assert_uniform(&values(heads.projection.weight.val()), bound(192.0));
        }
    };
    assert_bounds(&mut WeightInit::new(1), 0.5_f64.sqrt());
    assert_bounds(&mut WeightInit::new(1).with_attention_gain(1.0), 1.0);
}

/// PyTorch draws `W^Q`, `W^K` and `W^V` as one matrix `[3 d_model, d_model]`: the same bound.
#[test]
fn square_projections_have_the_bound_of_one_packed_matrix() {
    let config = AttentionConfig::new(64, 4);
    let init = &mut WeightInit::new(1);
    let layer: SelfAttention<NdArray> = config.init_self_from(init, &Default::default());
    let packed = values(layer.query_key_value.weight.val());
    assert_uniform(&packed, (6.0_f64 / (64.0 + 3.0 * 64.0)).sqrt());
}

/// Within the bound, close to it, and with the deviation of a uniform distribution.
#[track_caller]
fn assert_uniform(values: &[f64], bound: f64) {
    let largest = values
        .iter()
        .fold(0.0, |largest: f64, x| largest.max(x.abs()));
    assert!(
        largest <= bound * 1.000_001,
        "{largest} is outside ±{bound}"
    );
    assert!(largest > bound * 0.98, "{largest} is far inside ±{bound}");
    assert_deviation(values, bound / 3_f64.sqrt());
}

#[track_caller]
fn assert_deviation(values: &[f64], expected: f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let deviation = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
    assert!(mean.abs() < 0.05 * expected, "the mean is {mean}");
    assert!(
        (deviation / expected - 1.0).abs() < 0.05,
        "deviation {deviation}, not {expected}"
    );
}

#[test]
fn embeddings_have_the_deviation_that_their_use_requires() {
    let small = 32_f64.powf(-0.5);
    for (embedding_scale, tying, expected) in [
        (true, WeightTying::None, small),
        (true, WeightTying::All, small),
        (false, WeightTying::TargetGenerator, small),
        (false, WeightTying::SourceTarget, 1.0),
        (false, WeightTying::None, 1.0),
    ] {
        let config = TransformerConfig {
            src_vocab_size: 200,
            tgt_vocab_size: 200,
            d_model: 32,
            d_k: None,
            d_v: None,
            embedding_scale,
            tying,
            ..tiny()
        };
        let model: Transformer<NdArray> = config.init(1, &Default::default()).unwrap();
        assert_deviation(&values(model.src_embedding.weight.val()), expected);
        assert_deviation(&values(model.target_embedding().weight.val()), expected);
    }
}

#[test]
fn learned_positions_have_unit_variance() {
    let config = TransformerConfig::learned_positions(8, 8, 50);
    let model: Transformer<NdArray> = TransformerConfig {
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..config
    }
    .init(1, &Default::default())
    .unwrap();
    let source = values(model.src_positions.learned.as_ref().unwrap().val());
    let target = model.tgt_positions.as_ref().unwrap().learned.as_ref();
    let target = values(target.unwrap().val());
    assert_deviation(&source, 1.0);
    assert_deviation(&target, 1.0);
    assert!(largest_difference(&source, &target) > 1.0);
}

#[test]
fn biases_are_zero_and_norms_the_identity() {
    let model: Transformer<NdArray> = tiny().init(1, &Default::default()).unwrap();
    for (name, _, values) in parameters(&model) {
        if name.ends_with("gamma") {
            assert!(values.iter().all(|&x| x == 1.0), "{name}");
        } else if name.ends_with("bias") || name.ends_with("beta") {
            assert!(values.iter().all(|&x| x == 0.0), "{name}");
        }
    }
}

#[test]
fn zeros_draws_nothing() {
    let init = &mut WeightInit::zeros();
    let model: Transformer<NdArray> = tiny().init_from(init, &Default::default()).unwrap();
    for (name, _, values) in parameters(&model) {
        let expected = if name.ends_with("gamma") { 1.0 } else { 0.0 };
        assert!(values.iter().all(|&x| x == expected), "{name}");
    }
}

#[test]
fn a_contradiction_is_no_model() {
    let config = TransformerConfig { d_ff: 0, ..tiny() };
    let error = config.init::<NdArray>(1, &Default::default()).unwrap_err();
    assert_eq!(error.to_string(), "`d_ff` is 0; it must be at least 1");
}
