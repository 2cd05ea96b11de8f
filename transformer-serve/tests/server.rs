//! The server with a model whose translations are known: it reverses the words and swaps capital and small letters.

#[path = "../../transformer-text/tests/support/mod.rs"]
mod support;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use support::{Reverser, translator};
use tower::ServiceExt;
use transformer_serve::{Limits, Names, Pairs, Service, router};

/// A service between German, English and French, over English.
fn service(model: &Reverser, limits: Limits) -> Service {
    let mut pairs = Pairs::new();
    for (source, target) in [("en", "fr"), ("de", "en"), ("en", "de")] {
        let model = model.clone();
        let names = Names {
            code: source.to_owned(),
            ..Names::default()
        };
        let pair = (source.to_owned(), target.to_owned());
        pairs.add([(pair, names)], 10, move || Ok(translator(model.clone())));
    }
    Service::start(pairs, limits)
}

fn server() -> Router {
    router(Arc::new(service(&Reverser::default(), Limits::default())))
}

/// The status and the body of an answer.
async fn ask(router: &Router, request: Request<Body>) -> (StatusCode, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    (
        status,
        serde_json::from_slice(&body).unwrap_or(Value::String(text)),
    )
}

async fn post(router: &Router, path: &str, body: Value) -> (StatusCode, Value) {
    let request = Request::post(path).header("content-type", "application/json");
    ask(router, request.body(body.to_string().into()).unwrap()).await
}

