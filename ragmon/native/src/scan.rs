//! A scan: blocks of lines become events, and events become counts; what is not plain is handed back.
//!
//! A block is worked on in two steps, so that nothing of it is counted twice. First every line is read: a plain one
//! becomes an event, any other is listed as hard, for Python. Then Python says which answers its patterns call refusals,
//! and the events are counted, those before a hard line before Python counts that one: which rows are folded when depends
//! on the order. Should the first step panic, nothing was counted, and the whole block is Python's.

use crate::captured::{by_flags, lacks, Captured, IN_GOLD, NOT_IN_GOLD, NO_GOLD};
use crate::counts::{hour_of, Count, Counts, LaneKey, NO_GROUP, UNTIMED};
use crate::facts::{self, Key, Ranking};
use crate::fold::Characters;
use crate::followed::{Followed, Seen};
use crate::gold::{How, Item, Items, HOWS};
use crate::groups::{group, HASH, QUESTION, SESSION};
use crate::hash::Map;
use crate::json::{unescape, Text};
use crate::line::Line;
use crate::rules::Rule;
use crate::wire::Wire;
use std::sync::Arc;

/// Bytes of a text that Python reads to its end (`ragmon.core.text.READ` characters, and one takes a byte at least).
const READ: usize = 65_536;
/// Marks a part that is missing, and the end of one, in the key of a stream; neither stands in UTF-8.
const MISSING: u8 = 0xFF;
const END: u8 = 0xFE;
/// A stratum whose records were drawn at a rate that is not known.
const UNKNOWN_WEIGHT: &[u8] = b"unknown_weight";
/// Series and facts from which counts are handed over: about twenty megabytes, which Python needs as well.
const FULL: u64 = 200_000;
/// Seconds of what is counted of captured fields where it is counted by time.
const MINUTE: i64 = 60;

/// What follows from pipeline, source, build, index and model of a record.
#[derive(Clone, Copy)]
pub struct Stream {
    items: u32,
    rule: u32,
    captured: u32,
    is_live: bool,
    is_label: bool,
    counts_answers: bool,
    by_model: bool,
    lacks: u32,
}

/// A line that is Python's.
pub struct Hard {
    /// Where it starts in the block.
    pub offset: usize,
    /// How long it is, without its newline.
    pub length: usize,
    /// Its number in the file, from 1.
    pub number: u64,
    /// How many events of the block stand before it.
    pub events: usize,
}

/// An answer that Python's patterns are to be tried on.
pub struct Pending {
    /// The event.
    event: usize,
    /// Where the start of the folded answer ends in `Scan::texts`.
    pub end: usize,
    /// The rule, by number.
    pub rule: u32,
}

/// A plain line, read and not yet counted.
struct Event {
    stream: u32,
    stratum: u32,
    is_audit: bool,
    is_drawn: bool,
    cites: bool,
    has_claim: bool,
    how: How,
    item: Option<u32>,
    ts: Option<f64>,
    latency: [Option<f64>; 3],
    session_group: u8,
    question_group: u8,
    /// The bits of call and answer; of an answer that Python decides on, as if it were none.
    answer: u64,
    /// What the answer holds of gold, as bits.
    contained: u64,
    /// All other bits that need no item.
    common: u64,
    retrieved: u32,
    /// What the item adds.
    gold: Key,
    mask: u32,
    /// How many ids there are of which none occurs in gold, and where the smallest stands in the block.
    strange: Option<(u64, usize, usize)>,
    /// What is told of it where single requests are followed.
    seen: Seen,
}

/// Buffers of one scan.
#[derive(Default)]
struct Buffers {
    raw: Vec<u8>,
    folded: String,
    key: String,
    stream: Vec<u8>,
}

