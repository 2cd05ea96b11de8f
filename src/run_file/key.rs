//! Keys of a run file, and the macro by which each of them is written once.

use serde::Serialize;
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
///
/// In a section `of` a configuration, the first key is the section's own, and every other key is the field of that
/// name: `over` sets the fields whose keys are given, and `of` makes the keys from a configuration.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $keys:ident, $section:literal of $config:ty:

        $(#[doc = $own_text:literal])+
        $own:ident: $own_type:ty = $own_default:expr, $flag:literal;
        $(
            $(#[doc = $text:literal])+
            $name:ident: $type:ty = $default:expr;
        )+
    ) => {
        section! {
            $(#[doc = $about])+
            $keys, $section:
            $(#[doc = $own_text])+
            $own: $own_type = $own_default, $flag;
            $(
                $(#[doc = $text])+
                $name: $type = $default;
            )+
        }

        impl $keys {
            /// `base` with the keys that are given.
            pub(super) fn over(&self, base: &$config) -> $config {
                let mut config = base.clone();
                $(self.$name.set(&mut config.$name);)+
                config
            }

            /// All keys, as a configuration has them.
            pub(super) fn of($own: $own_type, config: &$config) -> Self {
                Self {
                    $own,
                    $($name: FieldKey::of(&config.$name),)+
                }
            }
        }
    };
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
                let mut keys = Self::SECTION.keys.iter();
                let mut next = || keys.next().expect("a key for each field");
                Ok(Self {
                    $($name: values.read(next(), $default)?,)+
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

/// A key that may be given, of a configuration's field of type `F`.
pub(super) trait FieldKey<F> {
    /// The key, as a configuration has it.
    fn of(field: &F) -> Self;

    /// Sets the field, if the key is given.
    fn set(&self, field: &mut F);
}

impl<T: Clone> FieldKey<T> for Option<T> {
    fn of(field: &T) -> Self {
        Some(field.clone())
    }

    fn set(&self, field: &mut T) {
        if let Some(given) = self {
            field.clone_from(given);
        }
    }
}

impl<T: Clone> FieldKey<Option<T>> for Option<T> {
    fn of(field: &Option<T>) -> Self {
        field.clone()
    }

    fn set(&self, field: &mut Option<T>) {
        if self.is_some() {
            field.clone_from(self);
        }
    }
}

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
