//! Documents in every format, and the bodies of requests, with a model that reverses words.

use std::path::Path;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use tower::ServiceExt;
use transformer_serve::{Limits, Names, Pairs, Service, router};
use transformer_text::{Format as DocumentFormat, SentenceTranslation, TextTranslator};

use super::{Target, read};
use crate::mutate::Format;

#[path = "../../../../transformer-text/tests/support/mod.rs"]
mod support;

use support::{Reverser, translator};

/// Bytes of a seed: what happens in a document happens in a few lines.
const SEED: usize = 250;

/// Bytes that are read of most inputs, so that a million of them take an hour. Every 64th is read to its end.
const MOST: usize = 4096;

/// A target that reads a text as a document, reverses the words of its sentences, and writes it; the model does so for
/// a few. The seeds are parts of the documents of transformer-text's tests.
fn target(format: DocumentFormat) -> Target {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../transformer-text/tests/texts");
    let files = std::fs::read_dir(folder).expect("the documents of the tests");
    let mut files: Vec<_> = files.flatten().map(|file| file.path()).collect();
    files.retain(|file| DocumentFormat::of_file(file) == format);
    files.sort();
    let with = |longest| {
        TextTranslator::new(translator(Reverser {
            longest,
            ..Reverser::default()
        }))
    };
    let (dividing, whole) = (with(60), with(usize::MAX));
    let seeds = files.iter().flat_map(|file| parts(&read(file)));
    let mut count = 0_usize;
    Target {
        format: Format::Text,
        seeds: seeds.collect(),
        run: Box::new(move |input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return false;
            };
            count += 1;
            let text = match count.is_multiple_of(64) {
                true => text,
                false => &text[..text.floor_char_boundary(MOST)],
            };
            if count % 64 == 1 {
                let translated = dividing.translate(text, format);
                translated.expect("the model computes no NaN");
                return true;
            }
            let prepared = whole.prepare(text, format);
            let translations = prepared.sentences().iter().map(|sentence| {
                let words: Vec<&str> = sentence.text().split(' ').rev().collect();
                SentenceTranslation::of(sentence, words.join(" "))
            });
            let translations = translations.collect();
            prepared.finish(translations);
            true
        }),
    }
}

/// A document in parts that begin with a line.
fn parts(document: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = vec![Vec::new()];
    for line in document.split_inclusive(|&byte| byte == b'\n') {
        let last = parts.last_mut().expect("never empty");
        match last.len() + line.len() > SEED && !last.is_empty() {
            true => parts.push(line.to_vec()),
            false => last.extend(line),
        }
    }
    parts
}

/// Plain text.
pub fn text(_: &Path) -> Target {
    target(DocumentFormat::Text)
}

/// HTML.
pub fn html(_: &Path) -> Target {
    target(DocumentFormat::Html)
}

/// XML.
pub fn xml(_: &Path) -> Target {
    target(DocumentFormat::Xml)
}

/// Markdown.
pub fn markdown(_: &Path) -> Target {
    target(DocumentFormat::Markdown)
}

/// SubRip.
pub fn srt(_: &Path) -> Target {
    target(DocumentFormat::Srt)
}

/// WebVTT.
pub fn vtt(_: &Path) -> Target {
    target(DocumentFormat::Vtt)
}

/// Fields.
pub fn tsv(_: &Path) -> Target {
    target(DocumentFormat::Tsv { column: 0 })
}

/// Messages of gettext.
pub fn po(_: &Path) -> Target {
    target(DocumentFormat::Po)
}

/// Bodies of requests to all routes that read one. None may be answered by an error of the server.
pub fn requests(_: &Path) -> Target {
    let mut pairs = Pairs::new();
    let pair = ("en".to_owned(), "fr".to_owned());
    pairs.add([(pair, Names::default())], 0, || {
        Ok(translator(Reverser::default()))
    });
    let limits = Limits {
        characters: 500,
        ..Limits::default()
    };
    let router = router(Arc::new(Service::start(pairs, limits)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime");
    let seeds = [
        r#"{"q": "Where is it?", "source": "en", "target": "fr", "format": "html", "alternatives": 2}"#,
        r#"{"q": ["a <b>b</b>", "c"], "source": "auto", "target": "fr", "stream": false, "api_key": "k"}"#,
        r#"{"text": ["a b", "c"], "source_lang": "EN", "target_lang": "FR", "tag_handling": "xml"}"#,
        "q=Where+is%20it&source=en&target=fr&format=markdown",
        "--x\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.md\"\r\n\r\n# A\n\r\n--x\r\ncontent-disposition: form-data; name=\"source\"\r\n\r\nen\r\n--x\r\ncontent-disposition: form-data; name=\"target\"\r\n\r\nfr\r\n--x--\r\n",
    ];
    Target {
        format: Format::Text,
        seeds: seeds.map(|seed| seed.as_bytes().to_vec()).into(),
        run: Box::new(move |input| {
            let mut is_accepted = false;
            for (path, kind) in [
                ("/translate", "application/json"),
                ("/translate", "application/x-www-form-urlencoded"),
                ("/detect", "application/json"),
                ("/v2/translate", "application/json"),
                ("/inside", "application/json"),
                ("/translate_file", "multipart/form-data; boundary=x"),
            ] {
                let request = Request::post(path).header("content-type", kind);
                let request = request.body(Body::from(input.to_vec())).expect("a request");
                let (status, body) = runtime.block_on(async {
                    let answer = router.clone().oneshot(request).await.expect("an answer");
                    let status = answer.status();
                    (status, to_bytes(answer.into_body(), usize::MAX).await)
                });
                body.expect("a whole body");
                assert!(!status.is_server_error(), "{path}: {status}");
                is_accepted |= status.is_success();
            }
            is_accepted
        }),
    }
}
