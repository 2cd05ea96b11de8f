//! libtorch's own fused operations.

use burn::tensor::ops::{BoolTensor, FloatTensor, IntTensor};
use burn_tch::{LibTorch, LibTorchDevice, TchTensor};
use tch::{Device, Kind, Tensor};

use crate::adam::AdamStep;
use crate::attention::Heads;
use crate::kernels::{Attended, Kernels, Packed};
use crate::random::Keep;
use crate::simd::vectorised;

/// Numbers whose passes follow each other in the processor's cache.
const CACHED: i64 = 1 << 17;

/// Numbers that dropout takes for a row.
const ROW: usize = 1 << 14;

impl Kernels for LibTorch {
    type Dropped = Dropped;

    fn takes(tensor: &FloatTensor<Self>) -> bool {
        tensor.tensor.kind() == Kind::Float
    }

    fn linear_forward(
        x: &TchTensor,
        weight: &TchTensor,
        bias: Option<&TchTensor>,
        transposed: bool,
    ) -> TchTensor {
        let weight = oriented(&weight.tensor, transposed);
        TchTensor::new(match bias {
            Some(bias) => bias.tensor.addmm(&x.tensor, &weight),
            None => x.tensor.mm(&weight),
        })
    }

    fn linear_backward(
        grad: &TchTensor,
        x: &TchTensor,
        weight: &TchTensor,
        transposed: bool,
    ) -> [TchTensor; 2] {
        let (grad, x) = (&grad.tensor, &x.tensor);
        let weight_grad = if transposed {
            grad.tr().mm(x)
        } else {
            x.tr().mm(grad)
        };
        let weight = oriented(&weight.tensor, transposed);
        [grad.mm(&weight.tr()), weight_grad].map(TchTensor::new)
    }

    fn sum_rows(x: &TchTensor) -> TchTensor {
        let width = x.tensor.size().last().copied().unwrap_or(1);
        let rows = x.tensor.reshape([-1, width]);
        TchTensor::new(rows.sum_dim_intlist([0i64].as_slice(), false, Kind::Float))
    }

    fn relu_dropout_forward(x: &TchTensor, bias: &TchTensor, p: f64) -> TchTensor {
        let mut output = &x.tensor + &bias.tensor;
        let _ = output.relu_();
        TchTensor::new(match p > 0.0 {
            true => dropout(output, p).0,
            false => output,
        })
    }

    fn relu_dropout_backward(grad: &TchTensor, output: &TchTensor, p: f64) -> TchTensor {
        let mut x_grad = output.tensor.threshold_backward(&grad.tensor, 0.0);
        if p > 0.0 {
            let _ = x_grad.g_mul_scalar_(1.0 / (1.0 - p));
        }
        TchTensor::new(x_grad)
    }

    fn layer_norm_forward(
        x: &TchTensor,
        gamma: &TchTensor,
        beta: &TchTensor,
        epsilon: f64,
    ) -> [TchTensor; 3] {
        let (output, mean, deviation) = x.tensor.native_layer_norm(
            gamma.tensor.size(),
            Some(&gamma.tensor),
            Some(&beta.tensor),
            epsilon,
        );
        [output, mean, deviation].map(TchTensor::new)
    }

    fn layer_norm_backward(
        grad: &TchTensor,
        x: &TchTensor,
        gamma: &TchTensor,
        [mean, deviation]: &[TchTensor; 2],
    ) -> [TchTensor; 3] {
        let (x, gamma, beta) = layer_norm_backward(
            &grad.tensor,
            &x.tensor,
            &gamma.tensor,
            &mean.tensor,
            &deviation.tensor,
        );
        [x, gamma, beta].map(TchTensor::new)
    }

    fn dropout(x: &TchTensor, onto: Option<&TchTensor>, p: f64) -> (TchTensor, Dropped) {
        let (mut output, dropped) = dropout(x.tensor.copy(), p);
        if let Some(onto) = onto {
            output += &onto.tensor;
        }
        (TchTensor::new(output), dropped)
    }

    fn dropout_backward(grad: &TchTensor, dropped: &Dropped, p: f64) -> TchTensor {
        TchTensor::new(dropped.drop(&grad.tensor, p))
    }

