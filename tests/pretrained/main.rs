//! Model directories as Hugging Face saves them: translated, fine-tuned, exported; their keys, in `decoding_keys`; and
//! damaged ones, in `hostile`. tests/parity shows that results are Hugging Face's on every backend.

mod argos;
mod ctranslate2;
mod decoding_keys;
mod gpt2;
mod hostile;
mod marian;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn_ndarray::NdArray;
use safetensors::SafeTensors;
use serde_json::{Value, json};
use support::{
    change_json, copied, corpus, directory, fails, file, fixture, folder, mbart_with_language_last,
    program, read_json, run, run_on_input, stderr, stdout, succeeds, trained, with_model,
};
use transformer_core::decoding::{LengthPenalty, MaxLength, Strategy};
use transformer_core::formats::TOKENIZER_FILES;
use transformer_core::{DecodeOptions, Tokenizers, Transformer, TransformerConfig, Translator};

/// Fine-tunes a model for two updates, and checks that the result is a directory of ours. Returns it.
fn fine_tuned(model: &Path, folder: &Path, pairs: &Path) -> PathBuf {
    let tuned = folder.join(format!("{}-tuned", model.file_name().unwrap().display()));
    let mut command = program("train");
    command.args(["--hold-out", "5", "--batch-tokens", "200"]);
    command.args(["--warmup", "2", "--updates", "2"]);
    command.args(["--validate-every", "2", "--peak-rate", "1e-4", "--init"]);
    command.arg(model).arg("--out").arg(&tuned);
    succeeds(command.arg("--data").arg(pairs));
    let config = read_json(&tuned.join("config.json"));
    assert_eq!(config["model"], "transformer");
    tuned
}

/// The lines that `translate` answers with.
fn translated(model: &Path, flags: &[&str], input: &str) -> Vec<String> {
    let output = run_on_input(with_model("translate", model).args(flags), input.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(String::from).collect()
}

const SENTENCES: &str = "Where are you going?\nI was happy to help you.\n";

#[test]
fn a_directory_is_decoded_as_its_generation_config_says() {
    let translator = Translator::load(directory("marian-en-fr"));
    let options = translator.unwrap().options().clone();
    assert_eq!(options.strategy, Strategy::Beam { size: 4 });
    assert_eq!(options.length_penalty, LengthPenalty::AVERAGE);
    // 512 with the start token.
    assert_eq!(options.max_length, MaxLength::Tokens(511));
    assert!(options.forced_last && !options.early_stopping);
    assert_eq!(options.banned_tokens, [2283]);

    // The translations that Hugging Face found with these options, and others by flags.
    let model = directory("marian-en-fr");
    let expected = read_json(&model.join("expected.json"));
    let usual = expected.as_array().unwrap().iter().filter(|sentence| {
        let text = sentence["text"].as_str().unwrap();
        text.is_ascii() && text.len() < 30 && text.starts_with(|c: char| c.is_ascii_uppercase())
    });
    let usual: Vec<&Value> = usual.take(8).collect();
    let texts: Vec<&str> = usual.iter().map(|s| s["text"].as_str().unwrap()).collect();
    for (flags, beam) in [(&[][..], "beam4"), (&["--beam", "1"], "beam1")] {
        let expected: Vec<&str> = usual
            .iter()
            .map(|sentence| sentence[beam]["text"].as_str().unwrap())
            .collect();
        assert_eq!(translated(&model, flags, &texts.join("\n")), expected);
    }
}

#[test]
fn a_language_that_the_model_lacks_is_named_once() {
    let model = directory("marian-multi");
    let input = ">>fra<< Hello.\n>>tlh<< Hello.\n>>tlh<< Where are you?\nHello.\n";
    let mut command = with_model("translate", &model);
    let output = run_on_input(command.args(["--beam", "1"]), input.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    let error = stderr(&output);
    let warnings: Vec<&str> = error
        .lines()
        .filter(|line| line.contains("<unk>"))
        .collect();
    let expected =
        "standard input: line 2: the model has no token `>>tlh<<` and reads <unk> instead; it has ";
    let [warning] = warnings[..] else {
        panic!("{error}");
    };
    assert!(
        warning.starts_with(expected) && warning.contains(">>fra<<"),
        "{warning}"
    );
}

/// Number by number as `transformers` wrote them.
#[test]
fn an_exported_model_has_the_tensors_that_it_was_read_from() {
    for name in ["marian-en-fr", "marian-multi", "m2m100", "bart", "mbart"] {
        let out = folder();
        let model = Transformer::<NdArray>::load(directory(name), &Default::default()).unwrap();
        model.save_hugging_face(out.path()).unwrap();
        let [before, after] = [&directory(name), out.path()].map(tensors);
        let names = |tensors: &Tensors| tensors.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&before), names(&after), "{name}");
        for (tensor, (shape, numbers)) in &before {
            let (found_shape, found) = &after[tensor];
            assert_eq!(found_shape, shape, "{name}: {tensor}");
            // BART's two first rows of positions are not used.
            let unused = match tensor.contains("embed_positions") {
                true => 2 * shape[1] * size_of::<f32>(),
                false => 0,
            };
            assert!(found[unused..] == numbers[unused..], "{name}: {tensor}");
        }
    }
}

