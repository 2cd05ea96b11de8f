//! Errors about unknown keys and sections, with those that were probably meant.

use strsim::damerau_levenshtein;

use super::error::RunFileError;
use super::key::{Key, Section};
use super::keys::{self, SECTIONS};

/// Keys of a model's configuration that come from the tokenizer.
const OF_TOKENIZER: [&str; 9] = [
    "model.src_vocab_size",
    "model.tgt_vocab_size",
    "model.pad_id",
    "model.bos_id",
    "model.eos_id",
    "model.source_bos",
    "model.source_eos",
    "model.prompt_bos",
    "model.excluded_tokens",
];

/// Names of keys in other systems. Names similar to ours need not be listed.
const OTHER_NAMES: [(&str, &str); 28] = [
    ("lr", "training.peak_rate"),
    ("max_lr", "training.peak_rate"),
    ("learning_rate", "training.peak_rate"),
    ("epochs", "training.updates"),
    ("max_epochs", "training.updates"),
    ("steps", "training.updates"),
    ("max_steps", "training.updates"),
    ("max_update", "training.updates"),
    ("warmup_steps", "training.warmup"),
    ("warmup_updates", "training.warmup"),
    ("batch_size", "training.batch_tokens"),
    ("max_tokens", "training.batch_tokens"),
    ("update_freq", "training.batches_per_update"),
    ("batch_multiplier", "training.batches_per_update"),
    ("gradient_accumulation_steps", "training.batches_per_update"),
    ("max_grad_norm", "training.clip_norm"),
    ("ema", "training.ema_decay"),
    ("amp", "training.precision"),
    ("bf16", "training.precision"),
    ("hidden_size", "model.d_model"),
    ("ff_size", "model.d_ff"),
    ("heads", "model.n_heads"),
    ("num_heads", "model.n_heads"),
    ("layers", "model.n_encoder_layers"),
    ("layers", "model.n_decoder_layers"),
    ("num_layers", "model.n_encoder_layers"),
    ("num_layers", "model.n_decoder_layers"),
    ("early_stopping", "validation.patience"),
];

/// The error about a path that is not a key.
pub(super) fn unknown_key(place: String, path: &str) -> RunFileError {
    if path.is_empty() {
        return RunFileError::Value {
            subject: place,
            rule: "the key is empty; an example of a key is `training.updates`".into(),
        };
    }
    if OF_TOKENIZER.contains(&path) {
        return RunFileError::Value {
            subject: format!("{place}: `{path}`"),
            rule: "cannot be set: it comes from the tokenizer".into(),
        };
    }
    if let Some(section) = section(path) {
        return is_table(&place, section);
    }
    RunFileError::UnknownKey {
        place,
        key: path.to_owned(),
        advice: match meant(path) {
            Some(meant) => format!("did you mean {meant}?"),
            None => known_ones(path),
        },
    }
}

/// The error about an unknown section.
pub(super) fn unknown_section(place: String, name: &str) -> RunFileError {
    let distance = |section: &&Section| damerau_levenshtein(name, section.name);
    let nearest = SECTIONS.iter().min_by_key(distance);
    let nearest = nearest.filter(|section| distance(section) <= most_edits(name));
    RunFileError::UnknownSection {
        place,
        section: name.to_owned(),
        advice: match nearest {
            Some(section) => format!("did you mean `[{}]`?", section.name),
            None => sections(),
        },
    }
}

/// The error about a section that is set to a value.
pub(super) fn is_table(place: &str, section: &Section) -> RunFileError {
    let name = section.name;
    let first = section.keys.first().map_or("", |key| key.path);
    RunFileError::Value {
        subject: format!("{place}: `{name}`"),
        rule: format!("is a table, `[{name}]`; set one of its keys, such as `{first}`"),
    }
}

