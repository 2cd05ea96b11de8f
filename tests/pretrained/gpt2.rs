//! Language models of GPT-2's family: the commands that run them, and those that refuse them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use transformer_core::formats::ModelError;
use transformer_core::text::TextError;
use transformer_core::{ModelDirectory, TextGenerator};

use super::support::{fails, file, folder, program, run_on_input, stdout, succeeds, with_model};
use super::{change_json, copied, directory, read_json, tensors};

const MODELS: [&str; 2] = ["gpt2", "gpt2-sharded"];

/// The texts of `expected.json` that spell no special token and have characters.
fn sentences(name: &str) -> Vec<Value> {
    let mut expected = read_json(&directory(name).join("expected.json"));
    let mut sentences = expected["sentences"].as_array_mut().unwrap().clone();
    sentences.retain(|sentence| {
        let text = sentence["text"].as_str().unwrap();
        !text.is_empty() && !text.contains("<|")
    });
    sentences
}

pub fn generated(model: &Path, prompt: &str, flags: &[&str]) -> String {
    let mut command = with_model("generate", model);
    let text = succeeds(command.args(["--prompt", prompt]).args(flags));
    text.strip_suffix('\n').unwrap().to_owned()
}

#[test]
fn generate_continues_a_prompt_as_hugging_face_does() {
    for name in MODELS {
        for sentence in sentences(name).into_iter().take(5) {
            let prompt = sentence["text"].as_str().unwrap();
            for (beam, flags) in [
                ("beam1", &["--max-new-tokens", "24"][..]),
                (
                    "beam4",
                    &[
                        "--beam",
                        "4",
                        "--length-penalty",
                        "average",
                        "--early-stopping",
                        "false",
                        "--max-new-tokens",
                        "24",
                    ],
                ),
            ] {
                let found = generated(&directory(name), prompt, flags);
                assert_eq!(sentence[beam]["text"], found.as_str(), "{name}");
            }
        }
        // Nothing is a prompt, too.
        assert!(!generated(&directory(name), "", &[]).is_empty());
    }
}

#[test]
fn each_line_is_a_prompt_and_each_text_is_a_line() {
    let sentences = sentences("gpt2");
    let lines = sentences.iter().filter(|sentence| {
        let text = sentence["text"].as_str().unwrap();
        text == text.trim() && !text.contains(['\n', '\r'])
    });
    let lines: Vec<&Value> = lines.collect();
    let input: Vec<&str> = lines
        .iter()
        .map(|line| line["text"].as_str().unwrap())
        .collect();
    let long = "x".repeat(200);
    let mut input = [&input[..], &[&long]].concat().join("\n").into_bytes();
    input.extend(b"\n\xff\n");
    let mut command = with_model("generate", &directory("gpt2"));
    command.args(["--max-new-tokens", "24"]);
    let output = run_on_input(&mut command, &input);
    let found = stdout(&output);
    let mut found = found.lines();
    for line in lines {
        let expected = line["beam1"]["text"].as_str().unwrap().replace('\n', " ");
        assert_eq!(found.next(), Some(&expected[..]));
    }
    // One that is longer than the model's positions is reported, and one that cannot be read.
    assert_eq!(found.next(), Some(""));
    assert_eq!(found.next(), Some(""));
    assert_eq!(found.next(), None);
    assert_eq!(output.status.code(), Some(1));
    // Neither a byte-order mark nor the end of a line of Windows is a part of a text.
    for subcommand in ["generate", "score"] {
        let found = |input: &str| {
            let mut command = with_model(subcommand, &directory("gpt2"));
            if subcommand == "generate" {
                command.args(["--max-new-tokens", "2"]);
            }
            stdout(&run_on_input(&mut command, input.as_bytes()))
        };
        let plain = found("Where are you?\nTom\n");
        assert_eq!(plain.lines().count(), 2);
        assert_eq!(found("\u{feff}Where are you?\r\nTom\r\n"), plain);
    }
    let mut command = with_model("generate", &directory("gpt2"));
    let error = fails(command.args(["--prompt", "Where are you?", "--max-length", "1"]));
    let ending = " tokens, more than the maximum length of 1; see --max-length";
    assert!(
        error.starts_with("error: the prompt has ") && error.ends_with(ending),
        "{error}"
    );

    let samples = generated(
        &directory("gpt2"),
        "Tom",
        &["--sample", "--n-best", "3", "--seed", "5"],
    );
    assert_eq!(samples.lines().count(), 3, "{samples}");
    assert!(
        samples.lines().all(|text| text.starts_with("Tom")),
        "{samples}"
    );
}

