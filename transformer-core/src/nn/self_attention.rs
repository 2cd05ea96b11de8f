//! Multi-head attention of a sequence to itself (§3.2.3).

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use crate::nn::attention::{AttentionConfig, AttentionOutput};
use crate::nn::block::Context;
use crate::nn::cache::KeyValue;
use crate::nn::heads::AttentionHeads;
use crate::nn::init::WeightInit;
use crate::nn::linear::linear;
use crate::nn::relative_positions::RelativePositions;
use crate::nn::rotary::Rotary;
use transformer_kernels::Mask;
use transformer_kernels::{AttentionWeights, Heads, Operands};

impl AttentionConfig {
    /// Multi-head attention of a sequence to itself, with weights drawn from the backend's random number generator.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_self<B: Backend>(&self, device: &B::Device) -> SelfAttention<B> {
        self.init_self_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// Multi-head attention of a sequence to itself, with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_self_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> SelfAttention<B> {
        let heads = self.checked_heads();
        let widths = self.widths();
        SelfAttention {
            rotary: self
                .rotary_base
                .map(|base| Rotary::new(base, heads.d_k, device)),
            query_key_value: init.attention_projections(self.d_model, &widths, self.bias, device),
            heads: self.init_heads_from(init, device),
            relative: self
                .max_distance
                .map(|most| RelativePositions::init(most, heads, init, device)),
        }
    }
}

/// Multi-head attention whose queries, keys and values come from one sequence (§3.2.3): in the
/// encoder, and masked in the decoder.
///
/// It is a [`MultiHeadAttention`](crate::nn::MultiHeadAttention) with `W^Q`, `W^K` and `W^V` in one matrix, and may
/// rotate queries and keys by their positions, or add vectors to keys and values.
#[derive(Module, Debug)]
pub struct SelfAttention<B: Backend> {
    /// `W^Q`, `W^K` and `W^V` side by side, each by heads: `[d_model, n_heads · d_k + n_kv_heads · (d_k + d_v)]`.
    pub query_key_value: Linear<B>,
    /// Rotary positions; `None` for other kinds of positions.
    pub rotary: Option<Rotary<B>>,
    /// The heads and `W^O`.
    pub heads: AttentionHeads<B>,
    /// Relative positions; `None` for other kinds of positions.
    pub relative: Option<RelativePositions<B>>,
}

impl<B: Backend> SelfAttention<B> {
    /// Each position attends to the positions that the mask does not block.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - mask: `[batch or 1, n_heads or 1, len or 1, len]`
    /// - output: see [`AttentionOutput`], with `query_len` = `key_len` = `len`
    ///
    /// # Panics
    /// When the shapes do not agree.
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        mask: Option<&Mask<B>>,
        weights: AttentionWeights,
    ) -> AttentionOutput<B> {
        let packed = self.project(x, 0);
        if self.relative.is_some() {
            let own = self.key_value(&packed);
            let relative = self.relative.as_ref();
            return self
                .heads
                .forward_to(&packed, &own, mask, relative, weights);
        }
        let operands = Operands::SelfPacked(&packed);
        self.heads.forward(operands, mask, weights)
    }

    /// The keys and values in projected rows.
    fn key_value(&self, packed: &Tensor<B, 3>) -> KeyValue<B> {
        let Heads { n_heads, d_k, .. } = self.heads.sizes();
        KeyValue::of_rows(packed, n_heads * d_k, self.heads.key_value_sizes())
    }

    /// Projects the positions from `first` on to queries, keys and values, side by side.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: `[batch, len, n_heads · d_k + n_kv_heads · (d_k + d_v)]`
    fn project(&self, x: Tensor<B, 3>, first: usize) -> Tensor<B, 3> {
        let packed = linear(&self.query_key_value, x, self.heads.precision);
        let Some(rotary) = &self.rotary else {
            return packed;
        };
        let turned = self.heads.sizes().n_heads + self.heads.key_value_sizes().n_heads;
        rotary.turn(packed, first, turned)
    }

    /// [`forward`](Self::forward) for the positions after the known ones. It appends their keys and values to `known`,
    /// the [`rows`](crate::nn::LayerState::rows) of a layer's state, which is `None` before the first position.
    ///
    /// # Shapes
    /// - x: `[batch, new_len, d_model]`
    /// - mask of `at`: `[batch or 1, n_heads or 1, new_len or 1, key_len]`
    /// - output: see [`AttentionOutput`], with `query_len` = `new_len` and `key_len` = known and new positions
    ///
    /// # Panics
    /// When the shapes do not agree.
    pub fn forward_after(
        &self,
        x: Tensor<B, 3>,
        at: &Context<'_, B>,
        known: &mut Option<KeyValue<B>>,
    ) -> AttentionOutput<B> {
        let first = known.as_ref().map_or(0, |known| known.key.dims()[2]);
        let packed = self.project(x, first);
        let new = self.key_value(&packed);
        let all = match known.take() {
            Some(known) => known.followed_by(new),
            None => new,
        };
        let relative = self.relative.as_ref();
        let attended = self
            .heads
            .forward_to(&packed, &all, at.mask, relative, at.weights);
        *known = Some(all);
        attended
    }
}
