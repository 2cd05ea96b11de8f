//! Keys of a run file, and the macro by which each of them is written once.

use serde::Serialize;
use strsim::damerau_levenshtein;
use toml::Value;

use super::keys::SECTIONS;

/// A key of a run file.
#[derive(Debug)]
pub struct Key {
    /// The key with its section, such as `training.warmup`.
    pub path: &'static str,
    /// The key within its section, such as `warmup`.
    pub name: &'static str,
    /// Its explanation, line by line.
    pub text: &'static [&'static str],
    /// The flag of `transformer train` that sets it, too.
    pub flag: Option<&'static str>,
    /// Its value where nothing sets it; `None` where it is then absent.
    pub default: fn() -> Option<Value>,
}

/// A section of a run file.
#[derive(Debug)]
pub struct Section {
    /// Its name, such as `training`.
    pub name: &'static str,
    /// Its explanation, line by line.
    pub about: &'static [&'static str],
    /// Its keys, in the order of the guide.
    pub keys: &'static [Key],
}

/// A section as a structure with a field for each key.
///
/// The comment of a field is documentation here, in `run.toml`, and in the guide.
macro_rules! section {
    (@flag) => { None };
    (@flag $flag:literal) => { Some($flag) };
    (
        $(#[doc = $about:literal])+
        $keys:ident, $section:literal:
        $(
            $(#[doc = $text:literal])+
            $name:ident: $type:ty = $default:expr $(, $flag:literal)?;
        )+
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $keys {
            $($(#[doc = $text])+ pub $name: $type,)+
        }

        impl $keys {
            /// The section, with the texts of its keys.
            pub(super) const SECTION: Section = Section {
                name: $section,
                about: &[$($about),+],
                keys: &[$(Key {
                    path: concat!($section, ".", stringify!($name)),
                    name: stringify!($name),
                    text: &[$($text),+],
                    flag: section!(@flag $($flag)?),
                    default: || value_of::<$type>(&$default),
                },)+],
            };

            /// The section as the values say it.
            pub(super) fn read(values: &Values) -> Result<Self, RunFileError> {
                Ok(Self {
                    $($name: values.read(concat!($section, ".", stringify!($name)), $default)?,)+
                })
            }

            /// The values of the keys, in their order; `None` for those that are absent.
            pub(super) fn values(&self) -> Vec<Option<Value>> {
                vec![$(value_of(&self.$name)),+]
            }
        }
    };
}
pub(super) use section;

/// The TOML of a key's value; `None` for an absent one, which TOML has no word for.
pub(super) fn value_of<T: Serialize>(value: &T) -> Option<Value> {
    Value::try_from(value).ok()
}

/// Every key, in the order of the guide.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// The key of that path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    all().find(|key| key.path == path)
}

/// The known keys that are nearest to an unknown one, for an error.
///
/// Nearest is the fewest letters to change. To write the right name in the wrong section, or in none, counts
/// as two.
pub(super) fn nearest(path: &str) -> String {
    let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
    let distance = |key: &Key| {
        let moved = match key.path == format!("{section}.{}", key.name) {
            true => 0,
            false => 2,
        };
        damerau_levenshtein(path, key.path).min(damerau_levenshtein(name, key.name) + moved)
    };
    let least = all().map(distance).min();
    let nearest = all().filter(|key| Some(distance(key)) == least);
    let nearest: Vec<_> = nearest.map(|key| format!("`{}`", key.path)).collect();
    nearest.join(" or ")
}

/// The section whose name is nearest to an unknown one.
pub(super) fn nearest_section(name: &str) -> &'static str {
    let nearest = SECTIONS
        .iter()
        .min_by_key(|section| damerau_levenshtein(name, section.name));
    nearest.map_or("", |section| section.name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_differ() {
        let paths: BTreeSet<_> = all().map(|key| key.path).collect();
        assert_eq!(paths.len(), all().count());
    }

    #[test]
    fn the_nearest_key_is_the_one_that_was_meant() {
        for (unknown, expected) in [
            ("model.d_modle", "`model.d_model`"),
            ("model.dropuot", "`model.dropout`"),
            ("training.warm_up", "`training.warmup`"),
            ("training.d_model", "`model.d_model`"),
            ("warmup", "`training.warmup`"),
            ("checkpoints.keep_last", "`checkpoint.keep_last`"),
            ("training.dropout", "`tokenizer.dropout` or `model.dropout`"),
        ] {
            assert_eq!(nearest(unknown), expected, "{unknown}");
        }
        assert_eq!(nearest_section("trainig"), "training");
    }
}