/// Shapes and bytes, by name.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn tensors(directory: &Path) -> Tensors {
    let bytes = fs::read(directory.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = tensors.iter().map(|(name, tensor)| {
        let (shape, numbers) = (tensor.shape().to_vec(), tensor.data().to_vec());
        (name.to_owned(), (shape, numbers))
    });
    tensors.collect()
}

#[test]
fn export_writes_a_directory_that_translates_alike() {
    let folder = folder();
    for (name, flags) in [
        ("marian-en-fr", &[][..]),
        ("bart-f16", &[]),
        ("nllb-sharded", &["--target-lang", "fra_Latn"]),
    ] {
        let (model, out) = (directory(name), folder.path().join(name));
        let mut export = with_model("export", &model);
        export.args(flags).arg("--out").arg(&out);
        succeeds(&mut export);
        // The chosen language was written, too.
        let expected = translated(&model, flags, SENTENCES);
        assert_eq!(translated(&out, &[], SENTENCES), expected, "{name}");
        for tokenizer in ["source.spm", "target.spm", "vocab.json"] {
            let before = fs::read(model.join(tokenizer)).ok();
            assert!(fs::read(out.join(tokenizer)).ok() == before, "{name}");
        }

        let before = fs::read(out.join("model.safetensors")).unwrap();
        let expected = format!(
            "error: {} is not empty; choose another --out",
            out.display()
        );
        assert_eq!(fails(&mut export), expected);
        assert!(fs::read(out.join("model.safetensors")).unwrap() == before);
    }
}

#[test]
fn a_model_of_no_pretrained_family_is_refused_by_its_file_before_anything_is_written() {
    let (folder, model) = trained();
    let out = folder.path().join("hf");
    let error = fails(with_model("export", &model).arg("--out").arg(&out));
    let expected = format!(
        "error: {}: `positions` is \"sinusoidal\", which no supported Hugging Face model type has",
        model.join("config.json").display()
    );
    assert!(error.starts_with(&expected), "{error}");
    assert!(!out.exists());
    fs::create_dir(&out).unwrap();
    fails(with_model("export", &model).arg("--out").arg(&out));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
}

/// Its tokenizers and its options of decoding come along.
#[test]
fn a_pretrained_model_is_quantized() {
    let folder = folder();
    let flags = ["--backend", "ndarray", "--precision", "int8"];
    for (name, languages) in [
        ("marian-en-fr", &[][..]),
        ("bart-f16", &[]),
        ("nllb-sharded", &["--target-lang", "fra_Latn"]),
    ] {
        let (model, out) = (directory(name), folder.path().join(name));
        succeeds(with_model("quantize", &model).arg("--out").arg(&out));
        let flags = [&flags[..], languages].concat();
        let expected = translated(&model, &flags, SENTENCES);
        assert!(expected.iter().all(|line| !line.is_empty()), "{name}");
        let flags = [&["--backend", "ndarray"][..], languages].concat();
        assert_eq!(translated(&out, &flags, SENTENCES), expected, "{name}");

        let options = |directory: &Path| DecodeOptions::of_directory(directory).unwrap();
        assert_eq!(options(&out), options(&model), "{name}");
        for tokenizer in TOKENIZER_FILES {
            let before = fs::read(model.join(tokenizer)).ok();
            assert!(fs::read(out.join(tokenizer)).ok() == before, "{name}");
        }
    }
}

