//! Keys of a run file, and the macro by which each of them is written once.

use toml::{Table, Value};

use super::RunFile;
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
}

impl Key {
    /// Its value where nothing sets it; `None` where it is then absent.
    pub fn default(&self) -> Option<Value> {
        self.of(&RunFile::default().table()).cloned()
    }

    /// Its value in a run; `None` where it is absent.
    pub(super) fn of<'a>(&self, run: &'a Table) -> Option<&'a Value> {
        let section = self.path.split('.').next()?;
        run.get(section)?.get(self.name)
    }
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
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $keys {
            $($(#[doc = $text])+ pub $name: $type,)+
        }

        impl Default for $keys {
            fn default() -> Self {
                Self { $($name: $default),+ }
            }
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
                },)+],
            };
        }
    };
}
pub(super) use section;

/// Every key, in the order of the guide.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// The key of that path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    all().find(|key| key.path == path)
}

/// Keys whose values may be tables, whose parts are set by longer paths, such as `model.positions.learned.max_len`.
const WITH_PARTS: [&str; 3] = ["model.positions", "data.train", "data.valid"];

/// The key of a path, and the part of its value that the path goes on to.
pub(super) fn of_path(path: &str) -> Option<(&'static Key, &str)> {
    let part = |key: &'static Key| {
        let part = path.strip_prefix(key.path)?.strip_prefix('.')?;
        WITH_PARTS.contains(&key.path).then_some((key, part))
    };
    let whole = find(path).map(|key| (key, ""));
    whole.or_else(|| all().find_map(part))
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
    fn a_path_goes_on_below_keys_with_parts_only() {
        let found = |path| of_path(path).map(|(key, part)| (key.path, part));
        assert_eq!(found("training.updates"), Some(("training.updates", "")));
        assert_eq!(
            found("model.positions.learned.max_len"),
            Some(("model.positions", "learned.max_len"))
        );
        assert_eq!(found("training.updates.x"), None);
        assert_eq!(found("training"), None);
    }
}
