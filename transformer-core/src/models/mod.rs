//! Models made of the layers.

pub(crate) mod attention_maps;
pub(crate) mod config;
pub(crate) mod language_model;
pub(crate) mod next_token;
pub(crate) mod parameters;
pub(crate) mod precision;
pub(crate) mod presets;
pub(crate) mod transformer;
pub(crate) mod tying;
pub(crate) mod validation;

pub use attention_maps::AttentionMaps;
pub use config::TransformerConfig;
pub use language_model::LanguageModel;
pub use precision::MixedPrecision;
pub use presets::Table3;
pub use transformer::{Encoded, Transformer};
pub use tying::WeightTying;