#[test]
fn a_pretrained_model_is_fine_tuned_saved_and_exported() {
    let folder = folder();
    let pairs = corpus(folder.path());
    for (name, languages, forced) in [
        ("marian-en-fr", &[][..], None),
        (
            "nllb-sharded",
            &["--source-lang", "eng_Latn", "--target-lang", "deu"],
            Some(6),
        ),
    ] {
        let tuned = folder.path().join(name);
        let train = |updates: &str, flags: &[&str]| {
            let mut command = program("train");
            command.args(["--hold-out", "5", "--batch-tokens", "200", "--warmup", "2"]);
            command.args(["--validate-every", "2", "--updates", updates]);
            command.args(["--peak-rate", "1e-4"]);
            command.args(flags).arg("--out").arg(&tuned);
            command
        };
        let mut command = train("2", languages);
        command.arg("--init").arg(directory(name));
        succeeds(command.arg("--data").arg(&pairs));

        // A directory of ours, with the same tokenizers and options.
        assert_eq!(
            read_json(&tuned.join("config.json"))["model"],
            "transformer"
        );
        let options = DecodeOptions::of_directory(directory(name)).unwrap();
        let expected = options.map(|options| DecodeOptions {
            forced_first: forced,
            ..options
        });
        assert_eq!(DecodeOptions::of_directory(&tuned).unwrap(), expected);
        let translations = translated(&tuned, &[], SENTENCES);
        assert_eq!(translations.len(), 2);
        // Training changed the weights.
        let model = Transformer::<NdArray>::load(&tuned, &Default::default()).unwrap();
        let before = Transformer::<NdArray>::load(directory(name), &Default::default()).unwrap();
        let embedding = |model: &Transformer<NdArray>| model.target_embedding().weight.to_data();
        assert_ne!(embedding(&model), embedding(&before), "{name}");

        let exported = folder.path().join(format!("{name} exported"));
        succeeds(with_model("export", &tuned).arg("--out").arg(&exported));
        assert_eq!(translated(&exported, &[], SENTENCES), translations);

        // It goes on by its directory alone.
        succeeds(&mut train("4", &["--resume"]));
        assert_eq!(DecodeOptions::of_directory(&tuned).unwrap(), expected);
        if forced.is_some() {
            // The same language by another name, and another one.
            succeeds(&mut train("5", &["--resume", "--target-lang", "deu_Latn"]));
            let error = fails(&mut train("6", &["--resume", "--target-lang", "fra"]));
            let run = tuned.display();
            let start = format!("error: --target-lang fra: the run in {run} was made with deu");
            let end = format!("; start a new run with --init {run} and another --out");
            assert!(
                error.starts_with(&start) && error.ends_with(&end),
                "{error}"
            );
        }
    }
}

/// In a directory of ours, in which nobody has saved how the model is decoded.
#[test]
fn the_language_of_targets_is_kept_without_options_of_decoding() {
    let folder = folder();
    let [ours, tuned] = ["ours", "tuned"].map(|name| folder.path().join(name));
    let pretrained = directory("m2m100");
    let model = Transformer::<NdArray>::load(&pretrained, &Default::default()).unwrap();
    model.save(&ours).unwrap();
    let tokenizers = Tokenizers::load(&pretrained).unwrap();
    tokenizers.save(&ours).unwrap();
    let languages = ["--source-lang", "eng_Latn", "--target-lang", "deu"];
    let mut command = program("train");
    command.args(["--hold-out", "5", "--batch-tokens", "200", "--warmup", "2"]);
    command.args([
        "--updates",
        "2",
        "--validate-every",
        "2",
        "--peak-rate",
        "1e-4",
    ]);
    command.args(languages).arg("--init").arg(&ours);
    command.arg("--data").arg(corpus(folder.path()));
    succeeds(command.arg("--out").arg(&tuned));
    let german = tokenizers.with_languages(Some("eng_Latn"), Some("deu_Latn"));
    let expected = DecodeOptions {
        length_penalty: LengthPenalty::AVERAGE,
        forced_first: german.unwrap().target_first(),
        ..DecodeOptions::default()
    };
    assert_eq!(DecodeOptions::of_directory(&tuned).unwrap(), Some(expected));
    assert_eq!(
        translated(&tuned, &[], SENTENCES),
        translated(&tuned, &languages, SENTENCES)
    );
}

