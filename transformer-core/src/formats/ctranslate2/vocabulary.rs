//! The lists of tokens beside `model.bin`.

use std::path::Path;

use crate::formats::error::ModelError;
use crate::formats::files::is_there;
use crate::formats::format::Files;

/// The names that the special tokens have in the lists.
pub(crate) const PADDING: &str = "<pad>";
pub(crate) const UNKNOWN: &str = "<unk>";
pub(crate) const END: &str = "</s>";

/// Names of the padding token in other libraries. CTranslate2 needs none.
const OTHER_PADDING: [&str; 2] = ["<blank>", "[PAD]"];

/// A name that no token has.
const APPENDED: &str = "<appended>";

/// The tokens of source and target in the order of their ids, with at least padding, `<unk>` and `</s>`.
pub(crate) struct Vocabularies {
    pub source: Side,
    /// `None` if it is the source's.
    pub target: Option<Side>,
    /// The padding token, the same on both sides.
    pub pad: u32,
}

/// The tokens of one side.
#[derive(Default)]
pub(crate) struct Side {
    /// The name of the list.
    pub file: String,
    pub tokens: Vec<String>,
    /// Tokens at the end that the model's file has no rows for.
    pub appended: usize,
}

impl Side {
    pub fn id(&self, name: &str) -> Option<u32> {
        let place = self.tokens.iter().position(|token| token == name);
        place.map(|id| id as u32)
    }

    /// Gives a token the name that it has in every list, which another token may have in this one.
    fn rename(&mut self, from: &str, to: &str) {
        let (old, new) = (self.id(from), self.id(to));
        if old == new {
            return;
        }
        if let Some(id) = new {
            self.tokens[id as usize] = format!("<other {to}>");
        }
        if let Some(id) = old {
            to.clone_into(&mut self.tokens[id as usize]);
        }
    }
}

impl Vocabularies {
    /// Whether a directory has such lists.
    pub fn are_in(directory: &Path) -> bool {
        let [source, _] = names_of_lists(directory);
        source.is_some()
    }

    /// Reads the lists of a directory. `unknown` and `end` are the names that its configuration has for these tokens.
    ///
    /// # Errors
    /// When a list is missing or damaged.
    pub fn read(files: &Files, unknown: &str, end: &str) -> Result<Self, ModelError> {
        let [source, target] = names_of_lists(files.directory());
        let Some(source) = source else {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(ModelError::io(files.path("shared_vocabulary.json"))(
                missing,
            ));
        };
        let read = |name: String| {
            let mut side = read_list(files, &name)?;
            // CTranslate2 adds it, too.
            if side.id(unknown).is_none() {
                side.tokens.push(unknown.to_owned());
            }
            side.rename(unknown, UNKNOWN);
            side.rename(end, END);
            Ok(side)
        };
        let mut vocabularies = Self {
            source: read(source)?,
            target: target.map(read).transpose()?,
            pad: 0,
        };
        vocabularies.set_padding();
        Ok(vocabularies)
    }

    pub fn target(&self) -> &Side {
        self.target.as_ref().unwrap_or(&self.source)
    }

    /// Finds the padding token, or appends one.
    fn set_padding(&mut self) {
        let names = [PADDING].into_iter().chain(OTHER_PADDING);
        let shared = |name| Some((name, self.source.id(name)?, self.target().id(name)?));
        let found = names
            .filter_map(shared)
            .find(|(_, source, target)| source == target);
        let sides = [Some(&mut self.source), self.target.as_mut()];
        let sides = sides.into_iter().flatten();
        if let Some((name, id, _)) = found {
            sides.for_each(|side| side.rename(name, PADDING));
            self.pad = id;
            return;
        }
        let mut sides: Vec<&mut Side> = sides.collect();
        let id = sides.iter().map(|side| side.tokens.len()).max();
        let id = id.unwrap_or_default();
        for side in &mut sides {
            side.appended = id + 1 - side.tokens.len();
            for number in side.tokens.len()..id {
                side.tokens.push(format!("<unused_{number}>"));
            }
            side.tokens.push(APPENDED.to_owned());
            side.rename(APPENDED, PADDING);
        }
        self.pad = id as u32;
    }
}

/// The files with the lists of source and target, of which the first may be for both.
fn names_of_lists(directory: &Path) -> [Option<String>; 2] {
    let found = |name: &str| {
        let names = ["json", "txt"].map(|extension| format!("{name}.{extension}"));
        names
            .into_iter()
            .find(|name| is_there(&directory.join(name)))
    };
    match found("shared_vocabulary").or_else(|| found("vocabulary")) {
        Some(shared) => [Some(shared), None],
        None => ["source_vocabulary", "target_vocabulary"].map(found),
    }
}

fn read_list(files: &Files, name: &str) -> Result<Side, ModelError> {
    let path = files.path(name);
    let bytes = files.read(name)?.unwrap_or_default();
    let tokens = match name.ends_with(".json") {
        true => {
            serde_json::from_slice(&bytes).map_err(|source| ModelError::Json { path, source })?
        }
        false => {
            let text = String::from_utf8(bytes)
                .map_err(|_| ModelError::io(path)(std::io::Error::other("not UTF-8")))?;
            text.lines().map(str::to_owned).collect()
        }
    };
    Ok(Side {
        file: name.to_owned(),
        tokens,
        appended: 0,
    })
}
