//! The stacks of the encoder and of the decoder (§3.1).

use burn::config::Config;
use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};

use crate::nn::block::{Block, BlockOutput, Context};
use crate::nn::cache::Cache;
use crate::nn::init::WeightInit;
use crate::nn::layer::{Layer, LayerConfig, Mixer};
use crate::nn::norm::Norm;
use crate::nn::parameters::{Parameter, within};
use crate::nn::position_bias::{PositionBias, PositionBiasConfig};
use crate::special_tokens::SpecialTokens;
use transformer_kernels::{AttentionWeights, Mask};

/// The encoder's output for a batch of sources, which the decoder attends to.
#[derive(Debug, Clone)]
pub struct Memory<B: Backend> {
    /// `[batch, src_len, d_model]`
    pub hidden: Tensor<B, 3>,
    /// The source's padding, `[batch, src_len]`, `true` = blocked.
    pub padding: Tensor<B, 2, Bool>,
}

/// The output of a [`Stack`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StackOutput<B: Backend> {
    /// `[batch, len, d_model]`
    pub hidden: Tensor<B, 3>,
    /// Each layer's weights of self-attention, `[batch, n_heads, len, key_len]`; empty unless requested.
    pub self_attention: Vec<Tensor<B, 4>>,
    /// Each layer's weights of cross-attention, `[batch, n_heads, len, src_len]`; empty unless requested, and without a
    /// memory.
    pub cross_attention: Vec<Tensor<B, 4>>,
}

/// The configuration of a [`Stack`] of [`Layer`]s.
#[derive(Config, Debug, PartialEq)]
pub struct StackConfig {
    /// The configuration of each layer.
    pub layer: LayerConfig,
    /// Number of layers.
    pub n_layers: usize,
    /// Whether the stack ends with a layer normalization; a pre-norm stack needs it.
    #[config(default = false)]
    pub final_norm: bool,
    /// A bias on the scores of every layer's self-attention, instead of position vectors.
    #[config(default = "None")]
    pub position_bias: Option<PositionBiasConfig>,
}

impl StackConfig {
    /// A stack with weights drawn from the backend's random number generator.
    ///
    /// # Panics
    /// When the configuration of the layers or of the bias is not [valid](LayerConfig::validate), or the bias is not for
    /// the heads of their self-attention.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Stack<B, Layer<B>> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A stack with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(
        &self,
        init: &mut WeightInit,
        device: &B::Device,
    ) -> Stack<B, Layer<B>> {
        let position_bias = self.position_bias.as_ref();
        if let Some(bias) = position_bias {
            let found = (self.layer.mixer, self.layer.self_attention.n_heads);
            let expected = (Mixer::SelfAttention, bias.n_heads);
            assert_eq!(
                found, expected,
                "heads of the layers and of the position bias"
            );
        }
        let layers = (0..self.n_layers).map(|_| self.layer.init_from(init, device));
        let layers = layers.collect();
        Stack {
            layers,
            final_norm: self
                .final_norm
                .then(|| self.layer.sublayer.norm.init(device)),
            position_bias: position_bias.map(|bias| bias.init_from(init, device)),
        }
    }

    /// The parameters of the [`Stack`], including those of at most `max_layers` layers.
    pub(crate) fn parameters(&self, max_layers: usize) -> Vec<Parameter> {
        let of_layer = self.layer.parameters();
        let layers = 0..self.n_layers.min(max_layers);
        let mut parameters: Vec<Parameter> = layers
            .flat_map(|index| within(&format!("layers.{index}"), of_layer.clone()))
            .collect();
        if self.final_norm {
            parameters.extend(within("final_norm", self.layer.sublayer.norm.parameters()));
        }
        if let Some(bias) = &self.position_bias {
            parameters.extend(within("position_bias", bias.parameters()));
        }
        parameters
    }
}

/// A stack of layers (§3.1), with a final norm if configured.
///
/// It can be used on its own: without a memory, as the encoder of a classifier, for example, or, with a causal mask, as
/// the decoder of a language model. The layers may be your own ([`Block`]).
#[derive(Module, Debug)]
pub struct Stack<B: Backend, L> {
    /// The layers, first to last.
    pub layers: Vec<L>,
    /// The norm after the last layer.
    pub final_norm: Option<Norm<B>>,
    /// The bias on the scores of every layer's self-attention; `None` where positions are not a bias.
    pub position_bias: Option<PositionBias<B>>,
}

