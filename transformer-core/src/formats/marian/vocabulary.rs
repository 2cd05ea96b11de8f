//! The vocabularies: SentencePiece models, or lists of tokens.

use std::collections::BTreeMap;

use crate::formats::converted::Lists;
use crate::formats::error::ModelError;
use crate::formats::files;
use crate::formats::format::Files;
use crate::formats::marian::first_line;
use crate::formats::marian::model_file::ModelFile;
use crate::formats::marian::place::Place;
use crate::formats::protobuf::{Fields, Value};
use crate::formats::vocabularies::{END, Side, UNKNOWN, Vocabularies};

/// A number of tokens that needs little memory.
const FEW_TOKENS: usize = 1 << 18;
/// Maximum number of tokens of a list.
const MOST_TOKENS: usize = 1 << 24;

/// The tokens of a model, with a padding token.
///
/// # Errors
/// When a vocabulary is missing or damaged, or has more tokens than the model.
pub(super) fn lists(files: &Files, place: &Place, file: &ModelFile) -> Result<Lists, ModelError> {
    let [source, target] = &place.vocabularies;
    let sizes = file.keys.sizes("dim-vocabs")?;
    let &[source_size, target_size] = &sizes[..] else {
        return Err(file
            .keys
            .refusal("dim-vocabs", "not the sizes of two vocabularies"));
    };
    // A number in the settings alone reserves little memory.
    let largest = file.dict.tensors.values().flat_map(|tensor| &tensor.shape);
    let largest = largest.copied().max().unwrap_or(0).max(FEW_TOKENS);
    if source_size.max(target_size) > largest {
        return Err(file
            .keys
            .refusal("dim-vocabs", "more than any matrix has rows"));
    }
    let is_shared = source == target && source_size == target_size;
    let of_source = side(files, source, source_size)?;
    let of_target = match is_shared {
        true => None,
        false => Some(side(files, target, target_size)?),
    };
    let is_spm = |name: &String| name.ends_with(".spm");
    let pieces = match place.vocabularies.iter().all(is_spm) {
        true => Some(place.vocabularies.clone()),
        false => place.pieces.clone(),
    };
    Ok(Lists {
        vocabularies: Vocabularies::extended(of_source, of_target),
        pieces,
    })
}

/// Reads a vocabulary for a model with this many tokens.
fn side(files: &Files, name: &str, size: usize) -> Result<Side, ModelError> {
    let path = files.path(name);
    let problem = |problem: String| ModelError::Weights {
        path: path.clone(),
        problem,
    };
    let bytes = files::read(&path).map_err(ModelError::io(&path))?;
    let tokens = match name.rsplit_once('.') {
        Some((_, "spm")) => pieces(&bytes),
        Some((_, "yml" | "yaml" | "json")) => ids(&bytes, size),
        _ => lines(&bytes),
    };
    let mut tokens = tokens.map_err(problem)?;
    if tokens.len() > size || size > MOST_TOKENS {
        let found = tokens.len();
        return Err(problem(format!("{found} tokens for a model of {size}")));
    }
    tokens.extend((tokens.len()..size).map(|id| format!("<unused_{id}>")));
    let side = Side {
        file: name.to_owned(),
        tokens,
        appended: 0,
    };
    match [UNKNOWN, END]
        .into_iter()
        .find(|token| side.id(token).is_none())
    {
        Some(missing) => Err(problem(format!("`{missing}` is missing"))),
        None => Ok(side),
    }
}

/// The pieces of a SentencePiece model, in the order of their ids.
fn pieces(bytes: &[u8]) -> Result<Vec<String>, String> {
    const PIECES: u64 = 1;
    const TEXT: u64 = 1;
    let damaged = |problem: &str| format!("not a SentencePiece model: {problem}");
    let mut pieces = Vec::new();
    for field in Fields::of(bytes) {
        let (PIECES, Value::Bytes(piece)) = field.map_err(damaged)? else {
            continue;
        };
        let text = Fields::of(piece).find_map(|field| match field {
            Ok((TEXT, Value::Bytes(text))) => Some(text),
            _ => None,
        });
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        pieces.push(
            text.ok_or_else(|| damaged("a piece without text"))?
                .to_owned(),
        );
    }
    Ok(pieces)
}

/// The tokens of a mapping to their ids, for a model with `size` tokens.
fn ids(bytes: &[u8], size: usize) -> Result<Vec<String>, String> {
    // Two scalars per token, and no limit below that of the tokens.
    let budget = serde_saphyr::budget! {
        max_nodes: 2 * MOST_TOKENS,
        max_events: 4 * MOST_TOKENS,
    };
    let options = serde_saphyr::options! { budget: budget };
    let ids: Result<BTreeMap<String, usize>, _> =
        serde_saphyr::from_slice_with_options(bytes, options);
    let ids = ids.map_err(|error| format!("not a vocabulary: {}", first_line(&error)))?;
    let most = ids.values().max().map_or(0, |&most| most.saturating_add(1));
    if most > size {
        let id = most - 1;
        return Err(format!(
            "with the id {id}, {most} tokens for a model of {size}"
        ));
    }
    let mut tokens: Vec<Option<String>> = vec![None; most];
    for (token, id) in ids {
        if let Some(other) = tokens[id].replace(token) {
            return Err(format!("`{other}` and another token have the id {id}"));
        }
    }
    let tokens = tokens.into_iter().enumerate();
    let tokens = tokens.map(|(id, token)| token.unwrap_or_else(|| format!("<unused_{id}>")));
    Ok(tokens.collect())
}

/// The tokens of a list, one per line.
fn lines(bytes: &[u8]) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8")?;
    Ok(text.lines().map(str::to_owned).collect())
}