async fn get(router: &Router, path: &str) -> (StatusCode, Value) {
    ask(router, Request::get(path).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn a_text_is_translated_as_by_libretranslate() {
    let router = server();
    let request = json!({"q": "Where is it?", "source": "en", "target": "fr"});
    let expected = json!({"translatedText": "IT? IS wHERE"});
    assert_eq!(
        post(&router, "/translate", request).await,
        (StatusCode::OK, expected.clone())
    );
    // As a form, and in the query.
    let form =
        Request::post("/translate").header("content-type", "application/x-www-form-urlencoded");
    let form = form
        .body("q=Where+is+it%3F&source=en&target=fr".into())
        .unwrap();
    assert_eq!(ask(&router, form).await, (StatusCode::OK, expected.clone()));
    let query = Request::post("/translate?q=Where%20is%20it%3F&source=en&target=fr");
    assert_eq!(
        ask(&router, query.body(Body::empty()).unwrap()).await,
        (StatusCode::OK, expected)
    );

    // A list, each text with its own language; over English: twice reversed.
    let texts = [
        "Where is the nearest station, please?",
        "Wo ist der nächste Bahnhof bitte",
    ];
    let request =
        json!({"q": texts, "source": "auto", "target": "fr", "alternatives": 2, "format": "text"});
    let (status, answer) = post(&router, "/translate", request).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        answer["translatedText"],
        json!([
            "PLEASE? STATION, NEAREST THE IS wHERE",
            "Wo ist der nächste Bahnhof bitte"
        ])
    );
    let detected = answer["detectedLanguage"].as_array().unwrap();
    assert_eq!(
        [&detected[0]["language"], &detected[1]["language"]],
        ["en", "de"]
    );
    assert!(detected[0]["confidence"].as_f64().unwrap() > 50.0);
    assert_eq!(answer["alternatives"].as_array().unwrap().len(), 2);
    assert_eq!(answer["probabilities"], Value::Null);

    let request = json!({"q": "<p>Where <b>is it</b>?</p>", "source": "en", "target": "fr", "format": "html"});
    let (_, answer) = post(&router, "/translate", request).await;
    assert_eq!(
        answer,
        json!({"translatedText": "<p><b>IT? IS</b> wHERE</p>"})
    );
    // The probabilities of the translation and of its alternatives, best first.
    let request = json!({"q": "Where is it?", "source": "en", "target": "fr", "alternatives": 2, "probabilities": true});
    let (_, answer) = post(&router, "/translate", request).await;
    let probabilities = answer["probabilities"].as_array().unwrap();
    let probabilities: Vec<f64> = probabilities.iter().filter_map(Value::as_f64).collect();
    assert_eq!(
        probabilities.len(),
        1 + answer["alternatives"].as_array().unwrap().len()
    );
    assert!(
        probabilities.is_sorted_by(|one, next| one >= next) && probabilities[0] > 0.8,
        "{probabilities:?}"
    );
    // Markup of XML.
    let request = json!({"text": ["one <x id='1'>two three</x> <y/> four"], "source_lang": "EN", "target_lang": "FR", "tag_handling": "xml"});
    let (_, answer) = post(&router, "/v2/translate", request).await;
    assert_eq!(
        answer["translations"][0]["text"],
        "<y/> FOUR <x id='1'>THREE TWO</x> ONE"
    );
    // A text in the target language stays as it is, and an empty one is empty.
    let request = json!({"q": ["Where?", ""], "source": "en", "target": "en"});
    assert_eq!(
        post(&router, "/translate", request).await.1,
        json!({"translatedText": ["Where?", ""]})
    );
    let request = json!({"q": [], "source": "en", "target": "fr"});
    assert_eq!(
        post(&router, "/translate", request).await.1,
        json!({"translatedText": []})
    );
}

/// Of a language that is translated into the target.
#[tokio::test]
async fn a_text_whose_language_is_not_detected_is_no_error() {
    let mut pairs = Pairs::new();
    let pair = ("fr".to_owned(), "de".to_owned());
    let load = || Ok(translator(Reverser::default()));
    pairs.add([(pair, Names::default())], 10, load);
    let router = router(Arc::new(Service::start(pairs, Limits::default())));
    let request = json!({"q": ["Bonjour à tous", "123"], "source": "auto", "target": "de"});
    let (_, answer) = post(&router, "/translate", request).await;
    assert_eq!(answer["translatedText"], json!(["TOUS à bONJOUR", "123"]));
    let request = json!({"text": ["123"], "target_lang": "DE"});
    let (_, answer) = post(&router, "/v2/translate", request).await;
    let expected = json!({"detected_source_language": "FR", "text": "123", "billed_characters": 3});
    assert_eq!(answer["translations"], json!([expected]));
}

/// As a query, and JSON without a type; in English where there is no British English.
#[tokio::test]
async fn deepls_requests_may_have_any_form() {
    let router = server();
    let expected = json!({"detected_source_language": "DE", "text": "B A", "billed_characters": 3});
    let expected = json!({"translations": [expected]});
    let query = Request::post("/v2/translate?text=a+b&source_lang=DE&target_lang=EN-GB");
    let found = ask(&router, query.body(Body::empty()).unwrap()).await;
    assert_eq!(found, (StatusCode::OK, expected.clone()));
    let body = r#"{"text": ["a b"], "source_lang": "DE", "target_lang": "EN"}"#;
    let plain = Request::post("/v2/translate").body(body.into()).unwrap();
    assert_eq!(
        ask(&router, plain).await,
        (StatusCode::OK, expected.clone())
    );
    let mut pairs = Pairs::new();
    let names = Names {
        code: "de".to_owned(),
        ..Names::default()
    };
    let pair = ("de".to_owned(), "en-GB".to_owned());
    pairs.add([(pair, names)], 10, || Ok(translator(Reverser::default())));
    let british = transformer_serve::router(Arc::new(Service::start(pairs, Limits::default())));
    let request = json!({"text": ["a b"], "source_lang": "DE", "target_lang": "EN-GB"});
    let found = post(&british, "/v2/translate", request).await;
    assert_eq!(found, (StatusCode::OK, expected));
    let request = json!({"text": ["a"], "source_lang": "DE", "target_lang": "ZH-HANT"});
    // DeepL's clients show `message`.
    let error_of = |text: &str| json!({"error": text, "message": text});
    let error = error_of("zh-Hant is not supported");
    let found = post(&router, "/v2/translate", request).await;
    assert_eq!(found, (StatusCode::BAD_REQUEST, error));
    for (request, error) in [
        (
            json!({"text": ["a", 5, "b"], "target_lang": "FR"}),
            "Invalid request: text must be a list of strings",
        ),
        (
            json!({"text": ["a"], "source_lang": "XX", "target_lang": "XX"}),
            "xx is not supported",
        ),
        (
            json!({"text": ["a".repeat(100_001)], "target_lang": "FR"}),
            "Invalid request: request (100001) exceeds text limit (100000)",
        ),
    ] {
        let expected = (StatusCode::BAD_REQUEST, error_of(error));
        assert_eq!(post(&router, "/v2/translate", request).await, expected);
    }
}

#[tokio::test]
async fn errors_are_libretranslates() {
    let limits = Limits {
        characters: 30,
        texts: 2,
        alternatives: 3,
        body: 2000,
        ..Limits::default()
    };
    let router = router(Arc::new(service(&Reverser::default(), limits)));
    let text = |text: &str| json!({"q": text, "source": "en", "target": "fr"});
    for (body, status, error) in [
        (
            json!({"source": "en", "target": "fr"}),
            400,
            "Invalid request: missing q parameter",
        ),
        (
            json!({"q": "a", "target": "fr"}),
            400,
            "Invalid request: missing source parameter",
        ),
        (
            json!({"q": "a", "source": "en"}),
            400,
            "Invalid request: missing target parameter",
        ),
        (
            json!({"q": 1, "source": "en", "target": "fr"}),
            400,
            "Invalid request: q must be a string or a list of strings",
        ),
        (
            json!({"q": ["a", 1], "source": "en", "target": "fr"}),
            400,
            "Invalid request: q must be a string or a list of strings",
        ),
        (
            json!({"q": "a", "source": "xx", "target": "fr"}),
            400,
            "xx is not supported",
        ),
        (
            json!({"q": "a", "source": "en", "target": "xx"}),
            400,
            "xx is not supported",
        ),
        (
            json!({"q": "a", "source": "xx", "target": "xx"}),
            400,
            "xx is not supported",
        ),
        (
            json!({"q": "a", "source": "fr", "target": "en"}),
            400,
            "English (en) is not available as a target language from French (fr)",
        ),
        (
            json!({"q": "a", "source": "en", "target": "fr", "format": "docx"}),
            400,
            "docx format is not supported",
        ),
        (
            text(&"é".repeat(31)),
            400,
            "Invalid request: request (31) exceeds text limit (30)",
        ),
        (
            json!({"q": ["a", "b", "c"], "source": "en", "target": "fr"}),
            400,
            "Invalid request: request (3) exceeds list limit (2)",
        ),
        (
            json!({"q": "a", "source": "en", "target": "fr", "alternatives": 10000}),
            400,
            "Invalid request: request (10000) exceeds alternatives limit (3)",
        ),
        (
            json!({"q": "a", "source": "en", "target": "fr", "alternatives": -1}),
            400,
            "Invalid request: alternatives must be a whole number",
        ),
        (
            text(&"a".repeat(3000)),
            413,
            "Invalid request: the body is too large",
        ),
        (json!([1]), 400, "Invalid JSON format"),
    ] {
        let found = post(&router, "/translate", body.clone()).await;
        assert_eq!(
            found,
            (
                StatusCode::from_u16(status).unwrap(),
                json!({"error": error})
            ),
            "{body}"
        );
    }
    let body =
        json!({"text": ["a"], "source_lang": "EN", "target_lang": "FR", "tag_handling": "docx"});
    assert_eq!(
        post(&router, "/v2/translate", body).await,
        (
            StatusCode::BAD_REQUEST,
            json!({
                "error": "tag_handling docx is not supported",
                "message": "tag_handling docx is not supported",
            })
        )
    );
    for body in ["{", "{\"q\": \"\u{1}", "[[[[[[["] {
        let request = Request::post("/translate").header("content-type", "application/json");
        let found = ask(&router, request.body(body.into()).unwrap()).await;
        assert_eq!(
            found,
            (
                StatusCode::BAD_REQUEST,
                json!({"error": "Invalid JSON format"})
            )
        );
    }
    assert_eq!(
        get(&router, "/nowhere").await,
        (StatusCode::NOT_FOUND, json!({"error": "Not found"}))
    );
    assert_eq!(
        get(&router, "/translate").await,
        (
            StatusCode::METHOD_NOT_ALLOWED,
            json!({"error": "Method not allowed"})
        )
    );
}

#[tokio::test]
async fn keys_are_required_where_there_are_some() {
    let service = service(&Reverser::default(), Limits::default())
        .with_keys(vec!["one".into(), "two".into()]);
    let router = router(Arc::new(service));
    let with = |key: Value| json!({"q": "a b", "source": "en", "target": "fr", "api_key": key});
    let error = json!({"error": "Please contact the server operator to get an API key"});
    assert_eq!(
        post(&router, "/translate", with(Value::Null)).await,
        (StatusCode::BAD_REQUEST, error)
    );
    let error = json!({"error": "Invalid API key"});
    assert_eq!(
        post(&router, "/translate", with("three".into())).await,
        (StatusCode::FORBIDDEN, error.clone())
    );
    assert_eq!(
        post(&router, "/detect", json!({"q": "a", "api_key": "on"})).await,
        (StatusCode::FORBIDDEN, error)
    );
    assert_eq!(
        post(&router, "/translate", with("two".into())).await.0,
        StatusCode::OK
    );
    assert_eq!(
        get(&router, "/frontend/settings").await.1["keyRequired"],
        true
    );

    // DeepL's clients send it in a header.
    let request = |key: &str| {
        let request = Request::post("/v2/translate").header("content-type", "application/json");
        let request = request.header("authorization", format!("DeepL-Auth-Key {key}"));
        request
            .body(
                json!({"text": ["a b"], "target_lang": "FR", "source_lang": "EN"})
                    .to_string()
                    .into(),
            )
            .unwrap()
    };
    for wrong in ["no", ""] {
        assert_eq!(ask(&router, request(wrong)).await.0, StatusCode::FORBIDDEN);
    }
    let expected = json!({"translations": [{"detected_source_language": "EN", "text": "B A", "billed_characters": 3}]});
    assert_eq!(
        ask(&router, request("one")).await,
        (StatusCode::OK, expected)
    );
}

#[tokio::test]
async fn the_server_describes_itself() {
    let router = server();
    let (_, languages) = get(&router, "/languages").await;
    assert_eq!(
        languages,
        json!([
            {"code": "de", "name": "German", "targets": ["en", "fr"]},
            {"code": "en", "name": "English", "targets": ["de", "fr"]},
            {"code": "fr", "name": "French", "targets": []},
        ])
    );
    assert_eq!(
        get(&router, "/health").await,
        (StatusCode::OK, json!({"status": "ok"}))
    );
    let (_, found) = post(
        &router,
        "/detect",
        json!({"q": "Guten Tag, wie geht es Ihnen?"}),
    )
    .await;
    assert_eq!(found[0]["language"], "de");
    let (_, spec) = get(&router, "/spec").await;
    assert!(spec["openapi"].as_str().unwrap().starts_with("3."));
    assert!(spec["paths"]["/translate"]["post"].is_object());
    let metrics = get(&router, "/metrics").await.1;
    assert!(
        metrics
            .as_str()
            .unwrap()
            .contains("transformer_requests_total"),
        "{metrics}"
    );
}

#[tokio::test]
async fn files_are_translated_and_fetched() {
    let router = server();
    let part = |name: &str, value: &str| {
        format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let upload = |file_name: &str| {
        let file = format!(
            "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{file_name}\"\r\n\r\n# Big title\n\nTwo words\n\r\n"
        );
        let body = file + &part("source", "en") + &part("target", "fr") + "--x--\r\n";
        let request = Request::post("/translate_file")
            .header("content-type", "multipart/form-data; boundary=x");
        request
            .header("host", "localhost:1")
            .body(body.into())
            .unwrap()
    };
    let (status, answer) = ask(&router, upload("a.md")).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let url = answer["translatedFileUrl"].as_str().unwrap();
    let path = url.strip_prefix("http://localhost:1").unwrap();
    let expected = Value::String("# TITLE bIG\n\nWORDS tWO\n".into());
    assert_eq!(get(&router, path).await, (StatusCode::OK, expected));
    for name in ["..%2f..%2fetc%2fpasswd", "x.md", "%00"] {
        let found = get(&router, &format!("/download_file/{name}")).await;
        assert_eq!(
            found,
            (StatusCode::NOT_FOUND, json!({"error": "Invalid filename"}))
        );
    }
    let (status, _) = ask(&router, upload("a.docx")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

/// The links of the page are relative, and so is the path of a translated file.
#[tokio::test]
async fn the_router_is_mounted_below_another_path() {
    let mounted = Router::new().nest("/mt", server());
    let (_, page) = get(&mounted, "/mt").await;
    assert!(
        page.as_str().unwrap().contains("<base href=\"/mt/\">"),
        "{page}"
    );
    let (_, page) = get(&server(), "/").await;
    assert!(!page.as_str().unwrap().contains("<base"), "{page}");
    let file =
        "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\na b\r\n";
    let languages = ["source", "target"].into_iter().zip(["en", "fr"]);
    let languages = languages.map(|(name, code)| {
        format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{code}\r\n")
    });
    let body = file.to_owned() + &languages.collect::<String>() + "--x--\r\n";
    let request = Request::post("/mt/translate_file").header("host", "localhost:1");
    let request = request.header("content-type", "multipart/form-data; boundary=x");
    let (_, answer) = ask(&mounted, request.body(body.into()).unwrap()).await;
    let url = answer["translatedFileUrl"].as_str().unwrap();
    let path = url.strip_prefix("http://localhost:1").unwrap();
    let expected = Value::String("B A".into());
    assert_eq!(get(&mounted, path).await, (StatusCode::OK, expected));
}

/// A request that waits for its model, which another request loads, needs no thread, and the model is loaded once.
#[tokio::test]
async fn one_request_loads_a_model() {
    let loads = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = loads.clone();
    let mut pairs = Pairs::new();
    let pair = ("en".to_owned(), "fr".to_owned());
    pairs.add([(pair, Names::default())], 10, move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(100));
        Ok(translator(Reverser::default()))
    });
    let router = router(Arc::new(Service::start(pairs, Limits::default())));
    let texts: Vec<String> = (0..50).map(|number| format!("a b{number}")).collect();
    let request = json!({"q": texts, "source": "en", "target": "fr"});
    let (status, answer) = post(&router, "/translate", request).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["translatedText"][49], "B49 A");
    assert_eq!(loads.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn sentences_are_streamed() {
    let router = server();
    let request =
        json!({"q": "One two. Three four.", "source": "en", "target": "fr", "stream": true});
    let (_, events) = post(&router, "/translate", request).await;
    let events = events.as_str().unwrap();
    let data: Vec<Value> = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(data.len(), 3, "{events}");
    assert_eq!(data[2], json!({"translatedText": "TWO. oNE FOUR. tHREE"}));
}
