//! The comparison with PyTorch notices every kind of error. That there is none, on any backend, is shown
//! in `backends`.

#[path = "../../support/fixtures.rs"]
mod fixtures;

use parity::{Fixture, WeightsFile};

/// A copy of a fixture whose `io.safetensors` was changed.
fn changed(
    system: &str,
    change: impl FnOnce(
        &mut std::collections::BTreeMap<String, (safetensors::Dtype, Vec<usize>, Vec<u8>)>,
    ),
) -> (tempfile::TempDir, Result<bool, String>) {
    use safetensors::SafeTensors;
    use safetensors::tensor::TensorView;

    let folder = fixtures::fixture(system);
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "weights.safetensors"] {
        std::fs::copy(folder.join(file), copy.path().join(file)).unwrap();
    }
    let bytes = std::fs::read(folder.join("io.safetensors")).unwrap();
    let mut tensors = SafeTensors::deserialize(&bytes)
        .unwrap()
        .iter()
        .map(|(name, tensor)| {
            let shape = tensor.shape().to_vec();
            (
                name.to_owned(),
                (tensor.dtype(), shape, tensor.data().to_vec()),
            )
        })
        .collect();
    change(&mut tensors);
    let views = tensors.iter().map(|(name, (dtype, shape, bytes))| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, &copy.path().join("io.safetensors")).unwrap();
    let compared = Fixture::open(copy.path()).and_then(|fixture| {
        fixture.compare::<burn_ndarray::NdArray>(WeightsFile::Safetensors, &Default::default())
    });
    let passed = compared.map(|report| report.passed());
    (copy, passed.map_err(|error| error.to_string()))
}

/// Whichever number it is, and wherever in its tensor.
#[test]
fn a_wrong_number_fails() {
    for (system, name) in [
        ("torch-nn", "memory"),
        ("torch-nn", "logits"),
        ("torch-nn", "loss"),
        ("torch-nn", "grad.generator.weight"),
        ("torch-nn", "training_losses"),
        ("encoder-layer", "y"),
        ("encoder-layer", "attention_weights"),
        ("encoder-layer", "positional_encoding"),
    ] {
        for wrong in [f32::NAN, f32::INFINITY, 0.5] {
            for last in [false, true] {
                let (_, passed) = changed(system, |tensors| {
                    let bytes = &mut tensors.get_mut(name).unwrap().2;
                    let at = if last { bytes.len() - 4 } else { 0 };
                    bytes[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
                });
                assert_eq!(passed, Ok(false), "{name}: {wrong}, last: {last}");
            }
        }
    }
}

#[test]
fn a_missing_or_empty_tensor_is_an_error_that_names_it() {
    for (system, name, problem) in [
        ("torch-nn", "loss", "is missing"),
        ("torch-nn", "training_losses", "is missing"),
        (
            "notebook-mini",
            "grad.encoders.0.mha.W_q.weight",
            "is missing",
        ),
        ("torch-nn", "training_losses", "is empty"),
        ("torch-nn", "loss", "is not one number"),
        ("encoder-layer", "positional_encoding", "is empty"),
    ] {
        let (folder, passed) = changed(system, |tensors| {
            if problem == "is missing" {
                tensors.remove(name);
            } else {
                let (_, shape, bytes) = tensors.get_mut(name).unwrap();
                *shape = vec![0; shape.len().max(1)];
                bytes.clear();
            }
        });
        let path = folder.path().join("io.safetensors");
        let expected = format!("{}: `{name}` {problem}", path.display());
        assert_eq!(passed, Err(expected));
    }
}
