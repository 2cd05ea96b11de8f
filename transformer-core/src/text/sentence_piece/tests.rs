//! Comparison with Python's sentencepiece 0.2.3 on the same models.

use super::*;
use crate::text::sentence_piece::character_map::tests::map_of_bytes;
use crate::text::sentence_piece::normalizer::NormalizerSpec;

/// A small model, with the settings that the tests change.
#[derive(Clone)]
pub struct Model<'a> {
    pieces: Vec<(&'a str, f32, u64)>,
    is_bpe: bool,
    byte_fallback: bool,
    space_is_suffix: bool,
    unknown_surface: Option<&'a str>,
    removes_spaces: bool,
    adds_space: bool,
    denormalizer: Option<Vec<u8>>,
}

const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;
const BYTE: u64 = 6;

const SPECIAL: [(&str, f32, u64); 3] = [
    ("<unk>", 0.0, UNKNOWN),
    ("<s>", 0.0, CONTROL),
    ("</s>", 0.0, CONTROL),
];

impl<'a> Model<'a> {
    /// A unigram model with the special pieces, and these.
    pub fn new(pieces: &[(&'a str, f32, u64)]) -> Self {
        Self {
            pieces: [&SPECIAL[..], pieces].concat(),
            is_bpe: false,
            byte_fallback: false,
            space_is_suffix: false,
            unknown_surface: None,
            removes_spaces: true,
            adds_space: true,
            denormalizer: None,
        }
    }

    /// A unigram model of pieces of text.
    pub fn of_text(pieces: &[(&'a str, f32)]) -> Self {
        let pieces = pieces.iter().map(|&(text, score)| (text, score, NORMAL));
        Self::new(&pieces.collect::<Vec<_>>())
    }

    /// The bytes of its file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for &(text, score, kind) in &self.pieces {
            let mut piece = field(1, text.as_bytes());
            piece.push((2 << 3) | 5);
            piece.extend(score.to_le_bytes());
            piece.extend(integer(3, kind));
            file.extend(field(1, &piece));
        }
        let mut trainer = integer(3, if self.is_bpe { 2 } else { 1 });
        trainer.extend(integer(24, self.space_is_suffix.into()));
        trainer.extend(integer(35, self.byte_fallback.into()));
        if let Some(surface) = self.unknown_surface {
            trainer.extend(field(44, surface.as_bytes()));
        }
        file.extend(field(2, &trainer));
        let mut normalizer = integer(3, self.adds_space.into());
        normalizer.extend(integer(4, self.removes_spaces.into()));
        file.extend(field(3, &normalizer));
        if let Some(denormalizer) = &self.denormalizer {
            file.extend(field(5, denormalizer));
        }
        file
    }

    fn read(&self) -> SentencePiece {
        SentencePiece::from_bytes(&self.bytes()).unwrap()
    }

    fn error(&self) -> String {
        SentencePiece::from_bytes(&self.bytes()).unwrap_err()
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn integer(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let length = varint(bytes.len() as u64);
    [&varint((number << 3) | 2), &length, bytes].concat()
}

/// Asserts the pieces of a text, separated by bars, and their ids.
#[track_caller]
fn assert_pieces(model: &SentencePiece, text: &str, pieces: &str, ids: &[u32]) {
    let found = model.encode(text).unwrap();
    let texts: Vec<&str> = found.iter().map(|piece| &*piece.text).collect();
    assert_eq!(texts.join("|"), pieces, "{text:?}");
    let found: Vec<u32> = found.iter().map(|piece| piece.id.unwrap()).collect();
    assert_eq!(found, ids, "{text:?}");
}

/// A rule turns one letter into a thousand.
#[test]
fn a_text_that_becomes_too_long_is_refused() {
    let rules = map_of_bytes(&[(b'a', &"b".repeat(1000))]);
    let spec = NormalizerSpec {
        rules: &rules,
        ..NormalizerSpec::default()
    };
    let mut model = Model::of_text(&[("b", -1.0)]).read();
    model.normalizer = Normalizer::new(&spec, false).unwrap();
    let encoded = |text: &str| model.encode(text);
    assert_eq!(encoded(&"a".repeat(100)).unwrap().len(), 100_001);
    assert_eq!(
        encoded(&"a".repeat(3000)).unwrap_err(),
        "the normalizer's rules expand a text of 3000 bytes to more than 2145152"
    );
    // Long texts are still encoded.
    encoded(&"c d".repeat(500_000)).unwrap();
}

/// Three of these would be split differently in double precision.
#[test]
fn sums_are_in_single_precision_and_the_longer_last_piece_wins_a_tie() {
    let model = Model::of_text(&[
        ("▁", -2.5),
        ("a", -3.857143),
        ("b", -1.8571428),
        ("ab", -5.714286),
        ("ba", -5.714286),
        ("aba", -9.571428),
        ("abab", -11.428572),
    ])
    .read();
    assert_pieces(&model, "abab", "▁|aba|b", &[3, 8, 5]);
    assert_pieces(&model, "ababab", "▁|ab|abab", &[3, 6, 9]);
    assert_pieces(&model, "aabbab", "▁|a|ab|b|ab", &[3, 4, 6, 5, 6]);
    assert_pieces(&model, "bababa", "▁|b|ab|aba", &[3, 5, 6, 8]);
}

#[test]
fn unknown_characters_side_by_side_are_one_piece() {
    let model = Model::of_text(&[("▁", -2.5), ("a", -3.857143), ("ab", -5.714286)]).read();
    assert_pieces(&model, "abxyab", "▁|ab|xy|ab", &[3, 5, 0, 5]);
    assert_pieces(&model, "ab\0ab", "▁|ab|\0|ab", &[3, 5, 0, 5]);
    assert_pieces(&model, "漢字é😀", "▁|漢字é😀", &[3, 0]);
    // Text that spells a control piece is text.
    assert_pieces(&model, "</s>", "▁|</s>", &[3, 0]);
    assert_pieces(&model, "a<s>a", "▁|a|<s>|a", &[3, 4, 0, 4]);
    for empty in ["", " ", "   "] {
        assert_pieces(&model, empty, "", &[]);
    }
}

#[test]
fn user_defined_pieces_are_always_pieces_and_unused_ones_never() {
    let model = Model::new(&[
        ("▁", -2.0, NORMAL),
        ("▁a", -2.5, NORMAL),
        ("a", -3.0, NORMAL),
        ("b", -3.5, NORMAL),
        ("ab", -1.0, UNUSED),
        ("c", -2.0, UNUSED),
        ("bb", -20.0, NORMAL),
        ("aa bb", 0.0, USER_DEFINED),
        ("@@", 0.0, USER_DEFINED),
        ("@", 0.0, USER_DEFINED),
        ("@@@", 0.0, USER_DEFINED),
        ("xyz", 0.0, USER_DEFINED),
    ])
    .read();
    assert_pieces(&model, "ab abb", "▁a|b|▁a|b|b", &[4, 6, 4, 6, 6]);
    assert_pieces(&model, "c cab", "▁|c|▁|c|a|b", &[3, 0, 3, 0, 5, 6]);
    assert_pieces(&model, "aa bb", "▁a|a|▁|b|b", &[4, 5, 3, 6, 6]);
    assert_pieces(&model, "a@b@@@@", "▁a|@|b|@|@@@", &[4, 12, 6, 12, 13]);
    assert_pieces(&model, "xyzxy", "▁|xyz|xy", &[3, 14, 0]);
    assert_pieces(&model, "  @ @  ", "▁|@|▁|@", &[3, 12, 3, 12]);
    assert_pieces(&model, "@@@@@", "▁|@@|@@@", &[3, 11, 13]);
}

/// A model with a piece for every byte, with or without one for unknown text.
fn of_bytes(names: &[String], has_unknown: bool) -> Model<'_> {
    let bytes = names.iter().map(|name| (&**name, 0.0, BYTE));
    let mut model = Model {
        byte_fallback: true,
        ..Model::new(&bytes.collect::<Vec<_>>())
    };
    let text = [("▁", -1.0), ("a", -2.0), ("é", -3.0)];
    let text = text.map(|(text, score)| (text, score, NORMAL));
    model.pieces.extend(text);
    if !has_unknown {
        model.pieces.remove(0);
    }
    model
}

fn names_of_bytes() -> Vec<String> {
    (0..=255_u8).map(|byte| format!("<0x{byte:02X}>")).collect()
}

#[test]
fn unknown_characters_are_spelled_in_bytes() {
    let names = names_of_bytes();
    for has_unknown in [true, false] {
        let model = of_bytes(&names, has_unknown).read();
        // Byte b is piece 3 + b, without the unknown piece 2 + b.
        let first = 2 + u32::from(has_unknown);
        let [space, a, e] = [256, 257, 258].map(|id| first + id);
        let byte = |byte: u32| first + byte;
        let check = |text, pieces, ids: &[u32]| assert_pieces(&model, text, pieces, ids);
        check("aéx", "▁|a|é|<0x78>", &[space, a, e, byte(0x78)]);
        let character = [0xe6, 0xbc, 0xa2].map(byte);
        let ids = [&[space], &character[..], &[a]].concat();
        check("漢a", "▁|<0xE6>|<0xBC>|<0xA2>|a", &ids);
        check("\t", "▁|<0x09>", &[space, byte(9)]);
        check("x\0", "▁|<0x78>|<0x00>", &[space, byte(0x78), byte(0)]);
    }
}

#[test]
fn bytes_are_decoded_to_characters_and_others_replaced() {
    let names = names_of_bytes();
    for has_unknown in [true, false] {
        let model = of_bytes(&names, has_unknown).read();
        for (pieces, text) in [
            ("a|<0xE6>|<0xBC>|<0xA2>|a", "a漢a"),
            ("<0xE6>|<0xBC>|a", "\u{fffd}\u{fffd}a"),
            ("<0xFF>|<0xC3>|<0xA9>|<0x41>", "\u{fffd}éA"),
            // These bytes spell the character for a space, but do not mean a space.
            ("<0xE2>|<0x96>|<0x81>|▁", "▁ "),
            ("<0xEF>|<0xBF>|<0xBD>", "\u{fffd}"),
        ] {
            assert_eq!(model.decode(pieces.split('|')), text);
        }
    }
}

/// Sequences of pieces, some of which the model does not have.
const SEQUENCES: [&str; 11] = [
    "▁a|b|▁|a",
    "▁|▁a",
    "▁|▁|▁a",
    "<s>|▁a|</s>",
    "<unk>|▁a",
    "▁a|<unk>",
    "▁zzz|▁a",
    "▁a|x▁y",
    "a▁|▁",
    "<s>|▁|b",
    "▁a▁b|b",
];

fn decoded(model: &Model<'_>) -> [String; 11] {
    let model = model.read();
    SEQUENCES.map(|pieces| model.decode(pieces.split('|')))
}

#[test]
fn pieces_are_decoded_by_the_rules_for_spaces() {
    let model = Model::of_text(&[
        ("▁", -2.0),
        ("▁a", -2.5),
        ("a", -3.0),
        ("b", -3.5),
        ("▁a▁b", -9.0),
    ]);
    let expected = [
        "ab a", "a", "a", "a", " ⁇  a", "a ⁇ ", "▁zzz a", "ax▁y", "a▁ ", "b", "a bb",
    ];
    assert_eq!(decoded(&model), expected);
    let behind = Model {
        space_is_suffix: true,
        ..model.clone()
    };
    assert_eq!(decoded(&behind), expected);
    assert_pieces(&behind.read(), " a  b", "a|▁|b|▁", &[5, 3, 6, 3]);
    let keeping = Model {
        removes_spaces: false,
        ..model.clone()
    };
    let expected = [
        "ab a", " a", "  a", "a", " ⁇  a", "a ⁇ ", "▁zzz a", "ax▁y", "a▁ ", "b", "a bb",
    ];
    assert_eq!(decoded(&keeping), expected);
    assert_pieces(&keeping.read(), " a  b", "▁|▁a|▁|▁|b", &[3, 4, 3, 3, 6]);
    let bare = Model {
        adds_space: false,
        ..keeping
    };
    let expected = [
        " ab a", "  a", "   a", " a", " ⁇  a", " a ⁇ ", "▁zzz a", " ax▁y", "a▁ ", " b", " a bb",
    ];
    assert_eq!(decoded(&bare), expected);
    assert_pieces(&bare.read(), " a  b", "▁a|▁|▁|b", &[4, 3, 3, 6]);
    let named = Model {
        unknown_surface: Some("?"),
        ..model.clone()
    };
    assert_eq!(decoded(&named)[4..6], ["? a", "a?"]);
    let rules = map_of_bytes(&[(b'a', "A")]);
    let denormalizing = Model {
        denormalizer: Some(
            [
                field(2, &rules),
                integer(3, 0),
                integer(4, 0),
                integer(5, 0),
            ]
            .concat(),
        ),
        ..model
    };
    let expected = [
        "Ab A", "A", "A", "A", " ⁇  A", "A ⁇ ", "▁zzz A", "Ax▁y", "A▁ ", "b", "A bb",
    ];
    assert_eq!(decoded(&denormalizing), expected);
}

/// A BPE of the merges `ab`, `bc`, `abab`, `abc`, `ca`, `aa`, `▁a` with these scores, and of characters.
fn bpe(scores: [f32; 7], unused: &[&str]) -> SentencePiece {
    let merges = ["ab", "bc", "abab", "abc", "ca", "aa", "▁a"];
    let merges = merges.into_iter().zip(scores);
    let characters = ["▁", "a", "b", "c"].map(|character| (character, -100.0));
    let mut model = Model::of_text(&merges.chain(characters).collect::<Vec<_>>());
    model.pieces.push(("@a", 0.0, USER_DEFINED));
    for (text, _, kind) in &mut model.pieces {
        if unused.contains(text) {
            *kind = UNUSED;
        }
    }
    model.is_bpe = true;
    model.read()
}

const BY_RANK: [f32; 7] = [0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0];

#[test]
fn the_merge_with_the_highest_score_is_made_first() {
    let positive = [1.0, 1.0, -2.0, -3.0, -4.0, -5.0, -6.0];
    for scores in [BY_RANK, positive] {
        let model = bpe(scores, &[]);
        assert_pieces(&model, "abab", "▁|abab", &[10, 5]);
        assert_pieces(&model, "aaa", "▁|aa|a", &[10, 8, 11]);
        assert_pieces(&model, "abcab", "▁|abc|ab", &[10, 6, 3]);
        assert_pieces(&model, "caabc", "▁|ca|abc", &[10, 7, 6]);
        assert_pieces(&model, "xabx yy", "▁|x|ab|x|▁|yy", &[10, 0, 3, 0, 10, 0]);
        assert_pieces(&model, "@aab", "▁|@a|ab", &[10, 14, 3]);
        assert_pieces(&model, "b@a", "▁|b|@a", &[10, 12, 14]);
        assert_pieces(&model, "<s>", "▁|<s>", &[10, 0]);
        assert_pieces(&model, "", "", &[]);
    }
}

#[test]
fn of_merges_with_one_score_the_leftmost_is_made_first() {
    let model = bpe([-1.0; 7], &[]);
    assert_pieces(&model, "abab", "▁a|b|ab", &[9, 12, 3]);
    assert_pieces(&model, "abcab", "▁a|bc|ab", &[9, 4, 3]);
    assert_pieces(&model, "caabc", "▁|ca|abc", &[10, 7, 6]);
    assert_pieces(&model, "aaaa", "▁a|aa|a", &[9, 8, 11]);
}

#[test]
fn unused_pieces_are_cut_again_where_they_were_merged() {
    let model = bpe(BY_RANK, &["ab", "abab", "abc"]);
    assert_pieces(&model, "abab", "▁|a|b|a|b", &[10, 11, 12, 11, 12]);
    assert_pieces(&model, "abcab", "▁|a|b|c|a|b", &[10, 11, 12, 13, 11, 12]);
    assert_pieces(&model, "bcbc", "▁|bc|bc", &[10, 4, 4]);
}

/// Log-probabilities so low that single precision could not distinguish paths: the library then measures from a new
/// origin.
#[test]
fn long_texts_keep_their_precision() {
    let model = Model::of_text(&[
        ("▁", -1000.5),
        ("a", -1000.1),
        ("b", -999.7),
        ("c", -1000.3),
        ("ab", -1999.8),
        ("bc", -2000.0),
        ("ca", -2000.39),
        ("abc", -3000.1),
        ("cab", -3000.1),
        ("bca", -3000.1),
    ])
    .read();
    let mut state = 12345_u32;
    let mut text = String::new();
    for _ in 0..3000 {
        state = state.wrapping_mul(1103515245).wrapping_add(12345) & 0x7fff_ffff;
        text.push(['a', 'b', 'c'][(state >> 16) as usize % 3]);
    }
    let ids: Vec<u32> = model
        .encode(&text)
        .unwrap()
        .iter()
        .map(|piece| piece.id.unwrap())
        .collect();
    let count = |id| ids.iter().filter(|&&other| other == id).count();
    let counts: Vec<usize> = (0..13).map(count).collect();
    assert_eq!(counts, [0, 0, 0, 1, 432, 571, 469, 179, 208, 329, 32, 0, 0]);
    let places = ids.iter().zip(0..).map(|(id, place): (_, u32)| id * place);
    assert_eq!(places.sum::<u32>(), 15_108_038);

    let unknown = "漢".repeat(20_000) + "ab";
    let ids: Vec<_> = model
        .encode(&unknown)
        .unwrap()
        .iter()
        .map(|piece| piece.id)
        .collect();
    // As probable as `ab`, to the last bit.
    assert_eq!(ids, [Some(3), Some(0), Some(4), Some(5)]);
}

#[test]
fn models_that_contradict_themselves_are_refused() {
    let error = |pieces: &[(&str, f32, u64)]| Model::new(pieces).error();
    let has = |problem: &str| format!("not a SentencePiece model: {problem}");
    let a = ("a", -1.0, NORMAL);
    assert_eq!(error(&[]), has("it has no pieces"));
    assert_eq!(error(&[a, ("", 0.0, NORMAL)]), has("its piece 4 is empty"));
    assert_eq!(error(&[a, a]), has("it has the piece \"a\" twice"));
    let control = ("<s>", 0.0, CONTROL);
    assert_eq!(error(&[a, control]), has("it has the piece \"<s>\" twice"));
    let long = "a".repeat(8000);
    assert_eq!(
        error(&[(&long, 0.0, NORMAL)]),
        has("its piece 3 is too long")
    );
    assert_eq!(
        error(&[("a\0", 0.0, NORMAL)]),
        has("its piece 3 contains a NUL")
    );
    assert_eq!(
        error(&[("a", f32::NAN, NORMAL)]),
        has("its piece 3 has the score NaN")
    );
    assert_eq!(
        error(&[("a", f32::INFINITY, NORMAL)]),
        has("its piece 3 has the score inf")
    );
    assert_eq!(
        error(&[a, ("<unk2>", 0.0, UNKNOWN)]),
        has("its piece 4 is a second unknown piece")
    );
    assert_eq!(
        error(&[a, ("<0x41>", 0.0, BYTE)]),
        has("its piece 4 is a byte, but byte fallback is off")
    );
    for name in ["<0x4>", "<0x4a>", "<0x+A>", "A"] {
        let expected = format!("its piece 4 is an invalid byte {name:?}");
        assert_eq!(error(&[a, (name, 0.0, BYTE)]), has(&expected));
    }
    let mut without = Model::new(&[a]);
    without.pieces.remove(0);
    assert_eq!(without.error(), has("it has no unknown piece"));
    let names = names_of_bytes();
    let mut without = of_bytes(&names, true);
    without.pieces.remove(3 + 0x41);
    assert_eq!(without.error(), has("it has no piece for the byte 0x41"));
    for (model, kind) in [(3, "word"), (4, "character")] {
        let mut bytes = Model::new(&[a]).bytes();
        bytes.extend(field(2, &integer(3, model)));
        assert_eq!(
            SentencePiece::from_bytes(&bytes).unwrap_err(),
            has(&format!("it is a {kind} model, not unigram or BPE"))
        );
    }
}

/// A byte piece for NUL and, by a converter's mistake, another one.
#[test]
fn a_nul_beside_the_byte_is_no_piece() {
    let names = names_of_bytes();
    let mut model = of_bytes(&names, true);
    model.pieces.push(("\0", 0.0, NORMAL));
    assert_pieces(&model.read(), "\0", "▁|<0x00>", &[259, 3]);
}

/// A damaged file is refused or read as another model; it never causes a panic.
#[test]
fn damaged_files_cause_no_panic() {
    let rules = map_of_bytes(&[(b'a', "b"), (b'x', "")]);
    for is_bpe in [false, true] {
        let mut model = Model::of_text(&[("▁", -1.0), ("a", -2.0), ("ab", -2.5), ("é", -3.0)]);
        model.pieces.push(("abé", 0.0, UNUSED));
        model.pieces.push(("@", 0.0, USER_DEFINED));
        model.is_bpe = is_bpe;
        let bytes = model.bytes();
        let with_rules = [&bytes[..], &field(3, &field(2, &rules))].concat();
        let use_all = |bytes: &[u8]| {
            if let Ok(model) = SentencePiece::from_bytes(bytes) {
                let pieces = model.encode("abé ab@ xé\0").unwrap();
                model.decode(pieces.iter().map(|piece| &*piece.text));
            }
        };
        for end in 0..with_rules.len() {
            use_all(&with_rules[..end]);
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = with_rules.clone();
                damaged[at] ^= 1 << bit;
                use_all(&damaged);
            }
        }
    }
}

#[test]
fn kinds_are_those_of_the_format() {
    let names = names_of_bytes();
    let mut model = of_bytes(&names, true);
    model
        .pieces
        .extend([("x", 0.0, USER_DEFINED), ("y", 0.0, UNUSED), ("z", 0.0, 7)]);
    let model = model.read();
    let kind = |id| model.pieces.get(id).kind;
    assert_eq!([0, 1].map(kind), [Kind::Unknown, Kind::Control]);
    assert_eq!([3, 258].map(kind), [Kind::Byte(0), Kind::Byte(255)]);
    assert_eq!(
        [262, 263, 264].map(kind),
        [Kind::UserDefined, Kind::Unused, Kind::Normal]
    );
}

/// Texts in many scripts and with rare characters, and their pieces by a source model that Hugging Face's classes
/// saved, with `nmt_nfkc` rules.
const STRANGE: [(&str, &str); 29] = [
    ("", ""),
    ("   ", ""),
    ("\u{9} \u{3000}", ""),
    ("ＦＵＬＬ\u{3000}ｗｉｄｔｈ", "▁|F|U|L|L|▁wi|d|th"),
    ("ﬁne ﬂow oﬃce", "▁fine|▁f|low|▁office"),
    (
        "co\u{ad}op\u{200b}era\u{2060}tion",
        "▁co|\u{ad}|o|p|▁e|ra|\u{2060}|t|ion",
    ),
    (
        "cafe\u{301} na\u{308}ive e\u{323}\u{301}",
        "▁|ca|f|é|▁|n|ä|ive|▁|ẹ\u{301}",
    ),
    (
        "👍🏽 👨\u{200d}👩\u{200d}👧\u{200d}👦 🇫🇷",
        "▁|👍🏽|▁|👨\u{200d}👩\u{200d}👧\u{200d}👦|▁|🇫🇷",
    ),
    (
        "\u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8} 한국어",
        "▁|한국|▁|한국어",
    ),
    (
        "\u{627}\u{644}\u{633}\u{64e}\u{651}\u{644}\u{627}\u{645}\u{64f} \u{639}\u{64e}\u{644}\u{64e}\u{64a}\u{652}\u{643}\u{64f}\u{645} \u{fdfa} ﷽",
        "▁|\u{627}\u{644}\u{633}\u{64e}\u{651}\u{644}\u{627}\u{645}\u{64f}|▁|\u{639}\u{64e}\u{644}\u{64e}\u{64a}\u{652}\u{643}\u{64f}\u{645}|▁|\u{635}\u{644}\u{649}|▁|\u{627}\u{644}\u{644}\u{647}|▁|\u{639}\u{644}\u{64a}\u{647}|▁|\u{648}\u{633}\u{644}\u{645}|▁|﷽",
    ),
    (
        "नमस\u{94d}त\u{947} क\u{94d}षत\u{94d}र\u{93f}य",
        "▁|नमस\u{94d}त\u{947}|▁|क\u{94d}षत\u{94d}र\u{93f}य",
    ),
    ("你好，世界。", "▁|你好|,|世界。"),
    ("tab\u{9}here\u{b}\u{c}", "▁|t|a|b|▁here"),
    ("bell\u{7} del\u{7f} \u{1}", "▁be|ll|▁de|l"),
    ("nul\u{0}nul", "▁|n|ul|\u{0}|n|ul"),
    ("bad � char", "▁bad|▁cha|r"),
    ("★☆♪", "▁|★☆♪"),
    (
        "x\u{300}\u{301}\u{302}\u{303}",
        "▁|x|\u{300}\u{301}\u{302}\u{303}",
    ),
    ("ｶﾞｷﾞ ㌀ ㍿", "▁|ガギ|▁|アパート|▁|株式会社"),
    ("½ ² № ℃ ™ …", "▁|1⁄2|▁|2|▁No|▁|°|C|▁T|M|▁|.|.|."),
    ("\u{feff}bom", "▁bo|m"),
    (
        "line\u{2028}sep\u{2029}par\u{85}nel",
        "▁|line|▁s|e|p|▁p|ar|\u{85}|n|el",
    ),
    ("I\u{307} ß ẞ ǅ", "▁|İ|▁|ß|▁|ẞ|▁D|ž"),
    ("▁under ▁▁ bar", "▁under|▁bar"),
    ("<s> <unk2>", "▁|<|s|>|▁|<|u|n|k|2>"),
    ("A\u{301}\u{328} Å Å", "▁|Á\u{328}|▁|Å|▁|Å"),
    ("한\u{200b}글 \u{a0}\u{2003} end", "▁|한|▁|글|▁end"),
    ("\u{e0067}\u{e007f} tag", "▁|\u{e0067}\u{e007f}|▁|t|a|g"),
    (
        "½½½ \u{fdf2} ㎏",
        "▁|1⁄21⁄21⁄2|▁|\u{627}\u{644}\u{644}\u{647}|▁|k|g",
    ),
];

#[test]
#[cfg_attr(packaged, ignore = "reads files of the repository")]
fn strange_texts_have_the_pieces_of_the_library() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fixtures/pretrained/marian-en-fr/source.spm"
    );
    let model = SentencePiece::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    let pieces = |text: &str| -> Vec<String> {
        let pieces = model.encode(text).unwrap().into_iter();
        pieces.map(|piece| piece.text).collect()
    };
    for (text, expected) in STRANGE {
        assert_eq!(pieces(text).join("|"), expected, "{text:?}");
    }
    let sixty = pieces(&"a".repeat(60));
    assert_eq!(sixty[0], "▁a");
    assert!(sixty.len() == 60 && sixty[1..].iter().all(|piece| piece == "a"));
}