/// Everything a scan knows and counts.
#[derive(Default)]
pub struct Scan {
    pub(crate) characters: Arc<Characters>,
    pub(crate) rules: Vec<Arc<Rule>>,
    pub(crate) items: Vec<Arc<Items>>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) by_names: Map<Vec<u8>, u32>,
    pub(crate) strata: Vec<Vec<u8>>,
    pub(crate) by_stratum: Map<Vec<u8>, u32>,
    buffers: Buffers,
    events: Vec<Event>,
    /// How many of the events are counted.
    counted: usize,
    /// Documents were seen that are objects: from then on Python looks at ids that do not occur in gold.
    pub has_documents: bool,
    /// Lines so far, and blank ones.
    pub lines: u64,
    /// See `lines`.
    pub blank: u64,
    /// The hard lines of the last block.
    pub hard: Vec<Hard>,
    /// The answers of the last block that wait for Python.
    pub pending: Vec<Pending>,
    /// The starts of those answers, one after another.
    pub texts: String,
    /// What was counted.
    pub counts: Counts,
    /// Requests, and those without a gold item.
    pub scored: u64,
    /// See `scored`.
    pub unmatched: u64,
    /// By stream, live requests with a gold item by how it was found.
    pub matched: Vec<[u64; HOWS]>,
    /// By stream, answers and those that cite something.
    pub answers: Vec<[u64; 2]>,
    /// By stream, stratum and hour: live requests, those with a known outcome, those with an answer.
    pub cohorts: Map<(u32, u32, i64), [u64; 3]>,
    /// What was captured, by number of pipeline and source.
    pub captured: Vec<Captured>,
    /// The line at which to panic, for tests of the way back; 0 for none.
    pub fault: u64,
    /// Requests that are followed one by one, where they are.
    pub followed: Followed,
}

impl Scan {
    /// Take the table of characters.
    pub fn add_characters(&mut self, entries: &[u64]) {
        self.characters = Arc::new(Characters::new(entries));
    }

    /// Take rules; returns their number.
    pub fn add_rule(&mut self, description: &[u8]) -> Option<u32> {
        self.rules.push(Arc::new(Rule::read(&mut Wire::new(description))?));
        Some(self.rules.len() as u32 - 1)
    }

    /// Take gold items; returns their number.
    pub fn add_items(&mut self, description: &[u8]) -> Option<u32> {
        self.items.push(Arc::new(Items::read(&mut Wire::new(description))?));
        Some(self.items.len() as u32 - 1)
    }

    /// Take a stream: its names as in `key`, its items, its rule, its place in `captured`, bits, and what it lacks.
    pub fn add_stream(&mut self, description: &[u8]) -> Option<u32> {
        let mut wire = Wire::new(description);
        let names = wire.bytes()?.to_vec();
        let (items, rule, captured) = (wire.number()?, wire.number()?, wire.number()?);
        let (bits, lacks) = (wire.number()?, wire.number()?);
        if items as usize >= self.items.len() || rule as usize >= self.rules.len() || captured > 1 << 20 {
            return None;
        }
        if captured as usize >= self.captured.len() {
            self.captured.resize_with(captured as usize + 1, Captured::default);
        }
        let number = self.streams.len() as u32;
        self.streams.push(Stream {
            items,
            rule,
            captured,
            is_live: bits & 1 != 0,
            is_label: bits & 2 != 0,
            counts_answers: bits & 4 != 0,
            by_model: bits & 8 != 0,
            lacks,
        });
        self.matched.push([0; HOWS]);
        self.answers.push([0; 2]);
        self.by_names.insert(names, number);
        Some(number)
    }

    /// The strata so far, by number.
    pub fn strata(&self) -> &[Vec<u8>] {
        &self.strata
    }

    /// Read the lines of a block; what they say is counted by `commit`.
    pub fn read(&mut self, block: &[u8]) {
        self.events.clear();
        self.counted = 0;
        self.hard.clear();
        self.pending.clear();
        self.texts.clear();
        self.followed.clear();
        let mut reader = Reader {
            line: Line::default(),
            ranking: Ranking::default(),
        };
        let (mut start, mut lines, mut blank) = (0, self.lines, 0);
        while start < block.len() {
            lines += 1;
            assert!(self.fault != lines, "a fault that a test asked for");
            if let Some(length) = self.event(&mut reader, block, start, lines) {
                start += length + 1;
                continue;
            }
            let length = block[start..]
                .iter()
                .position(|&byte| byte == b'\n')
                .unwrap_or(block.len() - start);
            let line = &block[start..start + length];
            if line.iter().all(|byte| matches!(byte, 9..=13 | 32)) {
                blank += 1;
            } else {
                self.has_documents = self.has_documents || holds_objects(line);
                self.hard.push(Hard {
                    offset: start,
                    length,
                    number: lines,
                    events: self.events.len(),
                });
            }
            start += length + 1;
        }
        self.lines = lines;
        self.blank += blank;
    }

