//! BPE dropout (Provilkov et al., 2020, Algorithm 1): a text is split at random.
//!
//! At each step, each possible merge is dropped with a given probability; of the rest, the one learned first is
//! applied, the leftmost if there are several. A word is done when none is left. Each step draws anew for every
//! possible merge.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rand::{Rng, RngExt};
use serde_json::json;
use tokenizers::models::bpe::BPE;
use tokenizers::{Model, OffsetType, PreTokenizer, Result, Token, Tokenizer};

/// The merges of a BPE model, and its initial symbols.
#[derive(Debug)]
pub(super) struct Merges {
    /// The model without its merges: it splits a word into the initial symbols, with the model's rules for unknown
    /// symbols, prefixes and suffixes.
    unmerged: BPE,
    /// The merge of each pair of tokens that has one.
    merges: HashMap<(u32, u32), Merge>,
}

#[derive(Clone, Copy, Debug)]
struct Merge {
    /// Its position in the list of merges: smaller ones were learned earlier.
    rank: usize,
    /// The token that the pair becomes.
    merged: u32,
}

impl Merges {
    /// Reads the merges of a model, which exposes them only in its JSON.
    ///
    /// # Errors
    /// When the model could not have been read from a file.
    pub(super) fn new(bpe: &BPE) -> Result<Self> {
        let mut model = serde_json::to_value(bpe)?;
        let pairs: Vec<(String, String)> = serde_json::from_value(model["merges"].take())?;
        model["merges"] = json!([]);
        model["ignore_merges"] = json!(false);
        // The type of the model, which is known here.
        if let Some(fields) = model.as_object_mut() {
            fields.remove("type");
        }
        let prefix = bpe.continuing_subword_prefix.as_deref().map_or(0, str::len);
        let mut merges = HashMap::with_capacity(pairs.len());
        for (rank, (left, right)) in pairs.iter().enumerate() {
            let merged = format!("{left}{}", right.get(prefix..).unwrap_or(right));
            let id = |token: &str| {
                let unknown = || format!("the merge of {left:?} and {right:?} has no {token:?}");
                bpe.token_to_id(token).ok_or_else(unknown)
            };
            let merge = Merge {
                rank,
                merged: id(&merged)?,
            };
            merges.insert((id(left)?, id(right)?), merge);
        }
        Ok(Self {
            unmerged: serde_json::from_value(model)?,
            merges,
        })
    }

    /// Encodes a text, with the normalizer and the pre-tokenizer of the model's tokenizer.
    ///
    /// # Errors
    /// When the tokenizer cannot encode the text.
    ///
    /// # Panics
    /// When `dropout` is not between 0 and 1.
    pub(super) fn encode<R: Rng>(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        dropout: f64,
        rng: &mut R,
    ) -> Result<Vec<u32>> {
        let mut words = tokenizer
            .get_added_vocabulary()
            .extract_and_normalize(tokenizer.get_normalizer(), text);
        if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut words)?;
        }
        // `tokenize` does not accept a closure with mutable state.
        let rng = RefCell::new(rng);
        words.tokenize(|word| {
            let symbols = self.unmerged.tokenize(word.get())?;
            let symbols = symbols.into_iter().map(|symbol| symbol.id).collect();
            let tokens = self.merged(symbols, dropout, &mut **rng.borrow_mut());
            let token = |id| Token::new(id, String::new(), (0, 0));
            Ok(tokens.into_iter().map(token).collect())
        })?;
        let encoding = words.into_encoding(None, 0, OffsetType::None)?;
        let encoding = tokenizer.post_process(encoding, None, false)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Merges the symbols of a word into tokens.
    ///
    /// Draws one number per merge considered, in the order in which they were learned, until one is applied: numbers
    /// for the others would change nothing.
    fn merged<R: Rng>(&self, symbols: Vec<u32>, dropout: f64, rng: &mut R) -> Vec<u32> {
        let mut word = Word::new(symbols);
        let mut possible: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
        possible.extend((0..word.tokens.len()).filter_map(|left| self.possible(&word, left)));
        let mut dropped = Vec::new();
        while let Some(Reverse((rank, left))) = possible.pop() {
            let Some(merge) = self.merge(&word, left).filter(|merge| merge.rank == rank) else {
                // Another merge has consumed one of its tokens.
                continue;
            };
            if rng.random_bool(dropout) {
                dropped.push(Reverse((rank, left)));
                continue;
            }
            word.merge(left, merge.merged);
            possible.extend(dropped.drain(..));
            possible.extend(self.possible(&word, left));
            let before = word.before[left];
            possible.extend(before.and_then(|before| self.possible(&word, before)));
        }
        word.tokens.into_iter().flatten().collect()
    }

    /// The merge of the token at a position with the next one.
    fn merge(&self, word: &Word, left: usize) -> Option<Merge> {
        let pair = (word.tokens[left]?, word.tokens[word.after[left]?]?);
        self.merges.get(&pair).copied()
    }

    /// The rank and the position of the merge at a position.
    fn possible(&self, word: &Word, left: usize) -> Option<Reverse<(usize, usize)>> {
        let merge = self.merge(word, left)?;
        Some(Reverse((merge.rank, left)))
    }
}

