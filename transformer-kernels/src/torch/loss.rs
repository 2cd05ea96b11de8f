//! Cross entropy.

use tch::{Kind, Tensor};

/// Per row: the smoothed loss, the log-sum-exp of the logits, the label's logit and the largest logit.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor, smoothing: f64) -> [Tensor; 4] {
    let labels = labels.to_kind(Kind::Int64);
    let log_sum_exp = logits.logsumexp([-1i64].as_slice(), false);
    let at_label = logits.gather(1, &labels.unsqueeze(1), false).squeeze_dim(1);
    let mean = logits.mean_dim([-1i64].as_slice(), false, Kind::Float);
    let loss = &log_sum_exp - &at_label * (1.0 - smoothing) - mean * smoothing;
    let largest = logits.amax([-1i64].as_slice(), false);
    [loss, log_sum_exp, at_label, largest]
}

/// Gradient of the logits, given the gradient of each row's loss.
pub fn cross_entropy_backward(
    grad: &Tensor,
    logits: Tensor,
    labels: &Tensor,
    log_sum_exp: &Tensor,
    smoothing: f64,
) -> Tensor {
    let vocab_size = logits.size()[1];
    let labels = labels.to_kind(Kind::Int64).unsqueeze(1);
    let grad = grad.unsqueeze(1);
    let mut output = logits - log_sum_exp.unsqueeze(1);
    let _ = output.exp_();
    let _ = output.g_sub_scalar_(smoothing / vocab_size as f64);
    let _ = output.g_mul_(&grad);
    let _ = output.scatter_add_(1, &labels, &(grad * (smoothing - 1.0)));
    output
}
