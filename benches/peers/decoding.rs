//! Decoding of random sources of equal length.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::backend::Backend;
use serde::Deserialize;
use transformer_core::decoding::MaxLength;
use transformer_core::{DecodeOptions, Request, Search, Transformer};

use super::Result;
use super::training::RandomBatch;
use super::turns::{Outcome, Turns};

/// Work on random tokens, from work.json.
#[derive(Debug, Deserialize)]
pub struct Sizes {
    pub vocab_size: usize,
    sources: Vec<Vec<u32>>,
    new_tokens: usize,
    pub beam: usize,
    pub training: BTreeMap<String, RandomBatch>,
}

impl Sizes {
    /// Decodes the sources with the model in a directory.
    pub fn decode<B: Backend>(
        &self,
        directory: &Path,
        beam: usize,
        device: &B::Device,
        turns: Turns,
    ) -> Result {
        let model = Transformer::<B>::load(directory, device)?;
        let options = DecodeOptions {
            min_length: self.new_tokens,
            max_length: MaxLength::Tokens(self.new_tokens),
            ..DecodeOptions::beam(beam)
        };
        let search = Search::new(&model, options)?;
        let requests: Vec<_> = self
            .sources
            .iter()
            .map(|source| Request::exact(&source[..]))
            .collect();
        let decode = || -> Result<Outcome> {
            let found = search.run(&requests)?;
            let best = found.into_iter().flat_map(|found| found.into_iter().next());
            let targets: Vec<Vec<u32>> = best.map(|best| best.tokens).collect();
            Ok(Outcome {
                tokens: targets.iter().map(Vec::len).sum(),
                targets,
                ..Outcome::default()
            })
        };
        decode()?;
        turns.run(decode)
    }
}
