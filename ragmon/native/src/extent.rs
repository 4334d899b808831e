//! How many messages and fields a protocol message holds, without decoding it: `ragmon.ingest.otlp.batch`, in a fraction of
//! the time.

/// Field numbers below this one can hold messages that are looked into.
const NUMBERS: usize = 16;

/// The limit that a message counts against.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Holder,
    Item,
    Part,
    Value,
}

/// The layout of a message type: its kind, and which field holds a message of which layout.
struct Layout {
    kind: Kind,
    inner: [Option<usize>; NUMBERS],
}

/// What a message may hold.
pub struct Limits {
    /// Items and holders.
    pub messages: i64,
    /// Attributes, events and links of each of them.
    pub parts: i64,
    /// Fields of each message.
    pub fields: i64,
    /// Messages around a message.
    pub depth: u32,
}

/// What was found: how many items have started, and whether a limit is exceeded.
pub struct Extent {
    /// Spans, points or log records.
    pub items: u64,
    /// Whether the scan ended because there are too many messages or fields.
    pub exceeds: bool,
}

/// The messages and fields of one kind that may still follow.
struct Budget {
    messages: i64,
    fields: i64,
}

struct TooMany;
struct Malformed;

struct Scanner<'a> {
    body: &'a [u8],
    layouts: Vec<Layout>,
    items: Budget,
    parts: Budget,
    depth: u32,
    found: u64,
}

/// Scan a message; None where the description of its layout cannot be read.
///
/// A description is a row of numbers: of each layout its kind (0 holder, 1 item, 2 part, 3 value), how many fields it
/// names, and each of these as its number and the place of the layout. The first one is that of the message itself.
pub fn extent(body: &[u8], description: &[u32], limits: &Limits) -> Option<Extent> {
    let layouts = read_layouts(description)?;
    let budget = |messages: i64| Budget {
        messages,
        fields: limits.fields.saturating_mul(messages),
    };
    let mut scanner = Scanner {
        body,
        layouts,
        items: budget(limits.messages),
        parts: budget(limits.parts.saturating_mul(limits.messages)),
        depth: limits.depth,
        found: 0,
    };
    let exceeds = scanner.message(0, body.len(), 0, 0).is_err();
    Some(Extent {
        items: scanner.found,
        exceeds,
    })
}

fn read_layouts(description: &[u32]) -> Option<Vec<Layout>> {
    let mut numbers = description.iter().copied();
    let mut layouts = Vec::new();
    while let Some(kind) = numbers.next() {
        let kind = match kind {
            0 => Kind::Holder,
            1 => Kind::Item,
            2 => Kind::Part,
            3 => Kind::Value,
            _ => return None,
        };
        let mut inner = [None; NUMBERS];
        for _ in 0..numbers.next()? {
            let (number, place) = (numbers.next()?, numbers.next()?);
            *inner.get_mut(number as usize)? = Some(place as usize);
        }
        layouts.push(Layout { kind, inner });
    }
    let named = layouts.iter().flat_map(|layout| layout.inner.iter().flatten());
    let all_known = named.copied().all(|place| place < layouts.len());
    (all_known && !layouts.is_empty()).then_some(layouts)
}