    /// Read the line that starts at a place as an event; returns its length, `None` where it is Python's.
    fn event<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        block: &'a [u8],
        start: usize,
        number_of_line: u64,
    ) -> Option<usize> {
        let length = reader.line.read(&block[start..])?;
        let (line, ranking) = (&reader.line, &mut reader.ranking);
        let number = self.stream(line)?;
        let stream = &self.streams[number as usize];
        let (rule, items) = (&self.rules[stream.rule as usize], &self.items[stream.items as usize]);
        let wants_key = self.followed.is_on;
        let (found, question_group) = self
            .buffers
            .find(line, items, rule, stream, &self.characters, wants_key)?;
        if found.is_some() && (line.facts.is_some() || self.followed.is_on) {
            return None; // facts are compared with gold, and items are counted by time: both are Python's
        }
        let item = found.map(|(number, _)| items.item(number));
        ranking.fill(&line.ids);
        let mut mask = lacks(line) | stream.lacks;
        let gold = item.map_or(Key::default(), |item| facts::with_item(line, ranking, item));
        let mut strange = None;
        match item {
            None => mask |= NO_GOLD,
            Some(_) if gold.ranks != 0 => mask |= IN_GOLD,
            Some(item) if gold.retrieved != 0 && item.has_ids() => {
                if ranking.any(|id| items.name(id)) {
                    mask |= IN_GOLD;
                } else if self.has_documents {
                    return None; // Python looks at the other ids of these documents
                } else {
                    mask |= NOT_IN_GOLD;
                    let smallest = ranking.smallest()?;
                    let offset = smallest.as_ptr() as usize - block.as_ptr() as usize;
                    strange = Some((line.ids.len() as u64, offset, smallest.len()));
                }
            }
            Some(_) => {}
        }
        let session = line.session.map_or(&b""[..], |text| text.bytes);
        let grouped = rule.by_session && !session.is_empty();
        let mut event = Event {
            stream: number,
            stratum: 0,
            is_audit: line.audit,
            is_drawn: line.audit && line.stratum != UNKNOWN_WEIGHT,
            cites: !line.citations.is_empty(),
            has_claim: line.claim.is_some(),
            how: found.map_or(How::Qid, |(_, how)| how),
            item: found.map(|(number, _)| number),
            ts: line.ts,
            latency: line.latency,
            session_group: if grouped { group(session, SESSION) } else { NO_GROUP },
            question_group,
            answer: 0,
            contained: 0,
            common: facts::common(line, ranking, rule),
            retrieved: ranking.count() as u32,
            gold,
            mask,
            strange,
            seen: Seen::default(),
        };
        let is_pending = self.buffers.answer(line, item, rule, &self.characters, &mut event)?;
        if self.followed.is_on {
            if is_pending
                || !self
                    .followed
                    .admits(line, mask | by_flags(event.answer | event.common, event.has_claim))
            {
                return None;
            }
            event.seen = self
                .followed
                .see(line, number_of_line, event.is_drawn, &self.buffers.key)?;
        }
        event.stratum = stratum(&mut self.strata, &mut self.by_stratum, line.stratum);
        if is_pending {
            self.texts.push_str(rule.seen(&self.buffers.folded));
            self.pending.push(Pending {
                event: self.events.len(),
                end: self.texts.len(),
                rule: stream.rule,
            });
        }
        self.events.push(event);
        Some(length)
    }

    /// The stream of a line; `None` where Python has not seen one like it.
    fn stream(&mut self, line: &Line<'_>) -> Option<u32> {
        let key = &mut self.buffers.stream;
        key.clear();
        for name in &line.names {
            match name {
                Some(text) => key.extend_from_slice(text.bytes),
                None => key.push(MISSING),
            }
            key.push(END);
        }
        if self.followed.is_on {
            match line.has_sampling {
                true => key.extend_from_slice(line.stratum),
                false => key.push(MISSING),
            }
            key.push(END);
        }
        self.by_names.get(key).copied()
    }

    /// Take Python's word on the pending answers: whether its patterns call them refusals.
    pub fn decide(&mut self, refusals: &[u8]) {
        for (pending, &is_refusal) in self.pending.iter().zip(refusals) {
            if is_refusal != 0 {
                self.events[pending.event].answer = facts::refusal_like(&self.rules[pending.rule as usize]);
            }
        }
    }

    /// Count the events of the block that was read last, up to a number of them.
    pub fn commit(&mut self, block: &[u8], until: usize) {
        let events = std::mem::take(&mut self.events);
        let until = until.min(events.len());
        for event in events.get(self.counted..until).unwrap_or(&[]) {
            self.count(event, block);
        }
        self.counted = until.max(self.counted);
        self.events = events;
    }

    fn count(&mut self, event: &Event, block: &[u8]) {
        let stream = &self.streams[event.stream as usize];
        let (is_live, captured) = (stream.is_live, stream.captured as usize);
        let without = Key {
            flags: event.answer | event.common,
            wanted: 0,
            retrieved: event.retrieved,
            ranks: 0,
        };
        let with = Key {
            flags: without.flags | event.contained | event.gold.flags,
            ..event.gold
        };
        let key = if event.item.is_some() { with } else { without };
        self.scored += 1;
        self.unmatched += u64::from(event.item.is_none());
        if is_live && event.item.is_some() {
            // A matched live request counts twice: as live traffic without its gold item, and as a match.
            self.add(event, without, false, None);
            self.add(event, with, true, event.item);
            self.matched[event.stream as usize][event.how as usize] += u64::from(event.is_drawn);
        } else {
            self.add(event, key, false, event.item);
        }
        let minute = if self.followed.is_on {
            event.ts.map_or(UNTIMED, |ts| ts as i64 / MINUTE)
        } else {
            UNTIMED
        };
        let captured = &mut self.captured[captured];
        *captured
            .masks
            .entry((minute, event.mask | by_flags(key.flags, event.has_claim)))
            .or_default() += 1;
        if let Some((count, offset, length)) = event.strange {
            let smallest = String::from_utf8_lossy(&block[offset..offset + length]);
            captured.note_strange(count, &smallest);
        }
    }

    /// Count an event under one source.
    fn add(&mut self, event: &Event, key: Key, is_match: bool, item: Option<u32>) {
        let stream = &self.streams[event.stream as usize];
        let items = &self.items[stream.items as usize];
        let is_alone = item.is_some() || stream.is_label;
        let group = match event.session_group {
            NO_GROUP if is_alone => NO_GROUP,
            NO_GROUP => event.question_group,
            group => group,
        };
        let is_shipped = key.flags & facts::SHIPPED != 0;
        if is_shipped && !is_match && stream.counts_answers {
            let answers = &mut self.answers[event.stream as usize];
            answers[0] += 1;
            answers[1] += u64::from(event.cites || self.rules[stream.rule as usize].citations_required);
        }
        let number = self.counts.key(key);
        if self.followed.is_on {
            self.followed.count(&event.seen, event.stream, number);
        }
        let mut lane = LaneKey {
            stream: event.stream,
            is_match,
            by_model: false,
            set: item.map_or(0, |item| items.item(item).set + 1),
            audit: event.is_audit,
            stratum: event.stratum,
        };
        let count = Count {
            key: number,
            group,
            latency: &event.latency,
            item,
        };
        self.counts.add(lane, event.ts, &count);
        if stream.by_model {
            lane.by_model = true;
            self.counts.add(lane, event.ts, &Count { item: None, ..count });
        }
        if stream.is_live && !is_match && event.is_drawn {
            let cohort = self
                .cohorts
                .entry((event.stream, event.stratum, hour_of(event.ts)))
                .or_default();
            cohort[0] += 1;
            cohort[1] += u64::from(key.flags & facts::OUTCOME_UNKNOWN == 0);
            cohort[2] += u64::from(is_shipped);
        }
    }

    /// Whether so much was counted that Python should take it over.
    pub fn is_full(&self) -> bool {
        self.counts.size + self.counts.keys.len() as u64 + self.cohorts.len() as u64 > FULL
    }

    /// Forget the streams, because they are to be described anew; everything counted was taken over.
    pub fn forget_streams(&mut self) {
        self.streams.clear();
        self.by_names.clear();
        self.matched.clear();
        self.answers.clear();
        self.captured.clear();
    }

    /// Forget what was counted, because Python has it; what was described stays.
    pub fn clear(&mut self) {
        self.counts.clear();
        (self.scored, self.unmatched) = (0, 0);
        self.matched.iter_mut().for_each(|counts| *counts = [0; HOWS]);
        self.answers.iter_mut().for_each(|counts| *counts = [0; 2]);
        self.cohorts.clear();
        self.captured
            .iter_mut()
            .for_each(|captured| *captured = Captured::default());
    }
}

