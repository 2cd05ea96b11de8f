//! Markdown.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

use super::tag_name;
use crate::builder::Builder;
use crate::document::{Document, Template, push_raw, raw};
use crate::writing::Writing;

/// Reads Markdown: CommonMark, with tables, strikethrough, footnotes, task lists, alerts, attributes of headings and a
/// block of metadata.
pub(super) fn read(source: &str) -> Document {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS
        | Options::ENABLE_GFM
        | Options::ENABLE_HEADING_ATTRIBUTES
        | Options::ENABLE_MATH;
    let mut reader = Reader {
        source,
        at: 0,
        builder: Builder::new(Writing::Markdown),
        pending: Pending::None,
        skipped: 0,
        image: None,
        in_address: false,
        links: Vec::new(),
    };
    for (event, range) in Parser::new_ext(source, options).into_offset_iter() {
        reader.event(event, range);
    }
    reader.mark_until(source.len());
    reader.builder.end()
}

/// What the source up to the next event belongs to.
enum Pending {
    /// Nothing: it is a block's markup.
    None,
    /// The start of an element.
    Open(&'static str),
    /// A line break.
    Break,
}

struct Reader<'a> {
    source: &'a str,
    /// All before it is read.
    at: usize,
    builder: Builder,
    pending: Pending,
    /// Blocks around the current event that are kept as they are.
    skipped: usize,
    /// The text of an image, and where it starts.
    image: Option<(usize, String)>,
    /// Whether the current event is in a link that is its own text.
    in_address: bool,
    /// The links around the current event: the label of the definition, where the text of the link is the label.
    links: Vec<Option<String>>,
}

/// The name of an element within a line.
fn inline(tag: &TagEnd) -> Option<&'static str> {
    match tag {
        TagEnd::Emphasis => Some("em"),
        TagEnd::Strong => Some("strong"),
        TagEnd::Strikethrough => Some("s"),
        TagEnd::Link => Some("a"),
        _ => None,
    }
}

