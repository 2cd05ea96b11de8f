//! The language pairs of the server, and their models. A model is loaded when it is first asked for; if all together
//! exceed the memory, the one that was not used for the longest time is dropped.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use transformer_core::burn::tensor::backend::Backend;
use transformer_core::decoding::NextToken;
use transformer_core::{Transformer, Translator};
use transformer_text::{Glossary, TextTranslator};

use crate::error::ApiError;
use crate::inside::{Inside, inside};
use crate::model::Model;

/// A source and a target language, as codes such as `en`.
pub type Pair = (String, String);

/// Loads a model for its pairs.
type Load = Box<dyn Fn() -> Result<Box<dyn Loaded>, String> + Send + Sync>;

/// Tokens of the longest sentence that is looked at: the answer has a number per pair of tokens, layer and head.
const LONGEST: usize = 300;

/// Looks at a model between two languages, with a sentence.
type Look = Box<dyn Fn(&Names, &str) -> Result<Inside, ApiError> + Send + Sync>;

/// The model that was looked at last: its index, and its translator on some backend.
type LookedAt = (usize, Box<dyn Any + Send>);

/// A loaded model.
trait Loaded: Send {
    /// The model between two of its languages.
    fn between(&self, languages: &Names) -> Result<Arc<dyn Model>, String>;
}

/// The names of two languages for the model's tokenizer; `None` for a model of one pair.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// The source's code, for the rules of its sentences.
    pub code: String,
    /// The source's token.
    pub source: Option<String>,
    /// The target's token.
    pub target: Option<String>,
}

/// The language pairs.
#[derive(Default)]
pub struct Pairs {
    models: Vec<Entry>,
    /// The model of each pair, and the names of its languages.
    pairs: BTreeMap<Pair, (usize, Names)>,
    glossary: Glossary,
    /// Bytes of model files that may be loaded.
    memory: Option<u64>,
    /// Counts uses.
    clock: Mutex<u64>,
    looked_at: Arc<Mutex<Option<LookedAt>>>,
}

struct Entry {
    load: Load,
    /// For models whose attention is shown.
    look: Option<Look>,
    bytes: u64,
    state: Mutex<EntryState>,
    /// Held by the request that loads the model: others wait without a thread.
    loading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct EntryState {
    loaded: Option<Box<dyn Loaded>>,
    pairs: BTreeMap<Pair, Arc<dyn Model>>,
    used: u64,
}

struct LoadedTranslator<M> {
    translator: Translator<Arc<M>>,
    glossary: Glossary,
}

impl<M: NextToken + Send + Sync + 'static> Loaded for LoadedTranslator<M> {
    fn between(&self, names: &Names) -> Result<Arc<dyn Model>, String> {
        let translator = self.translator.clone();
        let translator =
            translator.with_languages(names.source.as_deref(), names.target.as_deref());
        let translator = translator.map_err(|error| error.to_string())?;
        let translator = TextTranslator::new(translator)
            .with_glossary(self.glossary.clone())
            .with_language(&names.code);
        Ok(Arc::new(translator))
    }
}

impl Pairs {
    /// No pairs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the bytes of model files that may be loaded at once. One model is always kept.
    pub fn with_memory(self, memory: u64) -> Self {
        Self {
            memory: Some(memory),
            ..self
        }
    }

    /// Sets a glossary for all pairs that are added afterwards.
    pub fn with_glossary(self, glossary: Glossary) -> Self {
        Self { glossary, ..self }
    }

