//! Changes of a JSON text, value by value.

use serde_json::{Value, json};

use super::{MOST_BYTES, bytes, text};
use crate::random::Random;

/// The most values of which a list is made by repeating one.
const MOST_REPEATED: usize = 2000;

/// The text with a few values changed; one that is no JSON, with lines changed.
pub fn mutated(seed: Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice::<Value>(&seed) else {
        return text::mutated(seed, seeds, random);
    };
    change_values(&mut value, random);
    let changed = value.to_string().into_bytes();
    // Keys that are there twice, and numbers that no value can have.
    match random.one_in(8) {
        true => bytes::mutated(changed, seeds, random),
        false => changed,
    }
}

/// Changes a few values.
pub fn change_values(value: &mut Value, random: &mut Random) {
    for _ in 0..random.few() {
        let other = {
            let mut at = random.below(count(value));
            found(value, &mut at).cloned()
        };
        let mut at = random.below(count(value));
        if let Some(place) = found_mut(value, &mut at) {
            change(place, other.unwrap_or_default(), random);
        }
    }
}

/// The number of values, those inside of others included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(keys) => keys.values().map(count).sum(),
        _ => 0,
    }
}

/// The value before which there are `at` others.
fn found<'a>(value: &'a Value, at: &mut usize) -> Option<&'a Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter().find_map(|item| found(item, at)),
        Value::Object(keys) => keys.values().find_map(|item| found(item, at)),
        _ => None,
    }
}

fn found_mut<'a>(value: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| found_mut(item, at)),
        Value::Object(keys) => keys.values_mut().find_map(|item| found_mut(item, at)),
        _ => None,
    }
}

fn change(place: &mut Value, other: Value, random: &mut Random) {
    if random.one_in(4) {
        *place = any(other, random);
        return;
    }
    match place {
        Value::Array(items) => match random.below(4) {
            0 => {
                let at = random.below(items.len() + 1);
                items.insert(at, other);
            }
            1 if !items.is_empty() => drop(items.remove(random.below(items.len()))),
            2 if !items.is_empty() => {
                let item = random.pick(items).clone();
                let most = MOST_BYTES / item.to_string().len().max(1);
                let times = random.below(most.min(MOST_REPEATED) + 1);
                items.extend(std::iter::repeat_n(item, times));
            }
            _ => {
                let (one, two) = (random.below(items.len()), random.below(items.len()));
                if !items.is_empty() {
                    items.swap(one, two);
                }
            }
        },
        Value::Object(keys) => {
            let names: Vec<String> = keys.keys().cloned().collect();
            let name = match names.is_empty() {
                true => "key".to_owned(),
                false => random.pick(&names).clone(),
            };
            match random.below(3) {
                0 => drop(keys.remove(&name)),
                1 => {
                    let value = keys.remove(&name).unwrap_or_default();
                    let name = text::changed(name, random);
                    keys.insert(name, value);
                }
                _ => drop(keys.insert(name, other)),
            }
        }
        Value::String(string) => {
            *string = text::changed(std::mem::take(string), random);
        }
        Value::Number(_) => *place = number(random),
        Value::Bool(flag) => *flag = !*flag,
        Value::Null => *place = other,
    }
}

fn any(other: Value, random: &mut Random) -> Value {
    match random.below(9) {
        0 => Value::Null,
        1 => json!(random.one_in(2)),
        2 | 3 => number(random),
        4 => json!([]),
        5 => json!({}),
        6 => json!(text::changed(String::new(), random)),
        // As deep as a reader may recurse, or deeper.
        7 => {
            let depth = random.below(300);
            (0..depth).fold(other, |inner, _| Value::Array(vec![inner]))
        }
        _ => other,
    }
}

fn number(random: &mut Random) -> Value {
    let number = random.number();
    match random.below(6) {
        0 => json!(-(number as f64)),
        1 => json!(0_i64.wrapping_sub(number as i64)),
        2 => json!(*random.pick(&[1e-45, 1e-300, 1e38, 1e39, 1e300, f64::MAX, 0.5, -0.0])),
        _ => json!(number),
    }
}
