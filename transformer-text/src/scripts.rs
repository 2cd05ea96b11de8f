//! Properties of scripts.

/// Whether words of the character's script are not divided by spaces: Chinese, Japanese, Thai, Lao, Burmese, Khmer.
pub(crate) fn has_no_spaces(letter: char) -> bool {
    matches!(letter,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{2e80}'..='\u{30ff}'
        | '\u{31f0}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ff9f}'
        | '\u{20000}'..='\u{3ffff}')
}
