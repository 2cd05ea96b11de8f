//! `transformer serve`

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use burn::tensor::backend::Backend;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use tokio::net::TcpListener;
use transformer_core::decoding::NextToken;
use transformer_core::packed::PackedPrecision;
use transformer_core::{
    DecodeOptions, ModelDirectory, PackedModel, Tokenizers, Transformer, Translator,
};
use transformer_serve::languages::canonical;
use transformer_serve::{Limits, Names, Pair, Pairs, Service};
use transformer_text::{Glossary, language_code};

use super::decoding::{Decoding, options_for};
use super::{Common, Result, model_directory};
use crate::backend::{BackendTask, Precision, run_at};
use crate::process::{note, read_regular};

const EXAMPLES: &str = "\
Examples:
  transformer serve --model en-fr=model
  curl http://127.0.0.1:5000/translate -d q='Where are you going?' -d source=en -d target=fr

  Several pairs; those without a model of their own are translated via English:
    transformer serve --model de-en=opus-mt-de-en en-fr=opus-mt-en-fr

docs/guide/serving.md describes the web page, the API, and how to run the server.";

/// Serve translations over HTTP: LibreTranslate's API and a web page.
///
/// The sentences of all clients are translated in shared batches. SIGTERM and Ctrl-C end the server once the accepted
/// requests are answered.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    /// Model directories, each with its languages, such as en-fr=model; a directory without a pair must hold a
    /// multilingual model, and serves every pair of its languages. Each is loaded when it is first used
    #[arg(long, required = true, num_args = 1.., value_name = "[SOURCE-TARGET=]DIR")]
    model: Vec<String>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5000")]
    listen: SocketAddr,
    /// File of keys, one per line; every POST request must carry one of them
    #[arg(long, value_name = "FILE")]
    api_keys: Option<PathBuf>,
    /// File of terms and the translations to use for them. Each line has a term, a tab and its translation
    #[arg(long, value_name = "FILE")]
    glossary: Option<PathBuf>,
    /// Allow pages of other origins to use the server (CORS)
    #[arg(long)]
    cors: bool,
    /// Maximum size of the files of all loaded models together, in MiB; beyond it, the least recently used model is
    /// unloaded
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Maximum number of characters in a request
    #[arg(long, value_name = "N", value_parser = positive(), default_value_t = Limits::default().characters)]
    char_limit: usize,
    /// Maximum number of texts in a request
    #[arg(long, value_name = "N", value_parser = positive(), default_value_t = Limits::default().texts)]
    batch_limit: usize,
    /// Maximum number of alternatives in a request
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(..1000), default_value_t = Limits::default().alternatives)]
    alternatives_limit: usize,
    /// Maximum time for a request in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), default_value_t = Limits::default().time.as_secs())]
    time_limit: u64,
    /// Maximum number of source tokens that wait; further requests are refused with status 429
    #[arg(long, value_name = "N", default_value_t = Limits::default().queue.waiting_tokens)]
    queue_tokens: usize,
    /// Number format to compute with; fewer bits need less memory and are less exact [default: int8 on ndarray and flex
    /// if every model is quantized, else f32]
    #[arg(long, value_enum, value_name = "TYPE")]
    precision: Option<Precision>,
    #[command(flatten)]
    decoding: Decoding,
}