    /// Adds a model for these pairs. The first model of a pair is used.
    pub fn add<M: NextToken + Send + Sync + 'static>(
        &mut self,
        pairs: impl IntoIterator<Item = (Pair, Names)>,
        bytes: u64,
        load: impl Fn() -> Result<Translator<M>, String> + Send + Sync + 'static,
    ) {
        let glossary = self.glossary.clone();
        let index = self.models.len();
        self.models.push(Entry {
            load: Box::new(move || {
                let translator = load()?.shared();
                let glossary = glossary.clone();
                Ok(Box::new(LoadedTranslator {
                    translator,
                    glossary,
                }))
            }),
            bytes,
            look: None,
            state: Mutex::default(),
            loading: Arc::default(),
        });
        for (pair, names) in pairs {
            self.pairs.entry(pair).or_insert((index, names));
        }
    }

    /// Shows the inside of the model that was added last, which `load` loads in the tensors of a backend when it is
    /// first asked for. It stays in memory, beside the models that translate, until another model is looked at.
    pub fn show_last<B: Backend>(
        &mut self,
        load: impl Fn() -> Result<Translator<Transformer<B>>, String> + Send + Sync + 'static,
    ) {
        let looked_at = self.looked_at.clone();
        let own = self.models.len().wrapping_sub(1);
        let look = move |names: &Names, sentence: &str| {
            let mut looked_at = lock(&looked_at);
            if looked_at.as_ref().is_none_or(|(index, _)| *index != own) {
                // Its memory is freed first.
                *looked_at = None;
                *looked_at = Some((own, Box::new(load().map_err(ApiError::failed)?)));
            }
            let loaded = looked_at.as_ref().map(|(_, translator)| translator);
            let translator: &Translator<Transformer<B>> = loaded
                .and_then(|translator| translator.downcast_ref())
                .expect("the translator of this model");
            let chosen = [names.source.as_deref(), names.target.as_deref()];
            let translator = translator.clone().with_languages(chosen[0], chosen[1]);
            let translator = translator.map_err(ApiError::failed)?;
            let tokens = translator.tokenizers().encode_source(sentence);
            let tokens = tokens.map_err(ApiError::failed)?.len();
            if tokens > LONGEST {
                return Err(ApiError::invalid(format!(
                    "Invalid request: {tokens} tokens exceed the limit of {LONGEST}"
                )));
            }
            inside(&translator, sentence).map_err(ApiError::failed)
        };
        if let Some(last) = self.models.last_mut() {
            last.look = Some(Box::new(look));
        }
    }

    /// Looks at the model of a pair while it translates a sentence; `None` if it is not shown.
    pub(crate) fn look(&self, pair: &Pair, sentence: &str) -> Option<Result<Inside, ApiError>> {
        let (index, names) = self.pairs.get(pair)?;
        let look = self.models[*index].look.as_ref()?;
        Some(look(names, sentence))
    }

    /// The source languages, and the targets of each.
    pub fn languages(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut languages = BTreeMap::<&str, BTreeSet<&str>>::new();
        for (source, target) in self.pairs.keys() {
            languages.entry(source).or_default().insert(target);
        }
        // What can be reached over English.
        let english: BTreeSet<&str> = languages.get("en").cloned().unwrap_or_default();
        for (source, targets) in &mut languages {
            if targets.contains("en") {
                targets.extend(english.iter().filter(|target| *target != source));
            }
        }
        languages
    }

    /// The pairs to translate over: the pair itself, or two over English. Empty if there are none.
    pub fn path(&self, source: &str, target: &str) -> Vec<Pair> {
        let pair = |source: &str, target: &str| {
            let pair = (source.to_owned(), target.to_owned());
            self.pairs.contains_key(&pair).then_some(pair)
        };
        match pair(source, target) {
            Some(direct) => vec![direct],
            None => match (pair(source, "en"), pair("en", target)) {
                (Some(first), Some(second)) => vec![first, second],
                _ => Vec::new(),
            },
        }
    }

    /// The model of a pair, if it is loaded.
    pub fn loaded(&self, pair: &Pair) -> Option<Arc<dyn Model>> {
        let (index, _) = self.pairs.get(pair)?;
        // Another request may be loading it.
        let mut state = self.models[*index].state.try_lock().ok()?;
        let model = state.pairs.get(pair)?.clone();
        state.used = self.next_use();
        Some(model)
    }

    /// Waits until no other request loads the model of a pair, and keeps others waiting as long as the guard exists.
    pub async fn alone(&self, pair: &Pair) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        let (index, _) = self.pairs.get(pair)?;
        Some(self.models[*index].loading.clone().lock_owned().await)
    }

    fn next_use(&self) -> u64 {
        let mut clock = lock(&self.clock);
        *clock += 1;
        *clock
    }

    /// The model of a pair, which is loaded if it is not yet. This takes as long as loading does.
    ///
    /// # Errors
    /// When the pair does not exist, or the model cannot be loaded.
    pub fn model(&self, pair: &Pair) -> Result<Arc<dyn Model>, String> {
        let Some((index, names)) = self.pairs.get(pair) else {
            return Err(format!("no model from {} to {}", pair.0, pair.1));
        };
        let used = self.next_use();
        let entry = &self.models[*index];
        let model = {
            let mut state = lock(&entry.state);
            state.used = used;
            match state.pairs.get(pair) {
                Some(model) => return Ok(model.clone()),
                None => {
                    if state.loaded.is_none() {
                        state.loaded = Some((entry.load)()?);
                    }
                    let loaded = state.loaded.as_ref().expect("just loaded");
                    let model = loaded.between(names)?;
                    state.pairs.insert(pair.clone(), model.clone());
                    model
                }
            }
        };
        self.drop_unused(*index);
        Ok(model)
    }

    /// Drops the models that were not used for the longest time, while all exceed the memory. Translations under way
    /// keep theirs until they are done.
    fn drop_unused(&self, newest: usize) {
        let Some(memory) = self.memory else {
            return;
        };
        loop {
            let loaded = self.models.iter().enumerate().filter_map(|(index, entry)| {
                // Another is being loaded.
                let state = entry.state.try_lock().ok()?;
                state
                    .loaded
                    .as_ref()
                    .map(|_| (state.used, index, entry.bytes))
            });
            let loaded: Vec<(u64, usize, u64)> = loaded.collect();
            let bytes: u64 = loaded.iter().map(|(_, _, bytes)| bytes).sum();
            let oldest = loaded.iter().filter(|(_, index, _)| *index != newest).min();
            match oldest {
                Some((_, index, _)) if bytes > memory => {
                    let mut state = lock(&self.models[*index].state);
                    state.loaded = None;
                    state.pairs.clear();
                }
                _ => return,
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