#[test]
fn languages_are_chosen_by_flags() {
    let model = directory("m2m100");
    let known = "the tokenizer has eng_Latn, fra_Latn, deu_Latn";
    let error = fails(&mut with_model("translate", &model));
    assert_eq!(
        error,
        format!("error: no target language is chosen; {known}; give --target-lang")
    );
    let error = fails(with_model("translate", &model).args(["--target-lang", "ita_Latn"]));
    assert_eq!(
        error,
        format!("error: no token for the language `ita_Latn`; {known}")
    );
    let french = translated(&model, &["--target-lang", "fra_Latn"], SENTENCES);
    assert_eq!(french.len(), 2);
    let flags = ["--source-lang", "deu_Latn", "--target-lang", "fra_Latn"];
    assert_ne!(translated(&model, &flags, SENTENCES), french);

    // Marian's is before the source.
    let model = directory("marian-multi");
    let marked: String = SENTENCES
        .lines()
        .map(|line| format!(">>fra<< {line}\n"))
        .collect();
    let french = translated(&model, &[], &marked);
    assert_eq!(
        translated(&model, &["--target-lang", "fra"], SENTENCES),
        french
    );
    let one_pair = directory("marian-en-fr");
    let error = fails(with_model("translate", &one_pair).args(["--target-lang", "fra"]));
    assert_eq!(
        error,
        "error: --target-lang fra: the model has no language tokens, and translates one pair of languages; remove --target-lang"
    );
}

/// As the hub has M2M100: a SentencePiece model and a vocabulary, and no `tokenizer.json`.
#[test]
fn m2m100_is_read_by_its_sentencepiece_model() {
    let folder = folder();
    let [model, out] = ["model", "out"].map(|name| folder.path().join(name));
    let config = TransformerConfig {
        src_vocab_size: 504,
        tgt_vocab_size: 504,
        ..TransformerConfig::load(directory("m2m100")).unwrap()
    };
    let random: Transformer<NdArray> = config.init(1, &Default::default()).unwrap();
    random.save_hugging_face(&model).unwrap();
    for name in ["sentencepiece.bpe.model", "vocab.json"] {
        fs::copy(fixture("m2m100-tokenizer").join(name), model.join(name)).unwrap();
    }
    let flags = ["--target-lang", "fr"];
    let mut command = with_model("tokenize", &model);
    let names = stdout(&run_on_input(&mut command, b"It is.\n"));
    assert!(names.starts_with("__en__ "), "{names}");
    let error = fails(&mut with_model("translate", &model));
    assert!(error.ends_with("give --target-lang"), "{error}");

    let expected = translated(&model, &flags, SENTENCES);
    let mut command = with_model("export", &model);
    succeeds(command.args(flags).arg("--out").arg(&out));
    assert_eq!(translated(&out, &[], SENTENCES), expected);
    fs::remove_file(model.join("vocab.json")).unwrap();
    let error = fails(&mut with_model("translate", &model));
    let missing =
        "has no tokenizer.json, and no vocab.json of M2M100 next to sentencepiece.bpe.model";
    assert!(error.ends_with(missing), "{error}");
}

/// Hugging Face ignores them with a warning, too.
#[test]
fn tensors_that_are_not_read_are_named() {
    let copy = copied("bart");
    let path = copy.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: BTreeMap<_, _> = file.iter().collect();
    let bias = file
        .tensor("model.encoder.layernorm_embedding.bias")
        .unwrap();
    tensors.insert("classification_head.dense.bias", bias);
    safetensors::serialize_to_file(tensors, None, &path).unwrap();
    let mut command = with_model("translate", copy.path());
    let output = run_on_input(&mut command, SENTENCES.as_bytes());
    let expected = format!(
        "warning: {}: unused tensors: `classification_head.dense.bias`",
        copy.path().display()
    );
    let warnings = stderr(&output);
    assert!(warnings.lines().any(|line| line == expected), "{warnings}");
    let lines: Vec<String> = stdout(&output).lines().map(String::from).collect();
    assert_eq!(lines, translated(&directory("bart"), &[], SENTENCES));
}

#[test]
fn a_source_may_end_in_its_language_and_the_decoder_start_with_the_targets() {
    let copy = mbart_with_language_last();
    let folder = folder();
    let out = folder.path().join("out");
    let flags = ["--source-lang", "deu_Latn", "--target-lang", "fra_Latn"];
    succeeds(
        with_model("export", copy.path())
            .args(flags)
            .arg("--out")
            .arg(&out),
    );
    let single = &read_json(&out.join("tokenizer.json"))["post_processor"]["single"];
    let names = single.as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|part| &part["SpecialToken"]["id"]).collect();
    assert_eq!(names, [&Value::Null, &json!("</s>"), &json!("deu_Latn")]);
    let start = &read_json(&out.join("generation_config.json"))["decoder_start_token_id"];
    assert_eq!(*start, json!(5));
    let expected = translated(copy.path(), &flags, SENTENCES);
    assert_eq!(translated(&out, &[], SENTENCES), expected);

    // No second `</s>` is counted.
    let tokenizers = Tokenizers::load(copy.path()).unwrap();
    let tokenizers = tokenizers.with_languages(Some("deu_Latn"), Some("fra_Latn"));
    let source = tokenizers.unwrap().encode_source("Where are you?").unwrap();
    let mut command = with_model("score", copy.path());
    command.args(flags).args(["--max-source-length", "1"]);
    let error = stderr(&run_on_input(&mut command, b"Where are you?\tOui.\n"));
    let expected_error = format!("the source has {} tokens, more than", source.len());
    assert!(error.contains(&expected_error), "{error}");

    // A run on pairs of these languages reads sources alike.
    let tuned = folder.path().join("tuned");
    let mut command = program("train");
    command.args(["--hold-out", "5", "--batch-tokens", "200", "--warmup", "2"]);
    command.args(["--updates", "2", "--validate-every", "2"]);
    // The weights hardly change.
    command.args(["--peak-rate", "1e-12"]).args(flags);
    command
        .arg("--init")
        .arg(copy.path())
        .arg("--out")
        .arg(&tuned);
    succeeds(command.arg("--data").arg(corpus(folder.path())));
    assert_eq!(translated(&tuned, &[], SENTENCES), expected);
}

