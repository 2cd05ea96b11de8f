//! Models built from the layers: encoder–decoder and decoder-only.
//!
//! ```
//! use burn_ndarray::NdArray;
//! use transformer_core::models::{TransformerConfig, WeightTying};
//!
//! # fn main() -> Result<(), transformer_core::nn::ConfigError> {
//! // A small model, whose generator is tied to the target embedding.
//! let config = TransformerConfig {
//!     d_model: 64,
//!     n_heads: 4,
//!     d_ff: 128,
//!     tying: WeightTying::TargetGenerator,
//!     ..TransformerConfig::base(100)
//! };
//! let model = config.init::<NdArray>(42, &Default::default())?;
//! assert_eq!(model.config(), &config);
//! # Ok(())
//! # }
//! ```

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
