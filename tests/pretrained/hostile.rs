//! Damaged directories, and ones that were made to do harm: each ends in one line that names the file, and none in a
//! panic, in exhausted memory, or in the execution of code.

use std::fs;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tempfile::TempDir;
use transformer_core::text::TextError;
use transformer_core::{PackedModel, Translator};

use super::support::{fails, file, fixture, folder, with_model};
use super::{change_json, copied};

/// Most characters of an error: a file's contents are not among them.
const MOST_SHOWN: usize = 11_000;

fn load(directory: &Path) -> Result<Translator<PackedModel>, TextError> {
    Translator::load(directory)
}

/// The error about a file of the directory, without the directory's name.
#[track_caller]
fn refused(directory: &Path, file: &str) -> String {
    let Err(error) = load(directory) else {
        panic!("{file} was read");
    };
    let line = error.to_string();
    let start = format!("{}: ", directory.join(file).display());
    assert!(line.starts_with(&start), "{file}: {line}");
    assert!(!line.contains('\n') && line.len() < MOST_SHOWN, "{line}");
    line[start.len()..].to_owned()
}

/// A copy with one file changed by `change`.
fn with(name: &str, file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> TempDir {
    let copy = copied(name);
    let path = copy.path().join(file);
    fs::write(&path, change(fs::read(&path).unwrap())).unwrap();
    copy
}

/// A copy with one file in JSON changed.
fn with_json(name: &str, file: &str, change: impl FnOnce(&mut Value)) -> TempDir {
    let copy = copied(name);
    change_json(&copy.path().join(file), change);
    copy
}

const SHARD: &str = "model-00003-of-00008.safetensors";
const INDEX: &str = "model.safetensors.index.json";

#[test]
fn a_truncated_shard_is_named() {
    for part in [0, 1, 7, 100, 2000] {
        let copy = with("nllb-sharded", SHARD, |mut bytes| {
            bytes.truncate(bytes.len() * part / 2001);
            bytes
        });
        refused(copy.path(), SHARD);
    }
}

#[test]
fn an_index_that_names_other_files_is_refused() {
    let with_file = |name: &str| {
        with_json("nllb-sharded", INDEX, |index| {
            let files = index["weight_map"].as_object_mut().unwrap();
            let of_shard = files.values_mut();
            for file in of_shard.filter(|file| file.as_str() == Some(SHARD)) {
                *file = json!(name);
            }
        })
    };
    let outside = folder();
    let beside = outside.path().join(SHARD);
    fs::copy(super::directory("nllb-sharded").join(SHARD), &beside).unwrap();
    // It is there, and would be read.
    for name in [&*beside.display().to_string(), "../x", "..", "a/b", ""] {
        refused(with_file(name).path(), INDEX);
    }
    let missing = "model-00009-of-00008.safetensors";
    refused(with_file(missing).path(), missing);
    // The tensors are in another file than it says.
    let other = "model-00004-of-00008.safetensors";
    refused(with_file(other).path(), INDEX);
}

/// Python would create a file, by `posix.system`.
#[test]
fn a_pickle_that_calls_code_is_refused_in_both_formats() {
    let folder = folder();
    let ran = folder.path().join("ran");
    let command = format!("touch {}", ran.display());
    let mut old = fs::read(super::directory("bart-old-bin").join("pytorch_model.bin")).unwrap();
    // Of the three first pickles, the last has a flag for the order of bytes.
    let system = old.windows(3).position(|bytes| bytes == b"uu.").unwrap() + 3;
    old.truncate(system);
    old.extend(b"\x80\x02cposix\nsystem\n(X");
    old.extend(u32::to_le_bytes(command.len() as u32));
    old.extend(command.as_bytes());
    old.extend(b"tR.");
    let zip = fs::read(fixture("malicious.pt")).unwrap();
    for bytes in [old, zip] {
        let copy = with("bart-old-bin", "pytorch_model.bin", |_| bytes);
        let problem = refused(copy.path(), "pytorch_model.bin");
        assert!(problem.contains("posix.system"), "{problem}");
    }
    assert!(!ran.exists());
}

#[test]
fn a_vocabulary_with_holes_or_duplicates_is_refused() {
    let words = r#"{"</s>": 0, "<unk>": 1, "<pad>": 2, "a": 3, "a": 4}"#;
    let twice = with("marian-en-fr", "vocab.json", |_| words.into());
    let problem = refused(twice.path(), "vocab.json");
    assert!(problem.contains("`a`"), "{problem}");
    let same_id = with_json("marian-en-fr", "vocab.json", |vocab| {
        vocab["▁a"] = json!(100);
    });
    let problem = refused(same_id.path(), "vocab.json");
    assert!(problem.contains("token 100"), "{problem}");
    for (token, id) in [
        ("▁hole", json!(5000)),
        ("▁negative", json!(-1)),
        ("▁no", json!("id")),
    ] {
        let copy = with_json("marian-en-fr", "vocab.json", |vocab| vocab[token] = id);
        refused(copy.path(), "vocab.json");
    }
    let hole = with_json("marian-en-fr", "vocab.json", |vocab| {
        let tokens = vocab.as_object_mut().unwrap();
        tokens.retain(|_, id| *id != 1000);
    });
    refused(hole.path(), "vocab.json");
    let same = with_json("m2m100", "tokenizer.json", |tokenizer| {
        let vocab = tokenizer["model"]["vocab"].as_array_mut().unwrap();
        vocab[50] = vocab[51].clone();
    });
    refused(same.path(), "tokenizer.json");
}

#[test]
fn sizes_that_do_not_agree_are_refused() {
    for key in [
        "vocab_size",
        "encoder_layers",
        "decoder_ffn_dim",
        "d_model",
        "max_position_embeddings",
    ] {
        for size in [0_u64, 1, 3, 1 << 20, 1 << 50, u64::MAX] {
            let copy = with_json("bart", "config.json", |config| config[key] = json!(size));
            let Err(error) = load(copy.path()) else {
                panic!("{key} {size} was read");
            };
            let line = error.to_string();
            let folder = format!("{}/", copy.path().display());
            assert!(line.starts_with(&folder) && !line.contains('\n'), "{line}");
        }
    }
    // More tokens than embeddings.
    let copy = with_json("marian-en-fr", "vocab.json", |vocab| {
        vocab["▁one▁more"] = json!(2284)
    });
    let problem = refused(copy.path(), "vocab.json");
    assert_eq!(problem, "2285 tokens, but the model's vocabulary has 2284");
    // A vocabulary of another, smaller model.
    let copy = copied("marian-en-fr");
    let other = super::directory("marian-multi").join("vocab.json");
    fs::copy(other, copy.path().join("vocab.json")).unwrap();
    let problem = refused(copy.path(), "vocab.json");
    assert_eq!(
        problem,
        "`<pad>` is token 1905, but the model's `pad_token_id` is 2283"
    );
    let copy = with_json("bart", "config.json", |config| {
        config["eos_token_id"] = json!(7)
    });
    assert!(load(copy.path()).is_err());
    let copy = with_json("bart", "generation_config.json", |options| {
        options["forced_bos_token_id"] = json!(900);
    });
    let problem = refused(copy.path(), "generation_config.json");
    let expected = "`forced_bos_token_id` is token 900, outside the vocabulary of 900";
    assert_eq!(problem, expected);
    let copy = with_json("bart", "generation_config.json", |options| {
        options["decoder_start_token_id"] = json!(900);
    });
    let problem = refused(copy.path(), "generation_config.json");
    assert!(problem.contains("`decoder_start_token_id`"), "{problem}");
    let copy = with_json("bart", "config.json", |config| {
        config["vocab_size"] = json!(0);
    });
    let problem = refused(copy.path(), "config.json");
    assert!(problem.starts_with("`vocab_size` is 0"), "{problem}");
    let copy = with_json("bart", "config.json", |config| {
        config["encoder_attention_heads"] = json!(7);
        config["decoder_attention_heads"] = json!(7);
        config["num_attention_heads"] = json!(7);
    });
    let problem = refused(copy.path(), "config.json");
    assert!(
        problem.ends_with("is not divisible by `encoder_attention_heads` 7"),
        "{problem}"
    );
}

/// Opening a pipe would wait for a writer, and a device has no end.
#[cfg(unix)]
#[test]
fn pipes_and_devices_are_refused() {
    for (name, files) in [
        (
            "marian-en-fr",
            &["config.json", "source.spm", "vocab.json"][..],
        ),
        (
            "marian-en-fr",
            &["generation_config.json", "tokenizer_config.json"],
        ),
        ("marian-en-fr", &["model.safetensors"]),
        ("bart", &["tokenizer.json"]),
        ("nllb-sharded", &[INDEX, SHARD]),
    ] {
        for file in files {
            let copy = copied(name);
            let path = copy.path().join(file);
            let problem = "a pipe or a device, not a file";
            fs::remove_file(&path).unwrap();
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.unwrap().success());
            assert_eq!(refused(copy.path(), file), problem);
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
            assert_eq!(refused(copy.path(), file), problem);
        }
    }
}

