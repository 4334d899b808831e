//! Facts: a request reduced to a small tuple, as `ragmon.metrics.facts.FactReader` does for the plain case.
//!
//! Each test below is one of `FactReader`, in its order; the bits are the same. What the plain case never has (verdicts,
//! candidates, measured text) has no code here, because `line` refuses it.

use crate::gold::Item;
use crate::hash::of;
use crate::line::Line;
use crate::rules::Rule;

/// The answer is neither empty nor a refusal.
pub const SHIPPED: u64 = 1 << 8;
/// The answer is a refusal.
pub const REFUSED: u64 = 1 << 9;
/// The call ended in an error.
pub const ERROR: u64 = 1 << 10;
/// It is not known how the call ended.
pub const OUTCOME_UNKNOWN: u64 = 1 << 11;
/// The text of the answer was compared with gold.
pub const CLAIM_KNOWN: u64 = 1 << 12;
/// A claim substring stands in the answer.
pub const CONTAINS_CLAIM: u64 = 1 << 13;
/// A phrase of the gold claim stands in it.
pub const CONTAINS_GOLD_CLAIM: u64 = 1 << 14;
/// The text of the answer is known.
pub const TEXT: u64 = 1 << 16;
/// The answer sounds like a refusal.
pub const REFUSAL_LIKE: u64 = 1 << 17;
/// The answer follows the template.
pub const COMPLIANT: u64 = 1 << 18;
/// A gold document is cited.
pub const HITS: u64 = 1 << 19;
const IN_SCOPE: u64 = 1 << 20;
const CITES_RETRIEVED: u64 = 1 << 21;
/// There is a list of retrieved ids.
pub const IDS: u64 = 1 << 22;
const EMPTY: u64 = 1 << 23;
const RANKED: u64 = 1 << 24;
const BOUNDED: u64 = 1 << 27;
const TIMED: u64 = 1 << 28;
const WITHIN: u64 = 1 << 29;
const CITATIONS_MISSING: u64 = 1 << 34;
const DETAILS_MISSING: u64 = 1 << 35;

/// The tuple of facts under which a request is counted; the three last members of Python's are always 0, 0 and empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Key {
    /// The bits.
    pub flags: u64,
    /// How many gold ids, or gold texts, there are.
    pub wanted: u32,
    /// How many documents were retrieved.
    pub retrieved: u32,
    /// The ranks of gold documents, as bits.
    pub ranks: u128,
}

/// Retrieved ids without repetition, with their hashes; a buffer that lives as long as a block.
#[derive(Default)]
pub struct Ranking<'a> {
    ids: Vec<(&'a [u8], u64)>,
}

