//! Models made of the layers.

pub mod attention_maps;
pub mod config;
pub mod language_model;
pub mod parameters;
pub mod precision;
pub mod presets;
pub mod transformer;
pub mod tying;
pub mod validation;
