//! Directories of Marian, used by every command. tests/parity shows that results are Marian's on every backend.

use std::fs;
use std::path::Path;

use transformer_core::ModelDirectory;

use super::support::{
    copied, corpus, directory, fails, file, folder, program, read_json, run_on_input, stdout,
    succeeds, with_model,
};
use super::{fine_tuned, translated};

const NAMES: [&str; 3] = ["marian-npz", "marian-student-int8", "marian-words"];
/// Greedily in single precision, as the results in `expected.json`.
const GREEDY: [&str; 8] = [
    "--backend",
    "flex",
    "--precision",
    "f32",
    "--beam",
    "1",
    "--length-penalty",
    "0",
];

/// Texts of a directory and its greedy translations.
fn expected(model: &Path) -> (Vec<String>, Vec<String>) {
    let expected = read_json(&model.join("expected.json"));
    let sentences = expected["sentences"].as_array().unwrap().iter().take(6);
    let pairs = sentences.map(|sentence| {
        let tokens = sentence["beam1"]["tokens"].as_array().unwrap();
        let pieces: Vec<&str> = tokens.iter().map(|token| token.as_str().unwrap()).collect();
        let text = match model.join("vocab.spm").exists() {
            true => pieces.concat().replace('\u{2581}', " "),
            false => pieces.join(" "),
        };
        (
            sentence["text"].as_str().unwrap().to_owned(),
            text.trim().to_owned(),
        )
    });
    pairs.unzip()
}

#[test]
fn texts_are_translated_as_by_marian() {
    for name in NAMES {
        let model = directory(name);
        let (texts, expected) = expected(&model);
        assert_eq!(
            translated(&model, &GREEDY, &texts.join("\n")),
            expected,
            "{name}"
        );
    }
    let found = succeeds(program("info").arg(directory("marian-student-int8")));
    for line in [
        "  format       Marian",
        "    decoder_mixer = recurrence (not given)",
    ] {
        assert!(found.lines().any(|found| found == line), "{line}: {found}");
    }
}

#[test]
fn every_command_reads_the_directories() {
    let folder = folder();
    let text = "I am tired.\tJe suis fatigué.\nGo!\tVas-y !\n";
    let pairs = file(folder.path(), "pairs.tsv", text);
    for name in NAMES {
        let model = directory(name);
        let out = succeeds(with_model("evaluate", &model).arg("--data").arg(&pairs));
        assert!(out.contains("BLEU"), "{out}");
        let out = succeeds(with_model("score", &model).arg("--input").arg(&pairs));
        assert_eq!(out.lines().count(), 2);
        let picture = folder.path().join(format!("{name}.svg"));
        let mut command = with_model("attention", &model);
        succeeds(command.args(["--source", "a b"]).arg("--out").arg(&picture));

        let mut command = with_model("average", &model);
        let out = folder.path().join("average");
        let error = fails(command.arg(&model).arg("--out").arg(out));
        assert!(error.contains("Marian"), "{error}");
        let quantized = folder.path().join(format!("{name}-quantized"));
        let mut command = with_model("quantize", &model);
        match name {
            "marian-student-int8" => {
                let error = fails(command.arg("--out").arg(&quantized));
                assert!(error.ends_with("the model is already in 8 bits"), "{error}");
            }
            _ => {
                succeeds(command.arg("--out").arg(&quantized));
                assert_eq!(translated(&quantized, &[], "a b").len(), 1);
            }
        }
    }
}

/// A model that Hugging Face's Marian or CTranslate2 can compute is exported to their formats, others are refused.
#[test]
fn the_models_are_exported() {
    let (folder, model) = (folder(), directory("marian-npz"));
    let (texts, expected) = expected(&model);
    let out = folder.path().join("ct2");
    let mut command = with_model("export", &model);
    command.args(["--format", "ctranslate2", "--out"]);
    succeeds(command.arg(&out));
    assert_eq!(ModelDirectory::open(&out).unwrap().format(), "CTranslate2");
    assert_eq!(translated(&out, &GREEDY, &texts.join("\n")), expected);

    let mut command = with_model("export", &directory("marian-student-int8"));
    let error = fails(command.arg("--out").arg(folder.path().join("student")));
    assert!(error.contains("decoder_mixer"), "{error}");
}

#[test]
fn the_models_are_fine_tuned() {
    let folder = folder();
    let pairs = corpus(folder.path());
    for name in ["marian-npz", "marian-student-int8"] {
        let tuned = fine_tuned(&directory(name), folder.path(), &pairs);
        assert_eq!(translated(&tuned, &[], "Where is he?").len(), 1);
    }
}

#[test]
fn damaged_files_are_named_in_one_line() {
    let copy = copied("marian-words");
    let path = copy.path().join("model.bin");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = fails(program("info").arg(copy.path()));
    assert!(error.contains("model.bin: `"), "{error}");
    assert!(
        error.ends_with("ends beyond the end of the file"),
        "{error}"
    );
    fs::write(&path, &whole).unwrap();
    fs::remove_file(copy.path().join("target.vocab.yml")).unwrap();
    let error = fails(program("info").arg(copy.path()));
    assert!(error.contains("target.vocab.yml"), "{error}");
}

