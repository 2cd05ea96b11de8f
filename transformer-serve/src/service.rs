//! What the server does, without HTTP.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use transformer_text::{Format, SentenceTranslation, Translated};

use crate::detect::{Detected, Detector};
use crate::error::ApiError;
use crate::files::Files;
use crate::model::Model;
use crate::pairs::{Pair, Pairs};
use crate::queue::{Queue, QueueLimits, Refused, Request};

/// The limits of requests.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Characters of all texts of a request.
    pub characters: usize,
    /// Texts of a request.
    pub texts: usize,
    /// Alternatives of a translation.
    pub alternatives: usize,
    /// Bytes of a body.
    pub body: usize,
    /// The time for a request.
    pub time: Duration,
    /// Limits of the queue.
    pub queue: QueueLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            characters: 100_000,
            texts: 100,
            alternatives: 8,
            body: 2 << 20,
            time: Duration::from_secs(300),
            queue: QueueLimits::default(),
        }
    }
}

/// The server without its interface: models, queue and limits.
pub struct Service {
    pub(crate) pairs: Pairs,
    /// The source languages, and the targets of each.
    pub(crate) languages: BTreeMap<String, BTreeSet<String>>,
    pub(crate) queue: Queue,
    pub(crate) limits: Limits,
    pub(crate) detector: Detector,
    pub(crate) files: Files,
    /// Who looks inside a model.
    pub(crate) looking: Arc<Semaphore>,
    /// Who takes texts apart, at most one per core.
    preparing: Arc<Semaphore>,
    keys: Option<Vec<String>>,
}

impl Service {
    /// Starts the service.
    pub fn start(pairs: Pairs, limits: Limits) -> Self {
        let languages = pairs.languages().into_iter();
        let languages = languages.map(|(source, targets)| {
            let targets = targets.into_iter().map(str::to_owned);
            (source.to_owned(), targets.collect())
        });
        let languages: BTreeMap<String, BTreeSet<String>> = languages.collect();
        let detector = Detector::among(languages.keys().map(|code| &code[..]));
        Self {
            languages,
            queue: Queue::start(limits.queue),
            detector,
            pairs,
            limits,
            files: Files::default(),
            looking: Arc::new(Semaphore::new(1)),
            preparing: Arc::new(Semaphore::new(
                std::thread::available_parallelism().map_or(1, usize::from),
            )),
            keys: None,
        }
    }

    /// Requires one of these keys in requests.
    pub fn with_keys(self, keys: Vec<String>) -> Self {
        Self {
            keys: Some(keys),
            ..self
        }
    }

    /// Ends the service once the accepted requests are answered: new ones are refused.
    pub fn close(&self) {
        self.queue.close();
    }

    /// Whether requests need a key.
    pub fn needs_key(&self) -> bool {
        self.keys.is_some()
    }

    /// Checks a key, in a time that does not depend on how much of it is right.
    pub(crate) fn check_key(&self, key: Option<&str>) -> Result<(), ApiError> {
        let Some(keys) = &self.keys else {
            return Ok(());
        };
        let Some(key) = key.filter(|key| !key.is_empty()) else {
            let advice = "Please contact the server operator to get an API key";
            return Err(ApiError::invalid(advice));
        };
        let mut is_known = subtle::Choice::from(0);
        for known in keys {
            is_known |= known.as_bytes().ct_eq(key.as_bytes());
        }
        match bool::from(is_known) {
            true => Ok(()),
            false => Err(ApiError::forbidden("Invalid API key")),
        }
    }

    /// Detects the language of a text among those of the server.
    pub(crate) fn detect(&self, text: &str) -> Vec<Detected> {
        self.detector.detect(text)
    }

    /// The language of a text that is to be translated into `target`. One that is not detected, such as a number, is
    /// English, or else of a language that is translated into `target`.
    pub(crate) fn source_of(&self, text: &str, target: &str) -> Detected {
        let reaches = |source: &str| self.reaches(source, target);
        let undetected = || {
            let mut sources = self.languages.keys();
            let source = match target == "en" || reaches("en") {
                true => None,
                false => sources.find(|source| reaches(source)),
            };
            Detected {
                confidence: 0.0,
                language: source.map_or("en", |source| source).to_owned(),
            }
        };
        let detected = self.detect(text).into_iter().next();
        detected.unwrap_or_else(undetected)
    }

    fn reaches(&self, source: &str, target: &str) -> bool {
        let targets = self.languages.get(source);
        targets.is_some_and(|targets| targets.contains(target))
    }

    /// Whether a language is the source or the target of a pair.
    fn knows(&self, code: &str) -> bool {
        let mut targets = self.languages.values();
        self.languages.contains_key(code) || targets.any(|targets| targets.contains(code))
    }

