//! A web program of its own that translates: the server's routes are mounted beside other ones.
//!
//!     cargo run --release --features serve --example serve_own -- model
//!     curl http://127.0.0.1:5000/hello
//!     curl http://127.0.0.1:5000/mt/translate -d q=Hello -d source=en -d target=fr

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use transformer_core::Translator;
use transformer_serve::{Limits, Names, Pairs, Service, router, serve_router, until_signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("give the model's directory")?;
    let mut pairs = Pairs::new();
    let english_french = ("en".to_owned(), "fr".to_owned());
    // The model is loaded when it is first used.
    pairs.add([(english_french, Names::default())], 0, move || {
        Translator::load(&directory).map_err(|error| error.to_string())
    });
    let service = Arc::new(Service::start(pairs, Limits::default()));

    let program = Router::new()
        .route("/hello", get(|| async { "Hello" }))
        .nest("/mt", router(service.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:5000").await?;
    println!("http://{}/hello", listener.local_addr()?);
    serve_router(listener, program, until_signal()).await?;
    service.close();
    Ok(())
}
