//! A directory of CTranslate2, used by every command. tests/parity shows that results are CTranslate2's on every
//! backend.

use std::fs;
use std::path::Path;

use transformer_core::ModelDirectory;
use transformer_core::decoding::{MaxLength, Strategy};
use transformer_core::{DecodeOptions, TransformerConfig, Translator};

use super::gpt2::generated;
use super::support::{
    copied, corpus, directory, fails, file, folder, program, read_json, succeeds, with_model,
};
use super::{fine_tuned, translated};

const NAME: &str = "ct2-marian-multi-int8";
const SENTENCES: &str = ">>fra<< Where are you going?\n>>deu<< I was happy to help you.\n";
/// Greedily in single precision, as the results in `expected.json`.
const GREEDY: [&str; 6] = ["--backend", "flex", "--precision", "f32", "--beam", "1"];

#[test]
fn texts_are_translated_as_by_ctranslate2() {
    let model = directory(NAME);
    let expected = read_json(&model.join("expected.json"));
    let usual = expected["sentences"].as_array().unwrap().iter().take(8);
    let translator = Translator::load(&model).unwrap();
    let options = DecodeOptions {
        strategy: Strategy::Beam { size: 4 },
        max_length: MaxLength::Tokens(60),
        ..DecodeOptions::default()
    };
    let translator = translator.with_options(options).unwrap();
    for sentence in usual {
        let text = sentence["text"].as_str().unwrap();
        let tokens = sentence["beam1"]["tokens"].as_array().unwrap();
        let pieces: Vec<&str> = tokens.iter().map(|token| token.as_str().unwrap()).collect();
        let expected = pieces.concat().replace('\u{2581}', " ");
        let lines = translated(&model, &GREEDY, text);
        assert_eq!(lines, [expected.trim()], "{text}");
        assert!(!translator.translate(text).unwrap().is_empty());
    }
}