    /// The code of a source or target language that a code is in any case of its letters.
    pub(crate) fn in_any_case(&self, code: &str) -> Option<&str> {
        let targets = self.languages.values().flatten();
        let mut codes = self.languages.keys().chain(targets);
        let found = codes.find(|known| known.eq_ignore_ascii_case(code))?;
        Some(found)
    }

    /// The pairs to translate over; none where source and target are one language.
    pub(crate) fn path(&self, source: &str, target: &str) -> Result<Vec<Pair>, ApiError> {
        if let Some(unknown) = [target, source].into_iter().find(|code| !self.knows(code)) {
            return Err(ApiError::invalid(format!("{unknown} is not supported")));
        }
        if source == target {
            return Ok(Vec::new());
        }
        if !self.reaches(source, target) {
            let name = crate::languages::name;
            return Err(ApiError::invalid(format!(
                "{} ({target}) is not available as a target language from {} ({source})",
                name(target),
                name(source)
            )));
        }
        Ok(self.pairs.path(source, target))
    }

    /// Translates a text over the pairs. Each translated sentence of the last is sent to `sentences`, too, with its
    /// index.
    pub(crate) async fn translate(
        self: &Arc<Self>,
        text: String,
        format: Format,
        path: &[Pair],
        alternatives: usize,
        sentences: Option<UnboundedSender<(usize, SentenceTranslation)>>,
    ) -> Result<Translated, ApiError> {
        let mut text = text;
        for (step, pair) in path.iter().enumerate() {
            let is_last = step + 1 == path.len();
            let n_best = if is_last { alternatives + 1 } else { 1 };
            let sentences = sentences.as_ref().filter(|_| is_last);
            let translated = self
                .translate_over(text, format, pair, n_best, sentences)
                .await?;
            if is_last {
                return Ok(translated);
            }
            text = translated.text;
        }
        Err(ApiError::failed("no model"))
    }

    /// The model of a pair. Of the requests that wait for a model, one loads it.
    pub(crate) async fn model(self: &Arc<Self>, pair: &Pair) -> Result<Arc<dyn Model>, ApiError> {
        if let Some(model) = self.pairs.loaded(pair) {
            return Ok(model);
        }
        let alone = self.pairs.alone(pair).await;
        if let Some(model) = self.pairs.loaded(pair) {
            return Ok(model);
        }
        let (service, pair) = (self.clone(), pair.clone());
        let loaded = tokio::task::spawn_blocking(move || {
            let _alone = alone;
            service.pairs.model(&pair)
        });
        let loaded = loaded
            .await
            .map_err(|_| ApiError::failed("the model cannot be loaded"))?;
        loaded.map_err(ApiError::failed)
    }

    async fn translate_over(
        self: &Arc<Self>,
        text: String,
        format: Format,
        pair: &Pair,
        n_best: usize,
        sentences: Option<&UnboundedSender<(usize, SentenceTranslation)>>,
    ) -> Result<Translated, ApiError> {
        let model = self.model(pair).await?;
        // A request that its client gives up waits no longer, so that nothing is prepared for it.
        let permit = self.preparing.clone().acquire_owned().await;
        let permit = permit.map_err(|_| ApiError::ending())?;
        let prepared = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let prepared = model.prepare(&text, format);
            let sentences = prepared.sentences().iter();
            let sentences = sentences.map(|sentence| (model.tokens(sentence), sentence.clone()));
            let sentences = sentences.collect();
            (model, prepared, sentences)
        });
        let (model, prepared, of_request) = prepared
            .await
            .map_err(|_| ApiError::failed("the text cannot be read"))?;
        let count = prepared.sentences().len();
        let request = Request {
            model,
            sentences: of_request,
            n_best,
        };
        let mut answers = self
            .queue
            .submit(request)
            .map_err(|refused| match refused {
                Refused::Full => ApiError::busy(),
                Refused::Closing => ApiError::ending(),
            })?;
        let mut found: HashMap<usize, SentenceTranslation> = HashMap::with_capacity(count);
        while found.len() < count {
            let Some((index, translation)) = answers.recv().await else {
                return Err(ApiError::failed("the model has ended"));
            };
            let translation = translation.map_err(ApiError::failed)?;
            if let Some(sentences) = sentences {
                // A client that reads no more is noticed by its connection.
                let _ = sentences.send((index, translation.clone()));
            }
            found.insert(index, translation);
        }
        let translations = (0..count)
            .filter_map(|index| found.remove(&index))
            .collect();
        Ok(prepared.finish(translations))
    }
}
