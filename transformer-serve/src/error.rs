//! Errors, as clients see them.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// An answer that is an error: its status, and `{"error": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    message: String,
}

/// The body of an error.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong, in one line.
    pub error: String,
}

/// The errors of all routes that translate, for the description of the interface.
#[derive(utoipa::IntoResponses)]
#[allow(dead_code, reason = "describes answers, which `ApiError` makes")]
pub(crate) enum Errors {
    /// A parameter is missing or wrong, or a limit is exceeded.
    #[response(status = 400)]
    Invalid(ErrorBody),
    /// The key is wrong.
    #[response(status = 403)]
    Forbidden(ErrorBody),
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(ErrorBody),
    /// Too many tokens are waiting.
    #[response(status = 429)]
    Busy(ErrorBody),
    /// The model cannot be loaded, or cannot compute.
    #[response(status = 500)]
    Failed(ErrorBody),
    /// The server is ending.
    #[response(status = 503)]
    Ending(ErrorBody),
    /// The request took too long.
    #[response(status = 504)]
    Timeout(ErrorBody),
}

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }

    /// 400: the request is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400: a parameter is missing.
    pub fn missing(name: &str) -> Self {
        Self::invalid(format!("Invalid request: missing {name} parameter"))
    }

    /// 403: the key is wrong, or something is switched off.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// 404.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 405.
    pub fn method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
    }

    /// 413: the body is too large.
    pub fn too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "Invalid request: the body is too large",
        )
    }

    /// 429: the queue is full.
    pub fn busy() -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "Slowdown: the server is busy, try again later",
        )
    }

    /// 503: the server is ending.
    pub fn ending() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The server is ending")
    }

    /// 504: the time for a request is over.
    pub fn timeout() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Cannot translate text: it took too long",
        )
    }

    /// 500: the model cannot compute.
    pub fn failed(message: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Cannot translate text: {message}"),
        )
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: self.message,
        };
        let retry =
            (self.status == StatusCode::TOO_MANY_REQUESTS).then_some([("retry-after", "1")]);
        (
            self.status,
            retry.map(axum::response::AppendHeaders),
            Json(body),
        )
            .into_response()
    }
}
