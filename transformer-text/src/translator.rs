//! The translation of whole texts.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use transformer_core::Translator;
use transformer_core::decoding::{NextToken, RequestProblem, Strategy};
use transformer_core::text::{Alignment, TextError, Translation};

use crate::document::{Document, Kind, Template};
use crate::formats::Format;
use crate::guard::{careful, problem};
use crate::languages::language_code;
use crate::place::place;
use crate::protect::{Glossary, fixed, kept, protect};
use crate::report::{Note, Noted, Placed, Report, Translated};
use crate::segment::sentence_starts;
use crate::sentence::{Sentence, cut, joined, sentences};

/// Letters, numbers and symbols, punctuation that stands for a word, and characters of a font or of a newer Unicode.
static MEANS_SOMETHING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[\p{L}\p{N}\p{S}\p{Co}\p{Cn}§¶†‡•‰]").expect("a regular expression")
});

/// Whether a character belongs to the one before it: an accent, a joiner of emoji, or the choice of a variant. The
/// space without width that divides words does not.
fn is_mark(letter: char) -> bool {
    static MARK: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[\p{M}\p{Cf}]").expect("a regular expression"));
    !letter.is_ascii() && letter != '\u{200b}' && MARK.is_match(letter.encode_utf8(&mut [0; 4]))
}

/// Translates texts in a [`Format`]: the text of the sentences is translated, and everything around it is kept.
///
/// ```no_run
/// use transformer_core::Translator;
/// use transformer_text::{Format, TextTranslator};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let translator = TextTranslator::new(Translator::load("model")?);
/// let page = "<p>Where is <b>the station</b>?</p>";
/// let translated = translator.translate(page, Format::Html)?;
/// println!("{}", translated.text);
/// for note in &translated.report.notes {
///     eprintln!("{note}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TextTranslator<M> {
    translator: Translator<M>,
    glossary: Glossary,
    language: Option<String>,
}

/// A text taken apart: its document, and the sentences to translate.
#[derive(Debug, Clone)]
pub struct Prepared {
    document: Document,
    sentences: Vec<Sentence>,
    notes: Vec<Noted>,
}

impl Prepared {
    /// The sentences, in document order.
    pub fn sentences(&self) -> &[Sentence] {
        &self.sentences
    }

    /// The text with its sentences translated: one translation per sentence, in their order.
    ///
    /// # Panics
    /// When the numbers of sentences and translations differ.
    pub fn finish(self, translations: Vec<SentenceTranslation>) -> Translated {
        let count = self.sentences.len();
        assert_eq!(count, translations.len(), "one translation per sentence");
        let most = translations
            .iter()
            .map(|translation| translation.alternatives.len())
            .max();
        let alternatives = (0..most.unwrap_or(0)).map(|rank| {
            self.written(translations.iter().map(|translation| {
                let alternative = translation.alternatives.get(rank);
                alternative.map_or(&translation.template, |alternative| &alternative.template)
            }))
        });
        let alternatives = alternatives.collect();
        let log_probs = (0..=most.unwrap_or(0)).map(|rank| {
            let of = |translation: &SentenceTranslation| match rank {
                0 => translation.log_prob,
                rank => {
                    let alternative = translation.alternatives.get(rank - 1);
                    alternative.map_or(translation.log_prob, |alternative| alternative.log_prob)
                }
            };
            translations.iter().map(of).sum()
        });
        let log_probs = log_probs.collect();
        let text = self.written(translations.iter().map(|translation| &translation.template));
        let mut notes = self.notes;
        for (sentence, translation) in self.sentences.iter().zip(translations) {
            notes.extend(translation.notes.into_iter().map(|note| Noted {
                sentence: sentence.text.clone(),
                note,
            }));
        }
        Translated {
            text,
            alternatives,
            log_probs,
            report: Report {
                sentences: count,
                notes,
            },
        }
    }

    /// The document with these templates for the sentences.
    fn written<'a>(&self, templates: impl Iterator<Item = &'a Template>) -> String {
        let mut of_passages: Vec<Vec<(&Sentence, Template)>> = Vec::new();
        of_passages.resize_with(self.document.passages.len(), Vec::new);
        for (sentence, template) in self.sentences.iter().zip(templates) {
            of_passages[sentence.passage].push((sentence, template.clone()));
        }
        let passages = self.document.passages.iter().zip(&of_passages);
        let templates = passages.map(|(passage, sentences)| {
            let is_translated = sentences
                .iter()
                .any(|(sentence, _)| sentence.is_translatable());
            is_translated.then(|| joined(passage, sentences))
        });
        self.document.write(templates.collect())
    }
}

