//! The layers of the encoder and of the decoder (§3.1).

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use crate::nn::attention::AttentionConfig;
use crate::nn::block::{Block, BlockOutput, Context};
use crate::nn::cache::LayerState;
use crate::nn::error::ConfigError;
use crate::nn::feed_forward::{FeedForward, FeedForwardConfig};
use crate::nn::init::WeightInit;
use crate::nn::multi_head_attention::MultiHeadAttention;
use crate::nn::norm::NormConfig;
use crate::nn::parameters::{Parameter, within};
use crate::nn::recurrence::{Recurrence, RecurrenceConfig};
use crate::nn::self_attention::SelfAttention;
use crate::nn::sublayer::{Sublayer, SublayerConfig};
use transformer_kernels::Mask;

/// How a layer mixes the positions of its own sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mixer {
    /// Self-attention to all positions that the mask does not block.
    #[default]
    SelfAttention,
    /// A recurrence over the positions so far ([`Recurrence`]).
    Recurrence,
}

/// The configuration of a [`Layer`]: the configurations of its parts, with one `d_model`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerConfig {
    /// Self-attention; with a recurrence in its place, only `d_model` is used, but all of it must be valid.
    pub self_attention: AttentionConfig,
    /// Self-attention, or a recurrence in its place.
    #[serde(default)]
    pub mixer: Mixer,
    /// Cross-attention to a memory, as in the decoder of an encoder–decoder; `None` in an encoder and in a decoder-only
    /// model.
    pub cross_attention: Option<AttentionConfig>,
    /// The feed-forward network.
    pub feed_forward: FeedForwardConfig,
    /// The connection around each sub-layer.
    pub sublayer: SublayerConfig,
}

impl LayerConfig {
    /// An encoder layer as in the paper: post-norm, ReLU, no attention biases, `d_k = d_v = d_model / n_heads`, dropout
    /// 0.1 on the sub-layers.
    ///
    /// # Errors
    /// When a size is zero or above 2²⁴, or `d_model` is not divisible by `n_heads`.
    pub fn new(d_model: usize, n_heads: usize, d_ff: usize) -> Result<Self, ConfigError> {
        let config = Self {
            self_attention: AttentionConfig::new(d_model, n_heads),
            mixer: Mixer::SelfAttention,
            cross_attention: None,
            feed_forward: FeedForwardConfig::new(d_model, d_ff),
            sublayer: SublayerConfig::new(NormConfig::new(d_model)),
        };
        config.validate()?;
        Ok(config)
    }

    /// A decoder layer: the same layer with cross-attention to a memory. It is configured like self-attention, but
    /// without rotary or relative positions, which apply within one sequence.
    pub fn with_memory(self) -> Self {
        Self {
            cross_attention: Some(
                self.self_attention
                    .clone()
                    .with_rotary_base(None)
                    .with_max_distance(None),
            ),
            ..self
        }
    }

    /// Width of the residual stream.
    pub fn d_model(&self) -> usize {
        self.self_attention.d_model
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// The first invalid value or contradiction.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.self_attention.validate()?;
        if let Some(attention) = &self.cross_attention {
            attention.validate()?;
        }
        self.feed_forward.validate()?;
        self.sublayer.validate()?;
        let expected = self.d_model();
        let widths = [
            ("feed_forward", self.feed_forward.d_model),
            ("sublayer", self.sublayer.norm.d_model),
            (
                "cross_attention",
                self.cross_attention
                    .as_ref()
                    .map_or(expected, |attention| attention.d_model),
            ),
        ];
        for (part, d_model) in widths {
            if d_model != expected {
                return Err(ConfigError::OtherWidth {
                    part,
                    d_model,
                    expected,
                });
            }
        }
        Ok(())
    }

    /// A layer with weights drawn from the backend's random number generator.
    ///
    /// # Panics
    /// When the configuration is not [valid](Self::validate).
    pub fn init<B: Backend>(&self, device: &B::Device) -> Layer<B> {
        self.init_from(&mut WeightInit::from_backend::<B>(device), device)
    }

    /// A layer with weights from `init`.
    ///
    /// # Panics
    /// As [`init`](Self::init).
    pub fn init_from<B: Backend>(&self, init: &mut WeightInit, device: &B::Device) -> Layer<B> {
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
        let cross_attention = self.cross_attention.as_ref();
        let (self_attention, recurrence) = match self.recurrence() {
            None => (Some(self.self_attention.init_self_from(init, device)), None),
            Some(recurrence) => (None, Some(recurrence.init_from(init, device))),
        };
        Layer {
            self_attention,
            recurrence,
            self_attention_sublayer: self.sublayer.init(device),
            cross_attention: cross_attention.map(|attention| attention.init_from(init, device)),
            cross_attention_sublayer: cross_attention.map(|_| self.sublayer.init(device)),
            feed_forward: self.feed_forward.init_from(init, device),
            feed_forward_sublayer: self.sublayer.init(device),
        }
    }

    /// The configuration of the recurrence, if the layer has one.
    pub(crate) fn recurrence(&self) -> Option<RecurrenceConfig> {
        match self.mixer {
            Mixer::SelfAttention => None,
            Mixer::Recurrence => Some(RecurrenceConfig::new(self.d_model())),
        }
    }

