//! Descriptions of model directories and of training runs.

mod support;

use std::fs;

use support::{fails, folder, program, succeeds, trained};
use transformer_core::{LanguageModelConfig, TransformerConfig};

#[test]
fn a_model_its_files_and_its_run_are_described() {
    let (_folder, model) = trained();
    let out = succeeds(program("info").arg(&model));
    for line in [
        "encoder-decoder Transformer",
        "  sizes        d_model 128, d_ff 512, 4 heads, 2 + 2 layers",
        "    d_model = 128 (512)",
        "    final_norm = true (false)",
        "    attention_dropout = 0.1 (0.0)",
        "training run",
        "  4 updates of 4, ",
        "  checkpoint update-00000002, ",
        "  checkpoint update-00000004, ",
        "  update      2  ",
        "  update      4  ",
    ] {
        assert!(
            out.lines().any(|found| found.starts_with(line)),
            "{line}: {out}"
        );
    }
    assert!(out.contains("BPE, "), "{out}");
    assert!(!out.contains("    norm ="), "{out}");
    for file in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "valid.tsv",
    ] {
        let bytes = fs::metadata(model.join(file)).expect("a file").len();
        let line = format!("  {bytes:>12} bytes  {file}");
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }

    // A checkpoint is a model directory, too.
    let out = succeeds(program("info").arg(model.join("checkpoints/update-00000002")));
    assert!(out.contains("no tokenizer"), "{out}");
    assert!(out.contains("  2 updates of 4, "), "{out}");
}

#[test]
fn a_language_model_is_described_as_one() {
    let folder = folder();
    let config = LanguageModelConfig {
        d_model: 64,
        n_layers: 2,
        ..LanguageModelConfig::base(100)
    };
    config.save(folder.path()).expect("saved");
    let out = succeeds(program("info").arg(folder.path()));
    for line in [
        "language model",
        "  sizes        d_model 64, d_ff 2048, 8 heads, 2 layers",
        "  vocabulary   100 entries",
        "  format       1",
        "    d_model = 64 (512)",
        "    n_layers = 2 (6)",
        "no tokenizer",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    assert!(!out.contains("vocab_size"), "{out}");
}

#[test]
fn stacks_of_different_widths_are_described() {
    let folder = folder();
    let config = TransformerConfig {
        decoder_d_ff: Some(1024),
        bos_id: 0,
        excluded_tokens: vec![0],
        ..TransformerConfig::base(100)
    };
    config.save(folder.path()).expect("saved");
    let out = succeeds(program("info").arg(folder.path()));
    for line in [
        "  sizes        d_model 512, d_ff 2048 + 1024, 8 heads, 6 + 6 layers",
        "    bos_id = 0 (1)",
        "    decoder_d_ff = 1024 (not given)",
        "    excluded_tokens = [0] (not given)",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
}

#[test]
fn a_directory_without_a_model_and_a_damaged_one_are_named() {
    let (folder, model) = trained();
    let error = fails(program("info").arg(folder.path()));
    assert!(
        error.ends_with(" holds no model: no config.json"),
        "{error}"
    );
    for file in [
        "config.json",
        "tokenizer.json",
        "checkpoints/update-00000004/run.json",
    ] {
        let path = model.join(file);
        let whole = fs::read(&path).expect("a file");
        fs::write(&path, &whole[..whole.len() / 2]).expect("written");
        let error = fails(program("info").arg(&model));
        assert!(error.contains(file), "{error}");
        fs::write(&path, whole).expect("written");
    }
}