impl Scanner<'_> {
    /// Scan a message up to its end or its first malformed field: a parser may still read what follows it.
    fn message(&mut self, at: usize, end: usize, layout: usize, depth: u32) -> Result<(), TooMany> {
        if depth > self.depth {
            return Ok(());
        }
        let mut at = at;
        while at < end {
            match self.field(at, end, layout, depth)? {
                Ok(next) => at = next,
                Err(Malformed) => break,
            }
        }
        Ok(())
    }

    /// Count the field at a place, and what is in it; returns the place after it.
    fn field(&mut self, at: usize, end: usize, layout: usize, depth: u32) -> Result<Result<usize, Malformed>, TooMany> {
        let Ok((tag, mut at)) = self.varint(at) else {
            return Ok(Err(Malformed));
        };
        let budget = match self.layouts[layout].kind {
            Kind::Holder => &mut self.items,
            _ => &mut self.parts,
        };
        budget.fields -= 1;
        let has_fields_left = budget.fields >= 0;
        let number = tag >> 3;
        if number == 0 {
            return Ok(Err(Malformed));
        }
        if !has_fields_left {
            return Err(TooMany);
        }
        if tag & 7 != 2 {
            return Ok(self.after_value(at, tag & 7));
        }
        let Ok((size, start)) = self.varint(at) else {
            return Ok(Err(Malformed));
        };
        at = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        let inner = usize::try_from(number)
            .ok()
            .and_then(|number| self.layouts[layout].inner.get(number).copied().flatten());
        if let Some(inner) = inner {
            self.count(self.layouts[inner].kind)?;
            if size > 0 {
                self.message(start, at.min(end), inner, depth + 1)?;
            }
        }
        Ok(Ok(at))
    }

    fn count(&mut self, kind: Kind) -> Result<(), TooMany> {
        let budget = match kind {
            Kind::Value => return Ok(()),
            Kind::Part => &mut self.parts,
            Kind::Holder | Kind::Item => &mut self.items,
        };
        budget.messages -= 1;
        self.found += u64::from(kind == Kind::Item);
        if budget.messages < 0 {
            return Err(TooMany);
        }
        Ok(())
    }

    /// The end of a value that is not length-delimited; groups are fields of the message around them.
    fn after_value(&self, at: usize, kind: u128) -> Result<usize, Malformed> {
        match kind {
            0 => self.varint(at).map(|(_, after)| after),
            1 => Ok(at.saturating_add(8)),
            5 => Ok(at.saturating_add(4)),
            3 | 4 => Ok(at),
            _ => Err(Malformed),
        }
    }

    /// A varint and the place after it. Its tenth byte may have more bits than a word of 64, as in Python.
    fn varint(&self, at: usize) -> Result<(u128, usize), Malformed> {
        let mut number = 0u128;
        for place in 0..10 {
            let byte = *self.body.get(at.saturating_add(place)).ok_or(Malformed)?;
            number |= u128::from(byte & 0x7F) << (7 * place);
            if byte < 0x80 {
                return Ok((number, at + place + 1));
            }
        }
        Err(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A holder of items (field 2) that have parts (field 9).
    const LAYOUTS: [u32; 10] = [0, 1, 2, 1, 1, 1, 9, 2, 2, 0];

    fn found(body: &[u8], messages: i64) -> (u64, bool) {
        let limits = Limits {
            messages,
            parts: 2,
            fields: 3,
            depth: 100,
        };
        let extent = extent(body, &LAYOUTS, &limits).expect("the description is right");
        (extent.items, extent.exceeds)
    }

    #[test]
    fn items_are_counted_until_there_are_too_many() {
        assert_eq!(found(b"\x12\x00\x12\x02\x4a\x00", 5), (2, false));
        assert_eq!(found(b"\x12\x00\x12\x00\x12\x00", 2), (3, true));
    }

    #[test]
    fn parts_have_a_limit_of_their_own() {
        assert_eq!(found(b"\x12\x06\x4a\x00\x4a\x00\x4a\x00", 1), (1, true));
    }

    #[test]
    fn what_is_malformed_ends_its_message_alone() {
        assert_eq!(found(b"\x12\x01\xff\x12\x00", 5), (2, false));
        assert_eq!(found(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 5), (1, false));
    }

    #[test]
    fn a_description_that_makes_no_sense_is_refused() {
        let limits = Limits {
            messages: 1,
            parts: 1,
            fields: 1,
            depth: 1,
        };
        for description in [&[][..], &[7, 0], &[0, 1, 2], &[0, 1, 2, 5], &[0, 1, 99, 0]] {
            assert!(extent(b"", description, &limits).is_none());
        }
    }
}
