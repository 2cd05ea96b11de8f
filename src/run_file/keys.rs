//! Every key of a run file, in the order of the guide.
//!
//! `run.toml` and docs/guide/config.md contain the comments below, word for word.

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
    /// The sentence pairs. Paths are relative to the directory in which the program is started, like the paths of
    /// flags.
    DataKeys, "data":

    /// Training pairs, plain or gzip: `"FILE"` with one pair `source<TAB>target` per line, or a list of `"FILE"`,
    /// `{ file = "FILE" }` and `{ source = "FILE", target = "FILE" }` (two parallel files). With `weight = 2.0` in the
    /// braces, a corpus occurs twice in each epoch. The flags --data and --parallel can be combined. Files are read
    /// more than once, so they cannot be pipes. Pairs with an empty side, or of more than 1 MiB, are skipped and
    /// counted.
    train: Corpora = Corpora::default(), "--data";

    /// Validation pairs, in the same forms, but without `weight`. Absent: some of the training pairs are held out.
    valid: Option<Corpora> = None, "--valid";

    /// Number of distinct source sentences to hold out for validation if `valid` is absent. Validation uses the first
    /// pair of each; other pairs with these sources are skipped. Absent: a tenth of the distinct source
    /// sentences, at most 1000.
    hold_out: Option<usize> = None, "--hold-out";

    /// Skip pairs with more pieces (subword tokens) than this on a side.
    max_pieces: usize = 128, "--max-pieces";

    /// Skip pairs whose longer side has more than this many times the pieces of the shorter side. Absent: no limit.
    max_ratio: Option<f64> = None;

    /// Whether to skip pairs that repeat an earlier pair.
    drop_duplicates: bool = false;
}

section! {
    /// The vocabulary, which is learned from the training pairs or read from files.
    TokenizerKeys, "tokenizer":

    /// Kind of tokenizer: `"bpe"` (byte-level byte-pair encoding), `"unigram"`, `"characters"`, `"decomposed"`
    /// (characters, with separate accents), or `"words"` (separated by white space).
    kind: TokenizerKind = TokenizerKind::Bpe;

    /// Kind of the target tokenizer, if it differs from the source. The two vocabularies are then separate.
    target_kind: Option<TokenizerKind> = None;

    /// Vocabulary size in pieces, including special tokens. A vocabulary of characters or words contains the most
    /// frequent ones. A resumed run keeps its vocabulary.
    vocab_size: usize = 8000, "--vocab-size";

    /// Whether source and target share one vocabulary. Absent: yes, unless `target_kind`, or `source_file` and
    /// `target_file`, are given.
    shared: Option<bool> = None;

    /// Tokenizer file for both sides, in Hugging Face's format (`tokenizer.json`). No tokenizer is then trained, and
    /// neither kind nor size may be given.
    file: Option<PathBuf> = None;

    /// Tokenizer file for the source, in Hugging Face's format. It needs `target_file`, and replaces kind and size.
    source_file: Option<PathBuf> = None;

    /// Tokenizer file for the target, in Hugging Face's format. It needs `source_file`, and replaces kind and size.
    target_file: Option<PathBuf> = None;

    /// Probability of dropping a BPE merge (BPE dropout), sampled again for each pair in each epoch; 0 is off.
    dropout: f64 = 0.0;
}

