//! A translation server with LibreTranslate's interface, for the models of
//! [`transformer-core`](transformer_core).
//!
//! The threads of a queue make batches of the sentences of all clients. [`router`] is an axum router, which a
//! program can mount beside its own routes; [`serve`] serves it and ends cleanly.
//!
//! ```no_run
//! use std::sync::Arc;
//! use transformer_core::Translator;
//! use transformer_serve::{Limits, Names, Pairs, Service, serve};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut pairs = Pairs::new();
//! let pair = ("en".to_owned(), "fr".to_owned());
//! pairs.add([(pair, Names::default())], 0, || {
//!     Translator::load("model").map_err(|error| error.to_string())
//! });
//! let service = Arc::new(Service::start(pairs, Limits::default()));
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:5000").await?;
//! serve(listener, service, async { tokio::signal::ctrl_c().await.unwrap_or(()) }).await?;
//! # Ok(())
//! # }
//! ```

// On docs.rs, which has a nightly compiler, each item names the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod deepl;
mod detect;
mod error;
mod fields;
mod files;
mod inside;
pub mod languages;
mod libretranslate;
mod model;
mod pairs;
mod queue;
mod service;
#[cfg(test)]
#[path = "../../transformer-text/tests/support/mod.rs"]
#[allow(dead_code, reason = "of the tests of transformer-text")]
mod support;

use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, OriginalUri, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tokio_stream::StreamExt;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};
use tower_http::timeout::RequestBodyTimeoutLayer;
use utoipa::OpenApi;

pub use inside::{Inside, Node, inside};
pub use model::Model;
pub use pairs::{Names, Pair, Pairs};
pub use queue::QueueLimits;
pub use service::{Limits, Service};

use deepl::DeeplError;
use error::ApiError;

/// The description of the interface.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "transformer",
        description = "LibreTranslate's interface, and DeepL's /v2/translate"
    ),
    paths(
        libretranslate::translate,
        libretranslate::detect,
        libretranslate::languages,
        libretranslate::settings,
        libretranslate::translate_file,
        libretranslate::download_file,
        libretranslate::health,
        libretranslate::inside,
        deepl::translate,
    )
)]
struct Description;

/// Connections that are open at once; others wait.
const CONNECTIONS: usize = 1024;

/// The time for the headers of a request.
const HEADERS: Duration = Duration::from_secs(10);

/// The time for each part of a body to follow the one before.
const BODY: Duration = Duration::from_secs(15);

/// The time for a client to read a part of an answer.
const WRITE: Duration = Duration::from_secs(60);

/// How often the samples of the metrics are summed up.
const UPKEEP: Duration = Duration::from_secs(5);

/// The recorder of the process's metrics.
static METRICS: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// The routes of the server.
pub fn router(service: Arc<Service>) -> Router {
    METRICS.get_or_init(recorded);
    let body = service.limits.body;
    Router::new()
        .route("/translate", post(libretranslate::translate))
        .route("/detect", post(libretranslate::detect))
        .route("/languages", get(libretranslate::languages))
        .route("/frontend/settings", get(libretranslate::settings))
        .route("/translate_file", post(libretranslate::translate_file))
        .route("/download_file/{name}", get(libretranslate::download_file))
        .route("/health", get(libretranslate::health))
        .route("/v2/translate", post(deepl::translate))
        .route("/inside", post(libretranslate::inside))
        .route("/metrics", get(prometheus))
        .route(
            "/spec",
            get(|| async { axum::Json(Description::openapi()) }),
        )
        .route("/", get(page))
        .route(
            "/page.css",
            get(|| async { of_page("text/css", include_str!("page/page.css")) }),
        )
        .route(
            "/page.js",
            get(|| async { of_page("text/javascript", include_str!("page/page.js")) }),
        )
        .fallback(|| async { ApiError::not_found("Not found") })
        .method_not_allowed_fallback(|| async { ApiError::method() })
        .layer(middleware::from_fn_with_state(service.clone(), observe))
        .layer(DefaultBodyLimit::max(body))
        .layer(RequestBodyTimeoutLayer::new(BODY))
        .with_state(service)
}

/// Installs the recorder of the metrics, whose samples a thread sums up as long as the process lives.
fn recorded() -> Option<PrometheusHandle> {
    let metrics = PrometheusBuilder::new().install_recorder().ok()?;
    let to_sum_up = metrics.clone();
    let upkeep = std::thread::Builder::new().name("metrics".to_owned());
    let upkeep = upkeep.spawn(move || {
        loop {
            std::thread::sleep(UPKEEP);
            to_sum_up.run_upkeep();
        }
    });
    // Without a thread, the samples are summed up when the metrics are read.
    drop(upkeep);
    Some(metrics)
}