/// The translation of a [`Sentence`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SentenceTranslation {
    /// The translation without markup.
    pub text: String,
    /// The model's log-probability of the translation; 0 where nothing was translated.
    pub log_prob: f64,
    /// What was done.
    pub notes: Vec<Note>,
    template: Template,
    /// Other translations, best first.
    alternatives: Vec<Alternative>,
}

/// Another translation of a sentence.
#[derive(Debug, Clone)]
struct Alternative {
    text: String,
    log_prob: f64,
    template: Template,
}

impl SentenceTranslation {
    /// A translation that comes from elsewhere. Without attention, markup is set by its relative position in the
    /// sentence.
    pub fn of(sentence: &Sentence, text: String) -> Self {
        Self {
            template: place(sentence, &text, None).template,
            text,
            log_prob: 0.0,
            notes: Vec::new(),
            alternatives: Vec::new(),
        }
    }

    /// Other translations, best first, without markup.
    pub fn alternatives(&self) -> impl Iterator<Item = &str> {
        self.alternatives
            .iter()
            .map(|alternative| &alternative.text[..])
    }
}

impl<M: NextToken> TextTranslator<M> {
    /// A translator of texts.
    pub fn new(translator: Translator<M>) -> Self {
        Self {
            translator,
            glossary: Glossary::default(),
            language: None,
        }
    }

    /// Sets the terms whose translations are prescribed.
    pub fn with_glossary(self, glossary: Glossary) -> Self {
        Self { glossary, ..self }
    }

    /// Sets the source's language by any name that [`language_code`] knows, such as `de` or `deu_Latn`: the rules by
    /// which sentences are told apart. Without it, or without rules for it, English ones are used.
    pub fn with_language(self, language: &str) -> Self {
        Self {
            language: language_code(language),
            ..self
        }
    }

    /// The translator of sentences.
    pub fn translator(&self) -> &Translator<M> {
        &self.translator
    }

    /// Translates a text.
    ///
    /// # Errors
    /// When the model computes NaN. What cannot be translated is kept and is in the report.
    pub fn translate(&self, text: &str, format: Format) -> Result<Translated, TextError> {
        let prepared = self.prepare(text, format);
        let sentences: Vec<&Sentence> = prepared.sentences.iter().collect();
        let translations = self.translate_sentences(&sentences, 1)?;
        Ok(prepared.finish(translations))
    }

    /// Takes a text apart into sentences that the model can read.
    pub fn prepare(&self, text: &str, format: Format) -> Prepared {
        let mut document = format.read(text);
        let mut unknown = BTreeMap::new();
        for passage in &mut document.passages {
            let of_programs = kept(&passage.text, !format.has_tags());
            let of_programs = fixed(passage, of_programs);
            protect(passage, of_programs);
            let terms = self.glossary.find(&passage.text).into_iter();
            let terms: Vec<_> = terms
                .map(|(range, term)| (range, Kind::Term(term.to_owned())))
                .collect();
            protect(passage, terms);
            let unknown = self.unknown(&passage.text, &mut unknown);
            let unknown = fixed(passage, unknown);
            protect(passage, unknown);
        }
        let mut prepared = Prepared {
            sentences: Vec::new(),
            notes: Vec::new(),
            document,
        };
        for (index, passage) in prepared.document.passages.iter().enumerate() {
            let mut starts = sentence_starts(&passage.text, self.language.as_deref());
            starts.extend(&passage.cuts);
            starts.sort_unstable();
            starts.dedup();
            for sentence in sentences(passage, index, &starts) {
                let before = prepared.sentences.len();
                self.divide(sentence.clone(), &mut prepared.sentences);
                let parts = prepared.sentences.len() - before;
                if parts > 1 {
                    prepared.notes.push(Noted {
                        sentence: sentence.text,
                        note: Note::Divided { parts },
                    });
                }
            }
        }
        prepared
    }

