//! What was done to which sentence.

use std::fmt;

use serde::Serialize;

/// A translated text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Translated {
    /// The text, in the format of the source.
    pub text: String,
    /// Other translations of the text, best first, if several were asked for.
    pub alternatives: Vec<String>,
    /// The model's log-probabilities of the text and of each alternative: the sums over their sentences.
    pub log_probs: Vec<f64>,
    /// What was done.
    pub report: Report,
}

/// What was done to which sentence.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Sentences that were translated.
    pub sentences: usize,
    /// What deserves attention, in document order.
    pub notes: Vec<Noted>,
}

/// A note, and the sentence that it is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Noted {
    /// The sentence, without markup.
    pub sentence: String,
    /// The note.
    pub note: Note,
}

/// What was done to a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Note {
    /// It is longer than the model can read, and was translated in parts.
    Divided {
        /// Number of parts.
        parts: usize,
    },
    /// Its translation was wrong, and it was decoded again with other options.
    Repeated {
        /// What was wrong.
        problem: Problem,
        /// Whether the second translation has no such problem. Otherwise the first is kept.
        is_solved: bool,
    },
    /// Text that must be kept is not in the translation, and was set by the attention of the model.
    Placed {
        /// The text.
        text: String,
        /// Whether it replaces words of the translation. Otherwise it was inserted.
        replaces: bool,
    },
    /// It could not be translated, and was kept.
    Refused {
        /// Why.
        reason: String,
    },
}

/// What is wrong with a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// It repeats itself.
    Loop,
    /// It does not end within the length limit, or is far longer than its source.
    TooLong,
    /// It is far shorter than its source.
    TooShort,
    /// It is its source.
    Copy,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loop => "the translation repeats itself",
            Self::TooLong => "the translation is far too long, or does not end",
            Self::TooShort => "the translation is far too short",
            Self::Copy => "the translation is a copy of the sentence",
        })
    }
}

impl fmt::Display for Noted {
    /// One line, without control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = short(&self.sentence);
        match &self.note {
            Note::Divided { parts } => {
                write!(f, "{sentence}: too long, translated in {parts} parts")
            }
            Note::Repeated {
                problem,
                is_solved: true,
            } => {
                write!(f, "{sentence}: {problem}; decoded again")
            }
            Note::Repeated {
                problem,
                is_solved: false,
            } => {
                write!(f, "{sentence}: {problem}, even when decoded again")
            }
            Note::Placed {
                text,
                replaces: true,
            } => {
                write!(
                    f,
                    "{sentence}: {} was not copied; set in the place of its translation",
                    short(text)
                )
            }
            Note::Placed {
                text,
                replaces: false,
            } => {
                write!(f, "{sentence}: {} was not copied; inserted", short(text))
            }
            Note::Refused { reason } => write!(f, "{sentence}: not translated: {reason}"),
        }
    }
}

/// The beginning of a text, in quotation marks.
fn short(text: &str) -> String {
    const LETTERS: usize = 60;
    let letters = text.chars().filter(|letter| !letter.is_control());
    let mut short: String = letters.clone().take(LETTERS).collect();
    if letters.count() > LETTERS {
        short.push('…');
    }
    format!("\"{short}\"")
}

/// How a fixed span was set in a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// The model copied it.
    Copied,
    /// It replaces what the attention says is its translation.
    Aligned,
    /// It was inserted beside the translation of the words around it.
    Inserted,
}