/// The saved tokenizers, pairs and decoding options, too, are between the languages that the run trains on.
#[test]
fn a_run_gets_another_language_until_its_first_checkpoint() {
    let folder = folder();
    let train = |out: &Path, source: &str, target: &str| {
        let mut command = program("train");
        command.args(["--hold-out", "5", "--batch-tokens", "200", "--warmup", "2"]);
        command.args(["--updates", "2", "--source-lang", source]);
        command.args(["--target-lang", target]);
        command.arg("--init").arg(directory("mbart"));
        command.arg("--data").arg(corpus(folder.path()));
        command.arg("--out").arg(out);
        command
    };
    let [out, fresh] = ["out", "fresh"].map(|name| folder.path().join(name));
    succeeds(&mut train(&out, "deu_Latn", "fra_Latn"));
    let error = fails(train(&out, "fra_Latn", "fra_Latn").arg("--resume"));
    assert!(error.contains("was made with deu_Latn"), "{error}");
    for (key, flag, was) in [
        ("init.source_lang", "--source-lang", "deu_Latn"),
        ("init.target_lang", "--target-lang", "fra_Latn"),
    ] {
        let mut command = program("train");
        command.args(["--resume", "--updates", "3", "--set", &format!("{key}=")]);
        let error = fails(command.arg("--out").arg(&out));
        let run = out.display();
        let rule = format!("the run in {run} was made with {was}; set it with {flag}");
        assert_eq!(error, format!("error: --set {key}=: {rule}"));
    }
    // As if it had been killed before that.
    fs::remove_dir_all(out.join("checkpoints")).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::remove_file(out.join(name)).unwrap();
    }
    succeeds(train(&out, "fra_Latn", "deu_Latn").arg("--resume"));
    succeeds(&mut train(&fresh, "fra_Latn", "deu_Latn"));
    for name in ["tokenizer.json", "train.cache", "generation_config.json"] {
        let [resumed, expected] = [&out, &fresh].map(|out| fs::read(out.join(name)));
        assert!(resumed.unwrap() == expected.unwrap(), "{name}");
    }
}

#[test]
fn every_command_reads_a_pretrained_directory() {
    let folder = folder();
    let model = directory("mbart");
    let languages = ["--target-lang", "fra_Latn"];
    let text = "Where is he?\tOù est-il ?\nIt is Saturday.\tC'est samedi.\n";
    let pairs = file(folder.path(), "pairs.tsv", text);
    let out = succeeds(
        with_model("evaluate", &model)
            .args(languages)
            .arg("--data")
            .arg(&pairs),
    );
    assert!(out.contains("BLEU"), "{out}");
    let score = |languages: &[&str]| {
        let mut command = with_model("score", &model);
        let out = succeeds(command.args(languages).arg("--input").arg(&pairs));
        let first = out.lines().next().expect("a line").to_owned();
        let fields: Vec<f64> = first.split('\t').map(|n| n.parse().unwrap()).collect();
        (fields[0], fields[1])
    };
    // The token of the language is one of the target's.
    let (french, tokens) = score(&languages);
    assert!(french < 0.0 && tokens > 3.0);
    let (german, as_many) = score(&["--target-lang", "deu_Latn"]);
    assert!(german != french && tokens == as_many);

    let picture = folder.path().join("attention.svg");
    let mut command = with_model("attention", &model);
    command.args(languages).args(["--source", "Where is he?"]);
    succeeds(command.arg("--out").arg(&picture));
    assert!(fs::read_to_string(picture).unwrap().contains("fra_Latn"));

    let out = succeeds(program("info").arg(&model));
    for line in [
        "encoder-decoder Transformer",
        "  format       Hugging Face, type mbart",
        "  Unigram, 900 pieces, for source and target",
        "    languages: eng_Latn, fra_Latn, deu_Latn",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    let out = succeeds(program("info").arg(directory("marian-en-fr")));
    let line = "  SentencePiece, 2284 pieces, for the source";
    assert!(out.lines().any(|found| found == line), "{out}");

    // Python writes numbers that JSON does not have.
    let copy = copied("marian-en-fr");
    let config = copy.path().join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        text.replacen('{', "{\"router_jitter_noise\": NaN, ", 1),
    )
    .unwrap();
    let out = succeeds(program("info").arg(copy.path()));
    let line = "  format       Hugging Face, type marian";
    assert!(out.lines().any(|found| found == line), "{out}");

    // Two directories of one tokenizer.
    let ensemble = with_model("translate", &directory("bart"))
        .arg(directory("bart-old-bin"))
        .args(["--input"])
        .arg(file(folder.path(), "input.txt", SENTENCES))
        .output();
    let ensemble = stdout(&ensemble.unwrap());
    let alone = translated(&directory("bart"), &[], SENTENCES);
    assert_eq!(ensemble.lines().collect::<Vec<_>>(), alone);
}