impl Serve {
    /// Runs the command.
    pub fn run(self, common: &Common) -> Result {
        let seed = common.seed.unwrap_or(0);
        if self.decoding.shortlist_file().is_some() && self.model.len() > 1 {
            return Err("--shortlist: is for one model; --model names several".into());
        }
        let mut models = Vec::new();
        for argument in &self.model {
            models.push(Served::open(argument, &self.decoding, seed)?);
        }
        let mut pairs = BTreeSet::new();
        for (pair, _) in models.iter().flat_map(|model: &Served| &model.pairs) {
            if !pairs.insert(pair) {
                let (source, target) = pair;
                return Err(format!("--model: {source}-{target} has two models").into());
            }
        }
        let target = common.target();
        let is_int8 = target.backend.packs() && models.iter().all(|model| model.is_int8);
        let precision = self.precision.unwrap_or(match is_int8 {
            true => Precision::Int8,
            false => Precision::F32,
        });
        let packing = target.backend.packs().then_some(match precision {
            Precision::Int8 => PackedPrecision::Int8,
            Precision::F32 | Precision::F16 | Precision::Bf16 => PackedPrecision::F32,
        });
        let server = Server {
            keys: self.api_keys.as_deref().map(keys).transpose()?,
            glossary: self.glossary.as_deref().map(glossary).transpose()?,
            models,
            packing,
            flags: self,
        };
        run_at(target, precision, server)?
    }
}

/// A model to serve.
struct Served {
    path: PathBuf,
    pairs: Vec<(Pair, Names)>,
    options: DecodeOptions,
    is_int8: bool,
    bytes: u64,
}

impl Served {
    fn open(argument: &str, decoding: &Decoding, seed: u64) -> Result<Self> {
        let pair = argument
            .split_once('=')
            .and_then(|(pair, path)| Some((languages_of(pair)?, path)));
        if let Some(((source, target), _)) = &pair
            && (source.is_empty() || target.is_empty() || source == target)
        {
            return Err(format!("{argument}: names no two languages, such as en-fr=DIR").into());
        }
        let path = PathBuf::from(pair.as_ref().map_or(argument, |(_, path)| path));
        model_directory::check(&path, None)?;
        let directory = model_directory::open(&path)?;
        model_directory::refuse_language_model(&directory)?;
        let options = decoding.over(directory.options()?.unwrap_or_default(), 1, seed)?;
        let options = options_for(&directory, options)?;
        let tokenizers = Tokenizers::of(directory.files())?;
        let files = model_directory::files(&path);
        let sizes = files.iter().filter_map(|file| file.metadata().ok());
        Ok(Self {
            pairs: match pair {
                Some((pair, _)) => vec![(pair.clone(), names_of(&pair, &tokenizers, argument)?)],
                None => all_pairs(&tokenizers, argument)?,
            },
            is_int8: directory.is_int8(),
            bytes: sizes.map(|file| file.len()).sum(),
            options,
            path,
        })
    }
}

/// A parser of numbers above 0.
fn positive() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// The codes of the languages of a pair such as `en-pt-BR`, whose codes may have hyphens.
fn languages_of(pair: &str) -> Option<Pair> {
    let halves = |(at, _)| (&pair[..at], &pair[at + 1..]);
    let mut splits = pair.match_indices('-').map(halves);
    let both = |&(source, target): &(&str, &str)| is_code(source) && is_code(target);
    let first = splits.clone().next();
    let (source, target) = splits.find(both).or(first)?;
    Some((canonical(source), canonical(target)))
}

/// Whether a text is a language's code, alone or with a script (`zh-Hans`) or a region (`pt-BR`).
fn is_code(text: &str) -> bool {
    if matches!(&canonical(text)[..], "pt-BR" | "zh-Hans" | "zh-Hant") {
        return true;
    }
    let (base, rest) = text.split_once('-').unwrap_or((text, ""));
    language_code(base).is_some()
        && match rest.len() {
            0 => base == text,
            2 => {
                rest.bytes().all(|letter| letter.is_ascii_uppercase())
                    && base != base.to_uppercase()
            }
            4 => rest.bytes().all(|letter| letter.is_ascii_alphabetic()),
            _ => false,
        }
}

