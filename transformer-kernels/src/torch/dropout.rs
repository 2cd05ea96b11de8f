//! Dropout.

use burn_tch::{LibTorch, LibTorchDevice};
use tch::{Device, Tensor};
use transformer_cpu::{Keep, dropout_in_place};

use super::slices::values_mut;
use crate::ops::dropout::draw;

/// The entries that dropout kept. libtorch draws on one thread, by the Mersenne twister, and stores a mask; a hash
/// is cheaper and needs no mask.
#[derive(Debug)]
pub enum Dropped {
    /// On the CPU: recomputed by a hash.
    Hashed(Keep),
    /// Elsewhere: `true` for kept entries.
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
    pub fn drop(&self, tensor: &Tensor, p: f64) -> Tensor {
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
pub fn dropout(mut tensor: Tensor, p: f64) -> (Tensor, Dropped) {
    if tensor.device() == Device::Cpu {
        let keep = draw::<LibTorch>(p, &LibTorchDevice::Cpu).expect("p is above zero");
        drop_in_place(&mut tensor, keep);
        (tensor, Dropped::Hashed(keep))
    } else {
        let (output, mask) = tensor.native_dropout(p, true);
        (output, Dropped::Mask(mask))
    }
}

/// Drops entries of a tensor that is on the CPU and not held elsewhere.
fn drop_in_place(tensor: &mut Tensor, keep: Keep) {
    // On this thread: libtorch's threads are still spinning, and another pool would wait for them.
    dropout_in_place(values_mut(tensor), keep);
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    fn numbers(tensor: &Tensor) -> Vec<f32> {
        Vec::try_from(tensor.reshape([-1_i64])).expect("numbers")
    }

    #[test]
    fn entries_of_a_view_are_dropped_in_its_order_and_not_in_what_it_views() {
        let keep = Keep::new(0.5, 3);
        let all = Tensor::ones([40, 60], (Kind::Float, Device::Cpu));
        let [mut rows, mut columns] = [all.copy(), all.transpose(0, 1)];
        drop_in_place(&mut rows, keep);
        drop_in_place(&mut columns, keep);
        assert_eq!(columns.size(), [60, 40]);
        assert_eq!(numbers(&columns), numbers(&rows));
        assert!(numbers(&all).iter().all(|&x| x == 1.0));
        let kept = numbers(&rows).iter().filter(|&&x| x == 2.0).count();
        // Half of 2400 values: the bound is six standard deviations.
        assert!(kept.abs_diff(1200) < 147, "{kept}");
    }

    #[test]
    fn no_number_outside_a_part_is_dropped() {
        let all = Tensor::ones([5, 7], (Kind::Float, Device::Cpu));
        let mut part = all.narrow(0, 1, 3);
        drop_in_place(&mut part, Keep::new(0.999_999, 3));
        let expected = [vec![1.0; 7], vec![0.0; 21], vec![1.0; 7]].concat();
        assert_eq!(numbers(&all), expected);
        drop_in_place(&mut all.narrow(0, 2, 0), Keep::new(0.5, 3));
        assert_eq!(numbers(&all), expected);
    }

    #[test]
    #[should_panic(expected = "Kind::Float")]
    fn numbers_of_another_type_are_refused() {
        let mut doubles = Tensor::ones([3], (Kind::Double, Device::Cpu));
        drop_in_place(&mut doubles, Keep::new(0.5, 3));
    }
}
