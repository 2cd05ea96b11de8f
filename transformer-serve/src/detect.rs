//! The language of a text, as a code of the server.

use isolang::Language;
use serde::Serialize;
use transformer_text::LanguageDetector;
use utoipa::ToSchema;

/// A guess.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Detected {
    /// From 0 to 100.
    pub confidence: f64,
    /// The language's code.
    pub language: String,
}

/// Guesses among the server's source languages.
pub(crate) struct Detector {
    detector: LanguageDetector,
    /// The codes of ISO 639-3, and those of the server.
    codes: Vec<(&'static str, String)>,
}

impl Detector {
    /// A detector among these codes.
    pub fn among<'a>(languages: impl Iterator<Item = &'a str>) -> Self {
        let codes = languages.filter_map(|code| {
            let base = code.split('-').next().unwrap_or(code);
            let language = match base.len() {
                2 => Language::from_639_1(base),
                _ => Language::from_639_3(base),
            };
            // The detector's names of Chinese and Persian are those of Mandarin and of Iran's Persian.
            let three = match language?.to_639_3() {
                "zho" => "cmn",
                "fas" => "pes",
                three => three,
            };
            Some((three, code.to_owned()))
        });
        let codes: Vec<(&str, String)> = codes.collect();
        let detector = LanguageDetector::among(codes.iter().map(|(three, _)| *three));
        Self { detector, codes }
    }

    /// The guess, if there is one.
    pub fn detect(&self, text: &str) -> Vec<Detected> {
        let guess = self.detector.detect(text);
        let found = guess.and_then(|guess| {
            let code = self
                .codes
                .iter()
                .find(|(three, _)| *three == guess.language)?;
            Some(Detected {
                confidence: (guess.confidence * 1000.0).round() / 10.0,
                language: code.1.clone(),
            })
        });
        found.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_that_the_detector_names_otherwise_are_found() {
        let detector = Detector::among(["ar", "en", "fa", "zh-Hans"].into_iter());
        for (text, code) in [
            ("امروز هوا خیلی خوب است و ما به پارک می‌رویم", "fa"),
            ("الطقس جميل جدا اليوم وسنذهب إلى الحديقة", "ar"),
            ("今天天气很好，我们去公园。", "zh-Hans"),
        ] {
            let found = detector.detect(text);
            let found = found.first().map(|found| &found.language[..]);
            assert_eq!(found, Some(code), "{text}");
        }
    }
}
