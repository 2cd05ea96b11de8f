//! Validation of a model's configuration.

use crate::models::config::TransformerConfig;
use crate::nn::attention::check_groups;
use crate::nn::error::{ConfigError, check_sizes};
use crate::nn::layer::Mixer;

impl TransformerConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The first invalid value or contradiction.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_sizes()?;
        let heads = [
            ("n_heads", self.n_heads),
            ("decoder_n_heads", self.decoder_n_heads()),
        ];
        for (key, n_heads) in heads {
            let is_shared = self.d_k.is_none() || self.d_v.is_none();
            if is_shared && !self.d_model.is_multiple_of(n_heads) {
                return Err(ConfigError::HeadsDoNotDivide {
                    d_model: self.d_model,
                    key,
                    n_heads,
                });
            }
            check_groups(key, n_heads, self.n_kv_heads)?;
        }
        self.positions.check(self.d_model)?;
        if self.decoder_mixer == Mixer::Recurrence && !self.positions.are_added() {
            return Err(ConfigError::PositionsOfRecurrence);
        }
        for stack in [self.encoder(), self.decoder()] {
            if let Some(bias) = &stack.position_bias {
                bias.validate()?;
            }
        }
        // The sizes of both kinds of layer are checked above.
        self.encoder().layer.validate()?;
        self.decoder().layer.validate()?;
        if self.tying.ties_source_target() && self.src_vocab_size != self.tgt_vocab_size {
            return Err(ConfigError::TiedVocabularies {
                tying: self.tying.name(),
                src_vocab_size: self.src_vocab_size,
                tgt_vocab_size: self.tgt_vocab_size,
            });
        }
        self.validate_special_tokens()
    }

    fn validate_sizes(&self) -> Result<(), ConfigError> {
        check_sizes(&[
            ("src_vocab_size", self.src_vocab_size),
            ("tgt_vocab_size", self.tgt_vocab_size),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("decoder_n_heads", self.decoder_n_heads()),
            ("n_kv_heads", self.n_kv_heads.unwrap_or(1)),
            ("d_k", self.d_k.unwrap_or(1)),
            ("d_v", self.d_v.unwrap_or(1)),
            ("d_ff", self.d_ff),
            ("decoder_d_ff", self.decoder_d_ff()),
            ("n_encoder_layers", self.n_encoder_layers.max(1)),
            ("n_decoder_layers", self.n_decoder_layers),
            ("max_len", self.max_len().unwrap_or(1)),
            ("first", self.positions.first().max(1)),
        ])
    }

    fn validate_special_tokens(&self) -> Result<(), ConfigError> {
        let [source, target] = [self.src_vocab_size, self.tgt_vocab_size];
        let source_bos = self.source_bos.map(|id| ("", "source_bos", id));
        for (_, key, id) in self.special_tokens().named().into_iter().chain(source_bos) {
            // A padding token that is `eos_id` may be in no file.
            let is_eos = key == "pad_id" && id == self.eos_id;
            let vocab_size = match key {
                "source_bos" => source,
                "bos_id" => target,
                _ if self.is_language_model() => target,
                _ => source.min(target),
            };
            if id as usize >= vocab_size && !is_eos {
                return Err(ConfigError::SpecialToken {
                    key,
                    id,
                    vocab_size,
                });
            }
        }
        if self.pad_id == self.eos_id && !self.is_language_model() {
            return Err(ConfigError::SameSpecialToken {
                first: "pad_id",
                second: "eos_id",
                id: self.pad_id,
            });
        }
        let vocab_size = self.tgt_vocab_size;
        for &id in &self.excluded_tokens {
            if id as usize >= vocab_size {
                return Err(ConfigError::ExcludedToken { id, vocab_size });
            }
            if id == self.eos_id {
                return Err(ConfigError::ExcludedEos { id });
            }
        }
        Ok(())
    }
}
