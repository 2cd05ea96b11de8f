//! TensorBoard events, encoded as protocol buffers.
//!
//! ```text
//! message Event {                    message Summary {              message SessionLog {
//!   double wall_time = 1;              repeated Value value = 1;      SessionStatus status = 1;
//!   int64 step = 2;                    message Value {              }
//!   string file_version = 3;             string tag = 1;
//!   Summary summary = 5;                 float simple_value = 2;
//!   SessionLog session_log = 7;        }
//! }                                  }
//! ```

/// The file format, stated by the first event of a file.
const FILE_VERSION: &[u8] = b"brain.Event:2";

/// `SessionLog.START`: a run starts at this event's step, and earlier events of later steps are superseded.
const START: u64 = 1;

/// The content of an event.
pub(super) enum Content<'a> {
    /// The file format.
    Version,
    /// The run starts or resumes at the event's step.
    Start,
    /// Values by name, in single precision; values that are not finite are skipped.
    Scalars(&'a [(String, f64)]),
}

/// The bytes of an `Event`. `wall_time` is in seconds since 1970.
pub(super) fn event(wall_time: f64, step: usize, content: Content<'_>) -> Vec<u8> {
    let mut event = Vec::new();
    key(&mut event, 1, Wire::Eight);
    event.extend(wall_time.to_le_bytes());
    key(&mut event, 2, Wire::Varint);
    varint(&mut event, step as u64);
    match content {
        Content::Version => bytes(&mut event, 3, FILE_VERSION),
        Content::Start => {
            let mut session = Vec::new();
            key(&mut session, 1, Wire::Varint);
            varint(&mut session, START);
            bytes(&mut event, 7, &session);
        }
        Content::Scalars(scalars) => bytes(&mut event, 5, &summary(scalars)),
    }
    event
}

/// The bytes of a `Summary`.
fn summary(scalars: &[(String, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    let scalars = scalars.iter().map(|(tag, number)| (tag, *number as f32));
    for (tag, number) in scalars.filter(|(_, number)| number.is_finite()) {
        let mut value = Vec::new();
        bytes(&mut value, 1, tag.as_bytes());
        key(&mut value, 2, Wire::Four);
        value.extend(number.to_le_bytes());
        bytes(&mut summary, 1, &value);
    }
    summary
}

/// The encoding of a field's value.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Eight = 1,
    Length = 2,
    Four = 5,
}

fn key(into: &mut Vec<u8>, field: u64, wire: Wire) {
    varint(into, (field << 3) | wire as u64);
}

/// Seven bits per byte, the lowest first; the top bit means that more bytes follow.
fn varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// A field that holds text or a message.
fn bytes(into: &mut Vec<u8>, field: u64, content: &[u8]) {
    key(into, field, Wire::Length);
    varint(into, content.len() as u64);
    into.extend(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written out by hand from the encoding's definition.
    #[test]
    fn events_are_the_bytes_of_their_messages() {
        let time: [u8; 9] = [0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f];
        // 300 = 0b10_0101100
        let step: [u8; 3] = [0x10, 0xac, 0x02];
        let head = [&time[..], &step].concat();

        let version = [&head[..], &[0x1a, 13], b"brain.Event:2"].concat();
        assert_eq!(event(1.5, 300, Content::Version), version);
        let start = [&head[..], &[0x3a, 2, 0x08, 1]].concat();
        assert_eq!(event(1.5, 300, Content::Start), start);

        let scalars = [("a".into(), 1.0), ("b".into(), 1e39), ("c".into(), 0.5)];
        let a = [0x0a, 8, 0x0a, 1, b'a', 0x15, 0, 0, 0x80, 0x3f];
        let c = [0x0a, 8, 0x0a, 1, b'c', 0x15, 0, 0, 0, 0x3f];
        let both = [&head[..], &[0x2a, 20], &a, &c].concat();
        assert_eq!(event(1.5, 300, Content::Scalars(&scalars)), both);
    }
}
