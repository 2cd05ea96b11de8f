//! A run as text: `run.toml`, and the tables of the guide.

use super::error::LAST_LINE;
use super::key::Section;
use super::keys::{RunFile, SECTIONS};

const HEADER: &str = "\
# Every key of the run in this directory, with its value.
# `transformer train --resume --out DIR` resumes the run from any directory, because its pairs are saved here, too.
";

impl RunFile {
    /// The text of `run.toml`, which is read as the same run. Keys without an effect are comments.
    pub fn to_toml(&self) -> String {
        let mut text = HEADER.to_owned();
        let values = self.table();
        for section in &SECTIONS {
            text.push('\n');
            comment(&mut text, section.about);
            text += &format!("[{}]\n", section.name);
            for key in section.keys {
                text.push('\n');
                comment(&mut text, key.text);
                text += &match (self.overruled_by(key.path), key.of(&values)) {
                    (Some(other), _) => {
                        format!("# {} has no effect together with {other}\n", key.name)
                    }
                    (None, Some(value)) => format!("{} = {value}\n", key.name),
                    (None, None) => format!("# {} is absent\n", key.name),
                };
            }
        }
        text += &format!("\n{LAST_LINE}\n");
        text
    }
}

fn comment(text: &mut String, lines: &[&str]) {
    for line in lines {
        text.push_str("# ");
        text.push_str(line.trim());
        text.push('\n');
    }
}

/// Every key, section by section, as Markdown. docs/guide/config.md contains this text, word for word.
pub fn reference() -> String {
    let sections: Vec<_> = SECTIONS.iter().map(section).collect();
    sections.join("\n")
}

fn section(section: &Section) -> String {
    let about = one_line(section.about);
    let mut text = format!("### `[{}]`\n{about}\n\n", section.name);
    text += "| key | flag | default | |\n|---|---|---|---|\n";
    for key in section.keys {
        let flag = key.flag.map_or(String::new(), |flag| format!("`{flag}`"));
        let default = key
            .default()
            .map_or("absent".to_owned(), |value| format!("`{value}`"));
        let about = one_line(key.text);
        text += &format!("| `{}` | {flag} | {default} | {about} |\n", key.name);
    }
    text
}

fn one_line(lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| line.trim()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::Values;
    use crate::run_file::values::is_whole;

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_not_whole_and_an_edited_one_is() {
        let values = Values::from_settings(&["data.train=pairs.tsv".into()]).unwrap();
        let text = RunFile::read(&values).unwrap().to_toml();
        assert!(is_whole(&text));
        // A file that is cut off loses the end of its last line first.
        let end = text.trim_end().len();
        let cuts = text.char_indices().map(|(at, _)| at);
        for at in cuts.filter(|&at| at < end) {
            assert!(!is_whole(&text[..at]), "cut off after {at} of {end} bytes");
        }
        let raised = text.replace("\nupdates = 5000\n", "\nupdates = 9000\n");
        assert_ne!(raised, text);
        let appended = text.replace('\n', "\r\n") + "# Raised twice.";
        assert!(is_whole(&raised) && is_whole(&appended));
    }
}
