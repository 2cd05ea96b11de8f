//! The part of the Protocol Buffers wire format that a SentencePiece model needs.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    /// An integer, boolean or enum.
    Integer(u64),
    /// A float in single precision.
    Float(f32),
    /// A string, bytes or a nested message.
    Bytes(&'a [u8]),
    /// Eight bytes, which no field read here has.
    Eight,
}

/// The fields of a message with their numbers, in order. A damaged one is the last.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of a message in its bytes.
    pub fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn read(&mut self) -> Result<(u64, Value<'a>), &'static str> {
        const CUT: &str = "it is truncated within a field";
        let key = self.integer().ok_or(CUT)?;
        let value = match key & 7 {
            0 => Value::Integer(self.integer().ok_or(CUT)?),
            1 => {
                self.bytes(8).ok_or(CUT)?;
                Value::Eight
            }
            2 => {
                let length = self.integer().ok_or(CUT)?;
                let length = usize::try_from(length).map_err(|_| CUT)?;
                Value::Bytes(self.bytes(length).ok_or(CUT)?)
            }
            5 => {
                let (bytes, rest) = self.rest.split_first_chunk().ok_or(CUT)?;
                self.rest = rest;
                Value::Float(f32::from_le_bytes(*bytes))
            }
            _ => return Err("it has a field of an unknown type"),
        };
        match key >> 3 {
            0 => Err("it has a field without a number"),
            number => Ok((number, value)),
        }
    }

    /// Seven bits per byte, the lowest first; all but the last byte have the eighth bit set.
    fn integer(&mut self) -> Option<u64> {
        let mut integer = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            integer |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(integer);
            }
        }
        None
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }
}

impl<'a> Iterator for Fields<'a> {
    /// A field, or the message's problem.
    type Item = Result<(u64, Value<'a>), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u64, Value<'_>)>, &'static str> {
        Fields::of(message).collect()
    }

    #[test]
    fn fields_are_read_by_their_types() {
        // Field 1 is 150, field 2 the bytes "hi", field 3 the float 1.0, field 200 eight bytes.
        let message = b"\x08\x96\x01\x12\x02hi\x1d\x00\x00\x80\x3f\xc1\x0c12345678";
        let expected = [
            (1, Value::Integer(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Float(1.0)),
            (200, Value::Eight),
        ];
        assert_eq!(fields(message).unwrap(), expected);
        assert_eq!(fields(b"").unwrap(), []);
    }

    #[test]
    fn damage_is_an_error_and_the_end() {
        for message in [
            &b"\x08"[..],
            b"\x08\x80",
            b"\x12\x03hi",
            b"\x1d\x00\x00\x80",
            b"\xc1\x0c1234567",
            // A length of 2^63, and an integer without an end.
            b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(fields(message), Err("it is truncated within a field"));
            assert_eq!(Fields::of(message).count(), 1);
        }
        // Groups, which begin with type 3, are not used by these models.
        assert_eq!(fields(b"\x0b"), Err("it has a field of an unknown type"));
        assert_eq!(fields(b"\x00\x01"), Err("it has a field without a number"));
    }
}
