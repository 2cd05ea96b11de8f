//! Keys of a run file, and the macro that defines each key in one place.

use toml::{Table, Value};

/// A key of a run file.
#[derive(Debug)]
pub struct Key {
    /// The key with its section, such as `training.warmup`.
    pub path: &'static str,
    /// The key within its section, such as `warmup`.
    pub name: &'static str,
    /// Its explanation, line by line.
    pub text: &'static [&'static str],
    /// The flag of `transformer train` that also sets it.
    pub flag: Option<&'static str>,
}

impl Key {
    /// Its value in a run; `None` if it is absent.
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

/// Defines a section as a struct with a field per key.
///
/// The comment of a field is its documentation here, in `run.toml` and in the guide.
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