/// What a block's lines are read with.
struct Reader<'a> {
    line: Line<'a>,
    ranking: Ranking<'a>,
}

impl Buffers {
    /// The item of a line with how it was found, and the group of its question; `None` where Python has to look.
    fn find(
        &mut self,
        line: &Line<'_>,
        items: &Items,
        rule: &Rule,
        stream: &Stream,
        characters: &Characters,
        wants_key: bool,
    ) -> Option<(Option<(u32, How)>, u8)> {
        self.key.clear();
        let mut found = line
            .qid
            .and_then(|qid| items.by_qid(qid.bytes))
            .map(|item| (item, How::Qid));
        let is_sought = found.is_none() && items.has_questions();
        // Live traffic is counted without its item as well, so its question makes a group.
        let is_grouped = rule.by_question && !stream.is_label && (found.is_none() || stream.is_live);
        let Some(question) = line.question else {
            return match line.facts.and_then(|facts| facts.question_hash) {
                Some(_) if is_sought => None, // Python knows the hashes of gold questions
                Some(hash) if is_grouped => Some((found, group(hash, HASH))),
                _ => Some((found, NO_GROUP)),
            };
        };
        if !is_sought && !is_grouped && !wants_key {
            return Some((found, NO_GROUP));
        }
        let text = text_of(question, &mut self.raw)?;
        if !characters.question_key(characters.stripped(text), &mut self.folded, &mut self.key) {
            return None;
        }
        if is_sought {
            found = items.by_question(&self.key);
        }
        let group = if is_grouped {
            group(self.key.as_bytes(), QUESTION)
        } else {
            NO_GROUP
        };
        Some((found, group))
    }

