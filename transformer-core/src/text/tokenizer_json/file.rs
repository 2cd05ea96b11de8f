//! Checks a `tokenizer.json` for content that the crate `tokenizers` would accept by mistake, or panic on.

use serde::Deserialize;
use serde_json::Value;
use tokenizers::utils::SysRegex;

use crate::text::added_tokens;
use crate::text::sentence_piece::CharacterMap;
use crate::text::tokenizer_json::entries::Entries;
use crate::text::tokenizer_json::parts::{
    DECODER, NORMALIZER, PRE_TOKENIZER, UniqueKeys, growth, pattern_cost,
};

/// The parts of the file that are checked.
#[derive(Debug, Deserialize)]
pub(crate) struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: UniqueKeys,
    #[serde(default)]
    pre_tokenizer: UniqueKeys,
    #[serde(default)]
    post_processor: UniqueKeys,
    #[serde(default)]
    decoder: UniqueKeys,
    model: Model,
}

#[derive(Debug, Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

#[derive(Debug, Deserialize)]
struct Model {
    #[serde(default)]
    vocab: Entries,
    #[serde(default)]
    merges: Value,
    continuing_subword_prefix: Option<String>,
    max_input_chars_per_word: Option<u64>,
}

impl TokenizerFile {
    /// Reads and checks the text of a file.
    ///
    /// # Errors
    /// The problem in one line, without the file's name.
    pub fn check(text: &str) -> Result<Self, String> {
        let file: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        file.model.vocab.check()?;
        let added = file.added_tokens.iter();
        added_tokens::check_lengths(added.map(|token| token.content.as_str()))?;
        file.model.check_merges()?;
        file.model.check_lengths()?;
        file.model.check_words()?;
        let normalizers = NORMALIZER.parts(&file.normalizer.0)?;
        let pre_tokenizers = PRE_TOKENIZER.parts(&file.pre_tokenizer.0)?;
        let decoders = DECODER.parts(&file.decoder.0)?;
        for &part in &normalizers {
            check_normalizer(part)?;
        }
        pre_tokenizers
            .iter()
            .try_for_each(|part| check_pre_tokenizer(part))?;
        decoders.iter().try_for_each(|part| check_decoder(part))?;
        check_order_of_decoders(&decoders)?;
        each_object(&file.post_processor.0, check_post_processor)?;
        let both = [&normalizers[..], &pre_tokenizers].concat();
        check_growth("normalizer", &normalizers)?;
        check_growth("normalizer and pre-tokenizer", &both)?;
        check_growth("decoder", &decoders)?;
        check_patterns([both, decoders].concat())?;
        Ok(file)
    }

    /// Checks that the tokenizer read from the file has its added tokens.
    ///
    /// # Errors
    /// The first one with another id.
    pub fn check_added_tokens(&self, tokenizer: &tokenizers::Tokenizer) -> Result<(), String> {
        for AddedToken { id, content } in &self.added_tokens {
            let found = tokenizer.token_to_id(content);
            if let Some(found) = found.filter(|found| found != id) {
                return Err(format!(
                    "its added token `{content}` has the id {id}, but is token {found}"
                ));
            }
        }
        Ok(())
    }
}

/// Maximum bytes of a token in a unigram model.
const MOST_TOKEN_BYTES: usize = 4096;

/// Maximum characters of a word in a WordPiece model. BERT's models have 100.
const MOST_CHARACTERS_OF_WORD: u64 = 1000;

impl Model {
    /// The crate keeps a unigram model's tokens in a trie with a node per byte, and copies and drops it recursively.
    fn check_lengths(&self) -> Result<(), String> {
        let lengths = self.vocab.list.iter().map(|(token, _)| token.len());
        let longest = lengths.max().unwrap_or(0);
        match !self.vocab.has_ids && longest > MOST_TOKEN_BYTES {
            true => Err(format!(
                "its longest token has {longest} bytes; a unigram model may have at most {MOST_TOKEN_BYTES}"
            )),
            false => Ok(()),
        }
    }