impl Reader<'_> {
    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        let is_kept = |tag: &TagEnd| {
            matches!(
                tag,
                TagEnd::CodeBlock | TagEnd::HtmlBlock | TagEnd::MetadataBlock(_)
            )
        };
        match event {
            Event::Start(tag) if is_kept(&tag.to_end()) => {
                self.mark_until(range.start);
                self.builder.end_passage();
                self.skipped += 1;
            }
            Event::End(tag) if is_kept(&tag) => {
                self.skipped -= 1;
                self.mark_until(range.end);
            }
            _ if self.skipped > 0 => {}
            Event::Start(Tag::Image { .. }) if self.image.is_none() => {
                self.mark_until(range.start);
                self.image = Some((range.start, String::new()));
                self.at = range.start;
            }
            Event::End(TagEnd::Image) => self.end_image(range),
            _ if self.image.is_some() => {
                if let (Event::Text(text) | Event::Code(text), Some((_, alt))) =
                    (event, &mut self.image)
                {
                    *alt += &text;
                }
            }
            // `<https://…>`, whose text is the address.
            Event::Start(Tag::Link {
                link_type: LinkType::Autolink | LinkType::Email,
                ..
            }) => {
                self.mark_until(range.start);
                let link = &self.source[range.clone()];
                let address = link.trim_matches(['<', '>']);
                self.builder.fixed(address, raw(link));
                self.at = range.end;
                self.in_address = true;
            }
            Event::End(TagEnd::Link) if self.in_address => self.in_address = false,
            _ if self.in_address => {}
            Event::Start(tag) => {
                self.mark_until(range.start);
                if let Tag::Link { link_type, id, .. } = &tag {
                    let is_label = matches!(link_type, LinkType::Collapsed | LinkType::Shortcut);
                    self.links.push(is_label.then(|| id.to_string()));
                }
                match inline(&tag.to_end()) {
                    Some(name) => self.pending = Pending::Open(name),
                    None => self.builder.end_passage(),
                }
            }
            Event::End(tag) => match inline(&tag) {
                Some(name) => {
                    self.flush(self.at);
                    let label = match tag {
                        TagEnd::Link => self.links.pop().flatten(),
                        _ => None,
                    };
                    // The range of a link without a label of its own ends before this.
                    let has_brackets =
                        label.is_some() && self.source[range.end..].starts_with("[]");
                    let end = range.end + if has_brackets { 2 } else { 0 };
                    let close = raw(&self.source[self.at.min(end)..end]);
                    self.at = self.at.max(end);
                    // The translated text is not the label.
                    let translated = label.map(|label| raw(format!("][{label}]")));
                    let translated = translated.unwrap_or_else(|| close.clone());
                    self.builder.close_as(name, &close, translated);
                    if let TagEnd::Link = tag {
                        self.builder.label();
                    }
                }
                None => {
                    self.flush(self.at);
                    self.builder.end_passage();
                }
            },
            Event::Text(text) => {
                let escape = self.escape(range.start);
                self.mark_until(range.start - escape);
                let in_document = &self.source[range.start - escape..range.end];
                self.builder.text(&text, in_document);
                self.at = range.end;
            }
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.mark_until(range.start);
                self.builder.fixed(&text, raw(&self.source[range.clone()]));
                self.at = range.end;
            }
            Event::InlineHtml(_) | Event::FootnoteReference(_) | Event::TaskListMarker(_) => {
                self.mark_until(range.start);
                let markup = &self.source[range.clone()];
                let name = tag_name(markup);
                match () {
                    () if !markup.starts_with('<') || name.is_empty() => {
                        self.builder.point(raw(markup))
                    }
                    () if markup.starts_with("</") => self.builder.close(name, raw(markup)),
                    () => self.builder.open(name, raw(markup)),
                }
                self.at = range.end;
            }
            Event::SoftBreak | Event::HardBreak => {
                self.mark_until(range.start);
                self.pending = Pending::Break;
            }
            Event::Html(_) | Event::Rule => {
                self.mark_until(range.start);
                self.builder.end_passage();
            }
        }
    }

    /// The length of the backslash before the text at a position; 0 without one.
    fn escape(&self, at: usize) -> usize {
        let is_escape = self.at < at
            && self.source[..at].ends_with('\\')
            && self.source[at..].starts_with(|letter: char| letter.is_ascii_punctuation());
        usize::from(is_escape)
    }

    /// Reads markup up to an event.
    fn mark_until(&mut self, end: usize) {
        if end < self.at {
            return;
        }
        let markup = &self.source[self.at..end];
        if let Pending::None = self.pending
            && self.builder.is_in_passage()
            && !markup.contains('\n')
        {
            self.at = end;
            if !markup.is_empty() {
                self.builder.point(raw(markup));
            }
            return;
        }
        self.flush(end);
    }

    /// Reads markup up to `end`, as what it belongs to.
    fn flush(&mut self, end: usize) {
        let markup = &self.source[self.at..end];
        self.at = end;
        match std::mem::replace(&mut self.pending, Pending::None) {
            Pending::Open(name) => self.builder.open(name, raw(markup)),
            Pending::Break if !markup.is_empty() => self.builder.line_break(markup),
            Pending::None if !markup.is_empty() => self.builder.skeleton(markup),
            Pending::Break | Pending::None => {}
        }
    }

    /// An image, whose text is a passage of its own.
    fn end_image(&mut self, range: Range<usize>) {
        let Some((start, alt)) = self.image.take() else {
            return;
        };
        let markup = &self.source[start..range.end];
        let mut template = Template::new();
        let place = markup
            .find(&alt[..])
            .filter(|_| crate::document::has_letters(&alt));
        match place {
            Some(place) => {
                push_raw(&mut template, &markup[..place]);
                let passage = self.builder.passage_of(&alt, &alt, Writing::Markdown);
                template.push(passage);
                push_raw(&mut template, &markup[place + alt.len()..]);
            }
            None => push_raw(&mut template, markup),
        }
        self.builder.point(template);
        self.at = range.end;
    }
}