/// The names of the languages of a pair, if the model has language tokens.
fn names_of(
    pair: &Pair,
    tokenizers: &Tokenizers,
    argument: &str,
) -> std::result::Result<Names, String> {
    let [of_source, of_target] =
        [tokenizers.source(), tokenizers.target()].map(|side| side.languages());
    let token = |tokens: &[String], code: &str| {
        let names =
            |token: &&String| *token == code || language_code(token).as_deref() == Some(code);
        tokens.iter().find(names).cloned()
    };
    let target = token(&of_target, &pair.1)
        // Those of Marian and MADLAD-400 are tokens of the source.
        .or_else(|| token(&of_source, &pair.1));
    let has_tokens = !of_source.is_empty() || !of_target.is_empty();
    let names = Names {
        code: pair.0.clone(),
        source: token(&of_source, &pair.0),
        // A language without a token gets an error that lists the model's.
        target: target.or_else(|| has_tokens.then(|| pair.1.clone())),
    };
    let with = |names: &Names| {
        let named = tokenizers
            .clone()
            .with_languages(names.source.as_deref(), names.target.as_deref());
        named
            .and_then(|named| named.check_target_language())
            .map(|()| names.clone())
    };
    // A model that knows target languages only.
    let without_source = Names {
        source: None,
        ..names.clone()
    };
    let found = with(&names).or_else(|_| with(&without_source));
    found.map_err(|error| format!("{argument}: {error}"))
}

/// All pairs of a multilingual model.
fn all_pairs(
    tokenizers: &Tokenizers,
    argument: &str,
) -> std::result::Result<Vec<(Pair, Names)>, String> {
    let tokens = tokenizers.target().languages();
    if tokens.is_empty() {
        return Err(format!(
            "{argument}: the model has no language tokens; name its languages, such as en-fr={argument}"
        ));
    }
    let codes = codes_of(&tokens);
    let mut pairs = Vec::new();
    for (source, source_token) in codes.iter().zip(&tokens) {
        for (target, target_token) in codes.iter().zip(&tokens) {
            if source != target {
                let names = Names {
                    code: source.clone(),
                    source: Some(source_token.clone()),
                    target: Some(target_token.clone()),
                };
                pairs.push(((source.clone(), target.clone()), names));
            }
        }
    }
    // All pairs of a model are alike.
    if let Some((_, names)) = pairs.first() {
        let (source, target) = (names.source.as_deref(), names.target.as_deref());
        let named = tokenizers.clone().with_languages(source, target);
        named.map_err(|error| {
            format!("{argument}: {error}; name its pairs, such as en-fr={argument}")
        })?;
    }
    Ok(pairs)
}

/// The codes of the languages of tokens: with their scripts (`ace-Arab`) where tokens differ by these alone.
fn codes_of(tokens: &[String]) -> Vec<String> {
    let short: Vec<Option<String>> = tokens.iter().map(|token| language_code(token)).collect();
    let is_shared = |code: &Option<String>| short.iter().filter(|other| *other == code).count() > 1;
    let codes = short.iter().zip(tokens).map(|(code, token)| match code {
        Some(known) if !is_shared(code) => known.clone(),
        _ => token.trim_matches(['_', '<', '>']).replace('_', "-"),
    });
    codes.collect()
}

/// The keys in a file.
fn keys(path: &Path) -> std::result::Result<Vec<String>, String> {
    let text = text(path)?;
    let keys = text
        .trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim)
        .filter(|key| !key.is_empty() && !key.starts_with('#'));
    let keys: Vec<String> = keys.map(str::to_owned).collect();
    match keys.is_empty() {
        true => Err(format!("{}: has no keys", path.display())),
        false => Ok(keys),
    }
}

fn glossary(path: &Path) -> std::result::Result<Glossary, String> {
    let glossary = Glossary::parse(&text(path)?);
    glossary.map_err(|error| format!("{}: {error}", path.display()))
}

