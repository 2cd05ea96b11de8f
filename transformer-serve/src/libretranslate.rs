//! LibreTranslate's interface.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::multipart::MultipartError;
use axum::extract::{Multipart, OriginalUri, Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use transformer_text::{Format, Translated};
use utoipa::ToSchema;

use crate::detect::Detected;
use crate::error::{ApiError, ErrorBody, Errors};
use crate::fields::{Fields, Texts};
use crate::inside::Inside;
use crate::languages::{canonical, name};
use crate::service::Service;

/// A text, or a list: as the request had one or a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum OneOrList<T> {
    One(T),
    List(Vec<T>),
}

impl<T> OneOrList<T> {
    fn of(texts: &Texts, mut values: Vec<T>) -> Self {
        match texts {
            Texts::One(_) => Self::One(values.remove(0)),
            Texts::Several(_) => Self::List(values),
        }
    }
}

/// A request to translate.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes the body, which is read by `Fields`")]
pub(crate) struct TranslateBody {
    /// The text, or a list of texts.
    q: OneOrList<String>,
    /// The source language, or `auto`.
    source: String,
    /// The target language.
    target: String,
    /// `text`, `html`, or another format of documents.
    format: Option<String>,
    /// Other translations of each text.
    alternatives: Option<usize>,
    /// Whether the answer has the probabilities of the translations.
    probabilities: Option<bool>,
    /// The key, if the server requires one.
    api_key: Option<String>,
    /// Whether the sentences are streamed as server-sent events.
    stream: Option<bool>,
}

/// A text whose language is asked for.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes the body, which is read by `Fields`")]
pub(crate) struct DetectBody {
    q: String,
    /// The key, if the server requires one.
    api_key: Option<String>,
}

/// A file to translate.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes the body, which is read part by part")]
pub(crate) struct FileBody {
    /// Its name says its format.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
    /// The source language, or `auto`.
    source: String,
    /// The target language.
    target: String,
    /// The key, if the server requires one.
    api_key: Option<String>,
}

/// Where a translated file is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileAnswer {
    translated_file_url: String,
}

/// Translations.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TranslateAnswer {
    translated_text: OneOrList<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detected_language: Option<OneOrList<Detected>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alternatives: Option<OneOrList<Vec<String>>>,
    /// Per text, the probability of its translation, then of each alternative.
    #[serde(skip_serializing_if = "Option::is_none")]
    probabilities: Option<OneOrList<Vec<f64>>>,
}

/// The translation of a text.
#[derive(Default)]
struct Found {
    text: String,
    alternatives: Vec<String>,
    probabilities: Vec<f64>,
}

impl Found {
    /// A text in the target language, which stays as it is.
    fn unchanged(text: String) -> Self {
        Self {
            text,
            alternatives: Vec::new(),
            probabilities: vec![1.0],
        }
    }
}

impl From<Translated> for Found {
    fn from(translated: Translated) -> Self {
        let probabilities = translated.log_probs.iter().map(|log_prob| log_prob.exp());
        Self {
            probabilities: probabilities.collect(),
            text: translated.text,
            alternatives: translated.alternatives,
        }
    }
}

impl TranslateAnswer {
    /// The answer to a request: the translation of each text, and the language of each if it was detected.
    fn new(request: &Translate, found: Vec<Found>, detected: Vec<Detected>) -> Self {
        let texts = &request.texts;
        if found.is_empty() {
            return Self {
                translated_text: OneOrList::List(Vec::new()),
                detected_language: None,
                alternatives: None,
                probabilities: None,
            };
        }
        let mut translated = Vec::with_capacity(found.len());
        let mut alternatives = Vec::with_capacity(found.len());
        let mut probabilities = Vec::with_capacity(found.len());
        for found in found {
            translated.push(found.text);
            alternatives.push(found.alternatives);
            probabilities.push(found.probabilities);
        }
        let is_detected = request.source.is_none();
        let has_alternatives = request.alternatives.is_some();
        Self {
            translated_text: OneOrList::of(texts, translated),
            detected_language: is_detected.then(|| OneOrList::of(texts, detected)),
            alternatives: has_alternatives.then(|| OneOrList::of(texts, alternatives)),
            probabilities: (request.probabilities).then(|| OneOrList::of(texts, probabilities)),
        }
    }
}

/// What a request to translate asks for.
struct Translate {
    texts: Texts,
    source: Option<String>,
    target: String,
    format: Format,
    alternatives: Option<usize>,
    probabilities: bool,
}

