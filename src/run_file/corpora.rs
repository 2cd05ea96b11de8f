//! The value of `data.train`: files of sentence pairs.

use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Value;
use transformer_train::data::{CorpusFile, CorpusFiles};

/// Files of sentence pairs, in order.
///
/// The forms in TOML:
///
/// ```toml
/// train = "pairs.tsv"
/// train = ["news.tsv.gz", "web.tsv.gz"]
/// train = [{ file = "news.tsv.gz", weight = 2.0 }, { source = "web.en", target = "web.fr" }]
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Corpora(pub Vec<CorpusEntry>);

/// A corpus with its weight.
#[derive(Debug, Clone, PartialEq)]
pub struct CorpusEntry {
    /// The file or files with its pairs.
    pub file: CorpusFile,
    /// How often it occurs in an epoch.
    pub weight: f64,
}

impl From<CorpusFile> for CorpusEntry {
    /// The corpus once per epoch.
    fn from(file: CorpusFile) -> Self {
        Self { file, weight: 1.0 }
    }
}

impl Corpora {
    /// Whether no corpus is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every file, in order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().flat_map(|entry| entry.file.paths())
    }

    /// The library's files, with their weights.
    pub fn files(&self) -> CorpusFiles {
        self.0.iter().fold(CorpusFiles::new(), |files, entry| {
            files.with(entry.file.clone(), entry.weight)
        })
    }
}

/// A corpus as a table with named parts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
}

const FORMS: &str =
    "a corpus is \"FILE\", { file = \"FILE\" } or { source = \"FILE\", target = \"FILE\" }";

fn entry(value: Value) -> Result<CorpusEntry, String> {
    let table: Table = match value {
        Value::String(path) => Table {
            file: Some(path.into()),
            ..Table::default()
        },
        Value::Table(_) => match value.try_into() {
            Ok(table) => table,
            Err(error) => {
                let problem = error.message().replace("expected f64", "expected a number");
                return Err(format!("{problem}; {FORMS}"));
            }
        },
        _ => return Err(FORMS.into()),
    };
    let file = match (table.file, table.source, table.target) {
        (Some(file), None, None) => CorpusFile::tsv(file),
        (None, Some(source), Some(target)) => CorpusFile::parallel(source, target),
        _ => return Err(FORMS.into()),
    };
    if file.paths().iter().any(|path| path.as_os_str().is_empty()) {
        return Err(format!("a file name is empty; {FORMS}"));
    }
    let weight = table.weight.unwrap_or(1.0);
    match weight > 0.0 && weight.is_finite() {
        true => Ok(CorpusEntry { file, weight }),
        false => Err(format!("weight {weight}: must be positive and finite")),
    }
}

impl<'de> Deserialize<'de> for Corpora {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let entries = match Value::deserialize(from)? {
            Value::Array(entries) => entries,
            one => vec![one],
        };
        let entries: Result<_, String> = entries.into_iter().map(entry).collect();
        entries.map(Self).map_err(D::Error::custom)
    }
}

impl Serialize for Corpora {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(to),
            all => all.serialize(to),
        }
    }
}

impl Serialize for CorpusEntry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let weight = (self.weight != 1.0).then_some(self.weight);
        let (file, source, target) = match &self.file {
            CorpusFile::Tsv(file) if weight.is_none() => return file.serialize(to),
            CorpusFile::Tsv(file) => (Some(file), None, None),
            CorpusFile::Parallel { source, target } => (None, Some(source), Some(target)),
        };
        Table {
            file: file.cloned(),
            source: source.cloned(),
            target: target.cloned(),
            weight,
        }
        .serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Corpora, String> {
        let value: Value = text.parse().unwrap();
        let read = value.try_into();
        read.map_err(|error: toml::de::Error| error.message().to_owned())
    }

    #[test]
    fn every_form_is_read_and_written_back() {
        for (text, paths) in [
            ("\"a.tsv\"", &["a.tsv"][..]),
            ("[\"a.tsv\", \"b.tsv\"]", &["a.tsv", "b.tsv"]),
            (
                "[{ file = \"a.tsv\", weight = 2 }, { source = \"b.en\", target = \"b.fr\" }]",
                &["a.tsv", "b.en", "b.fr"],
            ),
            ("[]", &[]),
        ] {
            let corpora = read(text).unwrap();
            let found: Vec<_> = corpora.paths().map(|path| path.to_str().unwrap()).collect();
            assert_eq!(found, paths);
            let written = Value::try_from(&corpora).unwrap().to_string();
            assert_eq!(read(&written).unwrap(), corpora, "{written}");
        }
        let weighted = read("{ file = \"a.tsv\", weight = 2 }").unwrap();
        assert_eq!(weighted.0[0].weight, 2.0);
    }

    #[test]
    fn what_is_no_corpus_is_refused() {
        for (text, problem) in [
            ("3", FORMS),
            ("{ file = \"a\", source = \"b\" }", FORMS),
            ("{ source = \"b\" }", FORMS),
            ("{ flie = \"a\" }", "unknown field `flie`"),
            ("{ file = \"a\", weight = 0 }", "weight 0: must be positive"),
            (
                "{ file = \"a\", weight = nan }",
                "weight NaN: must be positive",
            ),
            (
                "{ file = \"a\", weight = \"2\" }",
                "expected a number; a corpus is",
            ),
            ("\"\"", "a file name is empty"),
            (
                "[\"a\", { source = \"b\", target = \"\" }]",
                "a file name is empty",
            ),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(problem), "{found}");
        }
    }
}