impl<'a> Ranking<'a> {
    /// Take the ids of a line, each at its first place.
    pub fn fill(&mut self, ids: &[&'a [u8]]) {
        self.ids.clear();
        for &id in ids {
            let hash = of(id);
            if self.place(id, hash).is_none() {
                self.ids.push((id, hash));
            }
        }
    }

    fn place(&self, id: &[u8], hash: u64) -> Option<usize> {
        self.ids
            .iter()
            .position(|&(other, other_hash)| other_hash == hash && other == id)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// The smallest in the order of text, and whether any is wanted.
    pub fn smallest(&self) -> Option<&'a [u8]> {
        self.ids.iter().map(|&(id, _)| id).min()
    }

    /// Whether any is wanted.
    pub fn any(&self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        self.ids.iter().any(|&(id, _)| wanted(id))
    }

    fn ranks_of(&self, item: &Item) -> u128 {
        item.ids
            .iter()
            .filter_map(|gold| self.place(&gold.bytes, gold.hash))
            .fold(0, |bits, place| bits | 1 << place)
    }

    fn ranks_in(&self, sections: &[Vec<u8>]) -> u128 {
        let relevant = |id: &[u8]| sections.iter().any(|section| id.starts_with(section));
        self.ids
            .iter()
            .enumerate()
            .filter(|(_, (id, _))| relevant(id))
            .fold(0, |bits, (place, _)| bits | 1 << place)
    }
}

/// The bits that do not depend on how the answer reads: citations, ids, time.
pub fn common(line: &Line<'_>, ranking: &Ranking<'_>, rule: &Rule) -> u64 {
    let mut flags = 0;
    if line.citations.is_empty() {
        if !line.has_citations && !rule.citations_required {
            flags |= CITATIONS_MISSING;
        }
        if line.has_sampling && !line.audit && line.partial && !line.ended {
            flags |= DETAILS_MISSING;
        }
    }
    flags |= line.facts.map_or(0, |facts| facts.grounded());
    if let Some(bound) = rule.within_ms {
        flags |= BOUNDED;
        if let Some(total) = line.latency[0] {
            flags |= if total <= bound { TIMED | WITHIN } else { TIMED };
        }
    }
    if line.has_ids {
        flags |= scope(line, ranking);
    }
    flags
}

/// The bits of the retrieved ids and of the citations from them.
fn scope(line: &Line<'_>, ranking: &Ranking<'_>) -> u64 {
    let flags = if ranking.count() == 0 { IDS | EMPTY } else { IDS };
    if line.citations.is_empty() {
        return flags | IN_SCOPE;
    }
    let retrieved = line
        .citations
        .iter()
        .filter(|id| ranking.place(id, of(id)).is_some())
        .count();
    if retrieved == line.citations.len() {
        flags | IN_SCOPE | CITES_RETRIEVED
    } else if retrieved > 0 {
        flags | CITES_RETRIEVED
    } else {
        flags
    }
}

/// The facts that come from the gold item: bits, and the three numbers of the key.
pub fn with_item(line: &Line<'_>, ranking: &Ranking<'_>, item: &Item) -> Key {
    let (flags, retrieved) = (item.offers, ranking.count() as u32);
    if !item.has_ids() {
        if !item.is_answerable() {
            return Key {
                flags,
                wanted: 0,
                retrieved,
                ranks: 0,
            };
        }
        if item.sections.is_empty() {
            return Key {
                flags,
                wanted: item.texts,
                retrieved,
                ranks: 0,
            };
        }
        if !line.has_ids {
            return Key {
                flags,
                wanted: 0,
                retrieved: 0,
                ranks: 0,
            };
        }
        return Key {
            flags: flags | RANKED,
            wanted: 0,
            retrieved,
            ranks: ranking.ranks_in(&item.sections),
        };
    }
    let cites_gold = line.citations.iter().any(|id| item.names(id, of(id)));
    let flags = if cites_gold { flags | HITS } else { flags };
    let wanted = item.ids.len() as u32;
    if !line.has_ids {
        return Key {
            flags,
            wanted,
            retrieved: 0,
            ranks: 0,
        };
    }
    Key {
        flags: flags | RANKED,
        wanted,
        retrieved,
        ranks: ranking.ranks_of(item),
    }
}

/// The bits of an answer that Python's patterns call a refusal.
pub fn refusal_like(rule: &Rule) -> u64 {
    // A refusal in other words does not follow the template, whatever list it carries.
    REFUSAL_LIKE | TEXT | if rule.matcher_counts { REFUSED } else { SHIPPED }
}

/// The bits of a request without the text of an answer.
pub fn without_claim(line: &Line<'_>) -> u64 {
    let flags = if line.has_citations { COMPLIANT } else { 0 };
    if line.partial && !line.has_answer {
        flags | OUTCOME_UNKNOWN
    } else {
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gold::Id;
    use crate::rules::tests::described;
    use crate::wire::Wire;

    fn rule(bits: u32) -> Rule {
        Rule::read(&mut Wire::new(&described(bits, 1, &[]))).expect("a description")
    }

    fn item(ids: &[&str], sections: &[&str]) -> Item {
        let named = |id: &&str| Id {
            bytes: id.as_bytes().to_vec(),
            hash: of(id.as_bytes()),
        };
        Item {
            offers: 3 | if ids.is_empty() { 0 } else { 1 << 4 },
            set: 0,
            texts: 0,
            ids: ids.iter().map(named).collect(),
            phrases: vec![],
            gold_phrases: vec![],
            sections: sections.iter().map(|section| section.as_bytes().to_vec()).collect(),
        }
    }

    fn read<'a>(text: &'a str, ranking: &mut Ranking<'a>) -> Line<'a> {
        let mut line = Line::default();
        line.read(text.as_bytes()).expect("a plain line");
        ranking.fill(&line.ids);
        line
    }

    #[test]
    fn ids_count_once_at_their_first_rank() {
        let mut ranking = Ranking::default();
        let text = r#"{"v":1,"retrieved_ids":["a","b","a","c"],"answer_json":{"citations":["c"]}}"#;
        let line = read(text, &mut ranking);
        let key = with_item(&line, &ranking, &item(&["c", "x"], &[]));
        assert_eq!((key.wanted, key.retrieved, key.ranks), (2, 3, 0b100));
        assert!(key.flags & HITS != 0 && key.flags & RANKED != 0);
        assert_eq!(common(&line, &ranking, &rule(0)), IDS | IN_SCOPE | CITES_RETRIEVED);
    }

    #[test]
    fn sections_are_prefixes() {
        let mut ranking = Ranking::default();
        let line = read(r#"{"v":1,"retrieved_ids":["p1#2","p2#1"]}"#, &mut ranking);
        let key = with_item(&line, &ranking, &item(&[], &["p2#"]));
        assert_eq!((key.wanted, key.retrieved, key.ranks), (0, 2, 0b10));
    }

    #[test]
    fn what_was_not_captured_is_said() {
        let mut ranking = Ranking::default();
        let line = read(r#"{"v":1,"partial":true,"sampling":{"audit":false}}"#, &mut ranking);
        assert_eq!(common(&line, &ranking, &rule(0)), CITATIONS_MISSING | DETAILS_MISSING);
        assert_eq!(common(&line, &ranking, &rule(2)), DETAILS_MISSING);
        assert_eq!(without_claim(&line), OUTCOME_UNKNOWN);
    }

    #[test]
    fn the_bound_on_the_latency_is_of_the_total() {
        let mut ranking = Ranking::default();
        let line = read(r#"{"v":1,"latency_ms":{"total":100},"retrieved_ids":[]}"#, &mut ranking);
        let flags = common(&line, &ranking, &rule(16 | 2));
        assert_eq!(flags, BOUNDED | TIMED | WITHIN | IDS | EMPTY | IN_SCOPE);
    }
}