impl Translate {
    fn of(fields: &Fields, service: &Service) -> Result<Self, ApiError> {
        let texts = fields.texts()?;
        let source = fields.required("source")?;
        let target = fields.required("target")?;
        let format = match fields.text("format")? {
            None | Some("") => Format::Text,
            Some(name) => name
                .parse()
                .map_err(|_| ApiError::invalid(format!("{name} format is not supported")))?,
        };
        let alternatives = fields.count("alternatives")?.filter(|&count| count > 0);
        let limits = &service.limits;
        if let Some(count) = alternatives.filter(|&count| count > limits.alternatives) {
            return Err(ApiError::invalid(format!(
                "Invalid request: request ({count}) exceeds alternatives limit ({})",
                limits.alternatives
            )));
        }
        let all = texts.as_slice();
        if all.len() > limits.texts {
            return Err(ApiError::invalid(format!(
                "Invalid request: request ({}) exceeds list limit ({})",
                all.len(),
                limits.texts
            )));
        }
        let characters: usize = all.iter().map(|text| text.chars().count()).sum();
        check_characters(characters, service)?;
        Ok(Self {
            texts,
            source: (source != "auto").then(|| canonical(source)),
            target: canonical(target),
            format,
            alternatives,
            probabilities: fields.is_set("probabilities"),
        })
    }

    /// The source language of a text, and the guess if it is one.
    fn source(&self, text: &str, service: &Service) -> (String, Option<Detected>) {
        match &self.source {
            Some(source) => (source.clone(), None),
            None => {
                let detected = service.source_of(text, &self.target);
                (detected.language.clone(), Some(detected))
            }
        }
    }
}

pub(crate) fn check_characters(characters: usize, service: &Service) -> Result<(), ApiError> {
    let most = service.limits.characters;
    match characters > most {
        true => Err(ApiError::invalid(format!(
            "Invalid request: request ({characters}) exceeds text limit ({most})"
        ))),
        false => Ok(()),
    }
}

/// Translates a text or a list of texts.
#[utoipa::path(
    post, path = "/translate",
    request_body = TranslateBody,
    responses((status = 200, description = "The translations", body = TranslateAnswer), Errors)
)]
pub(crate) async fn translate(
    State(service): State<Arc<Service>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let fields = Fields::of(query.as_deref(), &headers, &body)?;
    service.check_key(fields.text("api_key")?)?;
    let request = Translate::of(&fields, &service)?;
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let streams = accepts.is_some_and(|accept| accept.contains("text/event-stream"));
    if streams || fields.is_set("stream") {
        return stream(service, request);
    }
    let answer = answer(&service, request);
    let answer = tokio::time::timeout(service.limits.time, answer).await;
    let answer = answer.map_err(|_| ApiError::timeout())??;
    Ok(Json(answer).into_response())
}

/// The translations of all texts, which are translated together.
async fn answer(service: &Arc<Service>, request: Translate) -> Result<TranslateAnswer, ApiError> {
    let mut detected = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    let count = request.texts.as_slice().len();
    for (index, text) in request.texts.as_slice().iter().enumerate() {
        let (source, guess) = request.source(text, service);
        detected.extend(guess);
        let path = service.path(&source, &request.target)?;
        let (service, text) = (service.clone(), text.clone());
        let (format, alternatives) = (request.format, request.alternatives.unwrap_or(0));
        tasks.spawn(async move {
            let found = match path.is_empty() {
                // A text in the target language stays as it is.
                true => Ok(Found::unchanged(text)),
                false => {
                    let translated = service.translate(text, format, &path, alternatives, None);
                    translated.await.map(Found::from)
                }
            };
            (index, found)
        });
    }
    let mut found = Vec::new();
    found.resize_with(count, Found::default);
    while let Some(ended) = tasks.join_next().await {
        let (index, translated) = ended.map_err(ApiError::failed)?;
        found[index] = translated?;
    }
    Ok(TranslateAnswer::new(&request, found, detected))
}

/// Sends each sentence as soon as it is translated, and the answer at the end, as server-sent events.
fn stream(service: Arc<Service>, request: Translate) -> Result<Response, ApiError> {
    let Texts::One(text) = request.texts.clone() else {
        return Err(ApiError::invalid(
            "Invalid request: only one text can be streamed",
        ));
    };
    let (source, guess) = request.source(&text, &service);
    let path = service.path(&source, &request.target)?;
    let (sentences, mut received) = tokio::sync::mpsc::unbounded_channel();
    let (events, stream) = tokio::sync::mpsc::unbounded_channel::<Event>();
    tokio::spawn(async move {
        let alternatives = request.alternatives.unwrap_or(0);
        let translated = async {
            if path.is_empty() {
                return Ok(Found::unchanged(text));
            }
            // The end of the channel ends `forwarded`.
            let sentences = Some(sentences);
            let translated =
                service.translate(text, request.format, &path, alternatives, sentences);
            translated.await.map(Found::from)
        };
        let forwarded = async {
            while let Some((index, sentence)) = received.recv().await {
                let data = serde_json::json!({"index": index, "text": sentence.text});
                // A client that has gone is noticed below.
                let _ = events.send(Event::default().event("sentence").data(data.to_string()));
            }
        };
        let both = async { tokio::join!(translated, forwarded).0 };
        // A client that has gone drops the request.
        let translated = tokio::select! {
            () = events.closed() => return,
            translated = tokio::time::timeout(service.limits.time, both) => translated,
        };
        let event = match translated.unwrap_or_else(|_| Err(ApiError::timeout())) {
            Ok(found) => {
                let guess = guess.into_iter().collect();
                let answer = TranslateAnswer::new(&request, vec![found], guess);
                let data = serde_json::to_string(&answer).unwrap_or_default();
                Event::default().event("done").data(data)
            }
            Err(error) => {
                let data = serde_json::json!({"error": error.message()});
                Event::default().event("error").data(data.to_string())
            }
        };
        let _ = events.send(event);
    });
    let stream = UnboundedReceiverStream::new(stream).map(Ok::<_, Infallible>);
    Ok(Sse::new(stream)
        .keep_alive(KeepAlive::default())
        .into_response())
}