section! {
    /// The model. An absent key has the value of `preset`. A `preset` set by a flag or by `--set` replaces all keys of
    /// this section in the file. Vocabulary sizes and ids of special tokens come from the tokenizer.
    ModelKeys, "model":

    /// Model size: `"tiny"`, `"multi30k"`, `"small"`, or the paper's `"base"` and `"big"` (Table 3). Absent: `"small"`,
    /// or the model of `init.model`.
    preset: Option<Preset> = None, "--preset";

    /// Width of the residual stream.
    d_model: Option<usize> = None;

    /// Attention heads.
    n_heads: Option<usize> = None;

    /// Attention heads in the decoder. Absent: n_heads.
    decoder_n_heads: Option<usize> = None;

    /// Heads of keys and values, each shared by a group of query heads (grouped-query attention). Absent: the number of
    /// query heads.
    n_kv_heads: Option<usize> = None;

    /// Width of a head's queries and keys. Absent: d_model / n_heads.
    d_k: Option<usize> = None;

    /// Width of a head's values. Absent: d_model / n_heads.
    d_v: Option<usize> = None;

    /// Inner width of the feed-forward network.
    d_ff: Option<usize> = None;

    /// Inner width of the feed-forward network in the decoder. Absent: d_ff.
    decoder_d_ff: Option<usize> = None;

    /// Encoder layers.
    n_encoder_layers: Option<usize> = None;

    /// Decoder layers.
    n_decoder_layers: Option<usize> = None;

    /// How a decoder position reads the earlier target tokens: `"self-attention"`, or `"recurrence"`, the SSRU (simpler
    /// simple recurrent unit) of Marian's small models, whose cost per step does not grow with the length.
    decoder_mixer: Option<Mixer> = None;

    /// Placement of layer normalization: `"post"` (after the residual connection, as in the paper) or `"pre"` (before
    /// each sub-layer).
    norm: Option<NormPlacement> = None;

    /// Whether each stack ends with one more layer normalization. Pre-norm stacks need it.
    final_norm: Option<bool> = None;

    /// Formula of layer normalization: `"variance"`, `"unbiased-deviation"` (as in The Annotated Transformer), or
    /// `"root-mean-square"` (RMSNorm, as in Llama, without mean and bias).
    layer_norm: Option<NormKind> = None;

    /// ε of layer normalization.
    layer_norm_eps: Option<f64> = None;

    /// Positional encoding: `"sinusoidal"`; `{ learned = { max_len = 256 } }`; `{ sines-then-cosines = { inclusive =
    /// false, first = 0 } }` (all sines before all cosines, as in Marian; `first` is the position of the first token;
    /// with `inclusive`, the lowest frequency is exactly 1/10000, as in fairseq; M2M100 has `true` and 2); `{
    /// relative-bias = { buckets = 32, max_distance = 128 } }` (a learned bias on attention scores, as in T5);
    /// `"alibi"` (a fixed bias on attention scores); `{ relative = { max_distance = 16 } }` (learned vectors per
    /// distance, added to keys and values, as in Shaw et al., 2018); or `{ rotary = { base = 10000.0 } }` (queries and
    /// keys rotated by their positions, as in Llama).
    positions: Option<Positions> = None;

    /// Whether the attention projections have biases.
    attention_bias: Option<bool> = None;

    /// Whether attention scores are divided by √d_k, as in the paper. T5 does not scale them.
    attention_scale: Option<bool> = None;

    /// Whether the linear layers of the feed-forward network have biases.
    feed_forward_bias: Option<bool> = None;

    /// Whether the generator (the output projection) has a bias.
    generator_bias: Option<bool> = None;

    /// Whether the generator's input is divided by √d_model, as in T5 with tied embeddings.
    generator_scale: Option<bool> = None;

    /// Whether embeddings are multiplied by √d_model.
    embedding_scale: Option<bool> = None;

    /// Whether the sum of embedding and position is normalized before dropout.
    embedding_norm: Option<bool> = None;

    /// Weight tying: `"all"` (both embeddings and the generator, as in the paper), `"source-target"`,
    /// `"target-generator"`, or `"none"`. Absent: the preset's value, or, if the vocabularies are separate,
    /// `"target-generator"` if the preset ties the generator and `"none"` if not.
    tying: Option<WeightTying> = None;

    /// Activation function of the feed-forward network: `"relu"`, `"gelu"`, `"gelu-tanh"` (the
    /// approximation of GELU by `tanh`, as in T5 v1.1) or `"silu"`.
    activation: Option<Activation> = None;

    /// Whether the feed-forward network has a gate, to which `activation` is applied: `"silu"` gives SwiGLU, as in
    /// Llama, and `"gelu"` gives GEGLU.
    gated: Option<bool> = None;

    /// Dropout on sub-layer outputs, and on the sum of embedding and position.
    dropout: Option<f64> = None;

    /// Dropout on attention weights.
    attention_dropout: Option<f64> = None;

    /// Dropout inside the feed-forward network.
    activation_dropout: Option<f64> = None;
}

