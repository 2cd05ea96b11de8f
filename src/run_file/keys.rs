//! Every key of a run file, in the order of the guide.
//!
//! The comments below are shown by `run.toml` and by docs/guide/config.md, word for word.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use transformer_core::models::WeightTying;
use transformer_core::nn::{
    Activation, Mixer, NormKind, NormPlacement, Positions, ProductPrecision,
};
use transformer_train::data::TokenizerKind;
use transformer_train::metrics::TextMetric;
use transformer_train::optim::Schedule;

use super::choices::BestBy;
use super::corpora::Corpora;
use super::key::{Key, Section, section};
use super::preset::Preset;

/// The sections, in the order of the guide.
pub static SECTIONS: [Section; 8] = [
    DataKeys::SECTION,
    TokenizerKeys::SECTION,
    ModelKeys::SECTION,
    InitKeys::SECTION,
    TrainingKeys::SECTION,
    ValidationKeys::SECTION,
    CheckpointKeys::SECTION,
    LogKeys::SECTION,
];

section! {
    /// The sentence pairs. Paths are relative to the directory in which the program is started, as those of flags are.
    DataKeys, "data":

    /// Pairs to train on, plain or gzip: `"FILE"` with a line `source<TAB>target` for each, or a list of
    /// `"FILE"`, `{ file = "FILE" }` and `{ source = "FILE", target = "FILE" }`, two files that belong together line
    /// by line. With `weight = 2.0` in the braces, a corpus stands twice in each epoch. The flags --data and
    /// --parallel may be given together: both are read. Files are read more than once, so that they cannot be pipes.
    /// Pairs with an empty side, or of more than 1 MiB, are left out and counted.
    train: Corpora = Corpora::default(), "--data";

    /// Pairs to validate on, in the same forms, but without `weight`; absent: some of the others are held out.
    valid: Option<Corpora> = None, "--valid";

    /// Distinct source sentences held out for validation where `valid` is absent; none of them is trained on, in any
    /// of its translations. Absent: a tenth of them, at most 1000.
    hold_out: Option<usize> = None, "--hold-out";

    /// Pairs with more pieces than this on a side are left out.
    max_pieces: usize = 128, "--max-pieces";

    /// Pairs of which one side has more than this many times the pieces of the other are left out; absent: none are.
    max_ratio: Option<f64> = None;

    /// Whether pairs that are equal to one before them, on both sides, are left out.
    drop_duplicates: bool = false;
}

section! {
    /// The vocabulary, which is learned from the training pairs, or read from files.
    TokenizerKeys, "tokenizer":

    /// How text is cut into pieces: `"bpe"` (byte-level byte-pair encoding), `"unigram"`, `"characters"`,
    /// `"decomposed"` (characters, their accents apart), or `"words"` between white space.
    kind: TokenizerKind = TokenizerKind::Bpe;

    /// The kind of the target's tokenizer, where it is not the source's; the two vocabularies are then separate.
    target_kind: Option<TokenizerKind> = None;

    /// Pieces of a vocabulary, special tokens included; of characters or words the most frequent. A run that is
    /// resumed keeps its vocabulary.
    vocab_size: usize = 8000, "--vocab-size";

    /// Whether source and target share one vocabulary. Absent: they do, unless `target_kind`, or `source_file` and
    /// `target_file`, say otherwise.
    shared: Option<bool> = None;

    /// A tokenizer for both sides, in Hugging Face's format (`tokenizer.json`); then none is trained, and neither kind
    /// nor size may be given.
    file: Option<PathBuf> = None;

    /// The source's tokenizer, in Hugging Face's format, together with `target_file`, in place of kinds and size.
    source_file: Option<PathBuf> = None;

    /// The target's tokenizer, in Hugging Face's format, together with `source_file`, in place of kinds and size.
    target_file: Option<PathBuf> = None;

    /// The probability of dropping a merge of BPE (BPE dropout), drawn anew for each pair in each epoch; 0 for none.
    dropout: f64 = 0.0;
}

