//! A model whose translations are known: it reverses the order of the words, and swaps capital and small letters.
//!
//! "Where is <b>the station</b> now?" becomes "NOW? <b>STATION THE</b> IS wHERE": everything is different, and the
//! right place of everything is known. Each letter attends to the letter that it comes from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use transformer_core::decoding::{
    MaxLength, Next, NextToken, RequestProblem, SpecialTokens, Threads, Vocabulary,
};
use transformer_core::nn::AttentionWeights;
use transformer_core::text::Tokenizer;
use transformer_core::{DecodeOptions, Translator};

/// Tokens before those of the 256 bytes.
const SPECIAL: u32 = 4;
const EOS: u32 = 2;

/// See the module.
#[derive(Debug, Clone)]
pub struct Reverser {
    /// The longest source in bytes.
    pub longest: usize,
    /// Whether it repeats a translation without end.
    pub loops: bool,
    /// The time that a batch takes.
    pub delay: Duration,
    /// Batches so far.
    pub batches: Arc<AtomicUsize>,
}

impl Default for Reverser {
    fn default() -> Self {
        Self {
            longest: 400,
            loops: false,
            delay: Duration::ZERO,
            batches: Arc::default(),
        }
    }
}

/// What becomes of a source: tokens, and where each comes from.
type Target = Vec<(u32, usize)>;

impl Reverser {
    /// The translation of a source.
    fn target(source: &[u32]) -> Target {
        let is_space = |token: u32| token == SPECIAL + u32::from(b' ');
        let mut target = Target::new();
        let end = source
            .iter()
            .position(|&token| token == EOS)
            .unwrap_or(source.len());
        let mut word_end = end;
        loop {
            let start = source[..word_end]
                .iter()
                .rposition(|&token| is_space(token));
            let start = start.map_or(0, |space| space + 1);
            for (place, &token) in source[start..word_end].iter().enumerate() {
                target.push((swapped(token), start + place));
            }
            match start {
                0 => break,
                start => {
                    target.push((source[start - 1], start - 1));
                    word_end = start - 1;
                }
            }
        }
        target
    }
}

/// A small letter for a capital one, and the other way.
fn swapped(token: u32) -> u32 {
    let Ok(byte) = u8::try_from(token - SPECIAL) else {
        return token;
    };
    SPECIAL
        + u32::from(match byte.is_ascii_lowercase() {
            true => byte.to_ascii_uppercase(),
            false => byte.to_ascii_lowercase(),
        })
}

/// The targets, how many of their tokens are read, and the length of the longest source.
#[derive(Debug, Clone)]
pub struct State {
    targets: Vec<Target>,
    read: usize,
    src_len: usize,
}

impl NextToken for Reverser {
    type State = State;

    fn vocabulary(&self) -> Vocabulary {
        let special_tokens = SpecialTokens {
            pad: 0,
            bos: 1,
            eos: EOS,
            ..SpecialTokens::default()
        };
        Vocabulary {
            size: SPECIAL as usize + 256,
            special_tokens,
        }
    }

    fn check_source(&self, source: &[u32]) -> Result<(), RequestProblem> {
        match source.len() > self.longest {
            true => Err(RequestProblem::TooLong {
                length: source.len(),
                max_len: self.longest,
            }),
            false => Ok(()),
        }
    }

    fn start(&self, sources: &[&[u32]], _: Threads) -> State {
        self.batches.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.delay);
        State {
            targets: sources.iter().map(|source| Self::target(source)).collect(),
            read: 0,
            src_len: sources.iter().map(|source| source.len()).max().unwrap_or(0),
        }
    }

    fn next(&self, last: &[u32], state: &mut State, attention: AttentionWeights) -> Next {
        let size = self.vocabulary().size;
        let mut log_probs = vec![-20.0; last.len() * size];
        let mut weights = vec![0.0; last.len() * state.src_len];
        for (row, target) in state.targets.iter().enumerate() {
            let next = match self.loops {
                true => target.get(state.read % target.len().max(1)),
                false => target.get(state.read),
            };
            let token = next.map_or(EOS, |(token, _)| *token);
            log_probs[row * size + token as usize] = -0.01;
            if let Some((_, from)) = next {
                weights[row * state.src_len + from] = 1.0;
            }
        }
        state.read += 1;
        match attention {
            AttentionWeights::Discard => Next::new(log_probs),
            AttentionWeights::Return => Next::new(log_probs).with_attention(weights),
        }
    }

    fn select(&self, state: &mut State, _: &[usize], rows: &[usize]) {
        state.targets = rows.iter().map(|&row| state.targets[row].clone()).collect();
    }
}

/// A translator of sentences by this model. Its tokens are bytes.
pub fn translator(model: Reverser) -> Translator<Reverser> {
    // The characters that stand for bytes in a byte-level vocabulary.
    let mut vocabulary: BTreeMap<String, u32> = ["<pad>", "<bos>", "<eos>", "<unk>"]
        .into_iter()
        .zip(0..)
        .map(|(name, id)| (name.to_owned(), id))
        .collect();
    let mut other = 256;
    for byte in 0..=255_u8 {
        let is_itself = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let letter = match is_itself {
            true => char::from(byte),
            false => {
                other += 1;
                char::from_u32(other - 1).expect("a letter")
            }
        };
        vocabulary.insert(letter.to_string(), SPECIAL + u32::from(byte));
    }
    let entries: Vec<String> = vocabulary
        .iter()
        .map(|(token, id)| format!("{}: {id}", serde_like(token)))
        .collect();
    let json = format!(
        r#"{{"version": "1.0", "added_tokens": [],
            "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}},
            "decoder": {{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}},
            "model": {{"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "vocab": {{{}}}, "merges": []}}}}"#,
        entries.join(", ")
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("bytes.json");
    std::fs::write(&file, json).expect("written");
    let tokenizer = Tokenizer::from_file(&file).expect("a tokenizer");
    let options = DecodeOptions {
        max_length: MaxLength::SourcePlus(40),
        ..DecodeOptions::greedy()
    };
    let translator = Translator::new(model, tokenizer).expect("a translator");
    translator.with_options(options).expect("options")
}

/// A string in JSON.
fn serde_like(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
