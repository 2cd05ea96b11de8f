//! The thread that many operations begin on.

use burn::tensor::backend::Backend;

/// Calls `compute`: on one of rayon's threads, if they compute the kernels of `B`, and on this thread otherwise.
///
/// Every kernel of flex and ndarray deals tasks to rayon's threads. A thread that is none of them has to wake one for each
/// operation, and is woken when it is done. One of theirs begins with a task of its own. So a step of training, of
/// thousands of operations, takes less time on one.
///
/// While that thread waits for another one, it may begin other work of rayon's: `compute` must not hold a lock that such
/// work takes.
///
/// ```
/// use burn_ndarray::NdArray;
/// use transformer_kernels::on_kernel_threads;
///
/// assert_eq!(on_kernel_threads::<NdArray, _>(|| 1 + 1), 2);
/// ```
pub fn on_kernel_threads<B: Backend, R: Send>(compute: impl FnOnce() -> R + Send) -> R {
    #[cfg(any(feature = "flex", feature = "ndarray"))]
    if has_kernels_on_rayon::<B>() && rayon::current_thread_index().is_none() {
        return on_first_thread(compute);
    }
    compute()
}

/// Calls `compute` on the first of rayon's threads: each time on the same one, because the allocator keeps freed memory
/// for the thread that it was allocated by.
#[cfg(any(feature = "flex", feature = "ndarray"))]
fn on_first_thread<R: Send>(compute: impl FnOnce() -> R + Send) -> R {
    use std::sync::Mutex;
    let compute = Mutex::new(Some(compute));
    let results = rayon::broadcast(|thread| {
        let is_first = thread.index() == 0;
        let compute = is_first.then(|| compute.lock().expect("nobody panics with it").take());
        compute.flatten().map(|compute| compute())
    });
    let result = results.into_iter().flatten().next();
    result.expect("there is a first thread, and it is called once")
}

#[cfg(any(feature = "flex", feature = "ndarray"))]
fn has_kernels_on_rayon<B: Backend>() -> bool {
    use std::any::TypeId;
    let backends = [
        #[cfg(feature = "flex")]
        TypeId::of::<burn_flex::Flex>(),
        #[cfg(feature = "ndarray")]
        TypeId::of::<burn_ndarray::NdArray>(),
    ];
    backends.contains(&TypeId::of::<B>())
}

#[cfg(test)]
mod tests {
    use burn_ndarray::NdArray;

    use super::*;
    use crate::testing::on_each;

    on_each!(kernels_on_slices_have_rayon_s_threads on slices);

    #[cfg(any(feature = "flex", feature = "ndarray"))]
    fn kernels_on_slices_have_rayon_s_threads<I: crate::kernels::Kernels>() {
        let thread = || rayon::current_thread_index();
        assert_eq!(thread(), None);
        // Always the same one.
        for _ in 0..100 {
            assert_eq!(on_kernel_threads::<I, _>(thread), Some(0));
        }
        // A thread of theirs stays.
        let from_each = rayon::broadcast(|context| {
            let index = on_kernel_threads::<I, _>(thread);
            index == Some(context.index())
        });
        assert!(from_each.into_iter().all(|stays| stays));
    }

    #[test]
    fn others_stay_on_their_thread() {
        let here = std::thread::current().id();
        let thread = || std::thread::current().id();
        assert_eq!(on_kernel_threads::<NdArray<f64>, _>(thread), here);
        #[cfg(feature = "tch")]
        assert_eq!(on_kernel_threads::<burn_tch::LibTorch, _>(thread), here);
    }
}