/// In one file and in single precision, whatever the files of the models are: the average of equal models is that
/// model.
#[test]
fn directories_are_averaged() {
    let folder = folder();
    for (name, flags) in [
        ("marian-en-fr", &[][..]),
        ("bart-f16", &[]),
        ("bart-old-bin", &[]),
        ("nllb-sharded", &["--target-lang", "fra_Latn"]),
    ] {
        let (model, out) = (directory(name), folder.path().join(name));
        let mut command = with_model("average", &model);
        succeeds(command.arg(&model).arg("--out").arg(&out));
        let expected = translated(&model, flags, SENTENCES);
        assert_eq!(translated(&out, flags, SENTENCES), expected, "{name}");
        let config = read_json(&out.join("config.json"));
        assert_eq!(config["dtype"], "float32", "{name}");
        for (tensor, (shape, numbers)) in tensors(&out) {
            let count: usize = shape.iter().product();
            assert_eq!(numbers.len(), 4 * count, "{name}: {tensor}");
        }
    }
    // Number by number, where the file is the same.
    assert!(tensors(&folder.path().join("marian-en-fr")) == tensors(&directory("marian-en-fr")));

    // Other versions of the library may have written them, but the types of the weights must agree.
    let copy = copied("bart");
    let config = copy.path().join("config.json");
    change_json(&config, |config| {
        config["transformers_version"] = json!("4.0")
    });
    let average = |other: &Path, out: &str| {
        let mut command = with_model("average", copy.path());
        command.arg(other).arg("--out").arg(folder.path().join(out));
        command
    };
    succeeds(&mut average(&directory("bart"), "versions"));
    let error = fails(&mut average(&directory("bart-f16"), "types"));
    let file = directory("bart-f16").join("config.json");
    let expected = format!(
        "error: {}: `dtype` is \"float16\", but \"float32\" in {}",
        file.display(),
        config.display()
    );
    assert_eq!(error, expected);
}

/// The ids that Hugging Face's tokenizers give, without the token that ends a text.
#[test]
fn tokenize_shows_the_tokens_that_the_model_reads() {
    let folder = folder();
    for name in ["marian-multi", "bart", "nllb-sharded"] {
        let model = directory(name);
        let expected = read_json(&model.join("expected.json"));
        let sentences = expected.get("sentences").unwrap_or(&expected);
        let sentences = sentences.as_array().unwrap().iter().filter(|sentence| {
            let text = sentence["text"].as_str().unwrap();
            !text.contains(['\n', '\r']) && !text.contains("</s>")
        });
        let (mut texts, mut ids) = (String::new(), Vec::new());
        for sentence in sentences {
            texts += &format!("{}\n", sentence["text"].as_str().unwrap());
            let tokens = sentence["ids"].as_array().unwrap();
            let tokens = tokens[..tokens.len() - 1].iter().map(Value::to_string);
            ids.push(tokens.collect::<Vec<_>>().join(" "));
        }
        let input = file(folder.path(), name, texts);
        let mut command = with_model("tokenize", &model);
        let out = succeeds(command.args(["--ids", "--input"]).arg(input));
        assert_eq!(out.lines().collect::<Vec<_>>(), ids, "{name}");
    }
    let mut command = with_model("tokenize", &directory("marian-multi"));
    let output = run_on_input(&mut command, b">>fra<< Where is he?\n");
    let names = stdout(&output);
    assert!(names.starts_with(">>fra<< ▁Where ▁is ▁he"), "{names}");
    let mut command = with_model("tokenize", &directory("nllb-sharded"));
    let error = fails(command.arg("--target"));
    assert!(error.ends_with("give --target-lang"), "{error}");
}

