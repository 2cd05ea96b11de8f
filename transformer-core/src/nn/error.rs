//! Errors of configurations, and the checks that layers share.

use std::fmt;

/// An invalid [`TransformerConfig`](crate::TransformerConfig).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A size that must be at least one is zero.
    Zero {
        /// The configuration key.
        key: &'static str,
    },
    /// `d_model` is not divisible by the number of heads, and `d_k` or `d_v` is absent.
    HeadsDoNotDivide {
        /// Width of the model.
        d_model: usize,
        /// The configuration key.
        key: &'static str,
        /// Number of attention heads.
        n_heads: usize,
    },
    /// The number of query heads is not divisible by the number of key/value heads.
    Groups {
        /// The configuration key of the query heads.
        key: &'static str,
        /// Number of query heads.
        n_heads: usize,
        /// Number of key/value heads.
        n_kv_heads: usize,
    },
    /// A part of a layer whose width differs from the self-attention's.
    OtherWidth {
        /// The part.
        part: &'static str,
        /// Its width.
        d_model: usize,
        /// The width of the self-attention.
        expected: usize,
    },
    /// An odd width with sinusoidal positions, which are pairs of sine and cosine.
    OddWidth {
        /// Width of the model.
        d_model: usize,
    },
    /// A width with a single frequency, which cannot be both the first, 1, and the last, 1/10000.
    OneFrequency {
        /// Width of the model.
        d_model: usize,
    },
    /// Too few distance buckets, or a maximum distance that has a bucket of its own.
    Buckets {
        /// Number of buckets.
        buckets: usize,
        /// The distance from which on all keys share one bucket.
        max_distance: usize,
    },
    /// Positions that act in self-attention, in a decoder with a recurrence instead.
    PositionsOfRecurrence,
    /// An odd head width with rotary positions, which rotate pairs of features.
    RotaryWidth {
        /// Width of a head's queries and keys.
        d_k: usize,
    },
    /// A base of rotary positions that is below 1 or not finite.
    RotaryBase {
        /// The value found.
        value: f64,
    },
    /// An encoder in the configuration of a language model.
    Encoder {
        /// Layers of the encoder.
        n_layers: usize,
    },
    /// A dropout probability outside [0, 1).
    Dropout {
        /// The configuration key.
        key: &'static str,
        /// The value found.
        value: f64,
    },
    /// An epsilon of layer normalization that is not positive and finite.
    Epsilon {
        /// The value found.
        value: f64,
    },
    /// Source and target embeddings are tied, but the sizes of the vocabularies differ.
    TiedVocabularies {
        /// The requested tying.
        tying: &'static str,
        /// Entries of the source vocabulary.
        src_vocab_size: usize,
        /// Entries of the target vocabulary.
        tgt_vocab_size: usize,
    },
    /// A size above the supported limit.
    TooLarge {
        /// The configuration key.
        key: &'static str,
        /// The value found.
        value: usize,
        /// The largest value accepted.
        limit: usize,
    },
    /// A special token outside its vocabulary.
    SpecialToken {
        /// The configuration key.
        key: &'static str,
        /// The token found.
        id: u32,
        /// Entries of the smaller vocabulary that must contain it.
        vocab_size: usize,
    },
    /// Two special tokens that must differ have the same id.
    SameSpecialToken {
        /// One configuration key.
        first: &'static str,
        /// The other configuration key.
        second: &'static str,
        /// The shared id.
        id: u32,
    },
    /// An excluded token outside the target vocabulary.
    ExcludedToken {
        /// The token found.
        id: u32,
        /// Entries of the target vocabulary.
        vocab_size: usize,
    },
    /// `<eos>` is excluded.
    ExcludedEos {
        /// The token.
        id: u32,
    },
}

