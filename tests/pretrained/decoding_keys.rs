//! Every key of `generation_config.json` and `config.json` has the effect that the table in docs/guide/pretrained.md
//! gives it. `scripts/make-decoding-keys-fixture` wrote what Hugging Face's classes compute with these keys, and
//! without them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use burn_ndarray::NdArray;
use serde_json::{Value, json};
use tempfile::TempDir;
use transformer_core::decoding::{Hypothesis, NextToken};
use transformer_core::packed::PackedPrecision;
use transformer_core::text::TextError;
use transformer_core::{
    DecodeOptions, PackedModel, Request, Search, Tokenizers, Transformer, Translator,
};

use super::support::fixture;
use super::{change_json, copied, read_json};

/// The score is a mean or a sum of at most 40 log-probabilities, whose rounding differs.
const TOLERANCE: f64 = 2e-5;

/// The mean, for a token, of the logarithm of the probability of all tokens but `<pad>`.
const MARIAN_TOLERANCE: f64 = 1e-3;

fn known() -> Value {
    read_json(&fixture("decoding-keys.json"))
}

fn cases(known: &Value) -> &[Value] {
    known["cases"].as_array().unwrap()
}

fn texts(values: &Value) -> Vec<&str> {
    let values = values.as_array().into_iter().flatten();
    values.map(|value| value.as_str().unwrap()).collect()
}

/// The directory of a case.
fn directory(case: &Value) -> TempDir {
    let copy = copied(case["model"].as_str().unwrap());
    let change = |file: &str, keys: &Value, without: &Value| {
        change_json(&copy.path().join(file), |file| {
            let file = file.as_object_mut().unwrap();
            let keys = keys.as_object().unwrap().clone();
            file.extend(keys);
            file.retain(|key, _| !texts(without).contains(&key.as_str()));
        });
    };
    change("config.json", &case["config"], &case["config_without"]);
    match case.get("no_generation_file") {
        Some(_) => fs::remove_file(copy.path().join("generation_config.json")).unwrap(),
        None => change(
            "generation_config.json",
            &case["generation"],
            &case["without"],
        ),
    }
    copy
}

/// What the options of a directory find for the texts of a case. Without the translator, which wants to know the
/// language of the target.
fn found<M: NextToken>(directory: &Path, model: &M, case: &Value) -> Vec<Hypothesis> {
    let tokenizers = Tokenizers::load(directory).unwrap();
    let sentences = case["sentences"].as_array().unwrap().iter();
    let requests = sentences.map(|sentence| {
        let text = sentence["text"].as_str().unwrap();
        Request::new(tokenizers.encode_source(text).unwrap())
    });
    let requests: Vec<Request> = requests.collect();
    let options = DecodeOptions::of_directory(directory).unwrap().unwrap();
    let found = Search::new(model, options).unwrap().run(&requests);
    found
        .unwrap()
        .into_iter()
        .map(|mut found| found.swap_remove(0))
        .collect()
}

#[track_caller]
fn assert_expected(found: Vec<Hypothesis>, case: &Value) {
    let is_marian = case["model"] == "marian-en-fr";
    // Its `<pad>` is excluded before the softmax.
    let tolerance = match is_marian && case["generation"]["renormalize_logits"] != true {
        true => MARIAN_TOLERANCE,
        false => TOLERANCE,
    };
    let sentences = case["sentences"].as_array().unwrap();
    assert_eq!(found.len(), sentences.len());
    for (found, expected) in found.iter().zip(sentences) {
        assert_eq!(json!(found.tokens), expected["ids"], "{case}");
        if let Some(score) = expected["score"].as_f64() {
            let error = (found.score - score).abs();
            assert!(error <= tolerance, "{} is not {score}: {case}", found.score);
        }
    }
}

#[test]
fn keys_have_the_effect_that_they_have_on_hugging_face() {
    let known = known();
    let read = cases(&known)
        .iter()
        .filter(|case| case.get("sentences").is_some());
    for case in read {
        let directory = directory(case);
        let (path, device) = (directory.path(), Default::default());
        let model = PackedModel::load(path, PackedPrecision::F32);
        let model = model.unwrap_or_else(|error| panic!("{error}: {case}"));
        assert_expected(found(path, &model, case), case);
        // Each kind of model has the same rules.
        if case["key"] == "renormalize_logits" {
            let model = Transformer::<NdArray>::load(path, &device).unwrap();
            assert_expected(found(path, &model, case), case);
        }
    }
}

