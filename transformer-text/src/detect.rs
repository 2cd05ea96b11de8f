//! The language of a text.

use whatlang::Lang;

/// Guesses the language of texts, among the given languages.
#[derive(Debug, Clone)]
pub struct LanguageDetector {
    allowed: Vec<Lang>,
    detector: whatlang::Detector,
    /// Of all languages.
    any: whatlang::Detector,
}

/// A guess.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Guess {
    /// The code of ISO 639-3, such as `deu`.
    pub language: &'static str,
    /// From 0 to 1. It grows with the length of the text and with the distance to the second guess; it is not a
    /// probability.
    pub confidence: f64,
}

impl LanguageDetector {
    /// A detector among these languages, by their codes of ISO 639-3. Those that it cannot tell are left out; if there
    /// are none, it guesses among all.
    pub fn among<'a>(languages: impl IntoIterator<Item = &'a str>) -> Self {
        let known = languages.into_iter().filter_map(Lang::from_code);
        let mut allowed: Vec<Lang> = known.collect();
        if allowed.is_empty() {
            allowed = Lang::all().to_vec();
        }
        Self {
            detector: whatlang::Detector::with_allowlist(allowed.clone()),
            any: whatlang::Detector::new(),
            allowed,
        }
    }

    /// Guesses the language of a text; `None` for a text without letters of a known script.
    ///
    /// whatlang decides. Where its confidence is below 0.5, as for most texts of a few words, and both know the
    /// language that it found, whichlang decides, which is better for these.
    ///
    /// Among few languages, one is found for a text of any other, too: if the text is more likely in another language,
    /// the confidence is low.
    pub fn detect(&self, text: &str) -> Option<Guess> {
        let guess = self.guess(text)?;
        let any = self.any.detect(text)?;
        let confidence = match self.allowed.contains(&any.lang()) {
            true => guess.confidence,
            false => guess.confidence.min(1.0 - any.confidence()) / 2.0,
        };
        Some(Guess {
            confidence,
            ..guess
        })
    }

    /// The most likely one of the allowed languages.
    fn guess(&self, text: &str) -> Option<Guess> {
        let found = self.detector.detect(text)?;
        let (language, confidence) = (found.lang(), found.confidence());
        let guess = Guess {
            language: language.code(),
            confidence,
        };
        let is_known = SECOND.contains(&language.code());
        if confidence >= 0.5 || !is_known {
            return Some(guess);
        }
        let second = whichlang::detect_language(text).three_letter_code();
        let allowed = Lang::from_code(second).filter(|second| self.allowed.contains(second));
        Some(match allowed {
            Some(second) if second == language => Guess {
                confidence: 0.5 + confidence / 2.0,
                ..guess
            },
            Some(second) => Guess {
                language: second.code(),
                confidence: 0.5,
            },
            None => guess,
        })
    }
}

/// The languages that whichlang knows.
const SECOND: [&str; 16] = [
    "ara", "cmn", "deu", "eng", "fra", "hin", "ita", "jpn", "kor", "nld", "por", "rus", "spa",
    "swe", "tur", "vie",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_told_apart() {
        let detector = LanguageDetector::among(["eng", "fra", "deu", "spa", "nld", "swe"]);
        for (text, language) in [
            ("Where is the nearest station?", "eng"),
            ("Où est la gare la plus proche ?", "fra"),
            ("Guten Tag, wie geht es Ihnen?", "deu"),
            ("Guten Tag", "deu"),
            ("hello handsome", "eng"),
            ("¿Dónde está la estación?", "spa"),
        ] {
            assert_eq!(detector.detect(text).unwrap().language, language, "{text}");
        }
        assert_eq!(detector.detect("123 :-)"), None);
        assert_eq!(detector.detect(""), None);
        // Not allowed.
        let two = LanguageDetector::among(["eng", "fra"]);
        let guess = two.detect("Guten Tag, wie geht es Ihnen?").unwrap();
        assert_ne!(guess.language, "deu");
        assert!(guess.confidence < 0.3, "{guess:?}");
    }
}
