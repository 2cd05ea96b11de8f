//! Lines of fields.

use super::lines;
use crate::builder::Builder;
use crate::document::Document;
use crate::writing::Writing;

/// Reads a text, of which one field of each line is translated.
pub(super) fn read(text: &str, column: usize) -> Document {
    let mut builder = Builder::new(Writing::Field);
    for (line, end) in lines(text) {
        for (index, field) in line.split('\t').enumerate() {
            if index > 0 {
                builder.skeleton("\t");
            }
            match index == column {
                true => builder.text(field, field),
                false => builder.skeleton(field),
            }
        }
        builder.skeleton(end);
    }
    builder.end()
}
