//! A custom decoding rule: no token twice in a row. It wraps any model.

use transformer_core::backend::NdArray;
use transformer_core::decoding::{MaxLength, Next, NextToken, RequestProblem, Threads, Vocabulary};
use transformer_core::nn::AttentionWeights;
use transformer_core::packed::PackedPrecision;
use transformer_core::{DecodeOptions, PackedModel, Request, Search, TransformerConfig};

/// A model that never repeats its last token.
struct WithoutRepeats<M>(M);

impl<M: NextToken> NextToken for WithoutRepeats<M> {
    type State = M::State;

    fn vocabulary(&self) -> Vocabulary {
        self.0.vocabulary()
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        self.0.check_source(source)
    }

    fn start(&self, sources: &[&[u32]], threads: Threads) -> M::State {
        self.0.start(sources, threads)
    }

    fn next(&self, last: &[u32], state: &mut M::State, attention: AttentionWeights) -> Next {
        let mut next = self.0.next(last, state, attention);
        let size = self.vocabulary().size;
        for (row, &last) in next.log_probs.chunks_mut(size).zip(last) {
            row[last as usize] = f32::NEG_INFINITY;
        }
        next
    }

    fn select(&self, state: &mut M::State, sources: &[usize], rows: &[usize]) {
        self.0.select(state, sources, rows);
    }
}

#[test]
fn it_holds_in_greedy_decoding_and_in_beam_search() {
    let config = TransformerConfig {
        d_model: 16,
        n_heads: 2,
        d_ff: 16,
        ..TransformerConfig::base(12)
    };
    let model = config.init::<NdArray>(2, &Default::default()).unwrap();
    let packed = PackedModel::new(model, PackedPrecision::F32);
    let requests: Vec<_> = (3..12).map(|token| Request::new([token, 5])).collect();
    let repeats = |tokens: &[u32]| tokens.windows(2).any(|pair| pair[0] == pair[1]);
    let mut has_repeated = false;
    for beam in [1, 4] {
        let options = DecodeOptions {
            max_length: MaxLength::Tokens(12),
            ..DecodeOptions::beam(beam)
        };
        let plain = Search::new(&packed, options.clone())
            .unwrap()
            .run(&requests)
            .unwrap();
        has_repeated |= plain.iter().any(|found| repeats(&found[0].tokens));
        let model = WithoutRepeats(&packed);
        let found = Search::new(&model, options)
            .unwrap()
            .run(&requests)
            .unwrap();
        assert!(found.iter().flatten().all(|found| !repeats(&found.tokens)));
    }
    assert!(has_repeated, "the rule has an effect");
}