#[test]
fn files_that_were_not_fetched_are_named() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 123\n";
    for (name, file) in [
        ("marian-en-fr", "source.spm"),
        ("marian-en-fr", "model.safetensors"),
        ("bart-old-bin", "pytorch_model.bin"),
        ("bart", "tokenizer.json"),
    ] {
        let copy = with(name, file, |_| pointer.into());
        let problem = refused(copy.path(), file);
        let expected = "a Git LFS pointer, not the file: `git lfs pull` fetches it";
        assert_eq!(problem, expected);
    }
    for missing in ["source.spm", "target.spm", "vocab.json"] {
        let copy = copied("marian-en-fr");
        fs::remove_file(copy.path().join(missing)).unwrap();
        let error = fails(&mut with_model("translate", copy.path()));
        let expected = format!("error: {} has no {missing}", copy.path().display());
        assert_eq!(error, expected);
    }
    let copy = with_json("bart", "config.json", |config| {
        config.as_object_mut().unwrap().remove("model_type");
    });
    assert_eq!(
        refused(copy.path(), "config.json"),
        "`model_type` is absent, though the other keys are Hugging Face's"
    );
}

/// As a cache leaves them when its files were removed.
#[cfg(unix)]
#[test]
fn links_to_nothing_are_no_missing_files() {
    for (name, file) in [
        ("marian-en-fr", "generation_config.json"),
        ("marian-en-fr", "tokenizer_config.json"),
        ("marian-en-fr", "model.safetensors"),
        ("nllb-sharded", INDEX),
    ] {
        let copy = copied(name);
        let path = copy.path().join(file);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(copy.path().join("missing"), &path).unwrap();
        let problem = refused(copy.path(), file);
        assert_eq!(problem, "a link to a file that is not there");
    }
}

