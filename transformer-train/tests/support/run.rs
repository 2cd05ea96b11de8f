//! Parts of a run: a tiny model, pairs for it, the run's output.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use transformer_core::TransformerConfig;
use transformer_train::data::TokenizedPair;

/// Burn draws dropout from one generator per process: a test that trains must hold this lock.
pub fn alone() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A model of one layer on each side, for the tokens of [`pairs`].
pub fn tiny_config() -> TransformerConfig {
    TransformerConfig {
        d_model: 8,
        n_heads: 2,
        d_ff: 16,
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(13)
    }
}

/// Pairs of the tokens 3 to 12, enough for several batches.
pub fn pairs() -> Vec<TokenizedPair> {
    (0..12)
        .map(|index| TokenizedPair {
            source: vec![3 + index % 10; 1 + index as usize % 4],
            target: vec![3 + index % 10],
        })
        .collect()
}

/// A file in memory.
#[derive(Clone, Default)]
pub struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