section! {
    /// The trained model to start from (fine-tuning).
    InitKeys, "init":

    /// Directory of the model to start from, in any format that can be trained (docs/guide/formats.md). The run uses
    /// its tokenizers and configuration: in `[model]`, only the dropout rates may differ from it; in `[tokenizer]`, only
    /// `dropout` may be given.
    model: Option<PathBuf> = None, "--init";

    /// Source language of a multilingual model: the name of the language's token, such as `"eng_Latn"`, `"en"` or
    /// `"en_XX"`. Absent: the model's setting.
    source_lang: Option<String> = None, "--source-lang";

    /// Target language of a multilingual model. Absent: the model's setting.
    target_lang: Option<String> = None, "--target-lang";

    /// Parameters to freeze, as patterns of their names, such as `["encoder.*"]`; `*` matches any characters. Without
    /// `model`, frozen parameters keep their initial values.
    freeze: Vec<String> = Vec::new();

    /// Whether the learning rate schedule continues from the point that the run of `model` reached, instead of starting
    /// again. Only the number of that run's updates is taken over: `schedule`, `warmup` and `peak_rate` come from this
    /// run file.
    continue_schedule: bool = false;
}

section! {
    /// Updates, batches and learning rate.
    TrainingKeys, "training":

    /// Random seed for initial weights, held-out pairs, order of batches and dropout.
    seed: u64 = 0, "--seed";

    /// Number of updates, counted from the beginning of the run.
    updates: usize = 5000, "--updates";

    /// Maximum training time in minutes, excluding data preparation. When a run is resumed, the count starts
    /// again at zero. Absent: no limit.
    minutes: Option<f64> = None, "--minutes";

    /// Batch size in tokens on each side, including padding.
    batch_tokens: usize = 2048, "--batch-tokens";

    /// Batches per update (gradient accumulation), each weighted by its tokens. An update never spans two epochs, so
    /// the last update of an epoch may have fewer batches. Several processes share the batches of an update; each needs
    /// at least one.
    batches_per_update: usize = 1, "--batches-per-update";

    /// Learning rate schedule after the warm-up: `"noam"` or `"inverse_sqrt"` (two names for the paper's), `"linear"`
    /// or `"cosine"` (to zero at the last update), or `"constant"`.
    schedule: Schedule = Schedule::Noam;

    /// Number of warm-up updates, in which the learning rate rises linearly.
    warmup: usize = 800, "--warmup";

    /// Learning rate at the end of the warm-up. Absent: the paper's, 1 / √(d_model · warmup).
    peak_rate: Option<f64> = None, "--peak-rate";

    /// Decoupled (AdamW) weight decay, applied to matrices only.
    weight_decay: f64 = 0.0;

    /// Label smoothing ε.
    label_smoothing: f64 = 0.1;

    /// Maximum global gradient norm. Absent: no clipping.
    clip_norm: Option<f64> = None;

    /// Precision of the matrix multiplications in training: `"f32"` or `"bf16"`. flex, ndarray and libtorch support
    /// bf16, and so do wgpu and cuda if the GPU has it. On a CPU, it is faster only with AMD's AVX512-BF16 and, on
    /// libtorch, with AMX. On an NVIDIA H100, libtorch is 1.4 to 1.9 times as fast in bf16; on an H200, cuda was
    /// slower. Weights, moments and all other values are in f32 in either case.
    precision: ProductPrecision = ProductPrecision::F32;

    /// Abort after this many consecutive updates with non-finite loss or gradients. Such updates are skipped.
    skip_limit: usize = 10;

    /// Decay of an exponential moving average of the weights, such as 0.999. The average is validated and kept instead
    /// of the weights themselves. Absent: no average.
    ema_decay: Option<f64> = None;

    /// Maximum time in minutes that one of several processes waits for the others before it ends all processes with an
    /// error. A validation must be shorter, because the other processes wait for it.
    max_wait_minutes: f64 = 30.0;
}