/// The section of that name.
pub(super) fn section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// The keys that were probably meant: those with this name in other systems, or the most similar ones.
///
/// Similarity is the number of letters to change. The right name in the wrong section, or without a section, counts as
/// two letters.
fn meant(path: &str) -> Option<String> {
    let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
    let elsewhere = OTHER_NAMES.iter().filter(|(other, _)| *other == name);
    let elsewhere: Vec<_> = elsewhere.map(|(_, path)| *path).collect();
    if !elsewhere.is_empty() {
        return Some(quoted(elsewhere));
    }
    let distance = |key: &Key| {
        let moved = match key.path == format!("{section}.{}", key.name) {
            true => 0,
            false => 2,
        };
        damerau_levenshtein(path, key.path).min(damerau_levenshtein(name, key.name) + moved)
    };
    let least = keys::all().map(distance).min();
    let least = least.filter(|least| *least <= most_edits(name))?;
    let nearest = keys::all().filter(|key| distance(key) == least);
    Some(quoted(nearest.map(|key| key.path)))
}

/// The maximum number of letters by which a name differs from the intended one.
fn most_edits(name: &str) -> usize {
    (name.chars().count() / 2).max(2)
}

fn quoted<'a>(paths: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = paths.into_iter().map(|path| format!("`{path}`")).collect();
    quoted.join(" or ")
}

/// The keys of the path's section, or the sections.
fn known_ones(path: &str) -> String {
    let first = path.split('.').next().unwrap_or(path);
    let Some(section) = section(first) else {
        return sections();
    };
    let names: Vec<_> = section.keys.iter().map(|key| key.name).collect();
    format!("the keys of `[{first}]` are {}", names.join(", "))
}

fn sections() -> String {
    let names = SECTIONS
        .iter()
        .map(|section| format!("`[{}]`", section.name));
    let names: Vec<_> = names.collect();
    format!("the sections are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_was_meant_is_the_nearest_or_has_the_name_elsewhere() {
        for (unknown, expected) in [
            ("model.d_modle", "`model.d_model`"),
            ("model.dropuot", "`model.dropout`"),
            ("training.warm_up", "`training.warmup`"),
            ("training.d_model", "`model.d_model`"),
            ("warmup", "`training.warmup`"),
            ("checkpoints.keep_last", "`checkpoint.keep_last`"),
            ("training.dropout", "`tokenizer.dropout` or `model.dropout`"),
            ("training.lr", "`training.peak_rate`"),
            ("learning_rate", "`training.peak_rate`"),
            (
                "model.layers",
                "`model.n_encoder_layers` or `model.n_decoder_layers`",
            ),
        ] {
            assert_eq!(meant(unknown).as_deref(), Some(expected), "{unknown}");
        }
        for (_, path) in OTHER_NAMES {
            assert!(keys::find(path).is_some(), "{path}");
        }
    }

    #[test]
    fn a_name_that_is_similar_to_none_gets_a_list_of_names() {
        for (unknown, expected) in [
            (
                "log.zzz",
                "run.toml: line 1: unknown key `log.zzz`; the keys of `[log]` are json, tensorboard",
            ),
            (
                "zzz",
                "run.toml: line 1: unknown key `zzz`; the sections are `[data]`, `[tokenizer]`, `[model]`, `[init]`, `[training]`, `[validation]`, `[checkpoint]`, `[log]`",
            ),
            (
                "",
                "run.toml: line 1: the key is empty; an example of a key is `training.updates`",
            ),
            (
                "training",
                "run.toml: line 1: `training`: is a table, `[training]`; set one of its keys, such as `training.seed`",
            ),
        ] {
            let error = unknown_key("run.toml: line 1".into(), unknown);
            assert_eq!(error.to_string(), expected);
        }
        let section = |name| unknown_section("run.toml: line 1".into(), name).to_string();
        assert_eq!(
            section("trainig"),
            "run.toml: line 1: unknown section `[trainig]`; did you mean `[training]`?"
        );
        assert!(section("optimizer").contains("; the sections are `[data]`, "));
    }
}
