//! Batches: a sentence has the same result alone and at any row of a batch.

use burn::tensor::Tensor;
use transformer_core::decoding::{MaxLength, greedy};

use crate::common::*;

#[test]
fn a_batch_of_one_is_a_batch_of_many() {
    let sources = [[5, 3, 7, 12, 2], [4, 9, 9, 6, 2], [8, 8, 3, 11, 2]];
    let targets = [[1, 8, 4], [1, 3, 10], [1, 5, 6]];
    for config in variants() {
        let model = model::<NdArray>(&config, 1);
        let together = model.forward(tokens(&sources), tokens(&targets));
        let alone: Vec<Tensor<NdArray, 3>> = (0..3)
            .map(|row| {
                let (source, target) = (&sources[row..=row], &targets[row..=row]);
                model.forward(tokens(source), tokens(target))
            })
            .collect();
        assert_close(together, Tensor::cat(alone, 0), 1e-5);
    }
}

#[test]
fn greedy_finds_the_same_in_any_order_of_the_batch() {
    let sources: Vec<Vec<u32>> = vec![
        vec![5, 3, 7, 12, 2],
        vec![4, 2],
        vec![9, 8, 11, 2],
        vec![6, 6, 2],
        vec![10, 3, 4, 5, 6, 7, 2],
    ];
    for config in variants() {
        let model = model::<NdArray>(&config, 2);
        let decode = |sources: &[Vec<u32>]| {
            let max_length = MaxLength::SourcePlus(4);
            let found = greedy(&model, &exact(sources), max_length).unwrap();
            let tokens = found
                .into_iter()
                .map(|found| (found.tokens, found.finished));
            tokens.collect::<Vec<_>>()
        };
        let straight = decode(&sources);
        for order in [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3], [1, 1, 0, 0, 4]] {
            let shuffled: Vec<_> = order.iter().map(|&row| sources[row].clone()).collect();
            let expected: Vec<_> = order.iter().map(|&row| straight[row].clone()).collect();
            assert_eq!(decode(&shuffled), expected);
        }
        for (source, expected) in sources.iter().zip(straight) {
            assert_eq!(decode(std::slice::from_ref(source)), [expected]);
        }
    }
}
