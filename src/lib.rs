//! The program `transformer` without its `main`, shared with its tests and benches: the command line, the choice of a
//! backend at run time, the allocator and the run file. To use the library in another program, depend on
//! `transformer-core` and `transformer-train`.

mod backend;
mod command_line;
mod commands;
mod process;
pub mod run_file;

pub use backend::{BackendChoice, BackendError, BackendTask, Precision, Target, run_at, run_on};
pub use command_line::{CommandLine, as_program, run_program};
#[cfg(feature = "count-memory")]
pub use process::memory;
pub use process::{be_quiet, compute_on_this_thread, note, read_regular};

// For the tests that look for the instances.
#[doc(hidden)]
pub use transformer_instances as instances;

/// The program in the README, compiled as a test.
#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The programs in the guide, compiled as tests.
#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/README.md")]
struct GuideIndex;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/installation.md")]
struct InstallationGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/translation.md")]
struct TranslationGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/expectations.md")]
struct ExpectationsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/troubleshooting.md")]
struct TroubleshootingGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/commands.md")]
struct CommandsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/config.md")]
struct RunFileGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/watching.md")]
struct WatchingGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/checkpoints.md")]
struct CheckpointsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/tokenizers.md")]
struct TokenizersGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/metrics.md")]
struct MetricsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/fine-tuning.md")]
struct FineTuningGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/g2p.md")]
struct GraphemeToPhonemeGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/rust-program.md")]
struct RustProgramGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/documents.md")]
struct DocumentsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/serving.md")]
struct ServingGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/packed-models.md")]
struct PackedModelsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/backends.md")]
struct BackendsGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/pretrained.md")]
struct PretrainedGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/pytorch.md")]
struct PytorchGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/own-model.md")]
struct OwnModelGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/own-layers.md")]
struct OwnLayersGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/own-objective.md")]
struct OwnObjectiveGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/own-decoding.md")]
struct OwnDecodingGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/hooks.md")]
struct HooksGuide;

#[cfg(all(doctest, feature = "flex"))]
#[doc = include_str!("../docs/guide/language-models.md")]
struct LanguageModelsGuide;

#[cfg(all(doctest, feature = "flex", feature = "mpi"))]
#[doc = include_str!("../docs/guide/several-machines.md")]
struct SeveralMachinesGuide;
