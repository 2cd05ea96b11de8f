//! A stack of a custom layer: a `Block` whose state does not grow with the length.

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use transformer_core::backend::NdArray;
use transformer_core::burn;
use transformer_core::decoding::SpecialTokens;
use transformer_core::nn::{
    AttentionWeights, Block, BlockOutput, BlockState, Context, FeedForward, LayerConfig, Stack,
    Sublayer,
};

/// A layer that averages all positions so far instead of using attention (Zhang et al., 2018).
#[derive(Module, Debug)]
struct AverageLayer<B: Backend> {
    average_sublayer: Sublayer<B>,
    feed_forward: FeedForward<B>,
    feed_forward_sublayer: Sublayer<B>,
}

/// The sum of all positions so far, `[rows, 1, d_model]`, and their number.
#[derive(Clone)]
struct SumSoFar<B: Backend> {
    sum: Option<Tensor<B, 3>>,
    len: usize,
}

impl<B: Backend> BlockState<B> for SumSoFar<B> {
    fn select(&mut self, _: Option<&Tensor<B, 1, Int>>, rows: Option<&Tensor<B, 1, Int>>) {
        if let (Some(sum), Some(rows)) = (&mut self.sum, rows) {
            *sum = sum.clone().select(0, rows.clone());
        }
    }
}

impl<B: Backend> Block<B> for AverageLayer<B> {
    type State = SumSoFar<B>;

    fn start(&self, _memory: Option<&Tensor<B, 3>>) -> SumSoFar<B> {
        SumSoFar { sum: None, len: 0 }
    }

    fn forward(
        &self,
        x: Tensor<B, 3>,
        at: &Context<'_, B>,
        state: Option<&mut SumSoFar<B>>,
    ) -> BlockOutput<B> {
        let mut new = self.start(at.memory);
        let state = state.unwrap_or(&mut new);
        let x = self.average_sublayer.forward(x, |x| {
            let [_, new_len, _] = x.dims();
            let sums = match state.sum.take() {
                Some(sum) => x.cumsum(1) + sum,
                None => x.cumsum(1),
            };
            let first = state.len as i64 + 1;
            let counts = Tensor::<B, 1, Int>::arange(first..first + new_len as i64, &sums.device());
            let counts: Tensor<B, 3> = counts.float().reshape([1, new_len, 1]);
            state.sum = Some(sums.clone().slice_dim(1, new_len - 1..new_len));
            state.len += new_len;
            sums / counts
        });
        BlockOutput {
            hidden: self
                .feed_forward_sublayer
                .forward(x, |x| self.feed_forward.forward(x)),
            self_attention: None,
            cross_attention: None,
        }
    }
}

#[test]
fn step_by_step_it_computes_what_it_computes_at_once_and_rows_are_selected() {
    let _alone = super::alone();
    let device = Default::default();
    NdArray::<f32>::seed(&device, 1);
    let config = LayerConfig::new(16, 2, 32).unwrap();
    let layers = (0..2).map(|_| AverageLayer::<NdArray> {
        average_sublayer: config.sublayer.init(&device),
        feed_forward: config.feed_forward.init(&device),
        feed_forward_sublayer: config.sublayer.init(&device),
    });
    let stack = Stack::<NdArray, AverageLayer<NdArray>> {
        layers: layers.collect(),
        final_norm: None,
        position_bias: None,
    };
    let tokens = Tensor::<NdArray, 2, Int>::from_data([[5, 3, 7, 2], [6, 4, 4, 3]], &device);
    let x = Tensor::<NdArray, 3>::random([2, 4, 16], Distribution::Default, &device);
    let whole = stack.forward(x.clone(), &Context::default()).hidden;

    let mut cache = stack.start(None, 2);
    let (mut tokens, mut x, mut whole) = (tokens, x, whole);
    for position in 0..4_usize {
        if position == 2 {
            // As in beam search, the rows are reordered.
            let rows = Tensor::<NdArray, 1, Int>::from_data([1, 0], &device);
            cache.select(&[1, 0], &[1, 0]);
            (tokens, x, whole) = (
                tokens.select(0, rows.clone()),
                x.select(0, rows.clone()),
                whole.select(0, rows),
            );
        }
        let here = position..position + 1;
        let next = stack.next(
            tokens.clone().slice_dim(1, here.clone()),
            x.clone().slice_dim(1, here.clone()),
            &mut cache,
            SpecialTokens::default(),
            AttentionWeights::Discard,
        );
        let difference = next.hidden - whole.clone().slice_dim(1, here);
        assert!(difference.abs().max().into_scalar() < 1e-5, "at {position}");
    }
}
