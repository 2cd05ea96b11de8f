//! The order of the source folders: a module imports only from modules before it, and a name from the module that
//! defines it, not from the crate's root, which is for users.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate with its modules, from the ground up; the program's folder is the root.
const CRATES: [(&str, &[&str]); 8] = [
    ("transformer-alloc", &["jemalloc", "system"]),
    (
        "transformer-cpu",
        &[
            "types",
            "sizes",
            "simd",
            "buffer",
            "random",
            "amx",
            "transpose",
            "products",
            "packed",
            "attention",
            "elementwise",
            "rows",
        ],
    ),
    (
        "transformer-kernels",
        &[
            "sizes",
            "kernels",
            "autodiff",
            "precision",
            "ops",
            "host",
            "torch",
        ],
    ),
    (
        "transformer-core",
        &[
            "backend",
            "special_tokens",
            "nn",
            "decoding",
            "models",
            "packed",
            "formats",
            "text",
        ],
    ),
    (
        "transformer-train",
        &[
            "printable",
            "files",
            "data",
            "shortlist",
            "error",
            "objective",
            "metrics",
            "config",
            "optim",
            "loaders",
            "learner",
            "validation",
            "ranks",
            "progress",
            "run",
        ],
    ),
    (
        "transformer-text",
        &[
            "scripts",
            "languages",
            "writing",
            "document",
            "sentence",
            "builder",
            "formats",
            "report",
            "guard",
            "place",
            "protect",
            "segment",
            "detect",
            "translator",
        ],
    ),
    (
        "transformer-serve",
        &[
            "error",
            "languages",
            "fields",
            "files",
            "detect",
            "inside",
            "model",
            "queue",
            "pairs",
            "service",
            "libretranslate",
            "deepl",
        ],
    ),
    (
        "",
        &["process", "backend", "run_file", "commands", "command_line"],
    ),
];

/// The source files of a crate, without those of tests.
fn files(crate_name: &str) -> Vec<PathBuf> {
    let mut folders = vec![
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(crate_name)
            .join("src"),
    ];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path
                .file_stem()
                .is_some_and(|stem| stem == "tests" || stem == "testing");
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The lines of a file that are compiled for users, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let product = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines = (1..).zip(product.lines());
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The first parts of the paths in a line that begin at the root of its crate.
fn roots(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).map(|rest| {
        let is_name = |character: char| character.is_alphanumeric() || character == '_';
        rest.split(|character| !is_name(character))
            .next()
            .unwrap_or_default()
    })
}

#[test]
fn modules_import_from_those_before_them_only() {
    let mut problems = Vec::new();
    for (crate_name, modules) in CRATES {
        let order: BTreeMap<&str, usize> = modules.iter().copied().zip(0..).collect();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(crate_name)
            .join("src");
        for path in files(crate_name) {
            let short = path.strip_prefix(&source).unwrap();
            let first = short.components().next().unwrap().as_os_str();
            let own = Path::new(first).file_stem().unwrap().to_str().unwrap();
            if own == "lib" || own == "main" {
                continue;
            }
            let Some(place) = order.get(own) else {
                problems.push(format!("{crate_name}: `{own}` has no place in the order"));
                continue;
            };
            for (number, line) in lines(&fs::read_to_string(&path).unwrap()) {
                for root in roots(line) {
                    let at = format!("{}:{number}", path.display());
                    match order.get(root) {
                        Some(other) if other <= place => {}
                        Some(_) => problems.push(format!(
                            "{at}: `{own}` imports from `{root}`, which comes after it"
                        )),
                        None => problems.push(format!(
                            "{at}: `crate::{root}` is not the module that defines a name"
                        )),
                    }
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}