section! {
    /// The model. A key that is absent has the value of `preset`. A `preset` that is given by a flag or `--set` replaces
    /// all keys of this section in the file. Sizes of vocabularies and ids of special tokens are the tokenizer's.
    ModelKeys, "model":

    /// The size: `"tiny"`, `"multi30k"`, `"small"`, and the paper's `"base"` and `"big"` (Table 3). Absent: `"small"`,
    /// or the model of `init.model`.
    preset: Option<Preset> = None, "--preset";

    /// Width of the residual stream.
    d_model: Option<usize> = None;

    /// Attention heads.
    n_heads: Option<usize> = None;

    /// The same of the decoder's layers; absent: n_heads.
    decoder_n_heads: Option<usize> = None;

    /// Heads of keys and values, each of which serves a group of heads of queries (grouped-query attention); absent: as
    /// many as these.
    n_kv_heads: Option<usize> = None;

    /// Width of a head's queries and keys; absent: d_model / n_heads.
    d_k: Option<usize> = None;

    /// Width of a head's values; absent: d_model / n_heads.
    d_v: Option<usize> = None;

    /// Inner width of the feed-forward network.
    d_ff: Option<usize> = None;

    /// The same of the decoder's layers; absent: d_ff.
    decoder_d_ff: Option<usize> = None;

    /// Layers of the encoder.
    n_encoder_layers: Option<usize> = None;

    /// Layers of the decoder.
    n_decoder_layers: Option<usize> = None;

    /// By what a position of the decoder reads the target before it: `"self-attention"`, or `"recurrence"`, the SSRU of
    /// Marian's small models, whose steps do not grow with the length.
    decoder_mixer: Option<Mixer> = None;

    /// Where layer normalisation stands: `"post"`, after the residual, as in the paper, or `"pre"`, before each
    /// sub-layer.
    norm: Option<NormPlacement> = None;

    /// Whether each stack ends in one more layer normalisation; pre-norm stacks need it.
    final_norm: Option<bool> = None;

    /// Formula of layer normalisation: `"variance"`, `"unbiased-deviation"`, The Annotated Transformer's, or
    /// `"root-mean-square"`, Llama's, without mean and shift.
    layer_norm: Option<NormKind> = None;

    /// ε of layer normalisation.
    layer_norm_eps: Option<f64> = None;

    /// Positions: `"sinusoidal"`, `{ learned = { max_len = 256 } }`, or with all sines before all cosines, as in Marian:
    /// `{ sines-then-cosines = { inclusive = false, first = 0 } }`; M2M100 has `true` and 2. A bias on the
    /// scores of attention, by distance: `{ relative-bias = { buckets = 32, max_distance = 128 } }`, which is learned, as in
    /// T5, and `"alibi"`, which is not. With `{ rotary = { base = 10000.0 } }` queries and keys are turned by their positions, as in
    /// Llama.
    positions: Option<Positions> = None;

    /// Whether the attention projections have biases.
    attention_bias: Option<bool> = None;

    /// Whether scores of attention are divided by √d_k, as in the paper; T5's are not.
    attention_scale: Option<bool> = None;

    /// Whether the linear layers of the feed-forward network have biases.
    feed_forward_bias: Option<bool> = None;

    /// Whether the generator has a bias.
    generator_bias: Option<bool> = None;

    /// Whether the generator's input is divided by √d_model, as in T5 where its matrix is the embedding's.
    generator_scale: Option<bool> = None;

    /// Whether embeddings are multiplied by √d_model.
    embedding_scale: Option<bool> = None;

    /// Whether the sum of embedding and position is normed before dropout.
    embedding_norm: Option<bool> = None;

    /// Which matrices are one: `"all"` (both embeddings and the generator, as in the paper), `"source-target"`,
    /// `"target-generator"`, or `"none"`. Absent, with separate vocabularies: what a preset shares of target and
    /// generator.
    tying: Option<WeightTying> = None;

    /// Non-linearity of the feed-forward network: `"relu"`, `"gelu"` or `"silu"`.
    activation: Option<Activation> = None;

    /// Whether the feed-forward network has a gate, whose non-linearity this is: with `"silu"` SwiGLU, as in Llama, with
    /// `"gelu"` GEGLU.
    gated: Option<bool> = None;

    /// Dropout on the output of sub-layers, and on the sum of embedding and position.
    dropout: Option<f64> = None;

    /// Dropout on the attention weights.
    attention_dropout: Option<f64> = None;

    /// Dropout inside the feed-forward network.
    activation_dropout: Option<f64> = None;
}