    fn attention_forward(
        packed: &Packed<Self>,
        bias: Option<&TchTensor>,
        blocked_rows: Option<&BoolTensor<Self>>,
        p: f64,
    ) -> (TchTensor, Attended<Self>) {
        let parts = Parts::of(packed);
        let scale = 1.0 / (packed.heads.d_k as f64).sqrt();
        let scores = (parts.query * scale).matmul(&parts.key.transpose(-2, -1));
        let scores = match bias {
            Some(bias) => scores + &bias.tensor,
            None => scores,
        };
        let mut weights = scores.softmax(-1, Kind::Float);
        if let Some(rows) = blocked_rows
            // To ask costs nothing on the CPU, to fill does.
            && (rows.tensor.device() != Device::Cpu || rows.tensor.any().int64_value(&[]) != 0)
        {
            let _ = weights.masked_fill_(&rows.tensor, 0.0);
        }
        let (output, dropped) = if p > 0.0 {
            let (kept, dropped) = dropout(weights.copy(), p);
            (kept.matmul(&parts.value), Some(dropped))
        } else {
            (weights.matmul(&parts.value), None)
        };
        let attended = Attended {
            weights: TchTensor::new(weights),
            dropped,
        };
        (TchTensor::new(joined(&output)), attended)
    }

    fn attend(
        _query: &TchTensor,
        _parts: &[[TchTensor; 2]],
        _heads: Heads,
        _bias: Option<&TchTensor>,
        _blocked_rows: Option<&BoolTensor<Self>>,
    ) -> Option<TchTensor> {
        None
    }

    fn write_heads(
        room: TchTensor,
        _place: usize,
        _rows: &TchTensor,
        _column: usize,
    ) -> Result<TchTensor, TchTensor> {
        Err(room)
    }

    fn log_softmax_of_rows(x: &TchTensor) -> TchTensor {
        TchTensor::new(x.tensor.log_softmax(-1, Kind::Float))
    }

    fn attention_backward(
        grad: &TchTensor,
        packed: &Packed<Self>,
        attended: &Attended<Self>,
        p: f64,
    ) -> (TchTensor, Option<TchTensor>) {
        let Heads { n_heads, d_k, d_v } = packed.heads;
        let parts = Parts::of(packed);
        let grad = split(&grad.tensor, 0, n_heads, d_v);
        let weights = &attended.weights.tensor;
        let mut weight_grad = grad.matmul(&parts.value.transpose(-2, -1));
        let value_grad = match &attended.dropped {
            Some(dropped) => {
                weight_grad = dropped.drop(&weight_grad, p);
                dropped.drop(weights, p).transpose(-2, -1).matmul(&grad)
            }
            None => weights.transpose(-2, -1).matmul(&grad),
        };
        let mut score_grad =
            Tensor::internal_softmax_backward_data(&weight_grad, weights, -1, Kind::Float);
        let _ = score_grad.g_mul_scalar_(1.0 / (d_k as f64).sqrt());
        let query_grad = score_grad.matmul(&parts.key);
        let key_grad = score_grad.transpose(-2, -1).matmul(&parts.query);
        let like = &packed.query.tensor;
        match &packed.key_value {
            Some(key_value) => {
                let key_value = empty_like(&key_value.tensor);
                split(&key_value, 0, n_heads, d_k).copy_(&key_grad);
                split(&key_value, n_heads * d_k, n_heads, d_v).copy_(&value_grad);
                let query = TchTensor::new(joined(&query_grad));
                (query, Some(TchTensor::new(key_value)))
            }
            None => {
                let all = empty_like(like);
                split(&all, 0, n_heads, d_k).copy_(&query_grad);
                split(&all, n_heads * d_k, n_heads, d_k).copy_(&key_grad);
                split(&all, 2 * n_heads * d_k, n_heads, d_v).copy_(&value_grad);
                (TchTensor::new(all), None)
            }
        }
    }

