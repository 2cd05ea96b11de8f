//! Padding: the content and number of padded positions change nothing at other positions.

use crate::common::*;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use transformer_core::Transformer;
use transformer_core::nn::Memory;

const SOURCES: [&[u32]; 3] = [&[5, 3, 7, 12, 2], &[4, 2], &[9, 8, 11, 2]];
const TARGETS: [&[u32]; 3] = [&[1, 8, 4], &[1, 3, 3, 7, 9, 4, 8], &[1, 10, 6, 5]];

#[test]
fn a_row_among_longer_rows_is_the_row_alone() {
    row_among_longer_rows::<NdArray>();
    row_among_longer_rows::<Flex>();
}

fn row_among_longer_rows<B: Backend>() {
    for config in variants() {
        let model = model::<B>(&config, 1);
        let together = model.forward(tokens(&SOURCES), tokens(&TARGETS));
        for row in 0..3 {
            let alone = model.forward(tokens(&SOURCES[row..=row]), tokens(&TARGETS[row..=row]));
            let len = TARGETS[row].len();
            assert_close(together.clone().slice([row..row + 1, 0..len]), alone, 1e-5);
        }
    }
}

#[test]
fn more_padding_changes_nothing() {
    more_padding::<NdArray>();
    more_padding::<Flex>();
}

fn more_padding<B: Backend>() {
    for config in variants() {
        let model = model::<B>(&config, 2);
        let plain = model.forward(tokens(&SOURCES), tokens(&TARGETS));
        let wider = model.forward(widened(tokens(&SOURCES), 4), widened(tokens(&TARGETS), 3));
        for (row, target) in TARGETS.iter().enumerate() {
            let real = [row..row + 1, 0..target.len()];
            assert_close(
                plain.clone().slice(real.clone()),
                wider.clone().slice(real),
                1e-5,
            );
        }
    }
}

/// For padding before, between and after real tokens.
#[test]
fn the_embedding_of_pad_reaches_no_real_position() {
    let sources = [[5, 0, 7, 12, 2], [0, 0, 4, 9, 2], [6, 8, 2, 0, 0]];
    let targets = [[1, 8, 0, 4], [0, 1, 3, 7], [1, 9, 9, 0]];
    for config in variants() {
        let plain = model::<NdArray>(&config, 3);
        let mut loud = plain.clone();
        loud.src_embedding.weight = loud.src_embedding.weight.map(with_loud_first_row);
        let target_embedding = loud.tgt_embedding.as_mut().unwrap();
        target_embedding.weight = target_embedding.weight.clone().map(with_loud_first_row);

        let plain = plain.forward(tokens(&sources), tokens(&targets));
        let loud = loud.forward(tokens(&sources), tokens(&targets));
        for (row, target) in targets.iter().enumerate() {
            for (position, _) in target.iter().enumerate().filter(|(_, token)| **token != 0) {
                let at = [row..row + 1, position..position + 1];
                assert_close(
                    plain.clone().slice(at.clone()),
                    loud.clone().slice(at),
                    1e-5,
                );
            }
        }
    }
}

#[test]
fn garbage_in_padded_memory_changes_nothing() {
    for config in variants() {
        let model = model::<NdArray>(&config, 4);
        let memory = model.encode(tokens(&SOURCES));
        let noise = uniform(&mut rng(4), memory.hidden.dims()) * 1e3;
        let padded = memory.padding.clone().unsqueeze_dim::<3>(2);
        let garbage = Memory {
            hidden: memory
                .hidden
                .clone()
                .mask_where(padded.expand(memory.hidden.dims()), noise),
            padding: memory.padding.clone(),
        };
        assert_close(decoded(&model, &memory), decoded(&model, &garbage), 1e-5);
    }
}

/// The converse: real positions of the memory matter; otherwise the test above would
/// prove nothing.
#[test]
fn garbage_in_real_memory_changes_every_row() {
    let model = model::<NdArray>(&tiny(), 5);
    let memory = model.encode(tokens(&SOURCES));
    let noise: Tensor<NdArray, 3> = uniform(&mut rng(5), memory.hidden.dims());
    let garbage = Memory {
        hidden: memory.hidden.clone() + noise,
        padding: memory.padding.clone(),
    };
    let (before, after) = (decoded(&model, &memory), decoded(&model, &garbage));
    for row in 0..3 {
        let of_row = |all: &Tensor<NdArray, 3>| values(all.clone().slice([row..row + 1]));
        assert!(largest_difference(&of_row(&before), &of_row(&after)) > 1e-3);
    }
}

fn decoded(model: &Transformer<NdArray>, memory: &Memory<NdArray>) -> Tensor<NdArray, 3> {
    model.generate(model.decode(tokens(&TARGETS), memory))
}

fn widened<B: Backend>(tokens: Tensor<B, 2, Int>, columns: usize) -> Tensor<B, 2, Int> {
    let [rows, _] = tokens.dims();
    let padding = Tensor::zeros([rows, columns], &tokens.device());
    Tensor::cat(vec![tokens, padding], 1)
}

fn with_loud_first_row(table: Tensor<NdArray, 2>) -> Tensor<NdArray, 2> {
    let [_, d_model] = table.dims();
    let loud = uniform(&mut rng(9), [1, d_model]) * 50.0;
    table.slice_assign([0..1], loud)
}
