//! The tokens of source and target in the files of other libraries.

/// The names that the special tokens have in the lists.
pub(crate) const PADDING: &str = "<pad>";
pub(crate) const UNKNOWN: &str = "<unk>";
pub(crate) const END: &str = "</s>";

/// The language tokens of English in M2M100, NLLB and mBART: a vocabulary with one of them has language tokens.
pub(crate) const ENGLISH: [&str; 3] = ["__en__", "eng_Latn", "en_XX"];

/// Names of the padding token in other libraries. Neither CTranslate2 nor Marian needs one.
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
    pub fn rename(&mut self, from: &str, to: &str) {
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
    /// The vocabularies of these sides, of which the first is for both if the second is absent. They are extended by a
    /// padding token unless they have the same.
    pub fn new(source: Side, target: Option<Side>) -> Self {
        let mut vocabularies = Self::without_padding(source, target);
        vocabularies.set_padding();
        vocabularies
    }

    /// The vocabulary of a language model, which needs no padding token: without one, `</s>` is in its place.
    pub fn of_language_model(side: Side) -> Self {
        let names = [PADDING].into_iter().chain(OTHER_PADDING);
        let pad = names.chain([END]).find_map(|name| side.id(name));
        Self {
            source: side,
            target: None,
            pad: pad.unwrap_or_default(),
        }
    }

    /// [`new`](Self::new), always extended.
    pub fn extended(source: Side, target: Option<Side>) -> Self {
        let mut vocabularies = Self::without_padding(source, target);
        vocabularies.append_padding();
        vocabularies
    }

    fn without_padding(source: Side, target: Option<Side>) -> Self {
        Self {
            source,
            target,
            pad: 0,
        }
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
        let Some((name, id, _)) = found else {
            return self.append_padding();
        };
        self.sides().for_each(|side| side.rename(name, PADDING));
        self.pad = id;
    }

    fn sides(&mut self) -> impl Iterator<Item = &mut Side> {
        [Some(&mut self.source), self.target.as_mut()]
            .into_iter()
            .flatten()
    }

    /// Appends a padding token, with the same id on both sides.
    fn append_padding(&mut self) {
        let mut sides: Vec<&mut Side> = self.sides().collect();
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