fn load(directory: &Path) -> Result<Translator<PackedModel>, TextError> {
    Translator::load(directory)
}

#[test]
fn keys_that_ask_for_something_else_are_refused_by_file_key_and_value() {
    let known = known();
    let refused = cases(&known)
        .iter()
        .filter_map(|case| Some((case, case.get("refused")?)));
    for (case, reason) in refused {
        let directory = directory(case);
        let Err(error) = load(directory.path()) else {
            panic!("read: {case}");
        };
        let message = error.to_string();
        let in_file = message.starts_with(&format!("{}/", directory.path().display()));
        assert!(in_file && !message.contains('\n'), "{message}: {case}");
        assert!(
            message.contains(reason.as_str().unwrap()),
            "{message}: {case}"
        );
    }
}

/// The rows of a table in the section about keys: the keys of the first column, and the second column.
fn rows(table: &str) -> Vec<(Vec<String>, String)> {
    let guide = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/guide/pretrained.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, section) = guide
        .split_once("\n## Decoding keys\n")
        .expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let (_, table) = section.split_once(table).expect("the table");
    let lines = table.lines().skip_while(|line| line.is_empty()).skip(1);
    let rows = lines.take_while(|line| line.starts_with('|')).map(|line| {
        let columns: Vec<&str> = line.split(" | ").collect();
        // The names between the backticks.
        let keys = columns[0].split('`').skip(1).step_by(2);
        (keys.map(String::from).collect(), columns[1].to_owned())
    });
    rows.collect()
}

#[test]
fn each_key_has_a_row_in_the_guide_and_each_row_its_cases() {
    let known = known();
    let mut in_table = BTreeSet::new();
    for (keys, effect) in rows("| key | here | meaning |") {
        for key in keys {
            let has = |what: &dyn Fn(&Value) -> bool| {
                cases(&known)
                    .iter()
                    .any(|case| case["key"] == *key && what(case))
            };
            let is_read = has(&|case| case.get("sentences").is_some());
            let is_refused = has(&|case| case.get("refused").is_some());
            let expected = match effect.as_str() {
                "read" | "ignored" => is_read,
                "read or refused" => is_read && is_refused,
                "refused" => is_refused,
                effect => panic!("{key}: {effect}"),
            };
            assert!(expected, "{key} is not {effect}");
            assert!(
                is_refused == effect.ends_with("refused"),
                "{key} is not {effect}"
            );
            assert!(in_table.insert(key.clone()), "{key} has two rows");
        }
    }
    for file in ["generation", "config"] {
        for key in texts(&known["keys"][file]) {
            assert!(in_table.contains(key), "{key} has no row");
        }
    }
    let differing = cases(&known)
        .iter()
        .filter(|case| case.get("differs").is_some());
    let differing: BTreeSet<&str> = differing
        .map(|case| case["key"].as_str().unwrap())
        .collect();
    let described = rows("| key | Hugging Face | here |");
    let described: BTreeSet<&str> = described
        .iter()
        .flat_map(|(keys, _)| keys)
        .map(String::as_str)
        .collect();
    assert_eq!(described, differing);
}

/// 400 draws of one token, at a temperature that makes all tokens about equally likely.
#[test]
fn a_top_k_of_null_is_none_and_an_absent_one_is_fifty() {
    let draws = |top_k: Option<Value>| {
        let copy = copied("bart");
        change_json(&copy.path().join("generation_config.json"), |keys| {
            keys["do_sample"] = json!(true);
            keys["temperature"] = json!(20.0);
            keys["forced_bos_token_id"] = json!(0);
            keys["max_length"] = json!(4);
            if let Some(top_k) = top_k {
                keys["top_k"] = top_k;
            }
        });
        let translator = load(copy.path()).unwrap();
        let options = DecodeOptions {
            n_best: 400,
            ..translator.options().clone()
        };
        let translator = translator.with_options(options).unwrap();
        let found = translator.translate_n_best(&["Fire!"], "").unwrap();
        let tokens = found[0].iter().map(|found| found.hypothesis.tokens.clone());
        tokens.collect::<BTreeSet<_>>().len()
    };
    assert!(draws(None) <= 50);
    assert!(draws(Some(json!(50))) <= 50);
    for all in [json!(null), json!(0)] {
        assert!(draws(Some(all)) > 200);
    }
}
