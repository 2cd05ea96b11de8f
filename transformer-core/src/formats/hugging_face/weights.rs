//! The weights of a directory: one file, or shards and an index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::formats::error::ModelError;
use crate::formats::files::{is_there, read_json};
use crate::formats::names::WEIGHTS_FILE;
use crate::formats::state_dict::StateDict;

/// PyTorch's own format, older than safetensors.
const PYTORCH_FILE: &str = "pytorch_model.bin";

/// `model.safetensors.index.json`, `pytorch_model.bin.index.json`.
#[derive(Deserialize)]
struct Index {
    /// The file of each tensor.
    weight_map: BTreeMap<String, String>,
}

/// The tensors of a directory, and the file that lists them. Of several weights files, the one that Hugging Face
/// prefers is read.
pub(crate) fn open(directory: &Path) -> Result<(PathBuf, StateDict), ModelError> {
    for name in [WEIGHTS_FILE, PYTORCH_FILE] {
        let whole = directory.join(name);
        if is_there(&whole) {
            let dict = StateDict::read(&whole).map_err(|error| error.into_model(&whole))?;
            return Ok((whole, dict));
        }
        let index = directory.join(format!("{name}.index.json"));
        if is_there(&index) {
            let dict = open_shards(directory, &index)?;
            return Ok((index, dict));
        }
    }
    Err(ModelError::Weights {
        path: directory.to_owned(),
        problem: format!("no weights: neither {WEIGHTS_FILE} nor {PYTORCH_FILE}, whole or sharded"),
    })
}

fn open_shards(directory: &Path, index: &Path) -> Result<StateDict, ModelError> {
    let problem = |problem: String| ModelError::Weights {
        path: index.to_owned(),
        problem,
    };
    let text = read_json(index).map_err(ModelError::io(index))?;
    let Index { weight_map } = serde_json::from_str(&text).map_err(|source| ModelError::Json {
        path: index.to_owned(),
        source,
    })?;
    let mut all = StateDict::default();
    for file in weight_map.values().collect::<BTreeSet<_>>() {
        if !is_file_name(file) {
            return Err(problem(format!(
                "`{file}` is not the name of a file in this directory"
            )));
        }
        let path = directory.join(file);
        let shard = StateDict::read(&path).map_err(|error| error.into_model(&path))?;
        for (name, tensor) in shard.tensors {
            match weight_map.get(&name) {
                Some(own) if own == file => all.tensors.insert(name, tensor),
                Some(own) => {
                    let reason = format!("`{name}` is in {file}, not in {own} as listed");
                    return Err(problem(reason));
                }
                None => return Err(problem(format!("`{name}` of {file} is not listed"))),
            };
        }
        all.others.extend(shard.others);
    }
    match weight_map
        .iter()
        .find(|(name, _)| !all.tensors.contains_key(*name))
    {
        Some((name, file)) => Err(problem(format!("`{name}` is not in {file}"))),
        None => Ok(all),
    }
}

/// Maximum length of a file name in bytes, on most systems.
const LONGEST_NAME: usize = 255;

/// Whether a name in an index is a plain file name, without a path, on any system.
fn is_file_name(name: &str) -> bool {
    if name.len() > LONGEST_NAME {
        return false;
    }
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) => only == name && !name.contains(['\\', ':']),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_beside_the_index_are_read() {
        for name in ["model-00001-of-00002.safetensors", "a", "..a", "ä"] {
            assert!(is_file_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "/etc/passwd",
            "../a",
            "a/b",
            "a/",
            "./a",
            "a/..",
            "a\\b",
            "C:a",
            "..\\a",
            &"a".repeat(256),
        ] {
            assert!(!is_file_name(name), "{name}");
        }
    }
}