section! {
    /// Metrics on the validation pairs, and early stopping.
    ValidationKeys, "validation":

    /// Updates between validations. A checkpoint follows each validation.
    every: usize = 500, "--validate-every";

    /// Metrics of the translations, in addition to loss, perplexity and token accuracy: any of `"bleu"`, `"chrf"`,
    /// `"exact_match"`, `"wer"` (100 − exact match: the word error rate if each line has the phones of a word) and
    /// `"token_error_rate"` (edits per space-separated token).
    metrics: Vec<TextMetric> = Vec::new();

    /// Beam size for the translations; 1 is greedy decoding.
    beam: usize = 1;

    /// Exponent of the length by which a beam search divides log-probabilities: 1.0 ranks translations by the mean, 0.0
    /// by the sum, and a negative one favors short translations. It applies to validations if `beam` is above 1, and to
    /// the trained model: a new run writes it to `generation_config.json`, and so does a resumed run in which this key
    /// has changed. Absent: the length penalty of `init.model`, or else 1.0.
    length_penalty: Option<f64> = None;

    /// Number of validation pairs to translate, starting with the first. Absent: all.
    sentences: Option<usize> = None;

    /// Number of translations to print at each validation.
    samples: usize = 0;

    /// Metric that selects the best model, which is kept: `"loss"`, `"perplexity"`, `"accuracy"`, or one of `metrics`.
    best_by: BestBy = BestBy::Loss;

    /// Early stopping: the run ends after this many consecutive validations without a better `best_by`. Absent: no
    /// early stopping.
    patience: Option<usize> = None;
}

section! {
    /// The checkpoints to keep, for resuming the run and for averaging.
    CheckpointKeys, "checkpoint":

    /// Updates between additional checkpoints. Absent: no such checkpoints.
    every_updates: Option<usize> = None;

    /// Age of the newest checkpoint, in minutes, at which an extra one is written, for resuming. The extra checkpoint
    /// counts among the newest (for `keep_last`, and for `transformer average --last`) until the next one replaces it.
    /// Absent: no checkpoints by time.
    every_minutes: Option<f64> = None;

    /// Number of newest checkpoints to keep.
    keep_last: usize = 2, "--keep-checkpoints";

    /// Number of checkpoints of the best validations to keep in addition.
    keep_best: usize = 0;

    /// Number of last checkpoints to average at the end of the run (§6.1 of the paper). The average is validated, and
    /// kept as the model if it is better, by `validation.best_by`, than every validation of the run. 0: no average.
    average_last: usize = 0;
}

section! {
    /// Logs in the directory of the run, in addition to the lines or curves in the terminal.
    LogKeys, "log":

    /// Whether to log training and validations as JSON lines in `log.jsonl`, from which `transformer curves` draws
    /// pictures.
    json: bool = true;

    /// Whether to log training and validations as event files in `tensorboard/`, for TensorBoard.
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
    /// The values of the keys, section by section, without absent ones.
    pub(super) fn table(&self) -> Table {
        // Every value has been read from TOML.
        Table::try_from(self).unwrap_or_default()
    }
}

impl Key {
    /// Its default value; `None` if it is absent by default.
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

/// Keys whose values may be tables. Longer paths, such as `model.positions.learned.max_len`, set a part of the table.
const WITH_PARTS: [&str; 3] = ["model.positions", "data.train", "data.valid"];

/// The key of a path, and the rest of the path, which names a part of the key's value.
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

    /// A new field of a model's configuration must not be forgotten here.
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
            source_bos: Some(1),
            source_eos: false,
            prompt_bos: false,
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
            "source_bos",
            "source_eos",
            "prompt_bos",
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
    fn only_keys_with_parts_have_longer_paths() {
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
