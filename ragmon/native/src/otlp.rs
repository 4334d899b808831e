//! The spans of a plain OTLP request, `ExportTraceServiceRequest`: where each lies, and what has to be known of it first.
//!
//! Only what exporters write is taken: known fields of the right wire type, single fields once, whole UTF-8. Anything else
//! is `None`, and Python reads the request: no parser would refuse a request that this takes.

/// What the first attributes of a span of another scope may hold is looked for in so many of them (`RECORD_SEARCH_LIMIT`).
const RECORD_SEARCH_LIMIT: u32 = 2;
/// Values that are nested deeper are Python's.
const DEPTH: u32 = 16;
/// The code of a status that is an error.
const FAILED: u64 = 2;
const OWN_SCOPE: &[u8] = b"ragmon";
const RECORD: &[u8] = b"ragmon.record";

/// The span has no parent.
pub const ROOT: u32 = 1;
/// Its status is an error.
pub const FAILED_FLAG: u32 = 2;
/// It is in ragmon's own scope.
pub const OWN: u32 = 4;
/// It holds a record, whose text has a place.
pub const HAS_RECORD: u32 = 8;

/// A span, laid out as Python unpacks it: `ROW` of ragmon/native/otlp.py. Places are in bytes of the request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its trace, not all zero.
    pub trace_id: [u8; 16],
    /// Its id, not all zero.
    pub span_id: [u8; 8],
    /// Its end time, nanoseconds since the epoch.
    pub end_ns: u64,
    /// `ROOT`, `FAILED_FLAG`, `OWN`, `HAS_RECORD`.
    pub flags: u32,
    /// Where it begins and ends.
    pub span: [u32; 2],
    /// Where the text of its record begins and ends.
    pub record: [u32; 2],
    /// Where the name of its scope begins and ends.
    pub scope: [u32; 2],
    /// Where its resource begins and ends.
    pub resource: [u32; 2],
    /// Keeps the size a multiple of the alignment, so that no byte is left undefined.
    pub unused: u32,
}

/// The spans of a request; None where it is not plain.
pub fn spans(body: &[u8]) -> Option<Vec<Row>> {
    u32::try_from(body.len()).ok()?;
    let mut reader = Reader { body, rows: Vec::new() };
    reader.request()?;
    Some(reader.rows)
}

/// A part of the request.
type Part = (usize, usize);

enum Value {
    Number(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(Part),
}

struct Reader<'a> {
    body: &'a [u8],
    rows: Vec<Row>,
}

fn places((start, end): Part) -> [u32; 2] {
    [start as u32, end as u32]
}