section! {
    /// Starting from a model that is trained already (fine-tuning).
    InitKeys, "init":

    /// Directory of the model to start from, ours or one of Hugging Face's. Its tokenizers and its configuration are
    /// this run's: of `[model]` only dropout may differ, and of `[tokenizer]` only `dropout` may be given.
    model: Option<PathBuf> = None, "--init";

    /// Language of the sources, of a model that knows several: the name of its token, such as `"eng_Latn"`, `"en"` or
    /// `"en_XX"`. Absent: as the model has it.
    source_lang: Option<String> = None, "--source-lang";

    /// Language of the targets, of a model that knows several. Absent: as the model has it.
    target_lang: Option<String> = None, "--target-lang";

    /// Parameters that training does not change, by patterns of their names, such as `["encoder.*"]`; `*` stands for any
    /// characters. Also without `model`: they then keep their first values.
    freeze: Vec<String> = Vec::new();

    /// Whether the learning rate goes on after the updates of the run that made `model`, and does not begin anew.
    /// `schedule`, `warmup` and `peak_rate` are those of this file.
    continue_schedule: bool = false;
}

section! {
    /// The updates, their batches, and their learning rate.
    TrainingKeys, "training":

    /// Seed of everything random: weights, held-out pairs, order of batches, dropout.
    seed: u64 = 0, "--seed";

    /// Updates after which the run ends, counted from its beginning.
    updates: usize = 5000, "--updates";

    /// Minutes after which the run ends, counted from the start of the command; absent: no limit.
    minutes: Option<f64> = None, "--minutes";

    /// Tokens of a batch, padding included, on each side.
    batch_tokens: usize = 2048, "--batch-tokens";

    /// Batches whose gradients make one update, each weighted by its tokens. They are of one epoch: its last update
    /// has the batches that are left, which may be fewer. Several processes share them: each needs one.
    batches_per_update: usize = 1, "--batches-per-update";

    /// Course of the learning rate after the warm-up: `"noam"` or `"inverse_sqrt"` (two names of the paper's),
    /// `"linear"` or `"cosine"` to zero at the last update, or `"constant"`.
    schedule: Schedule = Schedule::Noam;

    /// Updates in which the learning rate rises, linearly.
    warmup: usize = 800, "--warmup";

    /// Learning rate at the end of the warm-up; absent: the paper's, 1 / √(d_model · warmup).
    peak_rate: Option<f64> = None, "--peak-rate";

    /// Decay of the matrices, AdamW's, in each update by its learning rate times this.
    weight_decay: f64 = 0.0;

    /// ε of the label smoothing.
    label_smoothing: f64 = 0.1;

    /// Norm to which the gradients of an update are scaled down; absent: they are not.
    clip_norm: Option<f64> = None;

    /// The precision of the products in training: `"f32"`, or `"bf16"`, which flex, ndarray and libtorch have, and
    /// which is faster only on AMD's processors with AVX512-BF16 and, on libtorch, on those with AMX. Weights, moments
    /// and all other numbers are f32 in either.
    precision: ProductPrecision = ProductPrecision::F32;

    /// Updates in a row whose loss or gradients are not finite, and which are therefore skipped, that end the run.
    skip_limit: usize = 10;

    /// Decay of an exponential moving average of the weights, such as 0.999, which is validated and kept in place of
    /// the weights themselves; absent: none.
    ema_decay: Option<f64> = None;

    /// Minutes that one of several processes waits for the others before it ends all of them with an error. A
    /// validation must be shorter: the others wait for it.
    max_wait_minutes: f64 = 30.0;
}

section! {
    /// What is measured on the validation pairs, and when that ends the run.
    ValidationKeys, "validation":

    /// Updates from one validation to the next; a checkpoint follows each.
    every: usize = 500, "--validate-every";

    /// What is measured by translating, beside loss, perplexity and token accuracy: any of `"bleu"`, `"chrf"`,
    /// `"exact_match"`, `"wer"` (100 − exact match: the share of lines that are not exactly right, such as the phones of
    /// a word) and `"token_error_rate"` (edits for each token between spaces).
    metrics: Vec<TextMetric> = Vec::new();

    /// Hypotheses of the beam search that translates; 1 is greedy decoding.
    beam: usize = 1;

    /// Validation pairs that are translated, the first ones; absent: all.
    sentences: Option<usize> = None;

    /// Translations that are shown at each validation.
    samples: usize = 0;

    /// The number by which one model is better than another, and the best is kept: `"loss"`, `"perplexity"`,
    /// `"accuracy"`, or one of `metrics`.
    best_by: BestBy = BestBy::Loss;

    /// Validations in a row without a better `best_by` after which the run ends; absent: it goes on.
    patience: Option<usize> = None;
}

