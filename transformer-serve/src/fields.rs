//! The parameters of a request: of its query, and of its body as JSON or as a form.

use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The parameters of a request.
pub(crate) struct Fields {
    fields: Map<String, Value>,
}

impl Fields {
    /// The parameters of a query, and of a body, which come first.
    pub fn of(query: Option<&str>, headers: &HeaderMap, body: &Bytes) -> Result<Self, ApiError> {
        let mut fields = form(query.unwrap_or_default().as_bytes());
        let kind = headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let is_json = kind.is_some_and(|kind| kind.contains("json"));
        if kind.is_some_and(|kind| kind.starts_with("multipart/")) {
            return Err(ApiError::invalid(
                "Invalid request: send JSON or a form (application/x-www-form-urlencoded); multipart is for /translate_file",
            ));
        }
        if is_json || body.first() == Some(&b'{') {
            let parsed: Value = serde_json::from_slice(body)
                .map_err(|_| ApiError::invalid("Invalid JSON format"))?;
            let Value::Object(parsed) = parsed else {
                return Err(ApiError::invalid("Invalid JSON format"));
            };
            fields.extend(parsed);
        } else {
            fields.extend(form(body));
        }
        Ok(Self { fields })
    }

    /// A parameter that is a text.
    pub fn text(&self, name: &str) -> Result<Option<&str>, ApiError> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ApiError::invalid(format!(
                "Invalid request: {name} must be a string"
            ))),
        }
    }

    /// A parameter that is a text and must be there.
    pub fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.text(name)?
            .filter(|text| !text.is_empty())
            .ok_or_else(|| ApiError::missing(name))
    }

    /// A parameter that is a count.
    pub fn count(&self, name: &str) -> Result<Option<usize>, ApiError> {
        let count = match self.fields.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.as_u64().and_then(|count| count.try_into().ok()),
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        let problem =
            || ApiError::invalid(format!("Invalid request: {name} must be a whole number"));
        count.map(Some).ok_or_else(problem)
    }

    /// A parameter that is yes or no.
    pub fn is_set(&self, name: &str) -> bool {
        match self.fields.get(name) {
            Some(Value::Bool(is_set)) => *is_set,
            Some(Value::String(text)) => matches!(&text[..], "1" | "true"),
            _ => false,
        }
    }

    /// The texts to translate: one, or a list.
    pub fn texts(&self) -> Result<Texts, ApiError> {
        match self.fields.get("q") {
            None | Some(Value::Null) => Err(ApiError::missing("q")),
            Some(Value::String(text)) => Ok(Texts::One(text.clone())),
            Some(Value::Array(texts)) => {
                let texts = texts.iter().map(|text| text.as_str().map(str::to_owned));
                let texts: Option<Vec<String>> = texts.collect();
                let problem = || {
                    ApiError::invalid("Invalid request: q must be a string or a list of strings")
                };
                Ok(Texts::Several(texts.ok_or_else(problem)?))
            }
            Some(_) => Err(ApiError::invalid(
                "Invalid request: q must be a string or a list of strings",
            )),
        }
    }
}

/// The texts of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Texts {
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        }
    }
}

/// The fields of a form; a name that is there twice has its last value.
fn form(text: &[u8]) -> Map<String, Value> {
    let fields = form_urlencoded::parse(text);
    fields
        .map(|(name, value)| (name.into_owned(), Value::String(value.into_owned())))
        .collect()
}
