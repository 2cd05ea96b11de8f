//! Page 10: decoding.

use crate::svg::{DARK, Svg};
use crate::{Listing, Picture};

pub const LISTINGS: &[Listing] =
    &[("operations", operations), ("beam_search", beam_search), ("length_penalty", length_penalty)];
pub const PICTURES: &[Picture] = &[("beam-search", tree)];

fn operations() {
    println!("           positions           scores");
    println!("   n     all    cached       all    cached");
    for n in [10_u64, 100, 1000] {
        let (mut positions, mut scores) = ([0, 0], [0, 0]);
        for len in 1..=n {
            positions = [positions[0] + len, positions[1] + 1];
            scores = [scores[0] + len * len, scores[1] + len];
        }
        let ([a, b], [c, d]) = (positions, scores);
        println!("{n:4}  {a:6}    {b:6} {c:9}    {d:6}");
    }
}

const TOKENS: [&str; 5] = ["no", "thank", "you", "sir", "<eos>"];
const EOS: usize = 4;
/// Probabilities of the next token: at the beginning, and after each of the first four tokens.
const NEXT: [[f64; 5]; 5] = [
    [0.50, 0.40, 0.00, 0.10, 0.00],
    [0.00, 0.33, 0.00, 0.35, 0.32],
    [0.00, 0.00, 1.00, 0.00, 0.00],
    [0.00, 0.00, 0.00, 0.48, 0.52],
    [0.00, 0.00, 0.00, 0.00, 1.00],
];

/// Tokens, and the sum of their log-probabilities.
type Hypothesis = (Vec<usize>, f64);

/// Every hypothesis continued by every possible token, the best first.
fn continued(beam: &[Hypothesis]) -> Vec<Hypothesis> {
    let mut candidates = vec![];
    for (tokens, score) in beam {
        let row = tokens.last().map_or(0, |token| token + 1);
        for (token, p) in NEXT[row].iter().enumerate().filter(|(_, p)| **p > 0.0) {
            candidates.push(([&tokens[..], &[token]].concat(), score + p.ln()));
        }
    }
    candidates.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    candidates
}

/// The best candidates of each step, of which those without `<eos>` are continued.
fn search(width: usize) -> Vec<Vec<Hypothesis>> {
    let (mut steps, mut finished) = (vec![], 0);
    let mut beam = vec![(vec![], 0.0)];
    while finished < width && !beam.is_empty() {
        let mut best = continued(&beam);
        best.truncate(width);
        beam = best.clone();
        beam.retain(|(tokens, _)| tokens.last() != Some(&EOS));
        finished += best.len() - beam.len();
        steps.push(best);
    }
    steps
}

fn words(tokens: &[usize]) -> String {
    Vec::from_iter(tokens.iter().map(|&token| TOKENS[token])).join(" ")
}

fn beam_search() {
    for width in [1, 2] {
        println!("beam of {width}");
        for (step, kept) in (1..).zip(search(width)) {
            let kept = kept.iter().map(|(tokens, score)| format!("{} {score:.2}", words(tokens)));
            println!("  step {step}: {}", Vec::from_iter(kept).join(" | "));
        }
    }
}

fn length_penalty() {
    let ended = search(2).concat().into_iter().filter(|(tokens, _)| tokens.last() == Some(&EOS));
    for (tokens, score) in ended {
        print!("{:20} ln p {score:.3}", words(&tokens));
        for alpha in [0.0, 0.6, 1.0] {
            let penalty = ((5.0 + tokens.len() as f64) / 6.0).powf(alpha);
            print!("   α {alpha:.1}: {:.3}", score / penalty);
        }
        println!();
    }
}

/// The search with a beam of 2: a column per step, a box per candidate.
fn tree() -> String {
    let (size, row, root) = ([120.0, 40.0], 58.0, [20.0, 98.0]);
    let mut svg = Svg::new(835.0, 325.0);
    svg.boxed(root, size, "#fff", &["<bos>", "0"]);
    let mut beam: Vec<(Hypothesis, [f64; 2])> = vec![((vec![], 0.0), root)];
    for (step, kept) in (1..).zip(search(2)) {
        let (x, mut y) = (20.0 + 170.0 * f64::from(step), 40.0);
        svg.text([x + size[0] / 2.0, 22.0], "middle", 13, &format!("step {step}"));
        let mut next = vec![];
        for (parent, from) in &beam {
            let children = continued(std::slice::from_ref(parent));
            y = f64::max(y, from[1] - row * (children.len() as f64 - 1.0) / 2.0);
            for child in children {
                let is_kept = kept.contains(&child);
                let has_ended = child.0.last() == Some(&EOS);
                let (fill, colour, width) = match (is_kept, has_ended) {
                    (true, true) => (FINISHED, DARK, 2.0),
                    (true, false) => (KEPT, DARK, 2.0),
                    (false, _) => (DROPPED, "#bbb", 1.0),
                };
                let start = [from[0] + size[0], from[1] + size[1] / 2.0];
                svg.line(&[start, [x, y + size[1] / 2.0]], colour, width);
                let token = TOKENS[child.0[child.0.len() - 1]];
                svg.boxed([x, y], size, fill, &[token, &format!("{:.2}", child.1)]);
                if is_kept && !has_ended {
                    next.push((child, [x, y]));
                }
                y += row;
            }
        }
        beam = next;
    }
    let legend = [(KEPT, "kept"), (FINISHED, "kept and finished"), (DROPPED, "dropped")];
    for (place, (fill, meaning)) in legend.into_iter().enumerate() {
        let x = 190.0 + 170.0 * place as f64;
        svg.rect([x, 298.0], [14.0, 14.0], fill);
        svg.text([x + 22.0, 309.0], "start", 12, meaning);
    }
    svg.finish()
}

const KEPT: &str = "#cddff2";
const FINISHED: &str = "#cfe8d5";
const DROPPED: &str = "#f3f3f3";
