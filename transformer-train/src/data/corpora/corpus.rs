//! Parallel text: sentence pairs read from files, split into training and validation, written.

use std::collections::HashSet;
use std::path::Path;

use crate::data::corpora::hold_out::choose;
use crate::data::corpora::reader::PairReader;
use crate::data::corpora::writer::write_tsv;
use crate::data::error::CorpusError;

/// File name of the training pairs beside a model.
pub const TRAINING_FILE: &str = "train.tsv";
/// File name of the validation pairs beside a model.
pub const VALIDATION_FILE: &str = "valid.tsv";

/// A sentence and its translation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The sentence to translate.
    pub source: String,
    /// Its translation.
    pub target: String,
}

/// Parallel text, in the order of its files.
///
/// Files are UTF-8, plain or gzip, which is detected from their first bytes, not from their names. The path `-` is
/// standard input. Lines end in `\n` or `\r\n`. White space and byte-order marks around a sentence are removed.
/// Pairs with an empty side or with more than 1 MiB of text are skipped;
/// [`CorpusFiles::read`](crate::data::CorpusFiles::read) counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corpus {
    pairs: Vec<Pair>,
}

impl Corpus {
    /// Reads `source<TAB>target`, one pair per line.
    ///
    /// Blank lines are skipped. Columns after the second, such as the attribution in Tatoeba's
    /// dumps, are ignored.
    ///
    /// # Errors
    /// When the file cannot be read completely, when a line is not UTF-8 or has no tab, and when no line holds a
    /// pair.
    pub fn from_tsv(path: impl AsRef<Path>) -> Result<Self, CorpusError> {
        PairReader::tsv(path.as_ref())?.collect()
    }

    /// Reads two files in which line *n* of one translates line *n* of the other.
    ///
    /// Such files have an empty line for a sentence without a translation; its pair is skipped. A tab is read as a
    /// space.
    ///
    /// # Errors
    /// When a file cannot be read completely or is not UTF-8, when the files have different numbers of lines, and
    /// when no two lines make a pair.
    pub fn from_parallel(
        source_path: impl AsRef<Path>,
        target_path: impl AsRef<Path>,
    ) -> Result<Self, CorpusError> {
        PairReader::parallel(source_path.as_ref(), target_path.as_ref())?.collect()
    }

    /// The number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs, in order.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Both sides of each pair, interleaved: the text on which one shared vocabulary is trained.
    pub fn sentences(&self) -> impl Iterator<Item = &str> + Send {
        self.pairs
            .iter()
            .flat_map(|pair| [pair.source.as_str(), pair.target.as_str()])
    }

    /// Holds `n_sources` distinct source sentences out of training: `(training, validation)`.
    ///
    /// Validation has one pair for each of them, the first in the corpus, so that a sentence with several
    /// translations counts once. Training has no pair with any of these sources: the two never share a source
    /// sentence. Both keep the order of the corpus. Sources are equal if their texts are.
    ///
    /// The split depends only on the corpus and `seed`, on any machine.
    ///
    /// # Errors
    /// [`CorpusError::TooFewSources`] when no sentence would be left for training.
    pub fn hold_out(self, n_sources: usize, seed: u64) -> Result<(Self, Self), CorpusError> {
        let chosen = choose(self.first_pairs_by_source(), n_sources, seed)?;
        let validation: Self = chosen.iter().map(|&i| self.pairs[i].clone()).collect();
        let held_out: HashSet<&str> = validation.pairs.iter().map(|p| &*p.source).collect();
        let training = self
            .pairs
            .into_iter()
            .filter(|pair| !held_out.contains(pair.source.as_str()))
            .collect();
        Ok((training, validation))
    }

    /// Index of the first pair of each distinct source, ascending.
    fn first_pairs_by_source(&self) -> Vec<usize> {
        let mut seen = HashSet::with_capacity(self.pairs.len());
        let is_first = |&i: &usize| seen.insert(self.pairs[i].source.as_str());
        (0..self.pairs.len()).filter(is_first).collect()
    }

    /// Writes `source<TAB>target`, one pair per line, so that [`Corpus::from_tsv`] reads the same corpus.
    ///
    /// The file is written atomically: under another name in the same folder, flushed to disk and renamed.
    ///
    /// # Errors
    /// [`CorpusError::Unwritable`] or [`CorpusError::LineTooLong`] when a pair would not be read back unchanged,
    /// [`CorpusError::Write`] when the file cannot be written.
    pub fn write_tsv(&self, path: impl AsRef<Path>) -> Result<(), CorpusError> {
        write_tsv(path.as_ref(), self.pairs.iter().map(Ok))
    }
}

