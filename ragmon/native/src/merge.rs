//! Several scans of one run: what is described to one is known to all, and their counts are added.
//!
//! Descriptions are shared and never changed. All scans learn from one, so that the numbers of streams, items and gold
//! sets mean the same in each.

use crate::scan::{stratum, Scan};

impl Scan {
    /// Learn everything that was described to another scan, from which this one has learned all that it knows.
    pub fn learn(&mut self, other: &Scan) {
        self.characters = other.characters.clone();
        let (rules, items, streams) = (self.rules.len(), self.items.len(), self.streams.len());
        self.rules.extend_from_slice(&other.rules[rules..]);
        self.items.extend_from_slice(&other.items[items..]);
        self.streams.extend_from_slice(&other.streams[streams..]);
        for (names, &number) in &other.by_names {
            if number as usize >= streams {
                self.by_names.insert(names.clone(), number);
            }
        }
        self.matched.resize(self.streams.len(), Default::default());
        self.answers.resize(self.streams.len(), Default::default());
        self.captured.resize_with(other.captured.len(), Default::default);
    }

    /// Add what another scan has counted, which then starts at nothing; both have learned the same.
    pub fn merge(&mut self, other: &mut Scan) {
        let strata: Vec<u32> = other
            .strata
            .iter()
            .map(|name| stratum(&mut self.strata, &mut self.by_stratum, name))
            .collect();
        self.scored += other.scored;
        self.unmatched += other.unmatched;
        for (own, others) in self.matched.iter_mut().zip(&other.matched) {
            add(own, others);
        }
        for (own, others) in self.answers.iter_mut().zip(&other.answers) {
            add(own, others);
        }
        for (&(stream, place, hour), counts) in &other.cohorts {
            add(
                self.cohorts.entry((stream, strata[place as usize], hour)).or_default(),
                counts,
            );
        }
        for (own, others) in self.captured.iter_mut().zip(&other.captured) {
            own.merge(others);
        }
        let counts = std::mem::take(&mut other.counts);
        other.clear();
        (other.counts.newest, other.counts.fold_due) = (counts.newest, counts.fold_due);
        self.counts.merge(counts, &strata);
    }
}

fn add(own: &mut [u64], others: &[u64]) {
    own.iter_mut().zip(others).for_each(|(own, other)| *own += other);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::{Count, LaneKey, NO_GROUP};
    use crate::facts::Key;

    fn counted(strata: &[&[u8]]) -> Scan {
        let mut scan = Scan::default();
        for name in strata {
            let number = stratum(&mut scan.strata, &mut scan.by_stratum, name);
            let lane = LaneKey {
                stream: 0,
                is_match: false,
                by_model: false,
                set: 0,
                audit: true,
                stratum: number,
            };
            let key = scan.counts.key(Key {
                flags: name.len() as u64,
                ..Key::default()
            });
            let count = Count {
                key,
                group: NO_GROUP,
                latency: &[None; 3],
                item: None,
            };
            scan.counts.add(lane, Some(600.0), &count);
            scan.scored += 1;
            scan.cohorts.insert((0, number, 5), [1, 2, 3]);
        }
        scan
    }

    #[test]
    fn strata_and_facts_keep_their_names_where_their_numbers_differ() {
        let (mut into, mut from) = (counted(&[b"rest", b"slow"]), counted(&[b"slow", b"error"]));
        into.merge(&mut from);
        assert_eq!(into.strata(), [&b"rest"[..], b"slow", b"error"]);
        assert_eq!(into.scored, 4);
        assert_eq!(into.cohorts[&(0, 1, 5)], [2, 4, 6]);
        for (place, lane) in into.counts.lanes.iter().enumerate() {
            let row = &lane.fresh[&600];
            let (&number, cell) = row.cells.iter().next().expect("a cell");
            assert_eq!(
                into.counts.keys[number as usize].flags,
                into.strata()[lane.key.stratum as usize].len() as u64
            );
            assert_eq!(cell.count, if place == 1 { 2 } else { 1 });
        }
        assert_eq!((from.scored, from.counts.lanes.len(), from.cohorts.len()), (0, 0, 0));
    }

    #[test]
    fn a_scan_learns_only_what_is_new() {
        let (mut master, mut scan) = (Scan::default(), Scan::default());
        master.add_rule(&[0; 28]).expect("a rule");
        scan.learn(&master);
        scan.learn(&master);
        assert_eq!(scan.rules.len(), 1);
    }
}