impl<B: Backend, L: Block<B>> Stack<B, L> {
    /// Applies the stack to whole sequences. It adds no mask of its own: a decoder needs a causal mask in `at`
    /// ([`target_mask`](crate::nn::target_mask)), unlike in [`next`](Self::next).
    ///
    /// # Shapes
    /// - x: `[batch, len, d_model]`
    /// - output: see [`StackOutput`], with `key_len` = `len`
    ///
    /// # Panics
    /// When a memory is given to layers without cross-attention, or none to layers with it, or the shapes do not
    /// agree.
    pub fn forward(&self, x: Tensor<B, 3>, at: &Context<'_, B>) -> StackOutput<B> {
        let ([_, len, _], device) = (x.dims(), x.device());
        let mask = self.biased(at.mask.cloned(), [len, len], &device);
        let at = Context {
            mask: mask.as_ref(),
            ..*at
        };
        self.through(x, |layer, _, x| layer.forward(x, &at, None))
    }

    /// An empty cache, for reading sequences step by step: targets of a memory with `sources` sources or, without a
    /// memory, `sources` sequences.
    ///
    /// # Panics
    /// When the layers have cross-attention and no memory is given, or the reverse; when the memory does not have
    /// `sources` sources.
    pub fn start(&self, memory: Option<&Memory<B>>, sources: usize) -> Cache<B, L::State> {
        let hidden = memory.map(|memory| &memory.hidden);
        let layers = self.layers.iter().map(|layer| layer.start(hidden));
        Cache::new(layers.collect(), memory, sources)
    }

    /// Reads the tokens that follow those in the cache: one per row, or several, such as a prompt. Each position
    /// attends to itself, to the positions before it and to the memory, if there is one. No position attends to
    /// `<pad>`, except where `<pad>` is also `<bos>` and begins a row.
    ///
    /// # Shapes
    /// - tokens: `[rows, new_len]`, one or more rows per source; the rows of a source are adjacent
    /// - x: the embedded tokens, with positions from [`Cache::len`] on, `[rows, new_len, d_model]`
    /// - output: see [`StackOutput`], with `batch` = rows, `len` = new_len, and `key_len` the length of the rows
    ///
    /// # Panics
    /// When the number of rows differs from the cache's, or `new_len` is zero.
    pub fn next(
        &self,
        tokens: Tensor<B, 2, Int>,
        x: Tensor<B, 3>,
        cache: &mut Cache<B, L::State>,
        special_tokens: SpecialTokens,
        weights: AttentionWeights,
    ) -> StackOutput<B> {
        let [_, new_len] = tokens.dims();
        let mask = cache.append(tokens, special_tokens);
        let mask = self.biased(Some(mask), [new_len, cache.len()], &x.device());
        let memory_mask = cache.memory_mask();
        let at = Context {
            mask: mask.as_ref(),
            memory: None,
            memory_mask: memory_mask.as_ref(),
            weights,
        };
        assert_eq!(
            cache.layers.len(),
            self.layers.len(),
            "layers of the cache and of the stack"
        );
        self.through(x, |layer, index, x| {
            layer.forward(x, &at, Some(&mut cache.layers[index]))
        })
    }

    /// Adds the stack's bias to a mask of the last `query_len` of `key_len` positions.
    fn biased(
        &self,
        mask: Option<Mask<B>>,
        [query_len, key_len]: [usize; 2],
        device: &B::Device,
    ) -> Option<Mask<B>> {
        let Some(bias) = &self.position_bias else {
            return mask;
        };
        let bias = bias.forward(query_len, key_len, device);
        Some(match mask {
            Some(mask) => mask.with_bias(bias),
            None => Mask::from_bias(bias),
        })
    }

    /// Applies all layers, each with its index, then the final norm.
    fn through(
        &self,
        x: Tensor<B, 3>,
        mut forward: impl FnMut(&L, usize, Tensor<B, 3>) -> BlockOutput<B>,
    ) -> StackOutput<B> {
        let mut output = StackOutput {
            hidden: x,
            self_attention: Vec::new(),
            cross_attention: Vec::new(),
        };
        for (index, layer) in self.layers.iter().enumerate() {
            let next = forward(layer, index, output.hidden);
            output.hidden = next.hidden;
            output.self_attention.extend(next.self_attention);
            output.cross_attention.extend(next.cross_attention);
        }
        if let Some(norm) = &self.final_norm {
            output.hidden = norm.forward(output.hidden);
        }
        output
    }
}