/// Ten megabytes of a value, nested or not, in a key that is read or in another one.
#[test]
fn enormous_values_end_in_a_short_line() {
    let nested = [vec![b'['; 5 << 20], vec![b']'; 5 << 20]].concat();
    let text = [&b"\""[..], &vec![b'x'; 10 << 20], b"\""].concat();
    for (name, file, key) in [
        ("marian-en-fr", "config.json", "activation_function"),
        ("marian-en-fr", "generation_config.json", "num_beams"),
        ("marian-en-fr", "vocab.json", "</s>"),
        ("marian-en-fr", "tokenizer_config.json", "tokenizer_class"),
        ("bart", "tokenizer.json", "model"),
        ("nllb-sharded", INDEX, "weight_map"),
    ] {
        for value in [&nested, &text] {
            for key in [key, "unknown"] {
                let copy = with(name, file, |mut bytes| {
                    // The last of a key twice counts.
                    let end = bytes.iter().rposition(|&byte| byte == b'}').unwrap();
                    bytes.truncate(end);
                    bytes.extend(format!(", \"{key}\": ").as_bytes());
                    [&bytes[..], value, b"}"].concat()
                });
                // A key without a meaning may have any value.
                if load(copy.path()).is_err() {
                    refused(copy.path(), file);
                }
            }
        }
        let only = [&b"{\"x\": "[..], &nested, b"}"].concat();
        let copy = with(name, file, |_| only);
        if file != "tokenizer_config.json" {
            refused(copy.path(), file);
        }
    }
    let token = "x".repeat(10 << 20);
    let copy = with("marian-en-fr", "vocab.json", |_| {
        format!("{{\"{token}\": 0, \"{token}\": 1}}").into()
    });
    let problem = refused(copy.path(), "vocab.json");
    assert!(problem.contains("`xxx") && problem.len() < 200, "{problem}");
}

#[test]
fn enormous_sizes_in_files_are_refused_before_memory_is_asked_for() {
    for header in [u64::MAX, 1 << 62, 1 << 40, 50_000_000] {
        let copy = with("bart", "model.safetensors", |mut bytes| {
            bytes[..8].copy_from_slice(&header.to_le_bytes());
            bytes
        });
        refused(copy.path(), "model.safetensors");
    }
    for shape in ["[1099511627776]", "[4294967296,4294967296]", "[0]", "[-1]"] {
        let header = format!(
            r#"{{"final_logits_bias":{{"dtype":"F32","shape":{shape},"data_offsets":[0,4398046511104]}}}}"#
        );
        let copy = with("bart", "model.safetensors", |_| {
            let len = (header.len() as u64).to_le_bytes();
            [&len[..], header.as_bytes(), &[0; 64]].concat()
        });
        refused(copy.path(), "model.safetensors");
    }
    // A field of 2⁶³ bytes, and a number that does not end.
    for start in [
        &b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[..],
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let copy = with("marian-en-fr", "source.spm", |bytes| {
            [start, &bytes].concat()
        });
        refused(copy.path(), "source.spm");
    }
    // The sizes of the storages, in the old format, are before their numbers.
    let copy = with("bart-old-bin", "pytorch_model.bin", |mut bytes| {
        let pickles = bytes.len() - 618_000;
        bytes[pickles..pickles + 400_000].fill(0xff);
        bytes.truncate(pickles + 1000);
        bytes
    });
    refused(copy.path(), "pytorch_model.bin");
}