/// The page. Its links are relative, and lead below the path where the router is mounted.
async fn page(OriginalUri(uri): OriginalUri) -> Response {
    let page = include_str!("page/index.html");
    let page = match uri.path() {
        path if path.ends_with('/') => page.to_owned(),
        path => {
            let path = path.replace('&', "&amp;").replace('"', "&quot;");
            page.replacen("<head>", &format!("<head>\n<base href=\"{path}/\">"), 1)
        }
    };
    of_page("text/html; charset=utf-8", page)
}

/// A file of the page, which asks nothing of any other server.
fn of_page(kind: &'static str, content: impl IntoResponse) -> Response {
    let policy = "default-src 'self'; img-src data:; frame-ancestors 'none'";
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
}

/// Adds the headers with which any page may use the server, as LibreTranslate's do.
pub fn with_cors(router: Router) -> Router {
    router.layer(
        CorsLayer::new()
            .allow_origin(Any)
            .allow_methods(Any)
            // A list, because `*` does not stand for `Authorization`.
            .allow_headers(AllowHeaders::mirror_request()),
    )
}

/// Serves until `end`; then no request is accepted, and those accepted before are answered.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    end: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_router(listener, router(service), end).await
}

/// [`serve`] with a router of your own, in which [`router`] is mounted.
///
/// # Errors
/// When the listener fails.
pub async fn serve_router(
    listener: TcpListener,
    router: Router,
    end: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS);
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut end = std::pin::pin!(end);
    loop {
        let (stream, permit) = tokio::select! {
            () = &mut end => break,
            accepted = accept(&listener, &connections) => accepted,
        };
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE));
        let connection = http.serve_connection(
            TokioIo::new(Box::pin(stream)),
            TowerToHyperService::new(router.clone()),
        );
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A broken connection is the client's affair.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    graceful.shutdown().await;
    Ok(())
}

/// Accepts a connection, once there are few enough. An error of one, such as too many open files, is not the end.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> (TcpStream, OwnedSemaphorePermit) {
    let permit = connections
        .clone()
        .acquire_owned()
        .await
        .expect("never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers are sent at once.
                let _ = stream.set_nodelay(true);
                return (stream, permit);
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Waits for SIGTERM, or Ctrl-C.
pub async fn until_signal() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}

/// Counts and times requests, and gives every error the form of an error of the interface.
async fn observe(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let path = match request.extensions().get::<axum::extract::MatchedPath>() {
        Some(path) => path.as_str().to_owned(),
        None => "other".to_owned(),
    };
    gauge!("transformer_requests_in_flight").increment(1.0);
    let in_flight = InFlight;
    // The time includes the one in which the body arrives.
    let response = tokio::time::timeout(service.limits.time, next.run(request)).await;
    let response = response.unwrap_or_else(|_| match &path[..] {
        "/v2/translate" => DeeplError::from(ApiError::timeout()).into_response(),
        _ => ApiError::timeout().into_response(),
    });
    let status = response.status();
    let status_text = status.as_u16().to_string();
    counter!("transformer_requests_total", "path" => path.clone(), "status" => status_text)
        .increment(1);
    let timed = Timed {
        path,
        start,
        _in_flight: in_flight,
    };
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is = |name: &str| kind.is_some_and(|kind| kind.as_bytes().starts_with(name.as_bytes()));
    if is("text/event-stream") {
        // It ends with its last event.
        return response.map(|body| {
            let parts = body.into_data_stream();
            Body::from_stream(parts.map(move |part| {
                let _until_the_end = &timed;
                part
            }))
        });
    }
    let is_json = is("application/json");
    match status {
        StatusCode::PAYLOAD_TOO_LARGE if !is_json => ApiError::too_large().into_response(),
        status if status.is_client_error() && !is_json => {
            ApiError::invalid("Invalid request").into_response()
        }
        _ => response,
    }
}

/// A request that is being answered, and records its time at the end.
struct Timed {
    path: String,
    start: Instant,
    _in_flight: InFlight,
}

impl Drop for Timed {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        histogram!("transformer_request_seconds", "path" => path).record(self.start.elapsed());
    }
}

/// A request under way, also one whose client goes.
struct InFlight;

impl Drop for InFlight {
    fn drop(&mut self) {
        gauge!("transformer_requests_in_flight").decrement(1.0);
    }
}

async fn prometheus(State(_): State<Arc<Service>>) -> Response {
    match METRICS.get().and_then(Option::as_ref) {
        Some(metrics) => {
            metrics.run_upkeep();
            (
                [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
                metrics.render(),
            )
                .into_response()
        }
        None => ApiError::not_found("Another recorder of metrics is installed").into_response(),
    }
}
