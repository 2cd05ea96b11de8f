//! A run keeps nothing for each of its updates.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use transformer_instances as _;
use transformer_train::data::{Checksum, Example, ExampleSource, Lengths};
use transformer_train::objective::{LossOptions, LossSums, Objective, Trainable};
use transformer_train::progress::{ObserverError, ProgressDisplay, RunObserver, TrainingPoint};
use transformer_train::{Trainer, TrainingConfig};

use support::run::{pairs, tiny_config};

type B = Autodiff<NdArray>;

/// The system's allocator, which counts the bytes of all blocks that are not freed.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code, reason = "an allocator's interface is unsafe")]
// SAFETY: every block is the system's, from the layout that was asked for; counting touches no block.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of this method, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the block is the system's, and the caller keeps the contract of this method, which is the system's.
        unsafe { System.dealloc(block, layout) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Nothing;

impl Example for Nothing {
    fn lengths(&self) -> Lengths {
        Lengths {
            source: 1,
            target: 1,
        }
    }

    fn add_to(&self, checksum: &mut Checksum) {
        checksum.tokens(&[0]);
    }
}

/// A weight that is drawn towards 1.
#[derive(Module, Debug)]
struct Well<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

impl<B: Backend> Objective<B> for Well<B> {
    type Example = Nothing;
    type Batch = usize;

    fn width(&self) -> Option<usize> {
        Some(1)
    }

    fn batch(&self, examples: &[Nothing], _device: &B::Device) -> usize {
        examples.len()
    }

    fn loss(&self, batch: usize, _: &LossOptions) -> LossSums<B> {
        let weight = self.weight.val();
        let tokens = Tensor::from_floats([batch as f32], &weight.device());
        LossSums::new((weight - 1.0).square().sum(), tokens)
    }
}

/// The live bytes after each point of the training curve.
struct LiveBytes(Rc<RefCell<Vec<usize>>>);

impl RunObserver for LiveBytes {
    fn on_training(&mut self, _point: &TrainingPoint) -> Result<(), ObserverError> {
        self.0.borrow_mut().push(LIVE.load(Relaxed));
        Ok(())
    }
}

/// The bytes that a run keeps for each update of its last two thirds.
fn kept_for_each_update<M: Trainable<B>>(
    model: M,
    examples: impl ExampleSource<Example = <M as Objective<B>>::Example>,
    valid: Vec<<M as Objective<B>>::Example>,
    config: TrainingConfig,
) -> usize {
    let updates = config.updates;
    let live = Rc::new(RefCell::new(Vec::with_capacity(updates)));
    Trainer::<B, _>::new(model, config)
        .display(ProgressDisplay::Silent)
        .observe_every(1)
        .observer(LiveBytes(live.clone()))
        .train(examples, valid)
        .unwrap();
    let live = live.borrow();
    assert_eq!(live.len(), updates);
    // At any moment a few updates and their numbers wait in queues: the least of a sixth of the readings is without
    // most of them.
    let sixth = updates / 6;
    let least = |first: usize| live[first..first + sixth].iter().min().unwrap();
    let (early, late) = (least(sixth), least(updates - sixth));
    late.saturating_sub(*early) / (updates - 2 * sixth)
}

/// One test, since the live bytes are those of the whole process.
#[test]
fn a_run_keeps_no_bytes_for_its_updates() {
    let device = Default::default();
    let config = TrainingConfig {
        batch_tokens: 1,
        updates: 3000,
        validate_every: 500,
        ..TrainingConfig::default()
    };
    let well = Well {
        weight: Param::from_data([0.0], &device),
    };
    let kept = kept_for_each_update(well, vec![Nothing; 100], vec![Nothing], config.clone());
    assert!(kept < 8, "{kept} bytes for each update of a weight");

    let config = TrainingConfig {
        batch_tokens: 20,
        ..config
    };
    let model = tiny_config().init::<B>(1, &device).unwrap();
    let kept = kept_for_each_update(model, pairs(), pairs(), config);
    assert!(kept < 8, "{kept} bytes for each update of a Transformer");
}