section! {
    /// The states of the run that are kept, to resume it and to average them.
    CheckpointKeys, "checkpoint":

    /// Updates between two checkpoints; absent: there is one after each validation only, as there is in any case.
    every_updates: Option<usize> = None;

    /// Minutes after the last checkpoint when there is another one, to resume from; it is removed when there is a newer
    /// one, and counts for the keys below only until then. Absent: none by time.
    every_minutes: Option<f64> = None;

    /// Checkpoints kept, the newest ones.
    keep_last: usize = 2, "--keep-checkpoints";

    /// Checkpoints kept besides, those of the best validations.
    keep_best: usize = 0;

    /// Checkpoints, the last ones, whose average is validated at the end of the run, and kept as the model if it is
    /// better by `validation.best_by` (§6.1 of the paper); 0 for none.
    average_last: usize = 0;
}

section! {
    /// Logs in the directory of the run, beside the lines or curves in the terminal.
    LogKeys, "log":

    /// Whether training and validations are logged as lines of JSON in `log.jsonl`, of which `transformer curves` makes
    /// pictures.
    json: bool = true;

    /// Whether they are logged as event files in `tensorboard/`, which TensorBoard shows.
    tensorboard: bool = false;
}

/// A run, key by key.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunFile {
    /// `[data]`
    pub data: DataKeys,
    /// `[tokenizer]`
    pub tokenizer: TokenizerKeys,
    /// `[model]`
    pub model: ModelKeys,
    /// `[init]`
    pub init: InitKeys,
    /// `[training]`
    pub training: TrainingKeys,
    /// `[validation]`
    pub validation: ValidationKeys,
    /// `[checkpoint]`
    pub checkpoint: CheckpointKeys,
    /// `[log]`
    pub log: LogKeys,
}

impl RunFile {
    /// The values of the keys, section by section; absent ones are not there.
    pub(super) fn table(&self) -> Table {
        // Each has been read as TOML.
        Table::try_from(self).unwrap_or_default()
    }
}

impl Key {
    /// Its value where nothing sets it; `None` where it is then absent.
    pub fn default(&self) -> Option<Value> {
        self.of(&RunFile::default().table()).cloned()
    }
}

/// Every key, in the order of the guide.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// The key of that path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    all().find(|key| key.path == path)
}

/// Keys whose values may be tables, whose parts are set by longer paths, such as `model.positions.learned.max_len`.
const WITH_PARTS: [&str; 3] = ["model.positions", "data.train", "data.valid"];

/// The key of a path, and the part of its value that the path goes on to.
pub(super) fn of_path(path: &str) -> Option<(&'static Key, &str)> {
    let part = |key: &'static Key| {
        let part = path.strip_prefix(key.path)?.strip_prefix('.')?;
        WITH_PARTS.contains(&key.path).then_some((key, part))
    };
    let whole = find(path).map(|key| (key, ""));
    whole.or_else(|| all().find_map(part))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use transformer_core::TransformerConfig;

    use super::*;

    /// A field that a model's configuration gets later must not be forgotten here.
    #[test]
    fn every_field_of_a_model_s_configuration_is_a_key_or_the_tokenizer_s() {
        let config = TransformerConfig {
            d_k: Some(1),
            d_v: Some(1),
            decoder_n_heads: Some(1),
            n_kv_heads: Some(1),
            decoder_d_ff: Some(1),
            embedding_norm: true,
            attention_scale: false,
            feed_forward_bias: false,
            generator_scale: true,
            gated: true,
            decoder_mixer: Mixer::Recurrence,
            excluded_tokens: vec![0],
            ..TransformerConfig::base(10)
        };
        let config = Table::try_from(config).unwrap();
        let mut expected: BTreeSet<&str> = config.keys().map(String::as_str).collect();
        for of_tokenizer in [
            "src_vocab_size",
            "tgt_vocab_size",
            "pad_id",
            "bos_id",
            "eos_id",
            "excluded_tokens",
        ] {
            assert!(expected.remove(of_tokenizer));
        }
        let keys = ModelKeys::SECTION.keys.iter().map(|key| key.name);
        let keys: BTreeSet<&str> = keys.filter(|&name| name != "preset").collect();
        assert_eq!(keys, expected);
    }

    #[test]
    fn keys_differ() {
        let paths: BTreeSet<_> = all().map(|key| key.path).collect();
        assert_eq!(paths.len(), all().count());
    }

    #[test]
    fn a_path_goes_on_below_keys_with_parts_only() {
        let found = |path| of_path(path).map(|(key, part)| (key.path, part));
        assert_eq!(found("training.updates"), Some(("training.updates", "")));
        assert_eq!(
            found("model.positions.learned.max_len"),
            Some(("model.positions", "learned.max_len"))
        );
        assert_eq!(found("training.updates.x"), None);
        assert_eq!(found("training"), None);
    }
}
