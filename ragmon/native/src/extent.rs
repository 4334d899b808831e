//! How many messages and fields a protocol message holds, counted without decoding it.
//!
//! This is `_FieldScanner` of ragmon/ingest/otlp/batch.py, step by step: what is malformed ends the message that it
//! stands in, a varint may reach beyond the end of its message but not of the body, and every field counts.

/// What the fields of a message count against.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It contains items or other holders.
    Holder,
    /// A span, a point, a log record.
    Item,
    /// An attribute, an event, a link.
    Part,
    /// The value of an attribute; counted together with the attribute.
    Value,
}

/// The layout of a message type.
struct Layout {
    kind: Kind,
    /// Its fields that hold messages, with the numbers of their layouts.
    inner: Vec<(u32, usize)>,
}

/// The layouts of a request and the limits, as Python describes them.
pub struct Limits {
    layouts: Vec<Layout>,
    depth: u32,
    /// Messages and fields that are allowed: of holders and items, then of parts.
    budgets: [Budget; 2],
}

/// The number of messages and fields of one kind that may still follow.
#[derive(Clone, Copy)]
struct Budget {
    messages: i64,
    fields: i64,
}

impl Limits {
    /// Read a description: the deepest message; messages and fields of items, of parts; then for each layout its kind,
    /// how many fields hold messages, and for each of those its number and its layout.
    pub fn new(description: &[u32]) -> Option<Self> {
        let mut numbers = description.iter().copied();
        let depth = numbers.next()?;
        let mut budget = || {
            Some(Budget {
                messages: numbers.next()?.into(),
                fields: numbers.next()?.into(),
            })
        };
        let budgets = [budget()?, budget()?];
        let mut layouts = Vec::new();
        while let Some(kind) = numbers.next() {
            let kind = *[Kind::Holder, Kind::Item, Kind::Part, Kind::Value].get(kind as usize)?;
            let count = numbers.next()?;
            let mut field = || Some((numbers.next()?, numbers.next()? as usize));
            let inner = (0..count).map(|_| field()).collect::<Option<Vec<_>>>()?;
            layouts.push(Layout { kind, inner });
        }
        let known = |layout: &Layout| layout.inner.iter().all(|&(_, at)| at < layouts.len());
        let is_whole = !layouts.is_empty() && layouts.iter().all(known);
        is_whole.then_some(Limits {
            layouts,
            depth,
            budgets,
        })
    }
}

/// What a scan found.
#[derive(Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of items that started.
    pub items: u64,
    /// There are too many messages or fields; the scan ended there.
    pub exceeds: bool,
}

/// Count the messages and fields of a body.
pub fn extent(body: &[u8], limits: &Limits) -> Extent {
    let mut scanner = Scanner {
        body,
        limits,
        budgets: limits.budgets,
        items: 0,
    };
    let ended = scanner.message(0, body.len(), 0, 0);
    Extent {
        items: scanner.items,
        exceeds: matches!(ended, Err(TooMany)),
    }
}

struct TooMany;

/// Why a message is not read on.
enum End {
    Malformed,
    TooMany,
}

struct Scanner<'a> {
    body: &'a [u8],
    limits: &'a Limits,
    budgets: [Budget; 2],
    items: u64,
}

impl Scanner<'_> {
    /// Scan a message up to its end or its first malformed field.
    fn message(&mut self, at: usize, end: usize, layout: usize, depth: u32) -> Result<(), TooMany> {
        if depth > self.limits.depth {
            return Ok(());
        }
        match self.fields(at, end, layout, depth) {
            Err(End::TooMany) => Err(TooMany),
            _ => Ok(()),
        }
    }

    fn fields(&mut self, mut at: usize, end: usize, layout: usize, depth: u32) -> Result<(), End> {
        let limits = self.limits;
        let layout = &limits.layouts[layout];
        let budget = usize::from(layout.kind != Kind::Holder);
        while at < end {
            let (tag, value) = self.varint(at)?;
            at = value;
            let number = tag >> 3;
            self.budgets[budget].fields -= 1;
            if number == 0 {
                return Err(End::Malformed);
            }
            if self.budgets[budget].fields < 0 {
                return Err(End::TooMany);
            }
            match tag & 7 {
                0 => at = self.varint(at)?.1,
                1 => at = at.saturating_add(8),
                2 => {
                    let (size, start) = self.varint(at)?;
                    at = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
                    let held = layout.inner.iter().find(|&&(field, _)| u128::from(field) == number);
                    if let Some(&(_, held)) = held {
                        self.count(limits.layouts[held].kind)?;
                        if size > 0 {
                            self.message(start, at.min(end), held, depth + 1)
                                .map_err(|_| End::TooMany)?;
                        }
                    }
                }
                // The fields of a group are counted as fields of the message around it.
                3 | 4 => {}
                5 => at = at.saturating_add(4),
                _ => return Err(End::Malformed),
            }
        }
        Ok(())
    }

    fn count(&mut self, kind: Kind) -> Result<(), End> {
        let budget = match kind {
            Kind::Value => return Ok(()),
            Kind::Part => 1,
            Kind::Holder | Kind::Item => 0,
        };
        self.budgets[budget].messages -= 1;
        self.items += u64::from(kind == Kind::Item);
        if self.budgets[budget].messages < 0 {
            return Err(End::TooMany);
        }
        Ok(())
    }

    /// A varint and the place after it. Python keeps all 70 bits of ten bytes, so this does.
    fn varint(&self, mut at: usize) -> Result<(u128, usize), End> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.body.get(at).ok_or(End::Malformed)?;
            at += 1;
            number |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((number, at));
            }
        }
        Err(End::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A holder of items in field 1; an item has parts in field 2, and those have themselves in field 3.
    fn limits() -> Limits {
        let layouts = [0, 1, 1, 1, 1, 1, 2, 2, 2, 1, 3, 2];
        Limits::new(&[[100, 3, 12, 4, 16].as_slice(), &layouts].concat()).expect("it is whole")
    }

    fn found(body: &[u8]) -> (u64, bool) {
        let Extent { items, exceeds } = extent(body, &limits());
        (items, exceeds)
    }

    #[test]
    fn items_are_counted_up_to_the_limit() {
        assert_eq!(found(b"\x0a\0\x0a\x02\x12\0"), (2, false));
        assert_eq!(found(b"\x0a\0\x0a\0\x0a\0"), (3, false));
        assert_eq!(found(b"\x0a\0\x0a\0\x0a\0\x0a\0"), (4, true));
    }

    #[test]
    fn what_is_malformed_ends_its_message_alone() {
        assert_eq!(found(b"\x0a\x02\x07\0\x0a\0"), (2, false));
        assert_eq!(found(b"\x0a\0\x07\x0a\0"), (1, false));
        assert_eq!(found(b"\x0a"), (0, false));
        assert_eq!(found(&[0xff; 64]), (0, false));
    }

    #[test]
    fn a_length_beyond_the_body_is_no_fault_of_what_it_holds() {
        assert_eq!(found(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x12\0"), (1, false));
    }

    #[test]
    fn a_description_that_is_not_whole_is_none() {
        assert!(Limits::new(&[100, 3, 12, 4]).is_none());
        assert!(Limits::new(&[100, 3, 12, 4, 16]).is_none());
        assert!(Limits::new(&[100, 3, 12, 4, 16, 0, 1, 1, 7]).is_none());
        assert!(Limits::new(&[100, 3, 12, 4, 16, 9, 0]).is_none());
    }
}