#[test]
fn a_language_model_is_scored_quantized_averaged_and_shown() {
    let folder = folder();
    for name in MODELS {
        let model = directory(name);
        let texts = file(
            folder.path(),
            "texts.txt",
            "Where are you?\n\nWhere are you Tom?\n",
        );
        let score = |model: &Path| -> Vec<f64> {
            let mut command = with_model("score", model);
            let out = succeeds(command.arg("--input").arg(&texts));
            let fields = out.lines().map(|line| line.split('\t').next().unwrap());
            fields.map(|number| number.parse().unwrap()).collect()
        };
        let scores = score(&model);
        assert!(scores[0] > scores[2], "{scores:?}");

        let int8 = folder.path().join(format!("{name}-int8"));
        succeeds(with_model("quantize", &model).arg("--out").arg(&int8));
        let rounded = score(&int8);
        assert!((rounded[0] - scores[0]).abs() < 0.5, "{rounded:?}");
        let flags = ["--backend", "flex", "--precision", "int8"];
        let expected = generated(&model, "Where are", &flags);
        assert_eq!(generated(&int8, "Where are", &[]), expected);

        let average = folder.path().join(format!("{name}-average"));
        let mut command = with_model("average", &model);
        succeeds(command.arg(&model).arg("--out").arg(&average));
        assert_eq!(score(&average), scores);

        let out = succeeds(program("info").arg(&model));
        for line in ["language model", "  format       Hugging Face, type gpt2"] {
            assert!(out.lines().any(|found| found == line), "{out}");
        }
        let mut command = with_model("tokenize", &model);
        let found = run_on_input(command.arg("--ids"), b"Where are you going?");
        let ids: Vec<String> = sentences(name)[0]["ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(Value::to_string)
            .collect();
        assert_eq!(stdout(&found).trim_end(), ids.join(" "));
    }
}

#[test]
fn an_exported_model_has_the_tensors_that_it_was_read_from() {
    let folder = folder();
    for name in MODELS {
        let out = folder.path().join(name);
        let mut command = with_model("export", &directory(name));
        succeeds(command.arg("--out").arg(&out));
        assert_eq!(
            generated(&out, "Where are", &[]),
            generated(&directory(name), "Where are", &[])
        );
        // Exported once more, nothing changes.
        let again = folder.path().join(format!("{name}-again"));
        succeeds(with_model("export", &out).arg("--out").arg(&again));
        assert!(tensors(&again) == tensors(&out));
    }
    let before = tensors(&directory("gpt2"));
    let after = tensors(&folder.path().join("gpt2"));
    for (tensor, (shape, numbers)) in before {
        // The masks are no weights.
        if !tensor.ends_with(".attn.bias") {
            assert!(
                after[&format!("transformer.{tensor}")] == (shape, numbers),
                "{tensor}"
            );
        }
    }
}

/// What reads sources reads no language model, and the reverse.
#[test]
fn commands_for_other_models_refuse_in_one_line() {
    let folder = folder();
    let model = directory("gpt2");
    let pairs = file(folder.path(), "pairs.tsv", "a\tb\n");
    let out = folder.path().join("out");
    let refusal = format!(
        "{} holds a language model, which reads no source sentences; see `transformer generate` and `transformer score`",
        model.display()
    );
    for mut command in [
        with_model("translate", &model),
        {
            let mut command = with_model("evaluate", &model);
            command.arg("--data").arg(&pairs);
            command
        },
        {
            let mut command = with_model("attention", &model);
            command
                .args(["--source", "a", "--out"])
                .arg(folder.path().join("a.svg"));
            command
        },
        {
            let mut command = program("train");
            command.arg("--init").arg(&model).arg("--data").arg(&pairs);
            command.arg("--out").arg(&out);
            command
        },
    ] {
        let error = fails(&mut command);
        assert!(error.contains(&refusal), "{error}");
    }
    let mut command = with_model("export", &model);
    command.args(["--format", "ctranslate2", "--out"]).arg(&out);
    let error = fails(&mut command);
    assert!(error.contains("config.json"), "{error}");
    assert!(!out.exists());

    let other = directory("bart");
    let error = fails(with_model("generate", &other).args(["--prompt", "a"]));
    let expected =
        "holds an encoder-decoder, which continues no prompts; see `transformer translate`";
    assert!(error.ends_with(expected), "{error}");
    let error =
        fails(with_model("generate", &model).args(["--prompt", "a", "--target-lang", "fr"]));
    assert!(error.contains("--target-lang fr"), "{error}");
    let error = TextGenerator::load(&other).unwrap_err();
    assert!(
        matches!(error, TextError::Model(ModelError::OtherModel { .. })),
        "{error}"
    );
}

#[test]
fn damaged_files_are_named() {
    for (name, damaged) in [
        ("gpt2", "model.safetensors"),
        ("gpt2", "tokenizer.json"),
        ("gpt2", "config.json"),
        ("gpt2-sharded", "pytorch_model-00002-of-00002.bin"),
        ("gpt2-sharded", "pytorch_model.bin.index.json"),
        ("gpt2-sharded", "vocab.json"),
        ("gpt2-sharded", "generation_config.json"),
    ] {
        for part in [0, 1, 40, 99] {
            let copy = copied(name);
            let path = copy.path().join(damaged);
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() * part / 100]).unwrap();
            let error = TextGenerator::load(copy.path()).unwrap_err().to_string();
            assert!(error.contains(damaged), "{damaged}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
    // A transposed matrix, and a wrong epsilon, which is no damage but another model.
    let copy = copied("gpt2");
    change_json(&copy.path().join("config.json"), |config| {
        config["n_inner"] = json!(32);
    });
    let error = ModelDirectory::open(copy.path()).unwrap_err().to_string();
    assert!(
        error.contains("`h.0.mlp.c_fc.weight` is [32, 128], not [32, 32]"),
        "{error}"
    );
}