    fn cross_entropy(
        logits: &TchTensor,
        labels: &IntTensor<Self>,
        smoothing: f64,
    ) -> [TchTensor; 4] {
        let logits = &logits.tensor;
        let labels = labels.tensor.to_kind(Kind::Int64);
        let log_sum_exp = logits.logsumexp([-1i64].as_slice(), false);
        let at_label = logits.gather(1, &labels.unsqueeze(1), false).squeeze_dim(1);
        let mean = logits.mean_dim([-1i64].as_slice(), false, Kind::Float);
        let loss = &log_sum_exp - &at_label * (1.0 - smoothing) - mean * smoothing;
        let largest = logits.amax([-1i64].as_slice(), false);
        [loss, log_sum_exp, at_label, largest].map(TchTensor::new)
    }

    fn cross_entropy_backward(
        grad: &TchTensor,
        logits: TchTensor,
        labels: &IntTensor<Self>,
        log_sum_exp: &TchTensor,
        smoothing: f64,
    ) -> TchTensor {
        let vocab_size = logits.tensor.size()[1];
        let labels = labels.tensor.to_kind(Kind::Int64).unsqueeze(1);
        let grad = grad.tensor.unsqueeze(1);
        let mut output = logits.tensor - log_sum_exp.tensor.unsqueeze(1);
        let _ = output.exp_();
        let _ = output.g_sub_scalar_(smoothing / vocab_size as f64);
        let _ = output.g_mul_(&grad);
        let _ = output.scatter_add_(1, &labels, &(grad * (smoothing - 1.0)));
        TchTensor::new(output)
    }

    fn adam(
        parameter: TchTensor,
        grad: TchTensor,
        moments: [TchTensor; 2],
        step: &AdamStep,
    ) -> [TchTensor; 3] {
        let (size, epsilon) = step.size_and_epsilon();
        let [first, second] = moments.map(own);
        let parameter = own(parameter);
        let grad = grad.tensor.contiguous();
        let flat = [&parameter, &first, &second, &grad].map(|tensor| tensor.view(-1));
        let count = flat[0].size()[0];
        let part = match grad.device() {
            Device::Cpu => CACHED,
            _ => count.max(1),
        };
        for start in (0..count).step_by(part as usize) {
            let [mut x, mut m, mut v, g] = flat
                .each_ref()
                .map(|tensor| tensor.narrow(0, start, part.min(count - start)));
            let _ = m.lerp_(&g, f64::from(1.0 - step.beta_1));
            let _ = v.lerp_(&g.square(), f64::from(1.0 - step.beta_2));
            let mut divisor = v.sqrt();
            let _ = divisor.g_add_scalar_(f64::from(epsilon));
            let _ = divisor.g_mul_scalar_(-1.0 / f64::from(size));
            let _ = x.addcdiv_(&m, &divisor);
        }
        [parameter, first, second].map(TchTensor::new)
    }
}

/// What dropout kept. libtorch draws on one thread, by the Mersenne twister, and keeps a mask: a hash
/// costs less, and needs none.
#[derive(Debug)]
pub enum Dropped {
    /// On the CPU.
    Hashed(Keep),
    /// Elsewhere: `true` where an entry is kept.
    Mask(Tensor),
}

impl Clone for Dropped {
    fn clone(&self) -> Self {
        match self {
            Self::Hashed(keep) => Self::Hashed(*keep),
            Self::Mask(mask) => Self::Mask(mask.shallow_clone()),
        }
    }
}

impl Dropped {
    /// Drops the same entries of another tensor.
    fn drop(&self, tensor: &Tensor, p: f64) -> Tensor {
        match self {
            Self::Hashed(keep) => {
                let mut output = tensor.copy();
                drop_in_place(&mut output, *keep);
                output
            }
            Self::Mask(mask) => Tensor::native_dropout_backward(tensor, mask, 1.0 / (1.0 - p)),
        }
    }
}

/// Drops entries with a probability above zero.
fn dropout(mut tensor: Tensor, p: f64) -> (Tensor, Dropped) {
    if tensor.device() == Device::Cpu {
        let keep = Keep::draw::<LibTorch>(p, &LibTorchDevice::Cpu).expect("p is above zero");
        drop_in_place(&mut tensor, keep);
        (tensor, Dropped::Hashed(keep))
    } else {
        let (output, mask) = tensor.native_dropout(p, true);
        (output, Dropped::Mask(mask))
    }
}

