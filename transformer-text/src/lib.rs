//! Translation of documents, pages, subtitles and strings with a model of
//! [`transformer-core`](transformer_core): the sentences are translated, and what is around and in them is kept.
//!
//! [`TextTranslator`] takes a text and its [`Format`], and returns the text in the same format with a [`Report`].
//!
//! | step | what is done |
//! |---|---|
//! | read | The format's reader takes the text apart into a skeleton, which is never touched, and passages of text with their inline markup. |
//! | protect | Placeholders, addresses, terms of a [`Glossary`], and words and symbols that the vocabulary does not have are marked. |
//! | divide | Passages are cut into sentences, and sentences that are too long for the model into parts. |
//! | translate | All sentences are translated in batches. Translations that loop, stop early or copy their source are decoded again. |
//! | place | Markup and marked parts are set again where the attention of the model says that their words went. |
//!
//! A program that batches the sentences of many texts, such as a server, calls the steps by themselves:
//! [`prepare`](TextTranslator::prepare), [`translate_sentences`](TextTranslator::translate_sentences),
//! [`finish`](Prepared::finish).

// On docs.rs, which has a nightly compiler, each item names the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod detect;
mod document;
mod formats;
mod guard;
mod languages;
mod place;
mod protect;
mod report;
mod scripts;
mod segment;
mod sentence;
mod translator;
mod writing;

pub use detect::{Guess, LanguageDetector};
pub use formats::{Format, UnknownFormat};
pub use languages::language_code;
pub use protect::{Glossary, GlossaryError};
pub use report::{Note, Noted, Problem, Report, Translated};
pub use sentence::Sentence;
pub use translator::{Prepared, SentenceTranslation, TextTranslator};