    /// The parameters of a [`Layer`].
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let norm = |part| within(part, self.sublayer.norm.parameters());
        let mut parameters = match self.recurrence() {
            None => within("self_attention", self.self_attention.self_parameters()),
            Some(recurrence) => within("recurrence", recurrence.parameters()),
        };
        parameters.extend(norm("self_attention_sublayer.norm"));
        if let Some(attention) = &self.cross_attention {
            parameters.extend(within("cross_attention", attention.parameters()));
            parameters.extend(norm("cross_attention_sublayer.norm"));
        }
        parameters.extend(within("feed_forward", self.feed_forward.parameters()));
        parameters.extend(norm("feed_forward_sublayer.norm"));
        parameters
    }
}

/// Self-attention or a recurrence, cross-attention if there is a memory, then the feed-forward network, each inside its
/// [`Sublayer`] (§3.1). Without a memory it is an encoder layer, with one a decoder layer.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_ndarray::NdArray;
/// use transformer_core::nn::{Block, Context, LayerConfig};
///
/// # fn main() -> Result<(), transformer_core::nn::ConfigError> {
/// let device = Default::default();
/// let layer = LayerConfig::new(32, 4, 64)?.init::<NdArray>(&device);
///
/// let x = Tensor::zeros([2, 5, 32], &device);
/// let y = layer.forward(x, &Context::default(), None);
/// assert_eq!(y.hidden.dims(), [2, 5, 32]);
/// # Ok(())
/// # }
/// ```
#[derive(Module, Debug)]
pub struct Layer<B: Backend> {
    /// Each position attends to the positions that the mask does not block; `None` in a layer with a recurrence.
    pub self_attention: Option<SelfAttention<B>>,
    /// Each position reads the positions before it; `None` in a layer with self-attention.
    pub recurrence: Option<Recurrence<B>>,
    /// The connection around self-attention or the recurrence.
    pub self_attention_sublayer: Sublayer<B>,
    /// Each position attends to the memory; `None` in a layer without cross-attention.
    pub cross_attention: Option<MultiHeadAttention<B>>,
    /// The connection around cross-attention.
    pub cross_attention_sublayer: Option<Sublayer<B>>,
    /// Applied to each position separately.
    pub feed_forward: FeedForward<B>,
    /// The connection around the feed-forward network.
    pub feed_forward_sublayer: Sublayer<B>,
}

impl<B: Backend> Block<B> for Layer<B> {
    type State = LayerState<B>;

    /// # Panics
    /// When a memory is given to a layer without cross-attention, or none to a layer with it.
    fn start(&self, memory: Option<&Tensor<B, 3>>) -> LayerState<B> {
        let memory = match (&self.cross_attention, memory) {
            (Some(attention), Some(memory)) => Some(attention.key_value(memory.clone())),
            (None, None) => None,
            (Some(_), None) => panic!("a layer with cross-attention needs a memory"),
            (None, Some(_)) => panic!("a memory for a layer without cross-attention"),
        };
        LayerState {
            memory,
            ..LayerState::default()
        }
    }

    /// # Panics
    /// When a memory is given to a layer without cross-attention, or none to a layer with it, or the shapes do not
    /// agree.
    fn forward(
        &self,
        x: Tensor<B, 3>,
        at: &Context<'_, B>,
        mut state: Option<&mut LayerState<B>>,
    ) -> BlockOutput<B> {
        assert!(
            at.memory.is_none() || self.cross_attention.is_some(),
            "a memory for a layer without cross-attention"
        );
        let (x, self_attention) = self.self_attention_sublayer.forward_with(x, |x| {
            let Some(attention) = &self.self_attention else {
                return (self.read_before(x, at, &mut state), None);
            };
            let attended = match &mut state {
                Some(state) => attention.forward_after(x, at, &mut state.rows),
                None => attention.forward(x, at.mask, at.weights),
            };
            (attended.output, attended.weights)
        });
        let (x, cross_attention) = match (&self.cross_attention, &self.cross_attention_sublayer) {
            (Some(attention), Some(sublayer)) => sublayer.forward_with(x, |x| {
                let attended = match state.and_then(|state| state.memory.as_ref()) {
                    Some(memory) => attention.forward_to(memory, x, at),
                    None => attention.forward_at(x, at),
                };
                (attended.output, attended.weights)
            }),
            _ => (x, None),
        };
        let hidden = self
            .feed_forward_sublayer
            .forward(x, |x| self.feed_forward.forward(x));
        BlockOutput {
            hidden,
            self_attention,
            cross_attention,
        }
    }
}

impl<B: Backend> Layer<B> {
    /// Applies the recurrence, with the padding of the mask.
    fn read_before(
        &self,
        x: Tensor<B, 3>,
        at: &Context<'_, B>,
        state: &mut Option<&mut LayerState<B>>,
    ) -> Tensor<B, 3> {
        let recurrence = self.recurrence.as_ref();
        let recurrence = recurrence.expect("self-attention or a recurrence");
        let [_, len, _] = x.dims();
        // The mask also covers the positions before these.
        let padding = at.mask.and_then(Mask::padded).map(|padding| {
            let [_, all] = padding.dims();
            padding.clone().slice_dim(1, all - len..all)
        });
        let state = state.as_mut().map(|state| &mut state.recurrent);
        recurrence.forward(x, padding, state)
    }
}