/// On the CPU, where nobody else holds the tensor.
fn drop_in_place(tensor: &mut Tensor, keep: Keep) {
    assert!(tensor.kind() == Kind::Float && tensor.device() == Device::Cpu);
    if tensor.numel() == 0 {
        return;
    }
    *tensor = tensor.contiguous();
    #[allow(unsafe_code, reason = "libtorch's numbers as a slice")]
    // SAFETY: so many numbers of this kind stand there one after another, and the tensor, which is
    // borrowed mutably, keeps them.
    let values: &mut [f32] =
        unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), tensor.numel()) };
    // libtorch's threads still spin: another pool would wait for them.
    vectorised(|| {
        for (row, values) in values.chunks_mut(ROW).enumerate() {
            keep.apply(row, values);
        }
    });
}

/// The weight as `[d_input, d_output]`.
fn oriented(weight: &Tensor, transposed: bool) -> Tensor {
    match transposed {
        true => weight.tr(),
        false => weight.shallow_clone(),
    }
}

/// A contiguous tensor that nobody else holds.
fn own(tensor: TchTensor) -> Tensor {
    if tensor.storage.can_mut() && tensor.tensor.is_contiguous() {
        tensor.tensor
    } else {
        tensor.tensor.contiguous().copy()
    }
}

fn empty_like(tensor: &Tensor) -> Tensor {
    Tensor::empty(tensor.size(), (tensor.kind(), tensor.device()))
}

fn layer_norm_backward(
    grad: &Tensor,
    x: &Tensor,
    gamma: &Tensor,
    mean: &Tensor,
    deviation: &Tensor,
) -> (Tensor, Tensor, Tensor) {
    let (d_model, shape) = (gamma.size()[0], x.size());
    let rows = |tensor: &Tensor| tensor.reshape([-1, d_model]);
    let column = |tensor: &Tensor| tensor.reshape([-1, 1]);
    let (grad, deviation) = (rows(grad), column(deviation));
    let normed = (rows(x) - column(mean)) * &deviation;
    let beta_grad = grad.sum_dim_intlist([0i64].as_slice(), false, Kind::Float);
    let gamma_grad = (&grad * &normed).sum_dim_intlist([0i64].as_slice(), false, Kind::Float);
    let grad = grad * gamma;
    let mean_of = |tensor: &Tensor| tensor.mean_dim([1i64].as_slice(), true, Kind::Float);
    let along = mean_of(&(&grad * &normed));
    let x_grad = (&grad - mean_of(&grad) - normed * along) * deviation;
    (x_grad.reshape(shape), gamma_grad, beta_grad)
}

/// Queries, keys and values: `[batch, n_heads, len, d_head]`, views of the packed tensors.
struct Parts {
    query: Tensor,
    key: Tensor,
    value: Tensor,
}

impl Parts {
    fn of(packed: &Packed<LibTorch>) -> Self {
        let Heads { n_heads, d_k, d_v } = packed.heads;
        let query = &packed.query.tensor;
        let (keys, first) = match &packed.key_value {
            Some(key_value) => (&key_value.tensor, 0),
            None => (query, n_heads * d_k),
        };
        Self {
            query: split(query, 0, n_heads, d_k),
            key: split(keys, first, n_heads, d_k),
            value: split(keys, first + n_heads * d_k, n_heads, d_v),
        }
    }
}

/// Columns of `[batch, len, ..]` as heads: `[batch, n_heads, len, d_head]`.
fn split(rows: &Tensor, first: usize, n_heads: usize, d_head: usize) -> Tensor {
    let columns = rows.narrow(2, first as i64, (n_heads * d_head) as i64);
    let size = columns.size();
    let heads = [size[0], size[1], n_heads as i64, d_head as i64];
    columns.unflatten(2, &heads[2..]).transpose(1, 2)
}

/// `[batch, n_heads, len, d_head]` to `[batch, len, n_heads · d_head]`.
fn joined(heads: &Tensor) -> Tensor {
    let size = heads.size();
    heads
        .transpose(1, 2)
        .reshape([size[0], size[2], size[1] * size[3]])
}
