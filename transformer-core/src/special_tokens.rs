//! The special tokens: padding, beginning and end of a sequence, and unknown.

/// Names of the special tokens in tokenizers trained by this project; the index of each is its id.
pub const SPECIAL_TOKENS: [&str; 4] = ["<pad>", "<bos>", "<eos>", "<unk>"];

/// Ids of the special tokens of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialTokens {
    /// `<pad>`: padding in a batch, which no position attends to. If it equals `eos`, no token is
    /// [`padding`](Self::padding).
    pub pad: u32,
    /// `<bos>`: the decoder's first input. It may equal `pad` or `eos`.
    pub bos: u32,
    /// `<eos>`: the end of a sequence.
    pub eos: u32,
    /// The token before every source, if there is one.
    pub source_bos: Option<u32>,
    /// Whether `<eos>` ends sources, too.
    pub source_eos: bool,
    /// Whether a language model reads `<bos>` before a prompt.
    pub prompt_bos: bool,
}

impl Default for SpecialTokens {
    /// Their indices in [`SPECIAL_TOKENS`].
    fn default() -> Self {
        Self {
            pad: 0,
            bos: 1,
            eos: 2,
            source_bos: None,
            source_eos: true,
            prompt_bos: true,
        }
    }
}

impl SpecialTokens {
    /// The token that is padding wherever it is, `pad`. `None` if it equals `eos`, as in language models without a
    /// token of padding: then `pad` only fills a batch, behind the ends of its rows, where a causal mask hides it.
    pub fn padding(self) -> Option<u32> {
        (self.pad != self.eos).then_some(self.pad)
    }

    /// The source as the model reads it: after `source_bos`, and with `<eos>` appended. `<eos>` is not appended if the
    /// source already ends with `<eos>` and a language token, as in the original mBART, or if `source_eos` is not set;
    /// an empty source is `<eos>` in any case.
    ///
    /// ```
    /// use transformer_core::decoding::SpecialTokens;
    ///
    /// let tokens = SpecialTokens { pad: 1, bos: 0, ..SpecialTokens::default() };
    /// assert_eq!(tokens.end_source(&[7, 8]), [7, 8, 2]);
    /// // 9 is a language token.
    /// assert_eq!(tokens.end_source(&[7, 8, 2, 9]), [7, 8, 2, 9]);
    /// ```
    pub fn end_source(self, source: &[u32]) -> Vec<u32> {
        let end = match source {
            [.., end, language] if *end == self.eos && *language != self.eos => None,
            [] => Some(self.eos),
            _ => self.source_eos.then_some(self.eos),
        };
        let source = source.iter().copied();
        self.source_bos
            .into_iter()
            .chain(source)
            .chain(end)
            .collect()
    }

    /// Each token's name in [`SPECIAL_TOKENS`], its key in a model's configuration, and its id.
    pub(crate) fn named(self) -> [(&'static str, &'static str, u32); 3] {
        let [pad, bos, eos, _] = SPECIAL_TOKENS;
        [
            (pad, "pad_id", self.pad),
            (bos, "bos_id", self.bos),
            (eos, "eos_id", self.eos),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_ids_are_the_positions_of_the_names() {
        for (name, _, id) in SpecialTokens::default().named() {
            assert_eq!(SPECIAL_TOKENS[id as usize], name);
        }
    }
}