    /// The crate takes cubic time in the length of a word.
    fn check_words(&self) -> Result<(), String> {
        match self.max_input_chars_per_word {
            Some(most) if most > MOST_CHARACTERS_OF_WORD => Err(format!(
                "its `max_input_chars_per_word` is {most}; at most {MOST_CHARACTERS_OF_WORD} are supported"
            )),
            _ => Ok(()),
        }
    }

    /// The crate removes the prefix from the second part of each merge, whether present or not.
    fn check_merges(&self) -> Result<(), String> {
        let prefix = self.continuing_subword_prefix.as_deref().unwrap_or("");
        for merge in self.merges.as_array().into_iter().flatten() {
            let second = match merge {
                Value::String(parts) => parts.split_once(' ').map(|(_, second)| second),
                parts => parts[1].as_str(),
            };
            if let Some(second) = second.filter(|second| !second.starts_with(prefix)) {
                return Err(format!(
                    "its `continuing_subword_prefix` is `{prefix}`, but a merge has `{second}` without it"
                ));
            }
        }
        Ok(())
    }
}

/// Checks an object, and all objects within it.
fn each_object(json: &Value, check: fn(&Value) -> Result<(), String>) -> Result<(), String> {
    match json {
        Value::Object(keys) => {
            check(json)?;
            keys.values().try_for_each(|json| each_object(json, check))
        }
        Value::Array(all) => all.iter().try_for_each(|json| each_object(json, check)),
        _ => Ok(()),
    }
}

/// The crate reads a map without checking its pointers, and loses its position in a text if a rule inserts text, even
/// an empty one, before the first character without replacing any.
fn check_normalizer(part: &Value) -> Result<(), String> {
    if part["type"] == "Prepend" && part["prepend"] == "" {
        return Err("its normalizer prepends an empty text".into());
    }
    let pattern = &part["pattern"];
    let matches_nothing = match pattern["Regex"].as_str() {
        Some(pattern) => matches_nothing(pattern)?,
        None => pattern["String"] == "",
    };
    if part["type"] == "Replace" && matches_nothing {
        return Err(format!(
            "its normalizer replaces {pattern}, which matches an empty text"
        ));
    }
    if part["type"] != "Precompiled" {
        return Ok(());
    }
    // The crate panics where there are none.
    let rules = part["precompiled_charsmap"].as_str();
    let rules = rules.ok_or("its normalizer has no `precompiled_charsmap`")?;
    let rules = base64::decode(rules).map_err(|error| format!("its normalizer: {error}"))?;
    let map = CharacterMap::from_bytes(&rules)?;
    match map.is_text() {
        true => Ok(()),
        false => Err("a rule of its normalizer has a replacement that is not UTF-8".into()),
    }
}

/// The largest factor by which the parts of a tokenizer may lengthen a text. Below it, texts that would become too long
/// are refused (`TextLength::check`).
const MOST_GROWTH: f64 = 2000.0;

/// A few successive replacements by longer texts can make a text of any size, and so can repeated byte-level encoding.
fn check_growth(name: &str, parts: &[&Value]) -> Result<(), String> {
    match growth(parts) > MOST_GROWTH {
        true => Err(format!(
            "its {name} can make a text more than {MOST_GROWTH} times as long"
        )),
        false => Ok(()),
    }
}

/// Maximum cost of all regular expressions of a file. The largest known ones, with Unicode's character classes, cost
/// about 1500. A class of five bytes can take 100 kB when compiled.
const MOST_PATTERN_COST: usize = 8192;

fn check_patterns(parts: Vec<&Value>) -> Result<(), String> {
    let costs = parts.into_iter().map(pattern_cost);
    match costs.fold(0, usize::saturating_add) > MOST_PATTERN_COST {
        true => Err(format!(
            "its regular expressions are too many, too long, or repeat too much: more than {MOST_PATTERN_COST} bytes \
             with repetitions counted"
        )),
        false => Ok(()),
    }
}