/// A word's tokens, each at the position of its first symbol, and a linked list of these positions.
struct Word {
    /// `None` where a symbol is part of the token before it.
    tokens: Vec<Option<u32>>,
    before: Vec<Option<usize>>,
    after: Vec<Option<usize>>,
}

impl Word {
    fn new(symbols: Vec<u32>) -> Self {
        let positions = 0..symbols.len();
        Self {
            before: positions
                .clone()
                .map(|position| position.checked_sub(1))
                .collect(),
            after: positions
                .map(|position| Some(position + 1).filter(|&next| next < symbols.len()))
                .collect(),
            tokens: symbols.into_iter().map(Some).collect(),
        }
    }

    /// Replaces a token and the next one by `merged`.
    fn merge(&mut self, left: usize, merged: u32) {
        self.tokens[left] = Some(merged);
        if let Some(right) = self.after[left] {
            self.tokens[right] = None;
            self.after[left] = self.after[right];
            if let Some(next) = self.after[right] {
                self.before[next] = Some(left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use tokenizers::ModelWrapper;

    use super::*;
    use crate::text::tokenizer::Tokenizer;

    /// Characters `a`, `b` and `c`, special tokens, and merges in the order in which they were learned.
    const MERGES: [(&str, &str); 6] = [
        ("a", "b"),
        ("b", "c"),
        ("ab", "ab"),
        ("ab", "c"),
        ("c", "a"),
        ("a", "a"),
    ];

    fn inner() -> tokenizers::Tokenizer {
        let known = ["<pad>", "<bos>", "<eos>", "<unk>", "a", "b", "c", " "];
        let mut vocabulary = known.map(String::from).to_vec();
        vocabulary.extend(MERGES.map(|(left, right)| format!("{left}{right}")));
        let entries = vocabulary.iter().enumerate();
        let vocabulary: serde_json::Map<_, _> = entries
            .map(|(id, token)| (token.clone(), json!(id)))
            .collect();
        let file = json!({
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {
                "type": "Split",
                "pattern": { "String": " " },
                "behavior": "Isolated",
                "invert": false
            },
            "decoder": { "type": "Fuse" },
            "model": {
                "type": "BPE",
                "vocab": vocabulary,
                "merges": MERGES,
                "unk_token": "<unk>"
            }
        });
        file.to_string().parse().unwrap()
    }

    fn tokenizer() -> Tokenizer {
        inner().into()
    }

    fn merges(tokenizer: &tokenizers::Tokenizer) -> Merges {
        match tokenizer.get_model() {
            ModelWrapper::BPE(bpe) => Merges::new(bpe).unwrap(),
            _ => unreachable!("the tokenizer is a BPE"),
        }
    }

    fn rng(seed: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(seed)
    }

    /// The probability of each way to split a word, by Algorithm 1 itself: at each step, over all subsets of possible
    /// merges that may be dropped.
    fn by_definition(word: Vec<String>, dropout: f64) -> BTreeMap<Vec<String>, f64> {
        let rank = |left: usize| {
            let pair = (&*word[left], &*word[left + 1]);
            MERGES.iter().position(|&merge| merge == pair)
        };
        let possible: Vec<(usize, usize)> = (1..word.len())
            .filter_map(|right| rank(right - 1).map(|rank| (rank, right - 1)))
            .collect();
        let mut ends: BTreeMap<Vec<String>, f64> = BTreeMap::new();
        for subset in 0..1_u32 << possible.len() {
            let n_dropped = subset.count_ones() as i32;
            let n_left = possible.len() as i32 - n_dropped;
            let probability = dropout.powi(n_dropped) * (1.0 - dropout).powi(n_left);
            let left = possible.iter().enumerate();
            let made = left
                .filter(|(index, _)| subset & (1_u32 << index) == 0)
                .map(|(_, merge)| merge)
                .min();
            let Some(&(_, position)) = made else {
                *ends.entry(word.clone()).or_default() += probability;
                continue;
            };
            let mut next = word.clone();
            let right = next.remove(position + 1);
            next[position] += &right;
            for (end, of_end) in by_definition(next, dropout) {
                *ends.entry(end).or_default() += probability * of_end;
            }
        }
        ends
    }

    fn symbols(word: &str) -> Vec<String> {
        word.chars().map(String::from).collect()
    }

    /// Words that are split in several ways; the bound is five standard deviations of a frequency.
    #[test]
    fn each_way_to_cut_a_word_is_as_frequent_as_the_definition_says() {
        let tokenizer = tokenizer();
        let mut rng = rng(1);
        let draws = 20_000;
        for (word, dropout) in [("ab", 0.1), ("abab", 0.3), ("abcab", 0.5), ("caabc", 0.9)] {
            let expected = by_definition(symbols(word), dropout);
            assert!((expected.values().sum::<f64>() - 1.0).abs() < 1e-12);
            let mut counts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
            for _ in 0..draws {
                let found = tokenizer
                    .encode_with_dropout(word, dropout, &mut rng)
                    .unwrap();
                let found = found.into_iter().map(|id| tokenizer.token(id)).collect();
                *counts.entry(found).or_default() += 1;
            }
            assert!(
                counts.keys().all(|way| expected.contains_key(way)),
                "{counts:?}"
            );
            for (way, probability) in expected {
                let frequency = *counts.get(&way).unwrap_or(&0) as f64 / draws as f64;
                let deviation = (probability * (1.0 - probability) / draws as f64).sqrt();
                assert!(
                    (frequency - probability).abs() <= 5.0 * deviation + 1e-12,
                    "{way:?}: {frequency}, not {probability}"
                );
            }
        }
    }

    /// By hand: `ab` is merged unless its only merge is dropped.
    #[test]
    fn a_single_merge_is_made_with_the_rest_of_the_probability() {
        let ways = by_definition(symbols("ab"), 0.1);
        assert_eq!(ways.len(), 2);
        let merged = vec!["ab".to_string()];
        assert!((ways[&merged] - 0.9).abs() < 1e-12);
    }

    #[test]
    fn dropout_of_one_makes_no_merge() {
        let tokenizer = tokenizer();
        let tokens = tokenizer.encode_with_dropout("abcab aab", 1.0, &mut rng(0));
        let tokens = tokens.unwrap().into_iter().map(|id| tokenizer.token(id));
        assert_eq!(tokens.collect::<String>(), "abcab aab");
        let length = |dropout| {
            let tokens = tokenizer.encode_with_dropout("abcab aab", dropout, &mut rng(0));
            tokens.unwrap().len()
        };
        assert_eq!([length(1.0), length(0.0)], [9, 5]);
    }

    #[test]
    fn dropout_outside_of_its_bounds_is_refused() {
        let tokenizer = tokenizer();
        for dropout in [-0.1, 1.5, f64::NAN] {
            let error = tokenizer.encode_with_dropout("ab", dropout, &mut rng(0));
            let expected = format!("dropout {dropout} is not between 0 and 1");
            assert_eq!(error.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn another_model_is_named_and_encodes_without_dropout() {
        let words = crate::text::tokenizer::tests::words(&["a", "b"]);
        let error = words.encode_with_dropout("a b", 0.1, &mut rng(0));
        assert_eq!(
            error.unwrap_err().to_string(),
            "dropout is for BPE tokenizers; this one is WordLevel"
        );
        let error = words.check_dropout().unwrap_err().to_string();
        assert!(error.ends_with("this one is WordLevel"), "{error}");
        tokenizer().check_dropout().unwrap();
        let tokens = words.encode_with_dropout("a b", 0.0, &mut rng(0)).unwrap();
        assert_eq!(tokens, words.encode("a b").unwrap());
    }

    #[test]
    fn unknown_characters_and_long_words_stay() {
        let tokenizer = tokenizer();
        let long = "ab".repeat(50_000);
        for (text, dropout) in [("é ab é", 0.5), ("", 0.5), (&*long, 0.5)] {
            let tokens = tokenizer
                .encode_with_dropout(text, dropout, &mut rng(2))
                .unwrap();
            let known = text.replace('é', "");
            assert!(tokenizer.decode(&tokens).unwrap().replace("<unk>", "") == known);
            assert_eq!(
                tokens.iter().filter(|&&id| id == 3).count(),
                text.matches('é').count()
            );
        }
    }

    /// A `tokenizer.json` may have its own dropout, for which the crate would draw from the thread's generator.
    #[test]
    fn dropout_in_the_file_is_not_used() {
        let mut json = serde_json::to_value(inner()).unwrap();
        json["model"]["dropout"] = json!(1.0);
        let inner: tokenizers::Tokenizer = json.to_string().parse().unwrap();
        let with_dropout: Tokenizer = inner.into();
        let tokens = with_dropout.encode("abab").unwrap();
        assert_eq!(tokens, tokenizer().encode("abab").unwrap());
        let dropped = with_dropout.encode_with_dropout("abab", 1.0, &mut rng(0));
        assert_eq!(dropped.unwrap().len(), 4);
    }

    proptest! {
        /// Our loop, which `encode_with_dropout` does not need without dropout, agrees with the crate's.
        #[test]
        fn without_dropout_the_merges_are_the_crates(text in "[abc ]{0,30}") {
            let tokenizer = tokenizer();
            let inner = inner();
            let merged = merges(&inner).encode(&inner, &text, 0.0, &mut rng(0)).unwrap();
            prop_assert_eq!(&merged, &tokenizer.encode(&text).unwrap());
            let through = tokenizer.encode_with_dropout(&text, 0.0, &mut rng(0)).unwrap();
            prop_assert_eq!(merged, through);
        }

        #[test]
        fn every_way_is_the_same_text_and_depends_on_the_generator_alone(
            text in "[abc ]{0,30}",
            dropout in 0.0..=1.0,
            seed: u64,
        ) {
            let tokenizer = tokenizer();
            let drawn = |tokenizer: &Tokenizer| {
                tokenizer.encode_with_dropout(&text, dropout, &mut rng(seed)).unwrap()
            };
            let tokens = drawn(&tokenizer);
            prop_assert_eq!(&tokens, &drawn(&tokenizer.clone()));
            prop_assert_eq!(tokenizer.decode(&tokens).unwrap(), text);
        }
    }
}