/// Guesses the language of a text, the most likely first.
#[utoipa::path(
    post, path = "/detect",
    request_body = DetectBody,
    responses((status = 200, description = "The guess, if there is one", body = Vec<Detected>), Errors)
)]
pub(crate) async fn detect(
    State(service): State<Arc<Service>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Vec<Detected>>, ApiError> {
    let fields = Fields::of(query.as_deref(), &headers, &body)?;
    service.check_key(fields.text("api_key")?)?;
    let text = fields.required("q")?;
    check_characters(text.chars().count(), &service)?;
    Ok(Json(service.detect(text)))
}

/// A language, and those that it can be translated into.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LanguageAnswer {
    code: String,
    name: String,
    targets: Vec<String>,
}

/// Lists the languages.
#[utoipa::path(get, path = "/languages", responses((status = 200, description = "The languages", body = Vec<LanguageAnswer>)))]
pub(crate) async fn languages(State(service): State<Arc<Service>>) -> Json<Vec<LanguageAnswer>> {
    Json(language_list(&service))
}

fn language_list(service: &Service) -> Vec<LanguageAnswer> {
    let mut languages: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (source, targets) in service.pairs.languages() {
        let targets = targets.into_iter().map(str::to_owned).collect::<Vec<_>>();
        for target in &targets {
            languages.entry(target.clone()).or_default();
        }
        languages.insert(source.to_owned(), targets);
    }
    let languages = languages.into_iter().map(|(code, targets)| LanguageAnswer {
        name: name(&code),
        code,
        targets,
    });
    languages.collect()
}

/// Settings for a page.
#[utoipa::path(get, path = "/frontend/settings", responses((status = 200, description = "The settings", body = Object)))]
pub(crate) async fn settings(State(service): State<Arc<Service>>) -> Json<serde_json::Value> {
    let languages = service.pairs.languages();
    let first = languages.iter().next();
    let (source, targets) = first.map_or(("en", Vec::new()), |(source, targets)| {
        (*source, targets.iter().copied().collect())
    });
    let target = targets.first().copied().unwrap_or("en");
    Json(serde_json::json!({
        "charLimit": service.limits.characters,
        "frontendTimeout": 500,
        "apiKeys": service.needs_key(),
        "keyRequired": service.needs_key(),
        "suggestions": false,
        "filesTranslation": true,
        "supportedFilesFormat": Format::EXTENSIONS.map(|(extension, _)| format!(".{extension}")),
        "language": {
            "source": {"code": source, "name": name(source)},
            "target": {"code": target, "name": name(target)},
        },
    }))
}