impl<'a> Reader<'a> {
    fn bytes(&self, (start, end): Part) -> &'a [u8] {
        &self.body[start..end]
    }

    fn text(&self, part: Part) -> Option<()> {
        std::str::from_utf8(self.bytes(part)).ok().map(|_| ())
    }

    /// A varint of 64 bits, of which the last byte is not empty.
    fn varint(&self, at: &mut usize, end: usize) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.body[..end].get(*at)?;
            *at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let is_plain = (byte != 0 || shift == 0) && (shift < 63 || byte == 1);
                return is_plain.then_some(number);
            }
        }
        None
    }

    fn fixed<const N: usize>(&self, at: &mut usize, end: usize) -> Option<[u8; N]> {
        let bytes = self.body[..end].get(*at..)?.get(..N)?.try_into().ok()?;
        *at += N;
        Some(bytes)
    }

    /// Read the fields of a message one by one. Those of `once`, a bit for each number, come once at most.
    fn fields(
        &mut self,
        (mut at, end): Part,
        once: u32,
        mut field: impl FnMut(&mut Self, u64, Value) -> Option<()>,
    ) -> Option<()> {
        let mut seen = 0;
        while at < end {
            let tag = self.varint(&mut at, end)?;
            let number = tag >> 3;
            let bit = 1u32.checked_shl(u32::try_from(number).ok()?)?;
            if seen & once & bit != 0 {
                return None;
            }
            seen |= bit;
            let value = match tag & 7 {
                0 => Value::Number(self.varint(&mut at, end)?),
                1 => Value::Fixed64(u64::from_le_bytes(self.fixed(&mut at, end)?)),
                2 => {
                    let size = usize::try_from(self.varint(&mut at, end)?).ok()?;
                    let stop = at.checked_add(size).filter(|stop| *stop <= end)?;
                    let part = (at, stop);
                    at = stop;
                    Value::Bytes(part)
                }
                5 => {
                    self.fixed::<4>(&mut at, end)?;
                    Value::Fixed32
                }
                _ => return None,
            };
            field(self, number, value)?;
        }
        Some(())
    }

    fn request(&mut self) -> Option<()> {
        self.fields((0, self.body.len()), 0, |reader, number, value| match (number, value) {
            (1, Value::Bytes(part)) => reader.resource_spans(part),
            _ => None,
        })
    }

    fn resource_spans(&mut self, part: Part) -> Option<()> {
        let (mut resource, first) = ((part.0, part.0), self.rows.len());
        self.fields(part, 1 << 1 | 1 << 3, |reader, number, value| match (number, value) {
            (1, Value::Bytes(held)) => {
                resource = held;
                reader.fields(held, 1 << 2, |reader, number, value| match (number, value) {
                    (1, Value::Bytes(pair)) => reader.pair(pair, 0).map(|_| ()),
                    (2, Value::Number(count)) => u32::try_from(count).ok().map(|_| ()),
                    _ => None,
                })
            }
            (2, Value::Bytes(held)) => reader.scope_spans(held),
            (3, Value::Bytes(url)) => reader.text(url),
            _ => None,
        })?;
        for row in &mut self.rows[first..] {
            row.resource = places(resource);
        }
        Some(())
    }

    fn scope_spans(&mut self, part: Part) -> Option<()> {
        // A scope may follow its spans, whose records are looked for by its name.
        let (mut scope, mut spans) = ((part.0, part.0), Vec::new());
        self.fields(part, 1 << 1 | 1 << 3, |reader, number, value| match (number, value) {
            (1, Value::Bytes(held)) => reader.fields(held, 1 << 1 | 1 << 2 | 1 << 4, |reader, number, value| {
                match (number, value) {
                    (1, Value::Bytes(name)) => {
                        scope = name;
                        reader.text(name)
                    }
                    (2, Value::Bytes(version)) => reader.text(version),
                    (3, Value::Bytes(pair)) => reader.pair(pair, 0).map(|_| ()),
                    (4, Value::Number(count)) => u32::try_from(count).ok().map(|_| ()),
                    _ => None,
                }
            }),
            (2, Value::Bytes(span)) => {
                spans.push(span);
                Some(())
            }
            (3, Value::Bytes(url)) => reader.text(url),
            _ => None,
        })?;
        let is_own = self.bytes(scope) == OWN_SCOPE;
        for span in spans {
            let mut row = self.span(span, is_own)?;
            row.scope = places(scope);
            self.rows.push(row);
        }
        Some(())
    }

    fn span(&mut self, part: Part, is_own: bool) -> Option<Row> {
        let mut row = Row {
            flags: ROOT | if is_own { OWN } else { 0 },
            span: places(part),
            ..Row::default()
        };
        let mut attributes = 0;
        const SEVERAL: u32 = 1 << 9 | 1 << 11 | 1 << 13;
        self.fields(part, !SEVERAL, |reader, number, value| match (number, value) {
            (1, Value::Bytes(id)) => {
                row.trace_id = reader.bytes(id).try_into().ok()?;
                Some(())
            }
            (2, Value::Bytes(id)) => {
                row.span_id = reader.bytes(id).try_into().ok()?;
                Some(())
            }
            (4, Value::Bytes(id)) => {
                let parent = reader.bytes(id);
                if parent.iter().any(|byte| *byte != 0) {
                    row.flags &= !ROOT;
                }
                matches!(parent.len(), 0 | 8).then_some(())
            }
            (3 | 5, Value::Bytes(text)) => reader.text(text),
            (7, Value::Fixed64(_)) | (16, Value::Fixed32) => Some(()),
            (8, Value::Fixed64(end_ns)) => {
                row.end_ns = end_ns;
                Some(())
            }
            (6 | 10 | 12 | 14, Value::Number(number)) => (number <= i32::MAX as u64).then_some(()),
            (9, Value::Bytes(pair)) => {
                attributes += 1;
                reader.attribute(pair, attributes, is_own, &mut row)
            }
            (11, Value::Bytes(event)) => {
                reader.fields(event, !(1 << 3), |reader, number, value| match (number, value) {
                    (1, Value::Fixed64(_)) => Some(()),
                    (2, Value::Bytes(name)) => reader.text(name),
                    (3, Value::Bytes(pair)) => reader.pair(pair, 0).map(|_| ()),
                    (4, Value::Number(count)) => u32::try_from(count).ok().map(|_| ()),
                    _ => None,
                })
            }
            (13, Value::Bytes(link)) => reader.fields(link, !(1 << 4), |reader, number, value| match (number, value) {
                (1 | 2, Value::Bytes(_)) | (6, Value::Fixed32) => Some(()),
                (3, Value::Bytes(state)) => reader.text(state),
                (4, Value::Bytes(pair)) => reader.pair(pair, 0).map(|_| ()),
                (5, Value::Number(count)) => u32::try_from(count).ok().map(|_| ()),
                _ => None,
            }),
            (15, Value::Bytes(status)) => reader.fields(status, !0, |reader, number, value| match (number, value) {
                (2, Value::Bytes(message)) => reader.text(message),
                (3, Value::Number(code)) => {
                    row.flags |= if code == FAILED { FAILED_FLAG } else { 0 };
                    (code <= i32::MAX as u64).then_some(())
                }
                _ => None,
            }),
            _ => None,
        })?;
        let has_ids = row.trace_id != [0; 16] && row.span_id != [0; 8];
        has_ids.then_some(row)
    }

    /// An attribute of a span. The first record is the span's; in a scope that is not ragmon's, Python looks for it.
    fn attribute(&mut self, pair: Part, place: u32, is_own: bool, row: &mut Row) -> Option<()> {
        let (key, text) = self.pair(pair, 0)?;
        if self.bytes(key) != RECORD {
            return Some(());
        }
        if !is_own {
            return (place > RECORD_SEARCH_LIMIT).then_some(());
        }
        if row.flags & HAS_RECORD == 0 {
            row.record = places(text.filter(|(start, end)| start < end)?);
            row.flags |= HAS_RECORD;
        }
        Some(())
    }

    /// An attribute: where its key is, and its value where that is text.
    fn pair(&mut self, part: Part, depth: u32) -> Option<(Part, Option<Part>)> {
        let (mut key, mut text) = (None, None);
        self.fields(part, !0, |reader, number, value| match (number, value) {
            (1, Value::Bytes(held)) => {
                key = Some(held);
                reader.text(held)
            }
            // Python looks at the first bytes of an attribute for its key.
            (2, Value::Bytes(held)) if key.is_some() => {
                text = reader.value(held, depth)?;
                Some(())
            }
            _ => None,
        })?;
        Some((key?, text))
    }

    /// A value; where it is text, its place.
    fn value(&mut self, part: Part, depth: u32) -> Option<Option<Part>> {
        if depth >= DEPTH {
            return None;
        }
        let (mut text, mut count) = (None, 0);
        self.fields(part, !0, |reader, number, value| {
            count += 1;
            match (number, value) {
                _ if count > 1 => None,
                (1, Value::Bytes(held)) => {
                    text = Some(held);
                    reader.text(held)
                }
                (2 | 3, Value::Number(_)) | (4, Value::Fixed64(_)) | (7, Value::Bytes(_)) => Some(()),
                (5, Value::Bytes(list)) => reader.fields(list, 0, |reader, number, value| match (number, value) {
                    (1, Value::Bytes(held)) => reader.value(held, depth + 1).map(|_| ()),
                    _ => None,
                }),
                (6, Value::Bytes(list)) => reader.fields(list, 0, |reader, number, value| match (number, value) {
                    (1, Value::Bytes(held)) => reader.pair(held, depth + 1).map(|_| ()),
                    _ => None,
                }),
                _ => None,
            }
        })?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, held: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, held.len() as u8], held].concat()
    }

    fn body(scope: &[u8], rest: &[u8]) -> Vec<u8> {
        let ids = [field(1, &[7; 16]), field(2, &[8; 8])].concat();
        let span = field(2, &[ids.as_slice(), rest].concat());
        field(1, &field(2, &[field(1, &field(1, scope)), span].concat()))
    }

    fn record(text: &[u8]) -> Vec<u8> {
        field(9, &[field(1, RECORD), field(2, &field(1, text))].concat())
    }

    #[test]
    fn a_record_has_a_place() {
        let body = body(OWN_SCOPE, &record(b"{}"));
        let rows = spans(&body).expect("it is plain");
        let [start, end] = rows[0].record.map(|place| place as usize);
        assert_eq!(&body[start..end], b"{}");
        assert_eq!(rows[0].flags, ROOT | OWN | HAS_RECORD);
        assert_eq!(rows[0].trace_id, [7; 16]);
    }

    #[test]
    fn a_record_of_another_scope_is_pythons() {
        assert!(spans(&body(b"x", &record(b"{}"))).is_none());
        assert!(spans(&body(b"x", b"")).is_some());
    }

    #[test]
    fn what_no_exporter_writes_is_pythons() {
        for rest in [
            b"\x0a\x00".as_slice(),      // a second trace id
            b"\x2a\x02\xc3\x28",         // a name that is no UTF-8
            b"\x2a\x7f",                 // a name that ends too late
            b"\x2b\x2c",                 // a group
            b"\x80\x00\x00",             // a tag that is longer than it has to be
            b"\x4a\x02\x12\x00",         // an attribute without a key
            b"\x22\x01\x01",             // a parent that is none
            b"\x30\xff\xff\xff\xff\x7f", // a kind of more than 31 bits
        ] {
            assert!(spans(&body(b"x", rest)).is_none(), "{rest:?}");
        }
    }

    #[test]
    fn a_row_has_the_size_that_python_unpacks() {
        assert_eq!(std::mem::size_of::<Row>(), 72);
    }
}