/// One of the sentences and their translations leaves the translations as they are; an empty one leaves the tokens of
/// the sentences, because source and target share a vocabulary.
#[test]
fn a_shortlist_is_made_and_used() {
    let (folder, model) = (folder(), copied("marian-student-int8"));
    let (model, texts_and_expected) = (model.path(), expected(model.path()));
    let (texts, expected) = texts_and_expected;
    let lines = texts.iter().zip(&expected);
    let lines: String = lines
        .map(|(text, target)| format!("{text}\t{target}\n"))
        .collect();
    let pairs = file(folder.path(), "pairs.tsv", &lines);
    let made = |name: &str, flags: &[&str]| {
        let path = folder.path().join(name);
        let mut command = with_model("shortlist", model);
        command.arg("--data").arg(&pairs).arg("--out").arg(&path);
        succeeds(command.args(flags));
        path
    };
    let with = |path: &Path| {
        let flags = [&GREEDY[..], &["--shortlist", path.to_str().unwrap()]].concat();
        translated(model, &flags, &texts.join("\n"))
    };
    let empty = made("empty.bin", &["--frequent", "0", "--best", "0"]);
    // A translation need not be cut into the tokens that were found.
    let found = with(&made("lex.bin", &[]));
    let same = found
        .iter()
        .zip(&expected)
        .filter(|(found, expected)| found == expected);
    assert!(same.count() >= 5, "{found:?}");
    let copied = with(&empty);
    let of_source = |(found, text): (&String, &String)| {
        let letters = found.chars().filter(|letter| !letter.is_whitespace());
        letters.clone().all(|letter| text.contains(letter))
    };
    assert!(copied.iter().zip(&texts).all(of_source), "{copied:?}");

    // The one that Marian's settings name is used by default.
    fs::copy(&empty, model.join("lex.bin")).unwrap();
    let settings = "models: [model.intgemm.bin]\nvocabs: [vocab.spm, vocab.spm]\nshortlist: [lex.bin, false]\n";
    fs::write(model.join("decoder.yml"), settings).unwrap();
    assert_eq!(translated(model, &GREEDY, &texts.join("\n")), copied);
    assert_eq!(with(Path::new("none")), expected);
    let found = succeeds(program("info").arg(model));
    assert!(
        found.contains("  a shortlist of target tokens, "),
        "{found}"
    );

    let mut bytes = fs::read(&empty).unwrap();
    bytes.pop();
    fs::write(model.join("lex.bin"), bytes).unwrap();
    let error = fails(with_model("translate", model).args(["--input", "-"]));
    assert!(
        error.contains("lex.bin: not a binary shortlist of Marian: "),
        "{error}"
    );
    let mut command = with_model("generate", &directory("gpt2"));
    let error = fails(
        command
            .arg("--shortlist")
            .arg(&empty)
            .args(["--input", "-"]),
    );
    assert_eq!(
        error,
        "error: --shortlist: a language model has no source sentences"
    );
}

/// Quotation marks, dashes, accents and invisible characters that the vocabulary lacks; symbols are kept, and replace no
/// word.
#[test]
fn a_document_leaves_punctuation_to_the_model() {
    let model = directory("marian-en-fr");
    let lines = [
        "He said “no” and left — it’s late.",
        "Tom is in the cafe\u{301} now.",
        "Where\u{200b} are you\u{200b} going?",
        "Tom ❤ Boston.",
        "Tom 👨\u{200d}👩\u{200d}👧 is 日本 here.",
    ];
    let document = |text: &str| {
        let mut command = with_model("translate", &model);
        let output = run_on_input(command.args(["--document", "-"]), text.as_bytes());
        assert!(output.status.success());
        stdout(&output)
    };
    for line in &lines[..3] {
        assert_eq!(document(line), translated(&model, &[], line).join("\n"));
    }
    let words = translated(&model, &[], lines[3]).concat();
    let kept = document(lines[3]);
    assert!(kept.contains('❤'), "{kept}");
    assert_eq!(kept.replace(['❤', ' '], ""), words.replace(' ', ""));
    let kept = document(lines[4]);
    assert!(
        kept.contains("👨\u{200d}👩\u{200d}👧") && kept.contains("日本"),
        "{kept}"
    );
    // A character of a font; a space without width between an unknown word and a known one.
    let kept = document("Tom is \u{e001} here.");
    assert!(kept.contains('\u{e001}'), "{kept}");
    let kept = document("日本\u{200b}where are you going?");
    assert!(kept.contains("日本") && !kept.contains("going"), "{kept}");
}

/// It takes seconds. Read again for each of its letters, the word would take hours.
#[test]
fn a_long_word_that_the_vocabulary_lacks_is_read_once() {
    let model = directory("marian-en-fr");
    let text = "日".repeat(1_000_000);
    let mut command = with_model("translate", &model);
    let output = run_on_input(command.args(["--document", "-"]), text.as_bytes());
    assert!(output.status.success());
    assert_eq!(stdout(&output), text);
}