#[test]
fn every_command_reads_the_directory() {
    let (folder, model) = (folder(), directory(NAME));
    let out = succeeds(program("info").arg(&model));
    for line in [
        "  format       CTranslate2",
        "  SentencePiece, 1906 pieces, for the source",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    let text = ">>fra<< Where is he?\tOù est-il ?\n>>fra<< It is Saturday.\tC'est samedi.\n";
    let pairs = file(folder.path(), "pairs.tsv", text);
    let out = succeeds(with_model("evaluate", &model).arg("--data").arg(&pairs));
    assert!(out.contains("BLEU"), "{out}");
    let out = succeeds(with_model("score", &model).arg("--input").arg(&pairs));
    assert_eq!(out.lines().count(), 2);
    let picture = folder.path().join("attention.svg");
    let mut command = with_model("attention", &model);
    command.args(["--source", ">>fra<< Where is he?"]);
    succeeds(command.arg("--out").arg(&picture));

    let out = folder.path().join("average");
    let mut command = with_model("average", &model);
    let error = fails(command.arg(&model).arg("--out").arg(&out));
    assert!(error.contains("CTranslate2"), "{error}");
}

/// ByT5's tokenizer has no file. In the list of tokens, a byte has the name that Hugging Face's class gives it.
#[test]
fn a_model_of_bytes_is_converted() {
    let (folder, model) = (folder(), directory("byt5"));
    let out = folder.path().join("ct2");
    let mut command = with_model("export", &model);
    command.args(["--format", "ctranslate2"]);
    succeeds(command.arg("--out").arg(&out));
    let list = read_json(&out.join("shared_vocabulary.json"));
    assert_eq!(list[3 + usize::from(b'W')], "W");
    assert_eq!(list[3 + 0xE9], "é");
    let flags = [&GREEDY[..], &["--max-length", "20"]].concat();
    let text = "Où est-il ?\n";
    assert_eq!(
        translated(&out, &flags, text),
        translated(&model, &flags, text)
    );
}

/// A model of T5's family needs no rates of dropout to be written for Hugging Face.
#[test]
fn a_model_of_t5_s_kind_is_written_for_hugging_face() {
    let (folder, model) = (folder(), directory("ct2-t5-gated-int8"));
    let out = folder.path().join("hf");
    succeeds(with_model("export", &model).arg("--out").arg(&out));
    assert_eq!(read_json(&out.join("config.json"))["model_type"], "t5");
    assert_eq!(
        translated(&out, &GREEDY, "Where is he?\n"),
        translated(&model, &GREEDY, "Where is he?\n")
    );
}

/// In other formats the model translates alike: in Hugging Face's, in ours of 8 bits, and in CTranslate2's again.
#[test]
fn the_model_is_converted() {
    let (folder, model) = (folder(), directory(NAME));
    let expected = translated(&model, &GREEDY, SENTENCES);
    let [tuned, quantized] = ["hf", "int8"].map(|name| folder.path().join(name));
    succeeds(with_model("export", &model).arg("--out").arg(&tuned));
    assert_eq!(
        read_json(&tuned.join("config.json"))["model_type"],
        "marian"
    );
    assert_eq!(translated(&tuned, &GREEDY, SENTENCES), expected);
    let export = |out: &Path, flags: &[&str]| {
        let mut command = with_model("export", &tuned);
        command.args(["--format", "ctranslate2"]).args(flags);
        succeeds(command.arg("--out").arg(out));
    };
    for (name, flags) in [("ct2", &[][..]), ("ct2-int8", &["--int8"])] {
        let out = folder.path().join(name);
        export(&out, flags);
        assert_eq!(translated(&out, &GREEDY, SENTENCES), expected, "{name}");
        let directory = ModelDirectory::open(&out).unwrap();
        assert_eq!(directory.format(), "CTranslate2");
        assert_eq!(directory.is_int8(), name == "ct2-int8");
    }
    let error = fails(
        with_model("export", &model)
            .args(["--int8", "--out"])
            .arg(folder.path().join("x")),
    );
    assert_eq!(error, "error: --int8 is only for --format ctranslate2");

    // A model in 8 bits needs no quantization, one of single precision does.
    let error = fails(with_model("quantize", &model).arg("--out").arg(&quantized));
    assert!(error.ends_with("the model is already in 8 bits"), "{error}");
    succeeds(
        with_model("quantize", &folder.path().join("ct2"))
            .arg("--out")
            .arg(&quantized),
    );
    assert_eq!(translated(&quantized, &GREEDY, SENTENCES), expected);
}

#[test]
fn the_model_is_fine_tuned() {
    let folder = folder();
    let pairs = corpus(folder.path());
    let tuned = fine_tuned(&directory(NAME), folder.path(), &pairs);
    assert_eq!(translated(&tuned, &[], SENTENCES).len(), 2);
}

/// Without SentencePiece models, a text is its tokens.
#[test]
fn without_tokenizers_texts_are_tokens() {
    let copy = copied(NAME);
    for name in ["source.spm", "target.spm", "tokenizer_config.json"] {
        fs::remove_file(copy.path().join(name)).unwrap();
    }
    let expected = read_json(&copy.path().join("expected.json"));
    let sentence = &expected["sentences"][0];
    let words = |tokens: &serde_json::Value| -> String {
        let tokens = tokens.as_array().unwrap().iter();
        let tokens = tokens.map(|token| token.as_str().unwrap());
        let tokens: Vec<&str> = tokens.filter(|&token| token != "</s>").collect();
        tokens.join(" ")
    };
    let lines = translated(copy.path(), &GREEDY, &words(&sentence["source"]));
    assert_eq!(lines, [words(&sentence["beam1"]["tokens"])]);

    // The oldest directories have vocabularies as lines, and no configuration.
    let list = read_json(&copy.path().join("shared_vocabulary.json"));
    let list: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token.as_str().unwrap())
        .collect();
    fs::remove_file(copy.path().join("shared_vocabulary.json")).unwrap();
    fs::write(copy.path().join("shared_vocabulary.txt"), list.join("\n")).unwrap();
    let lines = translated(copy.path(), &GREEDY, &words(&sentence["source"]));
    assert_eq!(lines, [words(&sentence["beam1"]["tokens"])]);
    fs::remove_file(copy.path().join("config.json")).unwrap();
    let lines = translated(copy.path(), &GREEDY, &words(&sentence["source"]));
    assert_eq!(lines, [words(&sentence["beam1"]["tokens"])]);
}

/// A decoder alone is the model that CTranslate2 converted.
#[test]
fn a_language_model_generates_what_the_original_does() {
    let models = ["ct2-gpt2", "gpt2"].map(directory);
    let [converted, original] = models
        .each_ref()
        .map(|model| ModelDirectory::open(model).unwrap());
    let config = TransformerConfig {
        // CTranslate2's files have no rates.
        attention_dropout: original.config().attention_dropout,
        ..converted.config().clone()
    };
    assert_eq!(&config, original.config());
    for prompt in ["Where are you going?", "Tom", "", "I don't"] {
        let [converted, original] = models
            .each_ref()
            .map(|model| generated(model, prompt, &["--beam", "1"]));
        assert!(!converted.is_empty());
        assert_eq!(converted, original, "{prompt}");
    }
}
