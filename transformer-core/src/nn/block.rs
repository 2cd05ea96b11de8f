//! The trait of the layers of a stack, their inputs and outputs.

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use transformer_kernels::{AttentionWeights, Mask};

/// A layer's attention masks and memory, and whether it returns attention weights. The default is self-attention
/// without a mask, and no weights.
#[derive(Debug)]
pub struct Context<'a, B: Backend> {
    /// The mask of self-attention: `[batch or 1, n_heads or 1, query_len or 1, key_len]`.
    pub mask: Option<&'a Mask<B>>,
    /// The memory, `[batch, src_len, d_model]`; unused with a state, which holds its keys and values.
    pub memory: Option<&'a Tensor<B, 3>>,
    /// The mask of the memory: `[batch or 1, n_heads or 1, len or 1, src_len]`, with a state
    /// `[sources, 1, 1, src_len]`.
    pub memory_mask: Option<&'a Mask<B>>,
    /// Whether attention weights are returned.
    pub weights: AttentionWeights,
}

impl<B: Backend> Clone for Context<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Context<'_, B> {}

impl<B: Backend> Default for Context<'_, B> {
    fn default() -> Self {
        Self {
            mask: None,
            memory: None,
            memory_mask: None,
            weights: AttentionWeights::Discard,
        }
    }
}

/// The output of a [`Block`].
#[derive(Debug, Clone)]
pub struct BlockOutput<B: Backend> {
    /// `[batch, len, d_model]`
    pub hidden: Tensor<B, 3>,
    /// Weights of self-attention, `[batch, n_heads, len, key_len]`; `None` unless requested.
    pub self_attention: Option<Tensor<B, 4>>,
    /// Weights of cross-attention, `[batch, n_heads, len, src_len]`; `None` unless requested, and without a memory.
    pub cross_attention: Option<Tensor<B, 4>>,
}

/// A layer of a [`Stack`](crate::nn::Stack): a [`Layer`](crate::nn::Layer), or your own.
pub trait Block<B: Backend>: Module<B> {
    /// The state of the layer when sequences are read step by step, such as the keys and values of the rows so far.
    type State: BlockState<B>;

    /// The state before the first position.
    ///
    /// # Shapes
    /// - memory: `[sources, src_len, d_model]`; `None` for a layer without cross-attention
    fn start(&self, memory: Option<&Tensor<B, 3>>) -> Self::State;

    /// Applies the layer to whole sequences or, with a state, to the positions that follow those in the state, which is
    /// then updated.
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: see [`BlockOutput`]
    fn forward(
        &self,
        x: Tensor<B, 3>,
        at: &Context<'_, B>,
        state: Option<&mut Self::State>,
    ) -> BlockOutput<B>;
}

/// The state of a [`Block`].
pub trait BlockState<B: Backend>: Clone {
    /// Selects the given sources of the memory and the given rows, in the given order; indices may repeat. `None` keeps
    /// all.
    fn select(&mut self, sources: Option<&Tensor<B, 1, Int>>, rows: Option<&Tensor<B, 1, Int>>);
}

/// For layers that only read whole sequences, as in an encoder.
impl<B: Backend> BlockState<B> for () {
    fn select(&mut self, _: Option<&Tensor<B, 1, Int>>, _: Option<&Tensor<B, 1, Int>>) {}
}
