//! The rules of the training configuration's values.

use std::fmt;

/// The rule for the value of a key of the training configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigRule {
    /// At least 1.
    AtLeastOne,
    /// At least this, the number of processes that train together ([`Ranks`](crate::Ranks)).
    AtLeastProcesses(usize),
    /// Positive and finite.
    PositiveAndFinite,
    /// In [0, 1).
    BelowOne,
    /// In (0, 1).
    BetweenZeroAndOne,
    /// 1, because the value of this key is given, which stands in its place.
    OneWhereGiven(&'static str),
    /// Above the value of this key, at which the learning rate begins to fall to zero.
    Above(&'static str),
    /// At most the value of this key.
    AtMost(&'static str),
}

impl ConfigRule {
    /// The rule in words, with a name in place of each key: for users who know the keys by other names.
    ///
    /// ```
    /// use transformer_train::ConfigRule;
    ///
    /// let rule = ConfigRule::AtMost("keep_checkpoints");
    /// assert_eq!(rule.to_string(), "at most `keep_checkpoints`");
    /// assert_eq!(rule.with_names(|_| "--keep"), "at most `--keep`");
    /// ```
    pub fn with_names(self, name: impl Fn(&'static str) -> &'static str) -> String {
        match self {
            Self::AtLeastOne => "at least 1".into(),
            Self::AtLeastProcesses(size) => format!("at least {size}, the number of processes"),
            Self::PositiveAndFinite => "positive and finite".into(),
            Self::BelowOne => "in [0, 1)".into(),
            Self::BetweenZeroAndOne => "in (0, 1)".into(),
            Self::OneWhereGiven(key) => format!("1 where `{}` is given", name(key)),
            Self::Above(key) => format!(
                "more than `{}` where the learning rate falls to zero",
                name(key)
            ),
            Self::AtMost(key) => format!("at most `{}`", name(key)),
        }
    }
}

impl fmt::Display for ConfigRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_names(|key| key))
    }
}
