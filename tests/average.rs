//! Averaging of checkpoints, from a run to translations.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use support::{fails, program, run, stderr, succeeds, trained, with_model};

/// Every tensor of a model, in single precision.
fn weights(model: &Path) -> BTreeMap<String, Vec<f32>> {
    let bytes = fs::read(model.join("model.safetensors")).expect("the weights");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        let (numbers, _) = bytes.as_chunks::<4>();
        numbers
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect()
    };
    let tensors = file.tensors().into_iter();
    tensors
        .map(|(name, tensor)| (name, numbers(tensor.data())))
        .collect()
}

#[test]
fn the_average_of_the_last_checkpoints_translates() {
    let (folder, model) = trained();
    let out = folder.path().join("averaged");
    let mut command = with_model("average", &model);
    let printed = succeeds(command.args(["--last", "2", "--out"]).arg(&out));
    let checkpoints =
        ["update-00000002", "update-00000004"].map(|name| model.join("checkpoints").join(name));
    for line in [&checkpoints[0], &checkpoints[1], &out] {
        assert!(printed.contains(&line.display().to_string()), "{printed}");
    }

    let [first, second] = checkpoints.each_ref().map(|model| weights(model));
    let averaged = weights(&out);
    assert!(averaged.keys().eq(first.keys()));
    for (name, numbers) in &averaged {
        for ((mean, a), b) in numbers.iter().zip(&first[name]).zip(&second[name]) {
            let expected = ((f64::from(*a) + f64::from(*b)) / 2.0) as f32;
            assert_eq!(*mean, expected, "{name}");
        }
    }

    let described = succeeds(program("info").arg(&out));
    assert!(described.contains("BPE, "), "{described}");
    let pairs = model.join("valid.tsv");
    let mut command = with_model("translate", &out);
    let translations = succeeds(command.arg("--input").arg(&pairs));
    assert_eq!(translations.lines().count(), 10, "{translations}");

    // The same by the checkpoints' directories.
    let again = folder.path().join("again");
    let mut command = program("average");
    command.arg("--model").args(&checkpoints);
    succeeds(command.arg("--out").arg(&again));
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        let [one, other] = [&out, &again].map(|model| fs::read(model.join(file)));
        assert!(one.expect("a file") == other.expect("a file"), "{file}");
    }
}

#[test]
fn models_that_cannot_be_averaged_are_named_by_the_flags() {
    let (folder, model) = trained();
    let out = folder.path().join("averaged");
    let average = |flags: &[&str], out: &Path| {
        let mut command = with_model("average", &model);
        fails(command.args(flags).arg("--out").arg(out))
    };
    let name = model.display();
    assert_eq!(
        average(&["--last", "3"], &out),
        format!(
            "error: --last 3: {name} has 2 checkpoints; train with --keep-checkpoints 3 to keep as many"
        )
    );
    assert_eq!(
        average(&[], &out),
        format!(
            "error: --model {name}: only one directory; add --last N for the newest checkpoints of a run"
        )
    );
    assert_eq!(
        average(&["other", "--last", "2"], &out),
        "error: --last 2: needs the directory of one training run, but --model names 2 directories"
    );
    assert_eq!(
        average(&["--last", "2"], &model),
        format!("error: {name} already holds a model; choose another --out")
    );
    assert_eq!(
        average(&["nowhere"], &out),
        "error: nowhere: no such directory"
    );
    let nowhere = folder.path().join("nowhere");
    let mut command = with_model("average", &nowhere);
    let error = fails(command.args(["--last", "2", "--out"]).arg(&out));
    let expected = format!("error: {}: no such directory", nowhere.display());
    assert_eq!(error, expected);
    assert!(!out.exists());
    let output = run(with_model("average", &model).args(["--last", "0", "--out", "x"]));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn models_of_different_configurations_are_refused_by_the_key() {
    let (folder, model) = trained();
    let other = folder.path().join("other");
    fs::create_dir(&other).expect("a folder");
    fs::copy(
        model.join("model.safetensors"),
        other.join("model.safetensors"),
    )
    .expect("a copy");
    let config = fs::read_to_string(model.join("config.json")).expect("the configuration");
    let config = config.replace("\"n_heads\": 4", "\"n_heads\": 8");
    fs::write(other.join("config.json"), config).expect("written");
    let out = folder.path().join("averaged");
    let mut command = with_model("average", &model);
    let error = fails(command.arg(&other).arg("--out").arg(&out));
    let expected = format!(
        "error: {}: `n_heads` is 8, but 4 in {}",
        other.join("config.json").display(),
        model.join("config.json").display()
    );
    assert_eq!(error, expected);
    assert!(!out.exists());
}
