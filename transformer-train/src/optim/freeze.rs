//! Frozen parameters, selected by patterns of their names.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use thiserror::Error;

use crate::error::TrainError;
use crate::metrics::levenshtein;

/// Number of suggestions in the error for a pattern without a match.
const NEAR: usize = 3;

/// Freezes the parameters of a module whose names match one of the patterns. Returns the module and the names of
/// these parameters, in the module's order. Neither training by [`Trainer`](crate::Trainer) nor resuming changes
/// them.
///
/// Names are those of the tensors in `model.safetensors`, such as `encoder.layers.0.feed_forward.inner.weight`. In
/// a pattern, `*` matches any characters, including dots, or none: `encoder.*`, `*.bias`, `*embedding*`. A tied
/// matrix has one name, given by the module that owns it.
///
/// ```
/// use burn_autodiff::Autodiff;
/// use burn_ndarray::NdArray;
/// use transformer_core::TransformerConfig;
/// use transformer_train::optim::freeze;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = TransformerConfig::notebook_mini(100);
/// let model = config.init::<Autodiff<NdArray>>(0, &Default::default())?;
/// let (model, frozen) = freeze(model, &["encoder.*", "*embedding*"])?;
/// assert!(frozen.contains(&"src_embedding.weight".to_owned()));
/// assert!(!model.src_embedding.weight.val().is_require_grad());
///
/// let error = freeze(model, &["encodr.*"]).unwrap_err();
/// assert!(error.to_string().contains("`encoder.*`"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When a pattern matches no parameter, or the patterns match all parameters.
pub fn freeze<B: AutodiffBackend, M: Module<B>>(
    module: M,
    patterns: &[impl AsRef<str>],
) -> Result<(M, Vec<String>), FreezeError> {
    let mut names = Names::default();
    module.visit(&mut names);
    let frozen = frozen_names(names.found, patterns)?;
    let module = module.map(&mut Freezing {
        path: Vec::new(),
        frozen: &frozen,
    });
    Ok((module, frozen))
}

/// The names that [`freeze`] freezes among the names of all parameters of a model
/// ([`TransformerConfig::parameter_shapes`](transformer_core::TransformerConfig::parameter_shapes)), in the same
/// order. This checks patterns before the model exists.
///
/// # Errors
/// As [`freeze`].
pub fn frozen_names(
    names: Vec<String>,
    patterns: &[impl AsRef<str>],
) -> Result<Vec<String>, FreezeError> {
    for pattern in patterns.iter().map(AsRef::as_ref) {
        if !names.iter().any(|name| matches(pattern, name)) {
            return Err(FreezeError::NoMatch {
                pattern: pattern.to_owned(),
                near: near(pattern, &names),
            });
        }
    }
    let is_frozen = |name: &String| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| matches(pattern.as_ref(), name))
    };
    let (frozen, left): (Vec<String>, Vec<String>) = names.into_iter().partition(is_frozen);
    match left.is_empty() {
        true => Err(FreezeError::NothingLeft {
            parameters: frozen.len(),
        }),
        false => Ok(frozen),
    }
}

/// Why parameters cannot be frozen.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FreezeError {
    /// A pattern matches no parameter.
    #[error("`{pattern}` matches no parameter{}", similar(near))]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// Similar patterns and names that match a parameter.
        near: Vec<String>,
    },
    /// The patterns match every parameter.
    #[error("all {parameters} parameters are frozen; at least one must be trained")]
    NothingLeft {
        /// The number of parameters.
        parameters: usize,
    },
}

/// The end of a message that names similar patterns, if there are any.
fn similar(near: &[String]) -> String {
    match near.is_empty() {
        true => String::new(),
        false => format!("; similar: `{}`", near.join("`, `")),
    }
}