    /// Set the bits of the answer of an event; returns whether Python has to try its patterns.
    fn answer(
        &mut self,
        line: &Line<'_>,
        item: Option<&Item>,
        rule: &Rule,
        characters: &Characters,
        event: &mut Event,
    ) -> Option<bool> {
        if line.error == Some(true) {
            event.answer = facts::ERROR;
            return Some(false);
        }
        let base = facts::without_claim(line);
        let Some(claim) = line.claim else {
            event.answer = line.facts.map_or(base, |facts| facts.answer(line.has_citations));
            return Some(false);
        };
        let claim = characters.stripped(text_of(claim, &mut self.raw)?);
        self.folded.clear();
        if !characters.fold(claim, &mut self.folded) {
            return None;
        }
        if self.folded.is_empty() {
            event.answer = base | facts::TEXT;
            return Some(false);
        }
        if rule.is_token(&self.folded) {
            event.answer = facts::REFUSED | facts::TEXT | facts::COMPLIANT | facts::CLAIM_KNOWN;
            return Some(false);
        }
        event.answer = base | facts::SHIPPED | facts::TEXT;
        if let Some(item) = item.filter(|item| item.is_answerable()) {
            event.contained = facts::CLAIM_KNOWN;
            if item
                .phrases
                .iter()
                .any(|phrase| characters.contains(&self.folded, phrase))
            {
                event.contained |= facts::CONTAINS_CLAIM;
            }
            if item
                .gold_phrases
                .iter()
                .any(|phrase| self.folded.contains(phrase.as_str()))
            {
                event.contained |= facts::CONTAINS_GOLD_CLAIM;
            }
        }
        Some(rule.may_refuse(&self.folded, characters))
    }
}

/// The characters of a string, unescaped into a buffer where it has escapes; `None` where Python has to read it.
pub fn text_of<'a>(text: Text<'a>, raw: &'a mut Vec<u8>) -> Option<&'a str> {
    if text.bytes.len() > READ {
        return None;
    }
    if !text.escaped {
        return std::str::from_utf8(text.bytes).ok();
    }
    raw.clear();
    if !unescape(text.bytes, raw) {
        return None;
    }
    std::str::from_utf8(raw).ok()
}

/// The number of a stratum.
pub(crate) fn stratum(strata: &mut Vec<Vec<u8>>, numbers: &mut Map<Vec<u8>, u32>, name: &[u8]) -> u32 {
    if let Some(&number) = numbers.get(name) {
        return number;
    }
    let number = strata.len() as u32;
    strata.push(name.to_vec());
    numbers.insert(name.to_vec(), number);
    number
}

/// Whether a list with an object in it may stand in a line: then its documents may have other ids.
fn holds_objects(line: &[u8]) -> bool {
    let mut in_list = false;
    for &byte in line {
        match byte {
            b'[' => in_list = true,
            b'{' if in_list => return true,
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => in_list = false,
        }
    }
    false
}
