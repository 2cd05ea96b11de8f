//! Queries whose every key is blocked: the output is zero, and every gradient is finite.

use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use transformer_core::TransformerConfig;
use transformer_core::nn::{AttentionWeights, Dropout, Mask, scaled_dot_product_attention};

use crate::common::*;

#[test]
fn attention_is_zero_where_every_key_is_blocked() {
    attention_of_a_blocked_row::<Autodiff<NdArray>>();
    attention_of_a_blocked_row::<Autodiff<Flex>>();
}

/// Two rows, the second all padding: 3 queries, 4 keys, d_k 5, d_v 2.
fn attention_of_a_blocked_row<B: AutodiffBackend>() {
    let rng = &mut rng(1);
    let query = uniform::<B, 4>(rng, [2, 2, 3, 5]).require_grad();
    let key = uniform::<B, 4>(rng, [2, 2, 4, 5]).require_grad();
    let value = uniform::<B, 4>(rng, [2, 2, 4, 2]).require_grad();
    let padding = tokens::<B>(&[[7, 7, 0, 7], [0, 0, 0, 0]]).equal_elem(0);

    let (output, weights) = scaled_dot_product_attention(
        query.clone(),
        key.clone(),
        value.clone(),
        Some(&Mask::padding(padding)),
        &Dropout::new(0.0),
    );
    let rows = |row: usize, all: Tensor<B, 4>| values(all.slice([row..row + 1]));
    assert!(rows(1, output.clone()).iter().all(|&y| y == 0.0));
    assert!(rows(1, weights.clone()).iter().all(|&w| w == 0.0));
    assert!(rows(0, output.clone()).iter().all(|&y| y != 0.0));

    let loss = (output.clone() + 1.0).powi_scalar(2).sum() + weights.sum();
    let gradients = loss.backward();
    for input in [query, key, value] {
        let gradient = input.grad(&gradients).unwrap();
        let of_row = |row: usize| values(gradient.clone().slice([row..row + 1]));
        assert!(of_row(0).iter().all(|g| g.is_finite()));
        assert!(of_row(1).iter().all(|&g| g == 0.0));
    }
}

#[test]
fn a_model_stays_finite_on_rows_of_padding() {
    model_on_rows_of_padding::<Autodiff<NdArray>>();
    model_on_rows_of_padding::<Autodiff<Flex>>();
}

fn model_on_rows_of_padding<B: AutodiffBackend>() {
    for variant in variants() {
        let config = TransformerConfig {
            dropout: 0.0,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            ..variant
        };
        let model = model::<B>(&config, 2);
        // An empty source, an empty target, both, neither.
        let src = tokens(&[[0, 0, 0, 0], [5, 6, 7, 2], [0, 0, 0, 0], [8, 2, 0, 0]]);
        let tgt = tokens(&[[1, 5, 6], [0, 0, 0], [0, 0, 0], [1, 9, 0]]);
        let logits = model.forward(src, tgt);
        assert!(values(logits.clone()).iter().all(|x| x.is_finite()));

        let gradients_of_loss = logits.powi_scalar(2).mean().backward();
        for (name, _, gradient) in gradients(&model, &gradients_of_loss) {
            assert!(
                gradient.iter().all(|g| g.is_finite()),
                "{name}: {gradient:?}"
            );
            let learns = gradient.iter().any(|&g| g != 0.0);
            assert!(learns, "{name} gets no gradient");
        }
    }
}

#[test]
fn a_source_of_padding_is_given_no_weight() {
    let model = model::<NdArray>(&tiny(), 3);
    let memory = model.encode(tokens(&[[0, 0], [5, 2]]));
    let mut cache = model.start_decoding(&memory);
    let targets = tokens(&[[1, 4, 3], [1, 4, 3]]);
    let output = model.decode_next(targets, &mut cache, AttentionWeights::Return);
    for weights in output.cross_attention {
        let sums = weights.sum_dim(3);
        let [_, n_heads, tgt_len, _] = sums.dims();
        assert_close(
            sums.clone().slice([0..1]),
            &vec![0.0; n_heads * tgt_len],
            0.0,
        );
        assert_close(sums.slice([1..2]), &vec![1.0; n_heads * tgt_len], 1e-6);
    }
}
