//! The command `serve`: what it refuses, and that it answers and ends. Its interface is tested in transformer-serve,
//! and with other people's clients in tests/clients.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use support::{directory, fails, file, folder, program, started};

/// A model of one pair.
fn pair() -> PathBuf {
    directory("marian-en-fr")
}

#[test]
fn what_cannot_be_served_is_refused_in_one_line() {
    let folder = folder();
    let model = pair();
    let missing = folder.path().join("missing");
    let empty = file(folder.path(), "keys", "# none\n\n");
    let glossary = file(folder.path(), "terms", "one\ttwo\nthree\n");
    let model = model.display().to_string();
    let named = format!("en-fr={model}");
    let same = format!("zh-zh-Hans={model}");
    let many = directory("marian-multi").display().to_string();
    let spanish = format!("en-es={many}");
    for (flags, problem) in [
        (
            vec!["--model", &model],
            format!(
                "{model}: the model has no language tokens; name its languages, such as en-fr={model}"
            ),
        ),
        (
            vec!["--model", missing.to_str().unwrap()],
            format!("{}: no such directory", missing.display()),
        ),
        (
            vec!["--model", &named, "--api-keys", empty.to_str().unwrap()],
            format!("{}: has no keys", empty.display()),
        ),
        (
            vec!["--model", &named, "--glossary", glossary.to_str().unwrap()],
            format!(
                "{}: line 2: a term and its translation must be separated by a tab",
                glossary.display()
            ),
        ),
        (
            vec!["--model", &named, &named],
            "--model: en-fr has two models".to_owned(),
        ),
        (
            vec!["--model", &many],
            format!("{many}: no token for the source language"),
        ),
        (
            vec!["--model", &spanish],
            format!("{spanish}: no token for the language `es`"),
        ),
        (
            vec!["--model", &same],
            format!("{same}: names no two languages, such as en-fr=DIR"),
        ),
        (
            vec!["--model", &named, "--listen", "192.0.2.1:5000"],
            "192.0.2.1:5000: ".to_owned(),
        ),
    ] {
        let error = fails(program("serve").args(&flags));
        let line = error.lines().last().unwrap_or_default().to_lowercase();
        let expected = format!("error: {problem}").to_lowercase();
        assert!(line.starts_with(&expected), "{line}, not {expected}");
    }
}

/// On a port that the system chooses; a multilingual model serves all of its pairs. The codes of pairs and requests may
/// be written differently, and the token of a language may be a part of the source.
#[cfg(unix)]
#[test]
fn a_served_model_translates_and_ends_at_a_signal() {
    let [pair, many] = [pair(), directory("t5-gated")];
    let mut command = program("serve");
    command.arg("--model").arg(directory("m2m100"));
    command.args(["zh-pt-BR", "pt-BR-EN"].map(|codes| format!("{codes}={}", pair.display())));
    command.args(["it-fr", "it-de"].map(|codes| format!("{codes}={}", many.display())));
    command.args(["--listen", "127.0.0.1:0"]);
    let mut server = started(&mut command);
    let mut log = BufReader::new(server.stderr.take().unwrap());
    let address = loop {
        let mut line = String::new();
        assert!(
            log.read_line(&mut line).unwrap() > 0,
            "the server has ended"
        );
        if let Some((_, address)) = line.trim().split_once("listening on http://") {
            break address.to_owned();
        }
    };
    let ask = |request: &str| {
        let mut connection = TcpStream::connect(&address).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };
    let end = "host: a\r\nconnection: close\r\n";
    let languages = ask(&format!("GET /languages HTTP/1.1\r\n{end}\r\n"));
    assert!(languages.contains(r#""name":"French""#), "{languages}");
    let translate = |source: &str, target: &str| {
        let body = format!("q=I+am+tired.&source={source}&target={target}");
        let length = body.len();
        let answer = ask(&format!(
            "POST /translate HTTP/1.1\r\n{end}content-length: {length}\r\n\r\n{body}"
        ));
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let (_, translated) = answer.split_once(r#"{"translatedText":""#).unwrap();
        translated.to_owned()
    };
    translate("en", "fr");
    translate("zh-Hans", "pt-br");
    translate("pt-BR", "en");
    assert_ne!(translate("it", "fr"), translate("it", "de"));
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}