fn text(path: &Path) -> std::result::Result<String, String> {
    let bytes = read_regular(path).map_err(|error| format!("{}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| format!("{}: is not UTF-8", path.display()))
}

/// The server on a backend.
struct Server {
    flags: Serve,
    models: Vec<Served>,
    packing: Option<PackedPrecision>,
    keys: Option<Vec<String>>,
    glossary: Option<Glossary>,
}

impl BackendTask for Server {
    type Output = Result;

    fn run<B: Backend>(self, device: B::Device) -> Result {
        let mut pairs = Pairs::new();
        if let Some(mib) = self.flags.memory {
            pairs = pairs.with_memory(mib.saturating_mul(1 << 20));
        }
        if let Some(glossary) = self.glossary {
            pairs = pairs.with_glossary(glossary);
        }
        for Served {
            path,
            pairs: of_model,
            options,
            bytes,
            ..
        } in self.models
        {
            let device = device.clone();
            let of_tensors = {
                let (path, options, device) = (path.clone(), options.clone(), device.clone());
                move || {
                    let load = |directory| Translator::<Transformer<B>>::of(&[directory], &device);
                    loaded(&path, &options, load)
                }
            };
            match self.packing {
                Some(precision) => pairs.add(of_model, bytes, move || {
                    let load =
                        |directory| Translator::<PackedModel>::packed_of(&[directory], precision);
                    loaded(&path, &options, load)
                }),
                None => pairs.add(of_model, bytes, of_tensors.clone()),
            }
            pairs.show_last(of_tensors);
        }
        let flags = self.flags;
        let mut limits = Limits {
            characters: flags.char_limit,
            texts: flags.batch_limit,
            alternatives: flags.alternatives_limit,
            time: Duration::from_secs(flags.time_limit),
            ..Limits::default()
        };
        // A character has at most four bytes, and twelve as an escape of JSON or of a form.
        let escaped = flags.char_limit.saturating_mul(12).saturating_add(1 << 16);
        limits.body = limits.body.max(escaped);
        limits.queue.waiting_tokens = flags.queue_tokens;
        limits.queue.batches = match self.packing {
            Some(_) => rayon::current_num_threads(),
            // The backend computes a batch on all of its threads, or on a device.
            None => 1,
        };
        let mut service = Service::start(pairs, limits);
        if let Some(keys) = self.keys {
            service = service.with_keys(keys);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .worker_threads(2)
            .build();
        let runtime = runtime.map_err(|error| format!("the server cannot start: {error}"))?;
        let served = runtime.block_on(serve(Arc::new(service), flags.listen, flags.cors));
        if served.is_err() {
            // Without waiting for translations that are being computed.
            runtime.shutdown_background();
        }
        served
    }
}

/// A translator of a directory's model.
fn loaded<M: NextToken>(
    path: &Path,
    options: &DecodeOptions,
    load: impl Fn(
        ModelDirectory,
    ) -> std::result::Result<Translator<M>, transformer_core::text::TextError>,
) -> std::result::Result<Translator<M>, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let directory = ModelDirectory::open(path).map_err(|error| named(&error))?;
    let translator =
        load(directory).and_then(|translator| translator.with_options(options.clone()));
    translator.map_err(|error| named(&error))
}

async fn serve(service: Arc<Service>, listen: SocketAddr, cors: bool) -> Result {
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|error| format!("{listen}: {error}"))?;
    let address = listener.local_addr();
    let address = address.map_err(|error| format!("{listen}: {error}"))?;
    note(format_args!("listening on http://{address}"));
    let mut router = transformer_serve::router(service.clone());
    if cors {
        router = transformer_serve::with_cors(router);
    }
    let end = async {
        transformer_serve::until_signal().await;
        note("ending: accepted requests are still answered");
    };
    let twice = async {
        transformer_serve::until_signal().await;
        transformer_serve::until_signal().await;
    };
    tokio::select! {
        served = transformer_serve::serve_router(listener, router, end) => {
            served.map_err(|error| format!("{listen}: {error}"))?;
        }
        () = twice => return Err("ended by a second signal; some accepted requests are not answered".into()),
    }
    service.close();
    Ok(())
}