/// A directory of Marian's whose tokenizer was given tokens, and its embeddings rows for them, as by
/// `tokenizer.add_tokens` and `resize_token_embeddings`: the token `<custom>` has the row of `<pad>`, another that of a
/// word that the model emits.
fn with_added_tokens() -> tempfile::TempDir {
    let model = copied("marian-en-fr");
    let path = |name: &str| model.path().join(name);
    let added = json!({"<custom>": 2284, "new_Lang": 2285});
    fs::write(path("added_tokens.json"), added.to_string()).unwrap();
    let special = json!({"additional_special_tokens": ["new_Lang"], "unk_token": "<unk>"});
    fs::write(path("special_tokens_map.json"), special.to_string()).unwrap();
    fs::remove_file(path("pytorch_model.bin")).unwrap();
    for name in ["config.json", "generation_config.json"] {
        change_json(&path(name), |config| {
            for key in ["vocab_size", "decoder_vocab_size"] {
                if config.get(key).is_some() {
                    config[key] = 2286.into();
                }
            }
        });
    }
    let weights = fs::read(path("model.safetensors")).unwrap();
    let weights = SafeTensors::deserialize(&weights).unwrap();
    let mut resized = Vec::new();
    for (name, tensor) in weights.tensors() {
        let shape = tensor.shape().to_vec();
        let mut bytes = tensor.data().to_vec();
        let mut new_shape = shape.clone();
        if let Some(rows) = new_shape.iter_mut().find(|size| **size == 2284) {
            *rows += 2;
            // Along the only dimension of a row, or the last one of the biases.
            let width = 4 * shape
                .iter()
                .filter(|size| **size != 2284)
                .product::<usize>();
            let last = bytes[bytes.len() - 2 * width..].to_vec();
            bytes.extend(last);
        }
        resized.push((name, new_shape, bytes));
    }
    let views = resized.iter().map(|(name, shape, bytes)| {
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
        (name.clone(), view.unwrap())
    });
    safetensors::serialize_to_file(views, None, &path("model.safetensors")).unwrap();
    model
}

const ADDED_FILES: [&str; 2] = ["added_tokens.json", "special_tokens_map.json"];