impl FromIterator<Pair> for Corpus {
    fn from_iter<I: IntoIterator<Item = Pair>>(pairs: I) -> Self {
        let pairs = pairs.into_iter().collect();
        Self { pairs }
    }
}

impl Extend<Pair> for Corpus {
    fn extend<I: IntoIterator<Item = Pair>>(&mut self, pairs: I) {
        self.pairs.extend(pairs);
    }
}

impl IntoIterator for Corpus {
    type Item = Pair;
    type IntoIter = std::vec::IntoIter<Pair>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(pairs: &[(&str, &str)]) -> Corpus {
        let pair = |&(source, target): &(&str, &str)| Pair {
            source: source.into(),
            target: target.into(),
        };
        pairs.iter().map(pair).collect()
    }

    /// 100 sources with 1, 2 or 3 targets each.
    fn translated_several_times() -> Corpus {
        (0..100)
            .flat_map(|s| (0..=s % 3).map(move |t| (s, t)))
            .map(|(s, t)| Pair {
                source: format!("source {s}"),
                target: format!("target {s}.{t}"),
            })
            .collect()
    }

    fn sources(corpus: &Corpus) -> HashSet<&str> {
        corpus.pairs().iter().map(|p| p.source.as_str()).collect()
    }

    #[test]
    fn held_out_sources_are_distinct_and_leave_training() {
        let whole = translated_several_times();
        let (training, validation) = whole.clone().hold_out(30, 7).unwrap();
        assert_eq!(validation.len(), 30);
        assert_eq!(sources(&validation).len(), 30);
        assert_eq!(sources(&training).len(), 70);
        assert!(sources(&training).is_disjoint(&sources(&validation)));
    }

    #[test]
    fn validation_keeps_the_first_target_of_each_source() {
        let (_, validation) = translated_several_times().hold_out(30, 7).unwrap();
        assert!(validation.pairs().iter().all(|p| p.target.ends_with(".0")));
    }

    #[test]
    fn both_parts_keep_the_order_and_every_pair_of_training() {
        let whole = translated_several_times();
        let (training, validation) = whole.clone().hold_out(30, 7).unwrap();
        let held_out = sources(&validation);
        let kept = |p: &&Pair| !held_out.contains(p.source.as_str());
        let expected: Corpus = whole.pairs().iter().filter(kept).cloned().collect();
        assert_eq!(training, expected);
        assert!(
            validation
                .pairs()
                .is_sorted_by_key(|p| { whole.pairs().iter().position(|other| other == p) })
        );
    }

    /// Recorded, not derived: if it changes, another version splits the same corpus differently and evaluates
    /// earlier models on their training data.
    const CHOSEN_BY_SEED_1: [&str; 5] = [
        "source 6",
        "source 38",
        "source 54",
        "source 55",
        "source 99",
    ];

    #[test]
    fn split_depends_on_the_seed_alone() {
        let split = |seed| translated_several_times().hold_out(5, seed).unwrap();
        assert_eq!(split(1), split(1));
        assert_ne!(split(1), split(2));
        let chosen: Vec<_> = split(1).1.into_iter().map(|p| p.source).collect();
        assert_eq!(chosen, CHOSEN_BY_SEED_1);
    }

    #[test]
    fn training_is_never_left_empty() {
        let one_source = corpus(&[("a", "1"), ("a", "2")]);
        let error = one_source.hold_out(1, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot hold out 1 source sentences of 1 and still train"
        );
    }

    #[test]
    fn holding_out_nothing_keeps_everything() {
        let whole = corpus(&[("a", "1"), ("b", "2")]);
        let (training, validation) = whole.clone().hold_out(0, 0).unwrap();
        assert_eq!((training, validation.len()), (whole, 0));
    }

    #[test]
    fn extending_appends_in_order() {
        let mut first = corpus(&[("a", "1")]);
        first.extend(corpus(&[("b", "2")]));
        assert_eq!(first, corpus(&[("a", "1"), ("b", "2")]));
    }

    #[test]
    fn sentences_are_both_sides_of_each_pair() {
        let whole = corpus(&[("a", "1"), ("b", "2")]);
        assert_eq!(whole.sentences().collect::<Vec<_>>(), ["a", "1", "b", "2"]);
    }
}