#[test]
fn a_sentencepiece_model_that_is_cut_anywhere_is_refused_or_read() {
    let copy = copied("marian-multi");
    let whole = fs::read(copy.path().join("source.spm")).unwrap();
    let cuts = (0..60).chain((60..whole.len()).step_by(whole.len() / 60));
    for cut in cuts {
        file(copy.path(), "source.spm", &whole[..cut]);
        match transformer_core::Tokenizers::load(copy.path()) {
            // Between two fields.
            Ok(tokenizers) => drop(tokenizers.encode_source("Where are you?")),
            Err(_) => drop(refused(copy.path(), "source.spm")),
        }
    }
}

/// A model may have such weights; its translations are an error.
#[test]
fn weights_that_are_no_numbers_are_read_and_not_decoded() {
    let copy = with("bart", "model.safetensors", |mut bytes| {
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        for number in bytes[header..].chunks_exact_mut(4) {
            number.copy_from_slice(&f32::NAN.to_le_bytes());
        }
        bytes
    });
    let translator = load(copy.path()).unwrap();
    let error = translator
        .translate("Where is he?")
        .unwrap_err()
        .to_string();
    assert!(!error.contains('\n'), "{error}");
}

/// The program says the same line, and its exit code is 1.
#[test]
fn the_program_ends_in_the_line() {
    let copy = with("nllb-sharded", SHARD, |bytes| bytes[..1000].to_vec());
    let error = fails(&mut with_model("translate", copy.path()));
    let start = format!("error: {}: ", copy.path().join(SHARD).display());
    assert!(error.starts_with(&start), "{error}");
    let none = with_json("bart", "config.json", |config| {
        config["model_type"] = json!("gpt_neo")
    });
    let error = fails(&mut with_model("translate", none.path()));
    assert!(
        error.contains("config.json: ") && error.contains("gpt_neo"),
        "{error}"
    );
}

/// Bytes of each file, changed at random.
#[test]
fn damage_anywhere_ends_in_one_line() {
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    for (name, file) in [
        ("marian-multi", "config.json"),
        ("marian-multi", "generation_config.json"),
        ("marian-multi", "tokenizer_config.json"),
        ("marian-multi", "vocab.json"),
        ("marian-multi", "target.spm"),
        ("marian-multi", "model.safetensors"),
        ("marian-en-fr", "pytorch_model.bin"),
        ("bart-old-bin", "pytorch_model.bin"),
        ("bart", "tokenizer.json"),
        ("nllb-sharded", "tokenizer.json"),
        ("nllb-sharded", INDEX),
    ] {
        let copy = copied(name);
        if file == "pytorch_model.bin" {
            // Read first, where it is there.
            let _ = fs::remove_file(copy.path().join("model.safetensors"));
        }
        let path = copy.path().join(file);
        let whole = fs::read(&path).unwrap();
        for _ in 0..20 {
            let mut bytes = whole.clone();
            // The header, which says how the rest is to be read, is mostly at the beginning or at the end.
            let near: usize = 1 << rng.random_range(3..=whole.len().ilog2());
            for _ in 0..rng.random_range(1..6) {
                let at = rng.random_range(0..near);
                let at = if rng.random() {
                    at
                } else {
                    whole.len() - 1 - at
                };
                bytes[at] = rng.random();
            }
            if rng.random_bool(0.2) {
                bytes.truncate(rng.random_range(0..=bytes.len()));
            }
            fs::write(&path, &bytes).unwrap();
            match load(copy.path()) {
                // Not translated: the length of a translation may have changed.
                Ok(translator) => drop(translator.tokenizers().encode_source("Where is he?")),
                Err(error) => {
                    let line = error.to_string();
                    let folder = format!("{}/", copy.path().display());
                    assert!(line.starts_with(&folder), "{name}/{file}: {line}");
                    assert!(!line.contains('\n') && line.len() < MOST_SHOWN, "{line}");
                }
            }
        }
    }
}
