//! The special tokens: padding, beginning and end of a sequence, and unknown.

/// Names of the special tokens in tokenizers trained by this project; the index of each is its id.
pub const SPECIAL_TOKENS: [&str; 4] = ["<pad>", "<bos>", "<eos>", "<unk>"];

/// Ids of the special tokens of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecialTokens {
    /// `<pad>`: padding in a batch, which no position attends to.
    pub pad: u32,
    /// `<bos>`: the decoder's first input. It may equal `pad` or `eos`.
    pub bos: u32,
    /// `<eos>`: the end of a sequence.
    pub eos: u32,
}

impl Default for SpecialTokens {
    /// Their indices in [`SPECIAL_TOKENS`].
    fn default() -> Self {
        Self {
            pad: 0,
            bos: 1,
            eos: 2,
        }
    }
}

impl SpecialTokens {
    /// The source as the model reads it, with `<eos>` appended, unless it already ends with `<eos>` and a language
    /// token, as in the original mBART.
    ///
    /// ```
    /// use transformer_core::decoding::SpecialTokens;
    ///
    /// let tokens = SpecialTokens { pad: 1, bos: 0, eos: 2 };
    /// assert_eq!(tokens.end_source(&[7, 8]), [7, 8, 2]);
    /// // 9 is a language token.
    /// assert_eq!(tokens.end_source(&[7, 8, 2, 9]), [7, 8, 2, 9]);
    /// ```
    pub fn end_source(self, source: &[u32]) -> Vec<u32> {
        match source {
            [.., end, language] if *end == self.eos && *language != self.eos => source.to_vec(),
            _ => [source, &[self.eos]].concat(),
        }
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
