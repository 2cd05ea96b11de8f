//! Every link of the documents leads somewhere, and every command in them is one that the program has.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use transformer_program::CommandLine;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages of the repository, with their text.
fn documents() -> Vec<(PathBuf, String)> {
    let mut folders = vec![root().to_owned()];
    let mut documents = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            // `texts` has documents that are translated in tests.
            let is_other = ["target", "texts"].contains(&&*name) || name.starts_with('.');
            if path.is_dir() && !is_other {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).expect("UTF-8");
                documents.push((path, text));
            }
        }
    }
    assert!(documents.len() > 40, "{} documents", documents.len());
    documents
}

/// The lines inside or outside of blocks of code, with their numbers.
fn lines(text: &str, in_blocks: Option<&str>) -> Vec<(usize, String)> {
    let mut block: Option<String> = None;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, &block) {
            (Some(language), None) => block = Some(language.to_owned()),
            (Some(_), Some(_)) => block = None,
            (None, block) if block.as_deref() == in_blocks => {
                found.push((number, line.to_owned()));
            }
            _ => {}
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    for (_, line) in lines(text, None) {
        let Some(heading) = line.strip_prefix('#') else {
            continue;
        };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|&character| character.is_alphanumeric() || " -_".contains(character));
        let anchor = String::from_iter(kept).replace(' ', "-");
        let mut number = 0;
        let mut unique = anchor.clone();
        while !anchors.insert(unique) {
            number += 1;
            unique = format!("{anchor}-{number}");
        }
    }
    anchors
}

/// The targets of the links in a line: `](TARGET)`, but not in `code`.
fn links(line: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        let is_code =
            rest[..at].matches('`').count() % 2 == 1 && rest[at..].find('`') < rest[at..].find(')');
        rest = &rest[at + 2..];
        if let Some(end) = rest.find(')')
            && !is_code
        {
            links.push(&rest[..end]);
        }
    }
    links
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    let mut checked = 0;
    for (path, text) in documents() {
        for (number, line) in lines(&text, None) {
            for link in links(&line) {
                if link.starts_with("http") {
                    continue;
                }
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = match file {
                    "" => path.clone(),
                    file => path.parent().expect("a folder").join(file),
                };
                let has_anchor = || {
                    let text = fs::read_to_string(&target).unwrap_or_default();
                    anchors(&text).contains(anchor)
                };
                checked += 1;
                if !target.exists() || !anchor.is_empty() && !has_anchor() {
                    broken.push(format!("{}:{number}: {link}", path.display()));
                }
            }
        }
    }
    assert!(checked > 300, "{checked} links");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The commands of the shell blocks: continued lines joined, pipes and lists taken apart.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut is_continued = false;
    for (number, line) in lines(text, Some("sh")) {
        let end = line.strip_suffix('\\');
        let line = end.unwrap_or(&line).trim();
        match commands.last_mut().filter(|_| is_continued) {
            Some((_, command)) => *command += &format!(" {line}"),
            None => commands.push((number, line.to_owned())),
        }
        is_continued = end.is_some();
    }
    let parts = |(number, line): (usize, String)| {
        let line = line.split(" #").next().unwrap_or("").to_owned();
        let parts = line
            .replace("&&", "|")
            .replace(" > ", "|")
            .replace(';', "|");
        let parts = parts.split('|').map(|part| part.trim().to_owned());
        Vec::from_iter(parts.map(|part| (number, part)))
    };
    commands.into_iter().flat_map(parts).collect()
}

#[test]
fn commands_are_the_programs() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (path, text) in documents() {
        if path.starts_with(root().join("benches")) {
            continue;
        }
        for (number, command) in commands(&text) {
            // The variable of a loop over seeds.
            let command = command.replace("$seed", "0");
            let words = shell_words::split(&command).unwrap_or_default();
            let place = format!("{}:{number}: {command}", path.display());
            let value = |flag: &str| {
                let at = words.iter().position(|word| word == flag)?;
                words.get(at + 1)
            };
            let is_program = match words.first().map(String::as_str) {
                Some("transformer") => Some(&words[1..]),
                Some("cargo") if value("-p").is_none() && value("--example").is_none() => {
                    let at = words.iter().position(|word| word == "--");
                    at.filter(|_| words[1] == "run").map(|at| &words[at + 1..])
                }
                _ => None,
            };
            // A command of a feature.
            let is_compiled = |arguments: &&[String]| {
                cfg!(feature = "serve")
                    || arguments.first().is_none_or(|command| command != "serve")
            };
            if let Some(arguments) = is_program.filter(is_compiled) {
                // A backend of a feature is as good as the one in every build.
                let built = |argument| match argument {
                    "flex" | "wgpu" | "tch" | "cuda" => "ndarray",
                    argument => argument,
                };
                let arguments = arguments.iter().map(|argument| built(argument.as_str()));
                let arguments = std::iter::once("transformer").chain(arguments);
                checked += 1;
                if let Err(error) = CommandLine::of(arguments)
                    && error.use_stderr()
                {
                    wrong.push(format!("{place}\n{error}"));
                }
            }
            if let Some(example) = value("--example") {
                let file = root().join("examples").join(example);
                checked += 1;
                if !file.with_extension("rs").exists() && !file.join("main.rs").exists() {
                    wrong.push(place.clone());
                }
            }
            if let Some(first) = words.first()
                && (first.starts_with("scripts/") || first.starts_with("benches/"))
            {
                checked += 1;
                if !root().join(first).exists() {
                    wrong.push(place);
                }
            }
        }
    }
    assert!(checked > 60, "{checked} commands");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
