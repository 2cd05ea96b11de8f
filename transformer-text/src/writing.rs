//! How translated text is written in a format.

/// How text is written in a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// As it is.
    Plain,
    /// `&`, `<`, `>` and spaces that do not break as references, which XML knows, too.
    Html,
    /// `&`, `<` and `>` as entities.
    Xml,
    /// The same, and the quotation mark around the value of an attribute; a space in a value without any.
    Attribute(Option<char>),
    /// With a backslash before what would be markup.
    Markdown,
    /// Without tabs, which end a field.
    Field,
    /// With the escapes of a string in a PO file.
    Po,
}

impl Writing {
    /// Appends a text as it is written.
    pub fn write(self, text: &str, written: &mut String) {
        let is_word = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
        let mut letters = text.chars().peekable();
        let mut before = None;
        while let Some(letter) = letters.next() {
            let is_in_word = is_word(before) && is_word(letters.peek().copied());
            before = Some(letter);
            match (self, letter) {
                (Self::Html | Self::Xml | Self::Attribute(_), '&') => *written += "&amp;",
                (Self::Html | Self::Xml | Self::Attribute(_), '<') => *written += "&lt;",
                (Self::Html | Self::Xml | Self::Attribute(_), '>') => *written += "&gt;",
                (Self::Html | Self::Attribute(_), '\u{a0}') => *written += "&#160;",
                (Self::Attribute(Some('"')), '"') => *written += "&quot;",
                (Self::Attribute(Some('\'')), '\'') => *written += "&#39;",
                (Self::Attribute(None), ' ' | '"' | '\'' | '=' | '`' | '\t' | '\n') => {
                    *written += &format!("&#{};", letter as u32);
                }
                (Self::Markdown, '_') if is_in_word => written.push('_'),
                (Self::Markdown, '*' | '_' | '`' | '[' | ']' | '<' | '\\' | '|' | '~' | '$') => {
                    written.push('\\');
                    written.push(letter);
                }
                (Self::Field, '\t') => written.push(' '),
                (Self::Po, '"') => *written += "\\\"",
                (Self::Po, '\\') => *written += "\\\\",
                (Self::Po, '\n') => *written += "\\n",
                (Self::Po, '\t') => *written += "\\t",
                (Self::Po, '\r') => *written += "\\r",
                (Self::Po, control @ '\0'..='\x1f') => {
                    *written += &format!("\\{:03o}", control as u32)
                }
                _ => written.push(letter),
            }
        }
    }

    /// A text as it is written.
    pub fn written(self, text: &str) -> String {
        let mut written = String::with_capacity(text.len());
        self.write(text, &mut written);
        written
    }
}
