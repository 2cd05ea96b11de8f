//! Descriptions of model directories and of training runs.

mod support;

use std::fs;
use std::path::Path;

use burn_ndarray::NdArray;
use support::{fails, fixture, folder, program, succeeds, train, trained};
use transformer_core::TransformerConfig;
use transformer_train::run::RunRecord;

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

    // A checkpoint is a model directory, too, with the tokenizer of its run.
    let out = succeeds(program("info").arg(model.join("checkpoints/update-00000002")));
    assert!(
        out.contains(" 300 pieces, for source and target\n"),
        "{out}"
    );
    assert!(out.contains("  2 updates of 4, "), "{out}");
}

/// Also: which model the directory has, by the losses of the record.
#[test]
fn the_average_at_the_end_of_a_run_and_the_model_that_is_kept_are_named() {
    let folder = folder();
    let model = folder.path().join("model");
    let info = |directory: &Path| succeeds(program("info").arg(directory));
    let mut command = train(folder.path(), &model);
    succeeds(command.args(["--set", "checkpoint.average_last=2"]));
    let record = RunRecord::load(&model).expect("a record").expect("a run");
    let average = &record.averages[0];
    let losses = record.validations.iter();
    let best = losses.min_by(|a, b| a.valid_loss.total_cmp(&b.valid_loss));
    let best = best.expect("a validation");
    let is_better = average.validation.valid_loss < best.valid_loss;
    assert_eq!(average.kept, is_better);

    let out = info(&model);
    let (mark, name) = match is_better {
        true => ("", "average of updates 2, 4".to_owned()),
        false => (" (not kept)", format!("update {}", best.update)),
    };
    let start = format!("  average of updates 2, 4{mark}  validation loss ");
    assert!(out.lines().any(|line| line.starts_with(&start)), "{out}");
    let kept = format!("  kept model: {name} (by loss)");
    assert!(out.lines().any(|line| line == kept), "{out}");

    // By another number, the model stays until one is better by that.
    let before = fs::read(model.join("model.safetensors")).expect("the model");
    let mut command = program("train");
    command.arg("--resume").arg("--out").arg(&model);
    command.args(["--set", "validation.best_by=accuracy", "--updates", "5"]);
    succeeds(command.args(["--set", "checkpoint.average_last=0"]));
    let after = fs::read(model.join("model.safetensors")).expect("the model");
    let kept = match before == after {
        true => kept,
        false => "  kept model: update 5 (by accuracy)".to_owned(),
    };
    let out = info(&model);
    assert!(out.lines().any(|line| line == kept), "{out}");

    // A checkpoint's model is its own.
    let out = info(&model.join("checkpoints/update-00000004"));
    assert!(!out.contains("kept model"), "{out}");
}

#[test]
fn a_language_model_is_described_as_one() {
    let folder = folder();
    let config = TransformerConfig {
        d_model: 64,
        n_decoder_layers: 2,
        ..TransformerConfig::language_model(100)
    };
    let model = config.init_language_model::<NdArray>(1, &Default::default());
    let model = model.expect("a model");
    model.save(folder.path()).expect("saved");
    let out = succeeds(program("info").arg(folder.path()));
    for line in [
        "language model",
        "  sizes        d_model 64, d_ff 2048, 8 heads, 2 layers",
        "  vocabulary   100 pieces",
        "  format       1",
        "  differences from the decoder of the paper's base model",
        "    d_model = 64 (512)",
        "    n_decoder_layers = 2 (6)",
        "no tokenizer",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    assert!(!out.contains("vocab_size"), "{out}");
}

#[test]
fn the_search_of_a_pretrained_model_is_listed_as_flags() {
    let out = succeeds(program("info").arg(fixture("pretrained/marian-en-fr")));
    for line in [
        "decoding, unless flags override it",
        "  --beam 4",
        "  --length-penalty average",
        "  --early-stopping false",
        // 512 with the start token.
        "  --max-length 511",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
}

#[test]
fn stacks_of_different_widths_are_described() {
    let folder = folder();
    let config = TransformerConfig {
        decoder_d_ff: Some(1024),
        bos_id: 0,
        excluded_tokens: vec![0],
        n_encoder_layers: 1,
        n_decoder_layers: 1,
        ..TransformerConfig::base(100)
    };
    let model = config.init::<NdArray>(1, &Default::default());
    let model = model.expect("a model");
    model.save(folder.path()).expect("saved");
    let out = succeeds(program("info").arg(folder.path()));
    for line in [
        "  sizes        d_model 512, d_ff 2048 + 1024, 8 heads, 1 + 1 layers",
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
