//! Pictures of attention weights.

mod support;

use std::fs;
use std::path::Path;

use support::{fails, labels, succeeds, trained, with_model};

/// The darkest field of a picture, and the lightest: all the attention, and none.
const SHADES: [&str; 2] = ["#08306B", "#EEF2F7"];

/// The decoder's attention to itself: every token named beside its row and above its column, and no
/// row with a shade above the diagonal.
#[test]
fn attention_is_drawn_with_rows_that_attend_and_columns_that_are_attended_to() {
    let (folder, model) = trained();
    let draw = |out: &Path, flags: &[&str]| {
        let mut command = with_model("attention", &model);
        let command = command.arg("--out").arg(out);
        let pair = ["--source", "one and two", "--target", "un et"];
        succeeds(command.args(pair).args(flags))
    };
    let svg = folder.path().join("attention.svg");
    draw(&svg, &["--kind", "decoder", "--layer", "2", "--head", "3"]);
    let svg = fs::read_to_string(&svg).expect("a picture");
    // The title, then the tokens of the rows and of the columns.
    let labels = labels(&svg);
    let count = (labels.len() - 1) / 2;
    assert_eq!(labels[0], "layer 2, head 3");
    assert_eq!(labels[1], "&lt;bos&gt;");
    assert_eq!(labels[1..=count], labels[count + 1..]);
    assert_eq!(labels[2..=count].concat(), "␣unet");
    let fields: Vec<&str> = svg
        .split("<rect ")
        // The first is the background.
        .skip(2)
        .filter_map(|rect| rect.split_once("fill=\"")?.1.split_once('"'))
        .map(|(fill, _)| fill)
        .collect();
    assert_eq!(fields.len(), count * count);
    assert_eq!(fields[0], SHADES[0], "<bos> attends to itself alone");
    for row in 0..count {
        for column in 0..count {
            let is_future = fields[row * count + column] == SHADES[1];
            assert_eq!(is_future, column > row, "row {row}, column {column}");
        }
    }

    // The tokens as the model reads them: a source ends in `<eos>`, a target begins with `<bos>`.
    let of_kind = |kind: &str| {
        let svg = folder.path().join("kind.svg");
        draw(&svg, &["--kind", kind, "--layer", "1", "--head", "1"]);
        fs::read_to_string(&svg).expect("a picture")
    };
    let encoder = of_kind("encoder");
    let encoder = support::labels(&encoder);
    let (source, columns) = encoder[1..].split_at((encoder.len() - 1) / 2);
    assert_eq!(source, columns);
    assert_eq!(source.last(), Some(&"&lt;eos&gt;"));
    let cross = of_kind("cross");
    let mut cross = support::labels(&cross)[1..].to_vec();
    let mut tokens = [source, &labels[1..=count]].concat();
    cross.sort_unstable();
    tokens.sort_unstable();
    assert_eq!(cross, tokens);

    // Four heads in each of two layers, as many panels wide and high.
    let size = |name: &str, flags: &[&str]| -> [u32; 2] {
        let png = folder.path().join(name);
        draw(&png, flags);
        let bytes = fs::read(&png).expect("a picture");
        assert!(bytes.starts_with(b"\x89PNG"));
        [16, 20].map(|at| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
    };
    let all = size("all.png", &[]);
    let row = size("row.png", &["--layer", "1"]);
    let head = size("column.png", &["--head", "1"]);
    assert_eq!([row[0], 2 * row[1]], all);
    assert_eq!([4 * head[0], head[1]], all);

    let error = |flags: &[&str]| {
        let mut command = with_model("attention", &model);
        fails(command.args(["--source", "one"]).args(flags))
    };
    assert_eq!(
        error(&["--layer", "3"]),
        "error: --layer 3: must be between 1 and 2"
    );
    assert_eq!(
        error(&["--head", "0"]),
        "error: --head 0: must be between 1 and 4"
    );
    assert_eq!(
        error(&["--out", "a.gif"]),
        "error: a.gif: must end in .svg or .png"
    );
}