/// The names of a module's frozen parameters, in the module's order.
///
/// # Errors
/// [`TrainError::AllFrozen`].
pub(crate) fn frozen_parameters<B: AutodiffBackend, M: Module<B>>(
    module: &M,
) -> Result<Vec<String>, TrainError> {
    let [all, frozen] = [false, true].map(|only_frozen| {
        let mut names = Names {
            only_frozen,
            ..Names::default()
        };
        module.visit(&mut names);
        names.found
    });
    match !frozen.is_empty() && frozen.len() == all.len() {
        true => Err(TrainError::AllFrozen {
            parameters: frozen.len(),
        }),
        false => Ok(frozen),
    }
}

/// Whether a pattern matches a whole name.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    // The part between the first star and the last, and the part after the last star.
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inside = name
        .strip_prefix(start)
        .and_then(|name| name.strip_suffix(end));
    let Some(mut inside) = inside else {
        return false;
    };
    // The leftmost match of each part leaves the most for later parts.
    middle.split('*').all(|part| match inside.find(part) {
        Some(at) => {
            inside = &inside[at + part.len()..];
            true
        }
        None => false,
    })
}

/// The names, and the patterns for whole modules, that are most similar to a pattern.
fn near(pattern: &str, names: &[String]) -> Vec<String> {
    let mut candidates = names.to_vec();
    for name in names {
        let ends = name.match_indices('.').map(|(at, _)| at);
        candidates.extend(ends.map(|end| format!("{}.*", &name[..end])));
    }
    candidates.sort();
    candidates.dedup();
    let characters = |text: &str| text.chars().collect::<Vec<_>>();
    let pattern = characters(pattern);
    // Stable: equally distant candidates are sorted by name.
    candidates.sort_by_key(|candidate| levenshtein(&pattern, &characters(candidate)));
    candidates.truncate(NEAR);
    candidates
}

/// Collects the names of the parameters.
#[derive(Default)]
struct Names {
    only_frozen: bool,
    path: Vec<String>,
    found: Vec<String>,
}

impl<B: Backend> ModuleVisitor<B> for Names {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !self.only_frozen || !param.is_require_grad() {
            self.found.push(self.path.join("."));
        }
    }
}

/// Freezes the parameters with these names.
struct Freezing<'a> {
    path: Vec<String>,
    frozen: &'a [String],
}

impl<B: Backend> ModuleMapper<B> for Freezing<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        match self.frozen.contains(&self.path.join(".")) {
            true => param.set_require_grad(false),
            false => param,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in [
            ("a.b", "a.b"),
            ("*", "a.b"),
            ("*", ""),
            ("a.*", "a.b.c"),
            ("a.*", "a."),
            ("*.c", "a.b.c"),
            ("a*c", "a.b.c"),
            ("*b*", "a.b.c"),
            ("**", "a"),
            ("a*b*b", "a.b.b"),
            ("*ab*ab", "ab.abab"),
            ("*é*", "aéb"),
        ] {
            assert!(matches(pattern, name), "{pattern} and {name}");
        }
        for (pattern, name) in [
            ("a", "a.b"),
            ("b", "a.b"),
            ("", "a"),
            ("a.*", "b.a.c"),
            ("*.c", "a.cd"),
            // One `b` cannot match both.
            ("a*b*b", "a.b"),
            ("ab*b", "ab"),
            ("*ab*ab*", "abxb"),
            ("a.?", "a.b"),
        ] {
            assert!(!matches(pattern, name), "{pattern} and {name}");
        }
    }

    #[test]
    fn similar_patterns_and_names_are_found() {
        let names = [
            "src_embedding.weight",
            "encoder.layers.0.norm.gamma",
            "encoder.layers.1.norm.gamma",
            "decoder.layers.0.norm.gamma",
        ]
        .map(str::to_owned);
        assert_eq!(near("encodr.*", &names)[0], "encoder.*");
        assert_eq!(near("encoder", &names)[0], "encoder.*");
        assert_eq!(near("embedding.*", &names)[0], "src_embedding.*");
        assert_eq!(near("tgt_embedding.weight", &names)[0], names[0]);
        assert_eq!(near("x", &names).len(), NEAR);
        assert!(near("x", &[]).is_empty());
    }
}