/// Ids are those of `MarianTokenizer` of transformers 4.57 for these files.
#[test]
fn added_tokens_are_read_and_kept_by_every_command() {
    let model = with_added_tokens();
    let folder = folder();
    let tokens = |model: &Path| {
        let mut command = with_model("tokenize", model);
        let output = run_on_input(command.arg("--ids"), b"Where are you?<custom> new_Lang\n");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let expected = tokens(model.path());
    assert!(expected.contains(" 2284 "), "{expected}");
    assert!(!expected.contains("2285"), "{expected}");

    let path = |name: &str| folder.path().join(name);
    let mut average = program("average");
    average.arg("--model").arg(model.path()).arg(model.path());
    succeeds(average.arg("--out").arg(path("average")));
    let mut quantize = with_model("quantize", model.path());
    succeeds(quantize.arg("--out").arg(path("quantize")));
    let mut export = with_model("export", model.path());
    succeeds(export.arg("--out").arg(path("export")));
    let mut tuned = program("train");
    tuned.args(["--updates", "2", "--warmup", "2", "--validate-every", "2"]);
    tuned.args([
        "--batch-tokens",
        "200",
        "--hold-out",
        "5",
        "--peak-rate",
        "1e-4",
    ]);
    tuned.arg("--init").arg(model.path());
    tuned.arg("--data").arg(corpus(folder.path()));
    succeeds(tuned.arg("--out").arg(path("tuned")));
    for name in ["average", "quantize", "export", "tuned"] {
        for file in ADDED_FILES {
            let before = fs::read(model.path().join(file)).unwrap();
            assert_eq!(
                fs::read(path(name).join(file)).ok(),
                Some(before),
                "{name}: {file}"
            );
        }
        assert_eq!(tokens(&path(name)), expected, "{name}");
    }
}

/// As `MarianTokenizer` and `MarianMTModel` of transformers 4.57 translate the sentences.
#[test]
fn spaces_before_punctuation_are_removed_where_the_settings_say_so() {
    let model = copied("marian-en-fr");
    let expected = read_json(&model.path().join("expected.json"));
    let sentences = expected.as_array().unwrap().iter();
    let spaced = sentences.filter(|sentence| {
        let text = sentence["beam1"]["text"].as_str().unwrap();
        [" !", " ?"].iter().any(|mark| text.ends_with(mark))
            && !sentence["text"].as_str().unwrap().contains("</s>")
    });
    let spaced: Vec<&Value> = spaced.take(4).collect();
    assert!(!spaced.is_empty());
    let inputs: Vec<&str> = spaced.iter().map(|s| s["text"].as_str().unwrap()).collect();
    let texts: Vec<&str> = spaced
        .iter()
        .map(|s| s["beam1"]["text"].as_str().unwrap())
        .collect();
    let translate = || translated(model.path(), &["--beam", "1"], &inputs.join("\n"));
    assert_eq!(translate(), texts);
    for (value, is_clean) in [
        (json!(true), true),
        (json!(null), false),
        (json!(false), false),
    ] {
        change_json(&model.path().join("tokenizer_config.json"), |settings| {
            settings["clean_up_tokenization_spaces"] = value;
        });
        let clean = texts.iter().map(|text| match is_clean {
            true => text.replace(" !", "!").replace(" ?", "?"),
            false => (*text).to_owned(),
        });
        assert_eq!(translate(), clean.collect::<Vec<_>>());
    }
}

const NLLB_LANGUAGES: [&str; 4] = ["--source-lang", "eng_Latn", "--target-lang", "fra_Latn"];

/// NFKC can make a character eleven times as long, and the pre-tokenizer a text six times.
#[test]
fn a_long_line_is_read_where_it_does_not_become_too_long() {
    let line = ["Where are you going?"; 3000].join(" ");
    let output = run_on_input(
        with_model("tokenize", &directory("nllb-sharded")).args([
            "--source-lang",
            "eng_Latn",
            "--ids",
        ]),
        line.as_bytes(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    // As the crate's Python binding gives them.
    let expected = format!("4{}\n", " 591 157 25 258 13".repeat(3000));
    assert_eq!(stdout(&output), expected);
}

/// A tokenizer with a rule that makes a letter long, and a corpus that has many of it in one line.
#[test]
fn a_pair_that_cannot_be_encoded_is_left_out_and_named_by_file_and_line() {
    let model = copied("nllb-sharded");
    change_json(&model.path().join("tokenizer.json"), |tokenizer| {
        tokenizer["normalizer"] = json!({
            "type": "Replace", "pattern": {"String": "x"}, "content": "y".repeat(300)
        });
    });
    let folder = folder();
    let long = "x".repeat(10_000);
    let good = "Where are you?\tOù es-tu ?\n";
    let bad = format!("{long}\tOù es-tu ?\nWho?\t{long}\n");
    let data = file(folder.path(), "data.tsv", good.repeat(6) + &bad);
    let valid = file(folder.path(), "valid.tsv", format!("{good}{bad}"));
    let problem = |side: &str| {
        format!(
            "the {side} sentence: the normalizer's rules expand a text of 10000 bytes to more than 2257152"
        )
    };

    let mut train = program("train");
    train.args(["--updates", "1", "--warmup", "1", "--batch-tokens", "200"]);
    train.args(NLLB_LANGUAGES).arg("--init").arg(model.path());
    train.arg("--data").arg(&data).arg("--valid").arg(&valid);
    let output = run(train.arg("--out").arg(folder.path().join("tuned")));
    assert!(output.status.success(), "{}", stderr(&output));
    let shown = stdout(&output) + &stderr(&output);
    for (noun, file, line) in [("training", &data, 7), ("validation", &valid, 2)] {
        let expected = format!(
            "2 {noun} pairs are skipped: the tokenizer cannot encode them; the first: {}: line {line}: {}",
            file.display(),
            problem("source")
        );
        assert!(shown.contains(&expected), "{expected}\n{shown}");
    }

    let mut evaluate = with_model("evaluate", model.path());
    let error = fails(evaluate.args(NLLB_LANGUAGES).arg("--data").arg(&valid));
    assert_eq!(
        error,
        format!("error: {}: line 2: {}", valid.display(), problem("source"))
    );
    for command in ["score", "translate"] {
        let mut command = with_model(command, model.path());
        let output = run(command.args(NLLB_LANGUAGES).arg("--input").arg(&valid));
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.contains(&format!("{}: line 2: ", valid.display())),
            "{error}"
        );
    }
}
