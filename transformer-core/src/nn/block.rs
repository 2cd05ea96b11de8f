//! What a stack is made of, and what its layers are given.

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use transformer_kernels::{AttentionWeights, Mask};

/// What a layer's sub-layers attend to, and which attention weights are returned. The default is self-attention
/// without a mask, and no weights.
#[derive(Debug)]
pub struct Context<'a, B: Backend> {
    /// Blocks keys of self-attention: `[batch or 1, n_heads or 1, query_len or 1, key_len]`.
    pub mask: Option<&'a Mask<B>>,
    /// The memory, `[batch, src_len, d_model]`, unless a state has its keys and values.
    pub memory: Option<&'a Tensor<B, 3>>,
    /// Blocks keys of the memory: `[batch or 1, n_heads or 1, len or 1, src_len]`, with a state `[sources, 1, 1, src_len]`.
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
    /// Weights of self-attention, `[batch, n_heads, len, key_len]`; `None` unless asked for.
    pub self_attention: Option<Tensor<B, 4>>,
    /// Weights of attention to the memory, `[batch, n_heads, len, src_len]`; `None` unless asked for, and without a
    /// memory.
    pub cross_attention: Option<Tensor<B, 4>>,
}

/// What a [`Stack`](crate::nn::Stack) is made of: a [`Layer`](crate::nn::Layer), or a layer of your own.
pub trait Block<B: Backend>: Module<B> {
    /// What the layer remembers of each row so far, when sequences are read step by step: keys and values, or a
    /// recurrent sum.
    type State: BlockState<B>;

    /// The state before the first position.
    ///
    /// # Shapes
    /// - memory: `[sources, src_len, d_model]`; `None` if the layer attends to none
    fn start(&self, memory: Option<&Tensor<B, 3>>) -> Self::State;

    /// Applies the layer to whole sequences, or to the positions after those in a state, which then remembers them,
    /// too.
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
    /// Keeps the given rows, and of the memory the given sources, in the given order; indices may repeat. `None` keeps
    /// all as they are.
    fn select(&mut self, sources: Option<&Tensor<B, 1, Int>>, rows: Option<&Tensor<B, 1, Int>>);
}

/// For layers that only read whole sequences, as in an encoder.
impl<B: Backend> BlockState<B> for () {
    fn select(&mut self, _: Option<&Tensor<B, 1, Int>>, _: Option<&Tensor<B, 1, Int>>) {}
}
