//! Parts of a text that are not translated: placeholders of programs, addresses, and a glossary's terms.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::document::{Kind, Passage, Span, raw};

/// Placeholders and addresses. Ends of words are ASCII's, with which texts of any script are searched fast.
static KEPT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?x)
        (?P<url> (?:https?|ftp|file)://[^\s<>"']+ | www\.[\w-]+\.[^\s<>"']+ )
        | (?P<mail> [\w.+-]+@[\w-]+(?:\.[\w-]+)+ )
        | \{\{[^{}\n]{0,80}\}\}
        | (?P<choice> \{\w+,\s*(?:plural|select|selectordinal)\s*, )
        | [$\#%]?\{[\w.:\-\ ]{0,40}(?:,[^{}\n]{0,60})?\}
        | <%[^%\n]{0,80}%>
        | %%
        | %[-0]?[A-Za-z](?:[-/:.]%[-0]?[A-Za-z])+(?-u:\b{end-half})
        | %\(\w{1,40}\)[sdif]
        | (?P<printf> %(?:\d+\$)?[-+0\#']*\d*(?:\.\d+)?(?:hh|h|ll|l|L|z|j|t)?[sdiouxXeEfgGcp@YmBHMSIyjAZ] )(?-u:\b{end-half})
        | \$[A-Za-z_]\w*
        | (?P<colon> :[a-z_]\w+ )\b
        | (?P<tag> </?[A-Za-z][^<>\n]{0,200}> )
        "#,
    )
    .expect("a regular expression")
});

/// The parts of a text that are not translated. Tags are among them where the format has none itself.
pub(crate) fn kept(text: &str, with_tags: bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for part in KEPT.captures_iter(text) {
        let whole = part.get(0).expect("the match");
        let mut range = whole.range();
        if found
            .last()
            .is_some_and(|last: &Range<usize>| range.start < last.end)
        {
            continue;
        }
        let before = text[..range.start].chars().next_back();
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        if part.name("url").is_some() {
            let address = whole.as_str();
            range.end = range.start + without_punctuation(address).len();
        }
        if part.name("choice").is_some() {
            range.end = end_of_braces(text, range.start);
        }
        let may_begin = match () {
            () if part.name("colon").is_some() => {
                before.is_none_or(|letter| letter == '/' || letter.is_whitespace())
            }
            () if part.name("printf").is_some() => {
                before.is_none_or(|letter| !letter.is_ascii_digit())
            }
            () if part.name("tag").is_some() => with_tags,
            () if part.name("url").is_some() => !before.is_some_and(is_word),
            () => true,
        };
        if may_begin {
            found.push(range);
        }
    }
    found
}

/// The end of the braces that begin at a position; where they are not closed, of the first.
fn end_of_braces(text: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, letter) in text[start..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return start + at + 1;
        }
    }
    start + 1
}

/// An address without the punctuation that ends its sentence.
fn without_punctuation(address: &str) -> &str {
    let trimmed = address.trim_end_matches(['.', ',', ';', ':', '!', '?', '…', '。', '，']);
    match trimmed.ends_with(')') && trimmed.matches('(').count() < trimmed.matches(')').count() {
        true => &trimmed[..trimmed.len() - 1],
        false => trimmed,
    }
}

/// A line of a glossary without a term and its translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: a term and its translation must be separated by a tab")]
pub struct GlossaryError {
    /// The line, from 1.
    pub line: usize,
}

/// Terms and their prescribed translations.
#[derive(Debug, Clone, Default)]
pub struct Glossary {
    /// By the term in lower case.
    terms: BTreeMap<String, String>,
    /// The longest term in bytes.
    longest: usize,
}

impl Glossary {
    /// Reads lines of a term, a tab and its translation. Empty lines, and lines that begin with `#`, are skipped.
    ///
    /// # Errors
    /// The first line without two fields.
    pub fn parse(text: &str) -> Result<Self, GlossaryError> {
        let mut glossary = Self::default();
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let fields = line.split_once('\t').map(|(term, translation)| {
                let translation = translation.split('\t').next().unwrap_or_default();
                (term.trim(), translation.trim())
            });
            match fields {
                Some((term, translation)) if !term.is_empty() && !translation.is_empty() => {
                    glossary.add(term, translation);
                }
                _ => return Err(GlossaryError { line: index + 1 }),
            }
        }
        Ok(glossary)
    }

    /// Adds a term.
    pub fn add(&mut self, term: &str, translation: &str) {
        let term = term.to_lowercase();
        self.longest = self.longest.max(term.len());
        self.terms.insert(term, translation.to_owned());
    }

    /// Whether it has no term.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The terms in a text, the longest at each position. A term is found as whole words, in any case of its letters.
    pub(crate) fn find(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut found = Vec::new();
        if self.is_empty() {
            return found;
        }
        let is_word =
            |letter: char| letter.is_alphanumeric() && !crate::scripts::has_no_spaces(letter);
        let is_edge = |at: usize| {
            let before = text[..at].chars().next_back().is_some_and(is_word);
            !(before && text[at..].chars().next().is_some_and(is_word))
        };
        let edges = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        let edges: Vec<usize> = edges.filter(|&at| is_edge(at)).collect();
        let mut from = 0;
        for (index, &start) in edges.iter().enumerate() {
            if start < from {
                continue;
            }
            // Lower case may be longer, but hardly ever by much.
            let ends = &edges[index + 1..];
            let ends = &ends[..ends.partition_point(|end| end - start <= 2 * self.longest)];
            let term = ends.iter().rev().find_map(|&end| {
                let translation = self.terms.get(&text[start..end].to_lowercase())?;
                Some((start..end, &translation[..]))
            });
            if let Some((range, translation)) = term {
                from = range.end;
                found.push((range, translation));
            }
        }
        found
    }
}

/// Marks parts of a passage as fixed, where nothing is marked yet.
pub(crate) fn protect(
    passage: &mut Passage,
    parts: impl IntoIterator<Item = (Range<usize>, Kind)>,
) {
    for (range, kind) in parts {
        let crosses = |span: &Span| {
            let Range { start, end } = span.range;
            let overlaps = start < range.end && range.start < end;
            match span.kind {
                Kind::Element { .. } => {
                    let is_around = start <= range.start && range.end <= end;
                    overlaps && !is_around
                }
                Kind::Point(_) => range.start < start && start < range.end,
                _ => overlaps || range.start < start && start < range.end,
            }
        };
        if range.is_empty() || passage.spans.iter().any(crosses) {
            continue;
        }
        // After the elements that it is in.
        let at = passage.spans.partition_point(|span| {
            (span.range.start, std::cmp::Reverse(span.range.end))
                <= (range.start, std::cmp::Reverse(range.end))
        });
        passage.spans.insert(at, Span { range, kind });
    }
}

/// Parts of the text as spans that are written as they stand in the document.
pub(crate) fn fixed(passage: &Passage, parts: Vec<Range<usize>>) -> Vec<(Range<usize>, Kind)> {
    let of_part = |range: Range<usize>| {
        let written = raw(passage.in_document(range.clone()));
        (range, Kind::Fixed(written))
    };
    parts.into_iter().map(of_part).collect()
}
