//! Curves of runs: every run and number named, every point drawn, also of runs without a log.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::{fails, folder, labels, program, succeeds, train, trained};

/// The colors of the first two runs.
const COLORS: [&str; 2] = ["#0072B2", "#D55E00"];

fn curves(directories: &[&Path]) -> Command {
    let mut command = program("curves");
    command.args(directories);
    command
}

/// The value of an attribute.
fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let start = format!(" {name}=\"");
    let (_, value) = tag.split_once(&start).expect("the attribute");
    value.split_once('"').expect("its end").0
}

/// A curve in a picture.
struct Line<'a> {
    color: &'a str,
    width: &'a str,
    points: Vec<(i32, i32)>,
}

/// The curves of a picture, in order: the lines that have a color.
fn lines(svg: &str) -> Vec<Line<'_>> {
    let tags = svg.split("<polyline").skip(1);
    let lines = tags.map(|tag| Line {
        color: attribute(tag, "stroke"),
        width: attribute(tag, "stroke-width"),
        points: attribute(tag, "points")
            .split_whitespace()
            .map(|point| {
                let (x, y) = point.split_once(',').expect("two numbers");
                (x.parse().expect("x"), y.parse().expect("y"))
            })
            .collect(),
    });
    lines.filter(|line| COLORS.contains(&line.color)).collect()
}

/// A run with a log, and one without: its checkpoint, as of which it has the same validations.
#[test]
fn each_run_and_number_is_named_and_each_point_is_drawn() {
    let (folder, model) = trained();
    let old = model.join("checkpoints/update-00000004");
    let runs = [model.as_path(), old.as_path()];
    let draw = |name: &str, flags: &[&str]| {
        let out = folder.path().join(name);
        let printed = succeeds(curves(&runs).args(flags).arg("--out").arg(&out));
        let titles = printed.strip_prefix(&format!("{}: ", out.display()));
        assert!(
            titles.is_some_and(|titles| titles.starts_with("loss")),
            "{printed}"
        );
        fs::read(&out).expect("a picture")
    };
    let svg = draw("curves.svg", &["--numbers", "loss,Rate,tokens"]);
    let svg = String::from_utf8(svg).expect("text");
    let labels = labels(&svg);
    for name in runs {
        let name = name.display().to_string();
        assert!(labels.contains(&name.as_str()), "{name}: {labels:?}");
    }
    for title in [
        "loss, in nats per token",
        "learning rate",
        "target tokens trained on per second",
        "updates",
    ] {
        assert!(labels.contains(&title), "{title}: {labels:?}");
    }

    // The log has points after updates 1, 2 and 4, and validations after 2 and 4. The checkpoint's training is
    // drawn as recorded at its validations.
    let lines = lines(&svg);
    let found: Vec<_> = lines
        .iter()
        .map(|l| (l.color, l.width, l.points.len()))
        .collect();
    let [logged, old] = COLORS;
    let expected = [
        (logged, "1", 3),
        (logged, "2", 2),
        (old, "1", 2),
        (old, "2", 2),
        (logged, "1", 3),
        (logged, "1", 3),
        (old, "1", 2),
    ];
    assert_eq!(found, expected);
    // Validations are the same ones.
    assert_eq!(lines[1].points, lines[3].points);
    // During the warm-up of 4 updates, the rate is a line through zero: after updates 1, 2 and 4.
    let rate = &lines[4].points;
    let steps = [rate[1].0 - rate[0].0, rate[2].0 - rate[1].0];
    assert!((steps[1] - 2 * steps[0]).abs() <= 2, "{rate:?}");
    let rises = [rate[0].1 - rate[1].1, rate[1].1 - rate[2].1];
    assert!(
        rises[0] > 0 && (rises[1] - 2 * rises[0]).abs() <= 2,
        "{rate:?}"
    );

    let png = draw("curves.png", &["--numbers", "loss,Rate,tokens"]);
    assert!(png.starts_with(b"\x89PNG"));
    let size = [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().expect("four")));
    let expected = ["width", "height"].map(|side| attribute(&svg, side).parse::<u32>());
    assert_eq!(expected, size.map(Ok));

    // Without --numbers, those that runs have; over the time that they took.
    let svg = draw("seconds.svg", &["--over", "seconds"]);
    let svg = String::from_utf8(svg).expect("text");
    let labels = support::labels(&svg);
    for title in ["learning rate", "seconds of training"] {
        assert!(labels.contains(&title), "{title}: {labels:?}");
    }
    assert!(!labels.contains(&"perplexity"), "{labels:?}");
}

/// The numbers of a run with a log, and of its checkpoint.
#[test]
fn the_average_at_the_end_of_a_run_is_a_mark_in_a_ring() {
    let folder = folder();
    let model = folder.path().join("model");
    let average = ["--set", "checkpoint.average_last=2"];
    succeeds(train(folder.path(), &model).args(average));
    let out = folder.path().join("curves.svg");
    for run in [&model, &model.join("checkpoints/update-00000004")] {
        let numbers = ["--numbers", "loss,perplexity", "--out"];
        succeeds(curves(&[run.as_path()]).args(numbers).arg(&out));
        let svg = fs::read_to_string(&out).expect("a picture");
        let rings = svg.split("<circle").filter(|tag| tag.contains(" r=\"8\""));
        assert_eq!(rings.count(), 2, "{svg}");
        let legend = "average of the last checkpoints: a mark in a ring";
        assert!(labels(&svg).contains(&legend), "{:?}", labels(&svg));
    }
}

#[test]
fn a_directory_without_a_run_and_numbers_that_no_run_has_are_named() {
    let (folder, model) = trained();
    let none = folder.path();
    let error = fails(&mut curves(&[model.as_path(), none]));
    let name = none.display();
    assert_eq!(
        error,
        format!("error: {name}: not a training run: it has no log.jsonl and no checkpoint")
    );
    let error = |flags: &[&str]| fails(curves(&[model.as_path()]).args(flags));
    let unknown = error(&["--numbers", "loss,blue"]);
    let expected = "error: --numbers blue: unknown; these runs have \
         loss, perplexity, accuracy, rate, tokens, norm";
    assert!(unknown.starts_with(expected), "{unknown}");
    assert_eq!(
        error(&["--out", "a.gif"]),
        "error: a.gif: must end in .svg or .png"
    );

    for picture in ["curves.svg", "curves.png"] {
        let missing = folder.path().join("nowhere");
        let out = missing.join(picture);
        let found = error(&["--out", out.to_str().expect("a path")]);
        let expected = format!("error: {}: no such directory", missing.display());
        assert_eq!(found, expected);
        // There is a directory of the picture's name.
        let taken = folder.path().join(picture);
        fs::create_dir(&taken).expect("a directory");
        let found = error(&["--out", taken.to_str().expect("a path")]);
        let start = format!("error: {}: ", taken.display());
        assert!(found.starts_with(&start), "{found}");
        assert!(!found.contains("backend"), "{found}");
    }

    let log = model.join("log.jsonl");
    let text = fs::read_to_string(&log).expect("the log");
    fs::write(&log, text.replacen("event", "even", 1)).expect("written");
    let damaged = error(&[]);
    assert!(damaged.contains("log.jsonl: line 1: "), "{damaged}");
    fs::remove_file(&log).expect("removed");
    assert_eq!(
        error(&["--numbers", "rate"]),
        "error: --numbers rate: no run has recorded it; only runs with a log record it"
    );
}