/// Whether a regular expression, without its conditions on what follows, has an empty match at the beginning of some
/// text of one ASCII character. In patterns with white space and comments, the conditions are not looked for: they are
/// taken for such patterns.
fn matches_nothing(pattern: &str) -> Result<bool, String> {
    let is_flag = |c: &char| c.is_ascii_alphabetic() || *c == '-';
    let mut groups = pattern.match_indices("(?");
    if groups.any(|(at, _)| {
        pattern[at + 2..]
            .chars()
            .take_while(is_flag)
            .any(|c| c == 'x')
    }) {
        return Ok(true);
    }
    let pattern = without_lookahead(pattern);
    let regex = SysRegex::new(&pattern).map_err(|error| format!("its normalizer: {error}"))?;
    let mut texts = (0_u8..128).map(|byte| char::from(byte).to_string());
    Ok(texts.any(|text| regex.find_iter(&text).next() == Some((0, 0))))
}

/// A regular expression with empty groups in place of the conditions on what follows, `(?=…)` and `(?!…)`.
fn without_lookahead(pattern: &str) -> String {
    let mut kept = String::new();
    // Open groups since one of them, itself included, and open classes of characters.
    let (mut groups, mut classes) = (0_usize, 0_usize);
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let begins = rest.starts_with("(?=") || rest.starts_with("(?!");
        let is_kept = groups == 0 && (classes > 0 || !begins);
        if groups == 0 && classes == 0 && begins {
            kept += "(?:)";
        }
        let mut len = first.len_utf8();
        match first {
            '\\' => len += rest[1..].chars().next().map_or(0, char::len_utf8),
            '[' => {
                classes += 1;
                // A bracket that comes first does not close the class.
                let after = rest[1..].strip_prefix('^').unwrap_or(&rest[1..]);
                len = rest.len() - after.strip_prefix(']').unwrap_or(after).len();
            }
            ']' => classes = classes.saturating_sub(1),
            '(' if classes == 0 && (groups > 0 || begins) => groups += 1,
            ')' if classes == 0 => groups = groups.saturating_sub(1),
            _ => {}
        }
        if is_kept {
            kept += &rest[..len];
        }
        rest = &rest[len..];
    }
    kept
}

fn check_pre_tokenizer(part: &Value) -> Result<(), String> {
    match part["type"] == "FixedLength" && part["length"] == 0 {
        true => Err("its pre-tokenizer splits text into parts of length 0".into()),
        false => Ok(()),
    }
}

/// In a text with no other characters, the crate continues before its beginning to look for characters to strip.
fn check_decoder(part: &Value) -> Result<(), String> {
    let stop = &part["stop"];
    match part["type"] == "Strip" && *stop != 0 {
        true => Err(format!(
            "its decoder strips {stop} characters from the end of a text, which fails on an empty one; set `stop` to 0"
        )),
        false => Ok(()),
    }
}

/// A `BPEDecoder` accesses the last token, and parts before it may leave none.
fn check_order_of_decoders(decoders: &[&Value]) -> Result<(), String> {
    let mut others = decoders.iter().skip(1);
    match others.any(|part| part["type"] == "BPEDecoder") {
        true => Err("its decoder has a `BPEDecoder` that is not its first part".into()),
        false => Ok(()),
    }
}