    /// Words with letters, numbers and symbols that the model's vocabulary does not have. Punctuation and marks are left
    /// to the model: there are others in their place.
    fn unknown(&self, text: &str, known: &mut BTreeMap<char, bool>) -> Vec<std::ops::Range<usize>> {
        let tokenizer = self.translator.tokenizers().source();
        let mut is_unknown = |letter: char| {
            !letter.is_ascii()
                && *known.entry(letter).or_insert_with(|| {
                    let mut bytes = [0; 4];
                    let letter = &*letter.encode_utf8(&mut bytes);
                    if !MEANS_SOMETHING.is_match(letter) {
                        return false;
                    }
                    let tokens = tokenizer.encode(letter);
                    let decoded = tokens.and_then(|tokens| tokenizer.decode(&tokens));
                    decoded.is_ok_and(|text| {
                        let text = text.trim();
                        text.is_empty() || text.contains("<unk>") || text.contains('\u{2047}')
                    })
                })
        };
        let mut found: Vec<std::ops::Range<usize>> = Vec::new();
        for (at, letter) in text.char_indices() {
            if found.last().is_some_and(|last| at < last.end) || !is_unknown(letter) {
                continue;
            }
            let mut range = at..at + letter.len_utf8();
            if letter.is_alphabetic() {
                let is_word = |letter: char| letter.is_alphanumeric() || is_mark(letter);
                range.start = text[..at].trim_end_matches(is_word).len();
                range.end = text.len() - text[range.end..].trim_start_matches(is_word).len();
            } else {
                range.end = text.len() - text[range.end..].trim_start_matches(is_mark).len();
            }
            while let Some(last) = found.pop_if(|last| last.end >= range.start) {
                range = last.start.min(range.start)..last.end.max(range.end);
            }
            found.push(range);
        }
        found
    }

    /// Divides a sentence that is too long for the model: at the mark of a clause, else between two words, else between
    /// two characters; of these, the one nearest to the middle.
    fn divide(&self, sentence: Sentence, parts: &mut Vec<Sentence>) {
        let mut left = vec![sentence];
        while let Some(sentence) = left.pop() {
            let halves = match self.is_readable(&sentence.text) {
                true => Vec::new(),
                false => halves(&sentence),
            };
            match halves.len() {
                0 | 1 => parts.push(sentence),
                _ => left.extend(halves.into_iter().rev()),
            }
        }
    }

    /// Whether the model can read a sentence; if not, a shorter one may do.
    fn is_readable(&self, text: &str) -> bool {
        match self.translator.check(&[text], "") {
            Err(TextError::Decode(error)) => !matches!(
                error.problem,
                RequestProblem::TooLong { .. } | RequestProblem::OverLimit { .. }
            ),
            _ => true,
        }
    }

    /// Translates sentences, of one text or of many, in batches, each into up to `n_best` translations. Translations
    /// that cannot be right are decoded again with other options.
    ///
    /// # Errors
    /// When the model computes NaN.
    pub fn translate_sentences(
        &self,
        sentences: &[&Sentence],
        n_best: usize,
    ) -> Result<Vec<SentenceTranslation>, TextError> {
        let mut notes: Vec<Vec<Note>> = vec![Vec::new(); sentences.len()];
        // What is not translatable, or not readable, is empty, and has no translation.
        let mut texts: Vec<&str> = Vec::with_capacity(sentences.len());
        for (sentence, notes) in sentences.iter().zip(&mut notes) {
            let checked = match sentence.is_translatable() {
                true => self
                    .translator
                    .check(&[&sentence.text], "")
                    .map(|()| &sentence.text[..]),
                false => Ok(""),
            };
            texts.push(checked.unwrap_or_else(|error| {
                let reason = error.to_string();
                notes.push(Note::Refused { reason });
                ""
            }));
        }
        let mut found = match n_best {
            0 | 1 => self.translator.translate_n_best(&texts, "")?,
            _ => self.several(n_best)?.translate_n_best(&texts, "")?,
        };
        self.correct(&texts, &mut found, &mut notes)?;
        let alignments = self.alignments(sentences, &texts, &found)?;
        let results = sentences.iter().zip(found).zip(notes).zip(alignments);
        let results =
            results.map(|(((sentence, found), mut notes), alignment)| {
                let mut found = found
                    .into_iter()
                    .map(|translation| (translation.text, translation.hypothesis.log_prob))
                    .take(n_best.max(1));
                let Some((text, log_prob)) = found.next() else {
                    return SentenceTranslation {
                        text: sentence.text.clone(),
                        log_prob: 0.0,
                        alternatives: Vec::new(),
                        notes,
                        template: sentence.untranslated(),
                    };
                };
                let alternatives = found.map(|(text, log_prob)| Alternative {
                    template: place(sentence, &text, None).template,
                    text,
                    log_prob,
                });
                let alternatives = alternatives.collect();
                let placement = place(sentence, &text, alignment.as_ref());
                notes.extend(placement.fixed.into_iter().filter_map(
                    |(text, placed)| match placed {
                        Placed::Copied => None,
                        Placed::Aligned => Some(Note::Placed {
                            text,
                            replaces: true,
                        }),
                        Placed::Inserted => Some(Note::Placed {
                            text,
                            replaces: false,
                        }),
                    },
                ));
                SentenceTranslation {
                    template: placement.template,
                    text,
                    log_prob,
                    alternatives,
                    notes,
                }
            });
        Ok(results.collect())
    }

