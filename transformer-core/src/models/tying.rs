//! Which matrices a model shares (§3.4).

use serde::{Deserialize, Serialize};

/// Which of the three matrices of shape `[vocab_size, d_model]` are shared (§3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightTying {
    /// No matrix is shared.
    None,
    /// Source and target share one embedding.
    SourceTarget,
    /// Target embedding and generator share one matrix.
    TargetGenerator,
    /// All three are shared, as in the paper.
    All,
}

impl WeightTying {
    /// Whether source and target tokens share their embeddings.
    pub fn ties_source_target(self) -> bool {
        matches!(self, Self::SourceTarget | Self::All)
    }

    /// Whether the generator is the target embedding, transposed.
    pub fn ties_generator(self) -> bool {
        matches!(self, Self::TargetGenerator | Self::All)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SourceTarget => "source-target",
            Self::TargetGenerator => "target-generator",
            Self::All => "all",
        }
    }
}