/// Translates a file.
#[utoipa::path(
    post, path = "/translate_file",
    request_body(content = FileBody, content_type = "multipart/form-data"),
    responses((status = 200, description = "Where the translated file is", body = FileAnswer), Errors)
)]
pub(crate) async fn translate_file(
    State(service): State<Arc<Service>>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    mut parts: Multipart,
) -> Result<Json<FileAnswer>, ApiError> {
    let mut fields = BTreeMap::new();
    let mut file = None;
    let wrong = |error: MultipartError| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::too_large(),
        _ => ApiError::invalid("Invalid request: not a valid form"),
    };
    while let Some(part) = parts.next_field().await.map_err(wrong)? {
        let name = part.name().unwrap_or_default().to_owned();
        match &name[..] {
            "file" => {
                let file_name = part.file_name().unwrap_or_default().to_owned();
                file = Some((file_name, part.bytes().await.map_err(wrong)?));
            }
            _ => drop(fields.insert(name, part.text().await.map_err(wrong)?)),
        }
    }
    service.check_key(fields.get("api_key").map(|key| &key[..]))?;
    let (file_name, content) = file.ok_or_else(|| ApiError::missing("file"))?;
    let field = |name: &str| {
        let value = fields.get(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| ApiError::missing(name))
    };
    let (source, target) = (field("source")?, canonical(field("target")?));
    let extension = file_name
        .rsplit_once('.')
        .map(|(_, extension)| extension.to_lowercase());
    let mut known = Format::EXTENSIONS.into_iter();
    let known = known.find(|(known, _)| extension.as_deref() == Some(known));
    let (extension, format) =
        known.ok_or_else(|| ApiError::invalid("Invalid request: file format not supported"))?;
    let text = String::from_utf8(content.to_vec());
    let text = text.map_err(|_| ApiError::invalid("Invalid request: the file is not UTF-8"))?;
    check_characters(text.chars().count(), &service)?;
    let source = match &source[..] {
        "auto" => service.source_of(&text, &target).language,
        source => canonical(source),
    };
    let path = service.path(&source, &target)?;
    let translated = match path.is_empty() {
        true => text,
        false => {
            let translated = service.translate(text, format, &path, 0, None);
            let translated = tokio::time::timeout(service.limits.time, translated).await;
            translated.map_err(|_| ApiError::timeout())??.text
        }
    };
    let kept = service
        .files
        .keep(extension, translated)
        .map_err(ApiError::failed)?;
    let of = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let host = of("host").unwrap_or("localhost");
    let scheme = of("x-forwarded-proto").filter(|&scheme| scheme == "https");
    // The router may be mounted below another path.
    let mounted = uri.path().strip_suffix("/translate_file").unwrap_or("");
    let scheme = scheme.unwrap_or("http");
    let url = format!("{scheme}://{host}{mounted}/download_file/{kept}");
    Ok(Json(FileAnswer {
        translated_file_url: url,
    }))
}

/// A translated file.
#[utoipa::path(
    get, path = "/download_file/{name}",
    params(("name" = String, Path, description = "The name that `/translate_file` gave")),
    responses(
        (status = 200, description = "The file", body = String, content_type = "application/octet-stream"),
        (status = 404, description = "There is no such file", body = ErrorBody),
    )
)]
pub(crate) async fn download_file(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let content = service
        .files
        .get(&name)
        .ok_or_else(|| ApiError::not_found("Invalid filename"))?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename={name}"),
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, content).into_response())
}

/// Whether the server translates.
#[utoipa::path(
    get, path = "/health",
    responses(
        (status = 200, description = "The server translates", body = Object),
        (status = 503, description = "It does not", body = ErrorBody),
    )
)]
pub(crate) async fn health(
    State(service): State<Arc<Service>>,
) -> Result<Json<serde_json::Value>, ApiError> {
    match service.queue.is_alive() {
        true => Ok(Json(serde_json::json!({"status": "ok"}))),
        false => Err(ApiError::ending()),
    }
}

/// A sentence to look at.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes the body, which is read by `Fields`")]
pub(crate) struct InsideBody {
    /// One sentence.
    q: String,
    source: String,
    target: String,
    /// The key, if the server requires one.
    api_key: Option<String>,
}

/// The longest sentence that is looked at, in characters.
const LONGEST_INSIDE: usize = 300;

/// Shows the attention of every layer and head, and the beam, for one sentence. Not of LibreTranslate.
#[utoipa::path(
    post, path = "/inside",
    request_body = InsideBody,
    responses(
        (status = 200, description = "The attention and the beam", body = Inside),
        (status = 404, description = "The model is not shown", body = ErrorBody),
        Errors,
    )
)]
pub(crate) async fn inside(
    State(service): State<Arc<Service>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Inside>, ApiError> {
    let fields = Fields::of(query.as_deref(), &headers, &body)?;
    service.check_key(fields.text("api_key")?)?;
    let sentence = fields.required("q")?.trim().to_owned();
    if sentence.is_empty() {
        return Err(ApiError::missing("q"));
    }
    let count = sentence.chars().count();
    if count > LONGEST_INSIDE {
        return Err(ApiError::invalid(format!(
            "Invalid request: request ({count}) exceeds text limit ({LONGEST_INSIDE})"
        )));
    }
    let (source, target) = (
        canonical(fields.required("source")?),
        canonical(fields.required("target")?),
    );
    let path = service.path(&source, &target)?;
    let [pair] = &path[..] else {
        return Err(ApiError::not_found("There is no model of this pair"));
    };
    let pair = pair.clone();
    // One at a time: it computes beside the queue.
    let permit = service
        .looking
        .clone()
        .try_acquire_owned()
        .map_err(|_| ApiError::busy())?;
    let found = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        match service.pairs.look(&pair, &sentence) {
            Some(found) => found,
            None => Err(ApiError::not_found("The inside of this model is not shown")),
        }
    });
    let found = found.await;
    Ok(Json(
        found.map_err(|_| ApiError::failed("the model failed"))??,
    ))
}
