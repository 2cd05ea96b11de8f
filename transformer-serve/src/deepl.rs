//! DeepL's `/v2/translate`, as far as its clients need it to translate.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use transformer_text::Format;
use utoipa::ToSchema;

use crate::error::{ApiError, Errors};
use crate::languages::canonical;
use crate::libretranslate::check_characters;
use crate::service::Service;

/// Texts to translate.
#[derive(ToSchema)]
#[allow(dead_code, reason = "describes the body, which is read by `Request`")]
pub(crate) struct Body {
    text: Vec<String>,
    target_lang: String,
    /// Without it, the language is detected.
    source_lang: Option<String>,
    /// `html` or `xml`, if the texts have tags.
    tag_handling: Option<String>,
}

/// Translations.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Answer {
    translations: Vec<Translation>,
}

#[derive(Debug, Serialize, ToSchema)]
struct Translation {
    /// In capital letters, without a script or region.
    detected_source_language: String,
    text: String,
    /// Characters of the source.
    billed_characters: usize,
}

/// Translates texts.
#[utoipa::path(
    post, path = "/v2/translate", operation_id = "deepl_translate",
    request_body = Body,
    responses((status = 200, description = "The translations", body = Answer), Errors)
)]
pub(crate) async fn translate(
    State(service): State<Arc<Service>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Answer>, DeeplError> {
    let key = headers
        .get(header::AUTHORIZATION)
        .and_then(|key| key.to_str().ok());
    let key = key.and_then(|key| key.strip_prefix("DeepL-Auth-Key "));
    let checked = service.check_key(key);
    // Without a key, too, DeepL's clients expect 403.
    checked.map_err(|error| ApiError::forbidden(error.message()))?;
    let request = Request::of(query.as_deref(), &headers, &body)?;
    if request.text.is_empty() {
        return Err(ApiError::missing("text").into());
    }
    if request.text.len() > service.limits.texts {
        return Err(ApiError::invalid("Too many texts").into());
    }
    let characters: usize = request.text.iter().map(|text| text.chars().count()).sum();
    check_characters(characters, &service)?;
    let target = language(&request.target, &service);
    let mut tasks = tokio::task::JoinSet::new();
    let mut translations = Vec::new();
    for (index, text) in request.text.iter().enumerate() {
        let source = match &request.source {
            Some(source) => language(source, &service),
            None => service.source_of(text, &target).language,
        };
        translations.push(Translation {
            detected_source_language: source.split('-').next().unwrap_or_default().to_uppercase(),
            text: text.clone(),
            billed_characters: text.chars().count(),
        });
        let path = service.path(&source, &target)?;
        if path.is_empty() {
            continue;
        }
        let (service, text, format) = (service.clone(), text.clone(), request.format);
        tasks.spawn(async move { (index, service.translate(text, format, &path, 0, None).await) });
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            let (index, translated) = ended.map_err(ApiError::failed)?;
            translations[index].text = translated?.text;
        }
        Ok::<_, ApiError>(())
    };
    let all = tokio::time::timeout(service.limits.time, all).await;
    all.map_err(|_| ApiError::timeout())??;
    Ok(Json(Answer { translations }))
}

/// An error as DeepL's clients read it: they show `message`.
pub(crate) struct DeeplError(ApiError);

impl From<ApiError> for DeeplError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for DeeplError {
    fn into_response(self) -> Response {
        let body = json!({"error": self.0.message(), "message": self.0.message()});
        let (mut parts, _) = self.0.into_response().into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        (parts, Json(body)).into_response()
    }
}

struct Request {
    text: Vec<String>,
    source: Option<String>,
    target: String,
    format: Format,
}

impl Request {
    fn of(query: Option<&str>, headers: &HeaderMap, body: &Bytes) -> Result<Self, ApiError> {
        let kind = headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let mut fields: Vec<(String, String)> = Vec::new();
        let is_json = kind.is_some_and(|kind| kind.contains("json"));
        if is_json || body.first() == Some(&b'{') {
            let body: Value = serde_json::from_slice(body)
                .map_err(|_| ApiError::invalid("Invalid JSON format"))?;
            for (name, value) in body.as_object().into_iter().flatten() {
                match value {
                    Value::Array(values) => {
                        for value in values {
                            let problem = || {
                                ApiError::invalid(format!(
                                    "Invalid request: {name} must be a list of strings"
                                ))
                            };
                            let value = value.as_str().ok_or_else(problem)?;
                            fields.push((name.clone(), value.to_owned()));
                        }
                    }
                    Value::String(value) => fields.push((name.clone(), value.clone())),
                    _ => {}
                }
            }
        } else {
            fields.extend(form_urlencoded::parse(body).into_owned());
        }
        let query = query.unwrap_or_default().as_bytes();
        fields.extend(form_urlencoded::parse(query).into_owned());
        let field = |name: &str| {
            let field = fields
                .iter()
                .find(|(field, value)| field == name && !value.is_empty());
            field.map(|(_, value)| value.clone())
        };
        let texts = fields.iter().filter(|(name, _)| name == "text");
        Ok(Self {
            text: texts.map(|(_, text)| text.clone()).collect(),
            source: field("source_lang"),
            target: field("target_lang").ok_or_else(|| ApiError::missing("target_lang"))?,
            format: match field("tag_handling").as_deref() {
                Some("html") => Format::Html,
                Some("xml") => Format::Xml,
                None | Some("") => Format::Text,
                Some(other) => {
                    return Err(ApiError::invalid(format!(
                        "tag_handling {other} is not supported"
                    )));
                }
            },
        })
    }
}

/// DeepL's code, such as `EN-US`, as one of this server: with its script or region if a model has that. A region may be
/// left out, a script may not.
fn language(code: &str, service: &Service) -> String {
    let whole = canonical(code);
    match service.in_any_case(&whole) {
        Some(code) => code.to_owned(),
        None if matches!(&whole[..], "zh-Hans" | "zh-Hant") => whole,
        None => canonical(code.split('-').next().unwrap_or(code)),
    }
}