impl ConfigError {
    /// The message, with each configuration key replaced by its name, for users who know the keys by other names.
    ///
    /// ```
    /// use transformer_core::TransformerConfig;
    ///
    /// let error = TransformerConfig::base(0).validate().unwrap_err();
    /// assert_eq!(error.to_string(), "`src_vocab_size` is 0; it must be at least 1");
    /// let text = error.with_names(|_| "--vocab-size");
    /// assert_eq!(text, "`--vocab-size` is 0; it must be at least 1");
    /// ```
    pub fn with_names(&self, mut name: impl FnMut(&'static str) -> &'static str) -> String {
        match *self {
            Self::Zero { key } => format!("`{}` is 0; it must be at least 1", name(key)),
            Self::HeadsDoNotDivide {
                d_model,
                key,
                n_heads,
            } => format!(
                "`{}` {d_model} is not divisible by `{}` {n_heads}; choose another or set `{}` and `{}`",
                name("d_model"),
                name(key),
                name("d_k"),
                name("d_v")
            ),
            Self::Groups {
                key,
                n_heads,
                n_kv_heads,
            } => format!(
                "`{}` {n_heads} is not divisible by `{}` {n_kv_heads}",
                name(key),
                name("n_kv_heads")
            ),
            Self::OtherWidth {
                part,
                d_model,
                expected,
            } => format!(
                "`{}` is {d_model} in `{part}`, but {expected} in `self_attention`",
                name("d_model")
            ),
            Self::OddWidth { d_model } => format!(
                "`{}` {d_model} is odd; sinusoidal positions need an even width",
                name("d_model")
            ),
            Self::OneFrequency { d_model } => format!(
                "`{}` {d_model} has a single frequency; `inclusive` positions need a width of at least 4",
                name("d_model")
            ),
            Self::Buckets {
                buckets,
                max_distance,
            } => format!(
                "`{}` is {buckets} and `{}` {max_distance}; there must be at least 4 buckets, and the distance must exceed half their number",
                name("buckets"),
                name("max_distance")
            ),
            Self::PositionsOfRecurrence => format!(
                "`{}` act in self-attention, but `{}` is a recurrence; choose sinusoidal or learned positions",
                name("positions"),
                name("decoder_mixer")
            ),
            Self::RotaryWidth { d_k } => format!(
                "`{}` {d_k} is odd; rotary `{}` need an even head width",
                name("d_k"),
                name("positions")
            ),
            Self::RotaryBase { value } => format!(
                "`{}` is {value}; it must be at least 1 and finite",
                name("base")
            ),
            Self::Encoder { n_layers } => format!(
                "`{}` is {n_layers}; a language model has no encoder",
                name("n_encoder_layers")
            ),
            Self::Dropout { key, value } => format!(
                "`{}` is {value}; a dropout probability must be in [0, 1)",
                name(key)
            ),
            Self::Epsilon { value } => format!(
                "`{}` is {value}; it must be positive and finite",
                name("layer_norm_eps")
            ),
            Self::TiedVocabularies {
                tying,
                src_vocab_size,
                tgt_vocab_size,
            } => format!(
                "`{}` {tying} shares source and target embeddings, but `{}` is {src_vocab_size} and `{}` is {tgt_vocab_size}",
                name("tying"),
                name("src_vocab_size"),
                name("tgt_vocab_size")
            ),
            Self::TooLarge { key, value, limit } => {
                format!("`{}` is {value}; at most {limit} is supported", name(key))
            }
            Self::SpecialToken {
                key,
                id,
                vocab_size,
            } => format!(
                "`{}` is {id}, outside the vocabulary of {vocab_size}",
                name(key)
            ),
            Self::SameSpecialToken { first, second, id } => format!(
                "`{}` and `{}` are both {id}; they must differ",
                name(first),
                name(second)
            ),
            Self::ExcludedToken { id, vocab_size } => format!(
                "`{}` has {id}, outside the vocabulary of {vocab_size}",
                name("excluded_tokens")
            ),
            Self::ExcludedEos { id } => format!(
                "`{}` has {id}, which is `{}`; no sentence would end",
                name("excluded_tokens"),
                name("eos_id")
            ),
        }
    }

    /// The configuration keys that the message names, in order.
    pub fn keys(&self) -> Vec<&'static str> {
        let mut keys = Vec::new();
        self.with_names(|key| {
            keys.push(key);
            key
        });
        keys
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_names(|key| key))
    }
}

impl std::error::Error for ConfigError {}

/// The largest supported size: far above any model, far below an overflow.
const SIZE_LIMIT: usize = 1 << 24;

/// Checks that every size is at least 1 and within the limit.
pub(crate) fn check_sizes(sizes: &[(&'static str, usize)]) -> Result<(), ConfigError> {
    for &(key, value) in sizes {
        if value == 0 {
            return Err(ConfigError::Zero { key });
        }
        if value > SIZE_LIMIT {
            return Err(ConfigError::TooLarge {
                key,
                value,
                limit: SIZE_LIMIT,
            });
        }
    }
    Ok(())
}

/// Checks that a dropout probability is in [0, 1).
pub(crate) fn check_dropout(key: &'static str, value: f64) -> Result<(), ConfigError> {
    match (0.0..1.0).contains(&value) {
        true => Ok(()),
        false => Err(ConfigError::Dropout { key, value }),
    }
}

/// Panics if a size of a layer is zero.
#[track_caller]
pub(crate) fn assert_sizes(sizes: &[(&'static str, usize)]) {
    for &(key, value) in sizes {
        assert!(value > 0, "{}", ConfigError::Zero { key });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_the_text_names() {
        let error = ConfigError::HeadsDoNotDivide {
            d_model: 256,
            key: "n_heads",
            n_heads: 7,
        };
        assert_eq!(error.keys(), ["d_model", "n_heads", "d_k", "d_v"]);
        assert_eq!(
            error.to_string(),
            "`d_model` 256 is not divisible by `n_heads` 7; choose another or set `d_k` and `d_v`"
        );
        let other = |key: &'static str| match key {
            "n_heads" => "--heads",
            key => key,
        };
        assert_eq!(
            error.with_names(other),
            "`d_model` 256 is not divisible by `--heads` 7; choose another or set `d_k` and `d_v`"
        );
    }
}