    /// The translator with several translations per sentence.
    fn several(&self, n_best: usize) -> Result<Translator<&M>, TextError> {
        let mut options = self.translator.options().clone();
        options.n_best = n_best;
        if let Strategy::Beam { size } = &mut options.strategy {
            *size = n_best.max(*size);
        }
        self.translator.borrowed_with(options)
    }

    /// Decodes translations again that cannot be right.
    fn correct(
        &self,
        texts: &[&str],
        found: &mut [Vec<Translation>],
        notes: &mut [Vec<Note>],
    ) -> Result<(), TextError> {
        for index in 0..texts.len() {
            let Some(first) = found[index].first() else {
                continue;
            };
            let text = texts[index];
            let source_len = self.translator.tokenizers().encode_source(text)?.len();
            let Some(wrong) = problem(text, source_len, first) else {
                continue;
            };
            let options = careful(self.translator.options(), wrong, source_len);
            let again = self.translator.borrowed_with(options);
            // Options that the model cannot follow, such as a minimum length above its maximum.
            let again = again.and_then(|again| again.translate_n_best(&[text], ""));
            let right = again.unwrap_or_default().into_iter().flatten();
            let right = right
                .into_iter()
                .find(|translation| problem(text, source_len, translation).is_none());
            notes[index].push(Note::Repeated {
                problem: wrong,
                is_solved: right.is_some(),
            });
            if let Some(right) = right {
                found[index][0] = right;
            }
        }
        Ok(())
    }

    /// The alignments of the translations whose sentences need them.
    fn alignments(
        &self,
        sentences: &[&Sentence],
        texts: &[&str],
        found: &[Vec<Translation>],
    ) -> Result<Vec<Option<Alignment>>, TextError> {
        let mut indices = Vec::new();
        let mut pairs = Vec::new();
        for (index, sentence) in sentences.iter().enumerate() {
            if let Some(translation) = found[index].first()
                && sentence.needs_alignment()
                && !translation.hypothesis.tokens.is_empty()
            {
                indices.push(index);
                pairs.push((texts[index], translation));
            }
        }
        let mut alignments = vec![None; sentences.len()];
        let found = match self.translator.alignments(&pairs) {
            // Markup is then set by its relative position.
            Err(TextError::NoAttention) => Vec::new(),
            found => found?,
        };
        for (index, alignment) in indices.into_iter().zip(found) {
            alignments[index] = Some(alignment);
        }
        Ok(alignments)
    }
}

/// A sentence in two parts; in one if it cannot be divided.
fn halves(sentence: &Sentence) -> Vec<Sentence> {
    let text = &sentence.text;
    let middle = text.len() / 2;
    let after = |is_end: fn(char) -> bool| {
        let ends = text
            .char_indices()
            .filter(move |&(_, letter)| is_end(letter));
        ends.map(|(at, letter)| at + letter.len_utf8())
            .filter(|&at| at < text.len())
    };
    let clause = |letter: char| {
        matches!(
            letter,
            ',' | ';' | ':' | '—' | '–' | '、' | '，' | '；' | '：' | '،' | ')'
        )
    };
    // In the middle half.
    let is_central = |at: &usize| *at > text.len() / 4 && *at < text.len() - text.len() / 4;
    let nearest =
        |ends: &mut dyn Iterator<Item = usize>| ends.min_by_key(|end| end.abs_diff(middle));
    let kinds: [&mut dyn Iterator<Item = usize>; 3] = [
        &mut after(clause).filter(is_central),
        &mut after(char::is_whitespace),
        &mut after(|_| true),
    ];
    for ends in kinds {
        if let Some(at) = nearest(ends) {
            let parts = cut(sentence, &[at]);
            if parts.len() > 1 {
                return parts;
            }
        }
    }
    Vec::new()
}