/// The crate would look for tokens that the file does not define, and for a second text, which does not exist.
fn check_post_processor(part: &Value) -> Result<(), String> {
    let templates = ["single", "pair"].map(|name| part[name].as_array());
    for piece in templates.iter().flatten().copied().flatten() {
        if let Some(name) = piece["SpecialToken"]["id"].as_str()
            && part["special_tokens"].get(name).is_none()
        {
            return Err(format!("its template has `{name}`, but no id for it"));
        }
    }
    let mut single = templates[0].into_iter().flatten();
    match single.any(|piece| piece["Sequence"]["id"] == "B") {
        true => Err("its template for one text has a second text".into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::text::sentence_piece::map_of_bytes;

    fn file() -> Value {
        json!({
            "version": "1.0",
            "added_tokens": [
                {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                 "normalized": false, "special": true}
            ],
            "normalizer": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<s>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}}
                ],
                "pair": [
                    {"Sequence": {"id": "A", "type_id": 0}},
                    {"Sequence": {"id": "B", "type_id": 0}}
                ],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}
            },
            "model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1}, "unk_token": "a"}
        })
    }

    fn problem(change: impl FnOnce(&mut Value)) -> Option<String> {
        let mut file = file();
        change(&mut file);
        TokenizerFile::check(&file.to_string()).err()
    }

    #[test]
    fn a_file_without_faults_is_accepted() {
        assert_eq!(problem(|_| {}), None);
        let file = TokenizerFile::check(&file().to_string()).unwrap();
        let tokenizer = self::file().to_string().parse().unwrap();
        file.check_added_tokens(&tokenizer).unwrap();
    }

    #[test]
    fn templates_have_the_tokens_that_they_name_and_one_text() {
        let found = problem(|file| {
            file["post_processor"]["special_tokens"] = json!({});
        });
        let expected = "its template has `<s>`, but no id for it";
        assert_eq!(found.unwrap(), expected);
        // Nested templates, too.
        let found = problem(|file| {
            let mut template = file["post_processor"].take();
            template["special_tokens"] = json!({});
            file["post_processor"] = json!({"type": "Sequence", "processors": [template]});
        });
        assert_eq!(found.unwrap(), expected);
        let found = problem(|file| {
            file["post_processor"]["single"][1]["Sequence"]["id"] = json!("B");
        });
        assert_eq!(
            found.unwrap(),
            "its template for one text has a second text"
        );
    }

    #[test]
    fn normalizers_have_rules() {
        for normalizer in [
            json!({"type": "Precompiled"}),
            json!({"type": "Precompiled", "precompiled_charsmap": null}),
        ] {
            let found = problem(|file| file["normalizer"] = normalizer);
            assert_eq!(
                found.unwrap(),
                "its normalizer has no `precompiled_charsmap`"
            );
        }
    }

    #[test]
    fn normalizers_have_rules_that_point_into_the_file() {
        for (rules, expected) in [
            ("", "the length of its normalizer's rules is wrong"),
            ("AAQAAA==", "the length of its normalizer's rules is wrong"),
            ("????", "its normalizer: Invalid byte 63, offset 0."),
        ] {
            let normalizer = json!({"type": "Precompiled", "precompiled_charsmap": rules});
            let sequence = json!({"type": "Sequence", "normalizers": [normalizer]});
            let found = problem(|file| file["normalizer"] = sequence);
            assert_eq!(found.unwrap(), expected);
        }
    }

    /// The crate would panic when it encodes.
    #[test]
    fn normalizers_replace_something() {
        let replace =
            |pattern: Value| json!({"type": "Replace", "pattern": pattern, "content": "xy"});
        for (normalizer, expected) in [
            (
                json!({"type": "Prepend", "prepend": ""}),
                "its normalizer prepends an empty text",
            ),
            (
                replace(json!({"String": ""})),
                r#"its normalizer replaces {"String":""}, which matches an empty text"#,
            ),
            (
                replace(json!({"Regex": ""})),
                r#"its normalizer replaces {"Regex":""}, which matches an empty text"#,
            ),
            (
                replace(json!({"Regex": "x*"})),
                r#"its normalizer replaces {"Regex":"x*"}, which matches an empty text"#,
            ),
            (
                replace(json!({"Regex": "(?=W)"})),
                r#"its normalizer replaces {"Regex":"(?=W)"}, which matches an empty text"#,
            ),
            // Not at the beginning of a text of one ASCII character.
            (
                replace(json!({"Regex": "(?=ab[(]c)"})),
                r#"its normalizer replaces {"Regex":"(?=ab[(]c)"}, which matches an empty text"#,
            ),
            (
                replace(json!({"Regex": "(?=é)x*(?!(a|[)]))"})),
                r#"its normalizer replaces {"Regex":"(?=é)x*(?!(a|[)]))"}, which matches an empty text"#,
            ),
            (
                replace(json!({"Regex": "(?ix) # [\n(?=ab)"})),
                r#"its normalizer replaces {"Regex":"(?ix) # [\n(?=ab)"}, which matches an empty text"#,
            ),
        ] {
            let sequence = json!({"type": "Sequence", "normalizers": [normalizer]});
            let found = problem(|file| file["normalizer"] = sequence);
            assert_eq!(found.unwrap(), expected);
        }
        for normalizer in [
            json!({"type": "Prepend", "prepend": "▁"}),
            replace(json!({"String": " "})),
            replace(json!({"Regex": " {2,}"})),
            replace(json!({"Regex": "(?<=[])a])x+(?!(y|[^]z]))"})),
            replace(json!({"Regex": "[.,(?!)]"})),
            replace(json!({"Regex": r"(?<=\d)(?=\D)"})),
            replace(json!({"Regex": r"\s*$"})),
        ] {
            assert_eq!(problem(|file| file["normalizer"] = normalizer), None);
        }
        let found = problem(|file| file["normalizer"] = replace(json!({"Regex": "("})));
        assert!(found.unwrap().starts_with("its normalizer: "));
    }

    #[test]
    fn a_word_of_word_piece_has_a_limit() {
        let found = problem(|file| file["model"]["max_input_chars_per_word"] = json!(1001));
        let expected = "its `max_input_chars_per_word` is 1001; at most 1000 are supported";
        assert_eq!(found.unwrap(), expected);
    }

    /// The crate would panic when it decodes.
    #[test]
    fn decoders_strip_nothing_from_the_end() {
        let strip = |stop: u64| json!({"type": "Strip", "content": " ", "start": 1, "stop": stop});
        for (stop, number) in [(1, "1"), (u64::MAX, "18446744073709551615")] {
            let sequence = json!({"type": "Sequence", "decoders": [strip(stop)]});
            let expected = format!(
                "its decoder strips {number} characters from the end of a text, which fails on an empty one; set `stop` to 0"
            );
            assert_eq!(
                problem(|file| file["decoder"] = sequence).unwrap(),
                expected
            );
        }
        assert_eq!(problem(|file| file["decoder"] = strip(0)), None);
    }

    #[test]
    fn a_decoder_of_bpe_is_the_first() {
        let bpe = json!({"type": "BPEDecoder", "suffix": "</w>"});
        let fuse = json!({"type": "Fuse"});
        let with = |decoders: [&Value; 2]| {
            problem(|file| file["decoder"] = json!({"type": "Sequence", "decoders": decoders}))
        };
        assert_eq!(with([&bpe, &fuse]), None);
        assert_eq!(
            with([&fuse, &bpe]).unwrap(),
            "its decoder has a `BPEDecoder` that is not its first part"
        );
    }

    #[test]
    fn texts_do_not_grow_without_measure() {
        let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let repeated = |list, part: Value, times| {
            let mut sequence = json!({"type": "Sequence"});
            sequence[list] = vec![part; times].into();
            sequence
        };
        for (key, list) in [("normalizer", "normalizers"), ("decoder", "decoders")] {
            for (part, is_refused) in [
                (repeated(list, replace("e", &"e".repeat(10)), 12), true),
                (replace("e", &"z".repeat(1_000_000)), true),
                (repeated(list, replace(" ", "▁"), 6), false),
                (repeated(list, replace("''", "\""), 100), false),
            ] {
                let expected = format!("its {key} can make a text more than 2000 times as long");
                let found = problem(|file| file[key] = part);
                assert_eq!(found, is_refused.then_some(expected));
            }
        }
    }

    #[test]
    fn bytes_are_not_written_as_characters_again_and_again() {
        let levels = |normalizers: usize, pre_tokenizers: usize, space: bool| {
            problem(|file| {
                let part =
                    json!({"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true});
                let normalizers = vec![json!({"type": "ByteLevel"}); normalizers];
                let parts = vec![part; pre_tokenizers];
                file["normalizer"] = json!({"type": "Sequence", "normalizers": normalizers});
                file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": parts});
            })
        };
        for (normalizers, pre_tokenizers, space, named) in [
            (0, 10, false, None),
            (0, 11, false, Some("normalizer and pre-tokenizer")),
            (0, 5, true, None),
            (0, 6, true, Some("normalizer and pre-tokenizer")),
            (2, 7, false, Some("normalizer and pre-tokenizer")),
            (6, 0, false, Some("normalizer")),
        ] {
            let expected = named
                .map(|named| format!("its {named} can make a text more than 2000 times as long"));
            assert_eq!(levels(normalizers, pre_tokenizers, space), expected);
        }
    }

    /// Each would turn a letter into gigabytes.
    #[test]
    fn parts_that_begin_each_text_anew_are_counted() {
        let rules = map_of_bytes(&[(b'a', &"a".repeat(900))]);
        let map = json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(rules)});
        let prepend = json!({"type": "Prepend", "prepend": "x".repeat(900)});
        for part in [map, prepend] {
            for (times, is_refused) in [(1, false), (2, true)] {
                let found = problem(|file| {
                    file["normalizer"] =
                        json!({"type": "Sequence", "normalizers": vec![part.clone(); times]});
                });
                assert_eq!(found.is_some(), is_refused, "{found:?}");
            }
        }
        let spaces: Vec<Value> = (0..36)
            .map(|at| {
                let replacement = ["x", "y"][at % 2];
                json!({"type": "Metaspace", "replacement": replacement})
            })
            .collect();
        let found = problem(|file| {
            file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": spaces});
        });
        assert!(found.unwrap().contains("can make a text more than"));
    }

    /// Compiled, each would take a megabyte or more.
    #[test]
    fn patterns_do_not_repeat_classes_without_measure() {
        let with = |pattern: &str, times| {
            problem(|file| {
                let part = json!({
                    "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false
                });
                file["pre_tokenizer"] =
                    json!({"type": "Sequence", "pretokenizers": vec![part; times]});
            })
        };
        // GPT-4o's.
        let long = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        for (pattern, times, is_refused) in [
            (long, 3, false),
            (r"\p{L}", 100, false),
            (r"\p{L}", 130, true),
            (r"\p{L}{60}", 20, true),
            (r"((\p{L}{20}){20}){20}", 1, true),
        ] {
            let found = with(pattern, times);
            assert_eq!(found.is_some(), is_refused, "{pattern}: {found:?}");
        }
    }

    /// The crate would be busy for minutes.
    #[test]
    fn added_tokens_are_short() {
        let with = |bytes: usize| {
            problem(|file| file["added_tokens"][0]["content"] = "b".repeat(bytes).into())
        };
        assert_eq!(with(256), None);
        assert_eq!(
            with(257).unwrap(),
            "its longest added token has 257 bytes; at most 256 are allowed"
        );
    }

    /// The crate would overflow the stack.
    #[test]
    fn tokens_of_a_unigram_model_are_not_endless() {
        let with = |bytes: usize| {
            problem(|file| {
                let vocab = json!([["a", 0.0], ["b".repeat(bytes), -1.0]]);
                file["model"] = json!({"type": "Unigram", "unk_id": 0, "vocab": vocab});
            })
        };
        assert_eq!(with(4096), None);
        assert_eq!(
            with(4097).unwrap(),
            "its longest token has 4097 bytes; a unigram model may have at most 4096"
        );
    }

    /// The crate would panic when it reads the file.
    #[test]
    fn merges_have_the_prefix_that_is_cut_off() {
        let with = |prefix: Value, merges: Value| {
            problem(|file| {
                let vocab = json!({"a": 0, "##b": 1, "ab": 2});
                file["model"] = json!({"type": "BPE", "vocab": vocab, "merges": merges});
                file["model"]["continuing_subword_prefix"] = prefix;
            })
        };
        for merges in [json!(["a ##b"]), json!([["a", "##b"]])] {
            assert_eq!(with(json!("##"), merges.clone()), None);
            assert_eq!(with(Value::Null, merges.clone()), None);
            assert_eq!(
                with(json!("é"), merges).unwrap(),
                "its `continuing_subword_prefix` is `é`, but a merge has `##b` without it"
            );
        }
    }

    #[test]
    fn other_faults_are_named() {
        let found = problem(|file| {
            file["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0});
        });
        let expected = "its pre-tokenizer splits text into parts of length 0";
        assert_eq!(found.unwrap(), expected);
        let found = problem(|file| file["model"]["vocab"]["b"] = json!(1));
        assert_eq!(found.unwrap(), "`a` and `b` are both token 1");
        let mut other = file();
        other["added_tokens"][0]["id"] = json!(7);
        let file = TokenizerFile::check(&other.to_string()).unwrap();
        let tokenizer = other.to_string().parse().unwrap();
        assert_eq!(
            file.check_added_tokens(&tokenizer).unwrap_err(),
            "its added token `<s>` has the id 7, but is token 0"
        );
    }
}
