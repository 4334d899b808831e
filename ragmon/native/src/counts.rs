//! The counts: rows of facts by time and series, and tables of gold items (`ragmon.scoring.counts`, `.windows`).
//!
//! Everything is addition. What is counted here is handed over to Python's state now and then, and starts again at
//! nothing; the limits on a row are Python's, which cuts a row the same way however it was divided.

use crate::facts::Key;
use crate::groups::GROUPS;
use crate::hash::Map;

/// Seconds of a row.
const STEP: i64 = 10;
/// Seconds of a folded row.
const FOLDED: i64 = 300;
/// Seconds for which rows are not folded.
const FRESH: f64 = 3900.0;
/// Seconds of an item table.
const HOUR: i64 = 3600;
/// The row and the table of what has no time.
pub const UNTIMED: i64 = -1;
/// No group.
pub const NO_GROUP: u8 = u8::MAX;
/// Bits of a double that its bucket does not have (`ragmon.stats.histograms`).
const DROPPED_BITS: u32 = 46;

/// Requests with the same facts in a row.
#[derive(Default)]
pub struct Cell {
    /// How many.
    pub count: u64,
    /// How many of them are in each random group; none where none is in a group.
    pub groups: Option<Box<[u32; GROUPS]>>,
}

/// The counts of one time step of one series.
#[derive(Default)]
pub struct Row {
    /// Requests by the number of their facts.
    pub cells: Map<u32, Cell>,
    /// By stage, the buckets of milliseconds.
    pub latency: [Map<u32, u64>; 3],
}

impl Row {
    /// Add the counts of another row, in which facts may have other numbers.
    fn merge(&mut self, other: Row, number: impl Fn(u32) -> u32) {
        for (key, cell) in other.cells {
            let own = self.cells.entry(number(key)).or_default();
            own.count += cell.count;
            match (&mut own.groups, cell.groups) {
                (Some(own), Some(other)) => own.iter_mut().zip(other.iter()).for_each(|(own, other)| *own += other),
                (own @ None, groups) => *own = groups,
                _ => {}
            }
        }
        for (own, histogram) in self.latency.iter_mut().zip(other.latency) {
            for (bucket, count) in histogram {
                *own.entry(bucket).or_default() += count;
            }
        }
    }
}

/// What makes a series, as numbers of texts that Python knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LaneKey {
    /// The stream.
    pub stream: u32,
    /// Counted as a match of live traffic.
    pub is_match: bool,
    /// Counted in the slice of the stream's model.
    pub by_model: bool,
    /// The gold set, from 1; 0 without one.
    pub set: u32,
    /// It won the uniform draw.
    pub audit: bool,
    /// The stratum.
    pub stratum: u32,
}

/// The rows of a series.
pub struct Lane {
    /// What it counts.
    pub key: LaneKey,
    /// Rows by their start; the folded ones apart.
    pub fresh: Map<i64, Row>,
    /// Folded rows, and the one of records without a time.
    pub folded: Map<i64, Row>,
    /// By hour, how often an item had some facts: the item in the high half, the facts in the low one.
    pub items: Map<i64, Map<u64, u64>>,
}

/// How a request is counted in a series.
pub struct Count<'a> {
    /// The facts, by number.
    pub key: u32,
    /// The random group of its cluster.
    pub group: u8,
    /// Its latencies, milliseconds.
    pub latency: &'a [Option<f64>; 3],
    /// Its gold item, where the table of items counts it.
    pub item: Option<u32>,
}

/// All counts of a context.
#[derive(Default)]
pub struct Counts {
    /// The newest event time.
    pub newest: f64,
    /// When rows are folded next.
    pub fold_due: f64,
    /// The facts by number.
    pub keys: Vec<Key>,
    numbers: Map<Key, u32>,
    /// The series.
    pub lanes: Vec<Lane>,
    places: Map<LaneKey, u32>,
    /// How many rows and item entries there are, about: by this it is known when to hand them over.
    pub size: u64,
}

impl Counts {
    /// The number of some facts.
    #[inline]
    pub fn key(&mut self, key: Key) -> u32 {
        let (numbers, keys) = (&mut self.numbers, &mut self.keys);
        *numbers.entry(key).or_insert_with(|| {
            keys.push(key);
            keys.len() as u32 - 1
        })
    }

    /// The number of a series.
    #[inline]
    fn lane(&mut self, key: LaneKey) -> usize {
        let lanes = &mut self.lanes;
        *self.places.entry(key).or_insert_with(|| {
            lanes.push(Lane {
                key,
                fresh: Map::default(),
                folded: Map::default(),
                items: Map::default(),
            });
            lanes.len() as u32 - 1
        }) as usize
    }

    /// Count a request in a series.
    pub fn add(&mut self, lane: LaneKey, ts: Option<f64>, count: &Count<'_>) {
        let lane = self.lane(lane);
        let (is_folded, start) = self.turn(ts);
        let lane = &mut self.lanes[lane];
        let rows = if is_folded { &mut lane.folded } else { &mut lane.fresh };
        let row = rows.entry(start).or_insert_with(|| {
            self.size += 1;
            Row::default()
        });
        let cell = row.cells.entry(count.key).or_insert_with(|| {
            self.size += 1;
            Cell::default()
        });
        cell.count += 1;
        if count.group != NO_GROUP {
            cell.groups.get_or_insert_with(|| Box::new([0; GROUPS]))[count.group as usize] += 1;
        }
        for (histogram, ms) in row.latency.iter_mut().zip(count.latency) {
            if let Some(ms) = ms {
                *histogram.entry((ms.to_bits() >> DROPPED_BITS) as u32).or_default() += 1;
            }
        }
        if let Some(item) = count.item {
            let table = lane.items.entry(hour_of(ts)).or_default();
            *table
                .entry(u64::from(item) << 32 | u64::from(count.key))
                .or_insert_with(|| {
                    self.size += 1;
                    0
                }) += 1;
        }
    }

    /// Move time on; returns whether the row of a time is a folded one, and its start (`State.row`).
    #[inline]
    fn turn(&mut self, ts: Option<f64>) -> (bool, i64) {
        let Some(ts) = ts else { return (true, UNTIMED) };
        if ts > self.newest {
            self.newest = ts;
            if ts > self.fold_due {
                self.fold(ts);
            }
        }
        if ts < self.newest - FRESH {
            (true, ts as i64 / FOLDED * FOLDED)
        } else {
            (false, ts as i64 / STEP * STEP)
        }
    }

    /// Go on to where Python is, which counts the other lines: it may have folded rows (`State.advance`).
    pub fn advance(&mut self, newest: f64, fold_due: f64) {
        self.newest = self.newest.max(newest);
        if fold_due > self.fold_due {
            self.fold(fold_due - FOLDED as f64);
        }
    }

    /// Fold the rows that are no longer fresh.
    fn fold(&mut self, now: f64) {
        self.fold_due = now + FOLDED as f64;
        let before = now - FRESH;
        for lane in &mut self.lanes {
            let old: Vec<i64> = lane
                .fresh
                .keys()
                .copied()
                .filter(|&start| (start as f64) < before)
                .collect();
            for start in old {
                if let Some(row) = lane.fresh.remove(&start) {
                    lane.folded
                        .entry(start / FOLDED * FOLDED)
                        .or_default()
                        .merge(row, |key| key);
                }
            }
        }
    }

    /// Add what another scan has counted.
    ///
    /// `strata` says which number each of its strata has here.
    pub fn merge(&mut self, other: Counts, strata: &[u32]) {
        self.advance(other.newest, other.fold_due);
        let keys: Vec<u32> = other.keys.iter().map(|&key| self.key(key)).collect();
        let number = |key: u32| keys[key as usize];
        let before = self.fold_due - FOLDED as f64 - FRESH;
        for lane in other.lanes {
            let place = self.lane(LaneKey {
                stratum: strata[lane.key.stratum as usize],
                ..lane.key
            });
            let own = &mut self.lanes[place];
            for (start, row) in lane.fresh {
                let row_of_own = if (start as f64) < before {
                    own.folded.entry(start / FOLDED * FOLDED)
                } else {
                    own.fresh.entry(start)
                };
                row_of_own.or_default().merge(row, number);
            }
            for (start, row) in lane.folded {
                own.folded.entry(start).or_default().merge(row, number);
            }
            for (hour, table) in lane.items {
                let own = own.items.entry(hour).or_default();
                for (entry, count) in table {
                    let item = entry & !u64::from(u32::MAX);
                    *own.entry(item | u64::from(number(entry as u32))).or_default() += count;
                }
            }
        }
        self.size += other.size;
    }

    /// Forget what was counted, because Python has it; time goes on.
    pub fn clear(&mut self) {
        *self = Counts {
            newest: self.newest,
            fold_due: self.fold_due,
            ..Counts::default()
        };
    }
}

/// The hour of a time, since the epoch.
pub fn hour_of(ts: Option<f64>) -> i64 {
    ts.map_or(UNTIMED, |ts| ts as i64 / HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneKey = LaneKey {
        stream: 0,
        is_match: false,
        by_model: false,
        set: 0,
        audit: true,
        stratum: 0,
    };

    fn counted(times: &[Option<f64>]) -> Counts {
        let mut counts = Counts::default();
        for ts in times {
            let key = counts.key(Key::default());
            let latency = [Some(5.0), None, Some(0.0)];
            counts.add(
                LANE,
                *ts,
                &Count {
                    key,
                    group: 3,
                    latency: &latency,
                    item: Some(7),
                },
            );
        }
        counts
    }

    #[test]
    fn rows_are_ten_seconds_while_fresh_and_five_minutes_later() {
        let counts = counted(&[Some(605.0), Some(607.0), Some(601.0), Some(10_000.0)]);
        let lane = &counts.lanes[0];
        assert_eq!(lane.fresh.keys().collect::<Vec<_>>(), [&10_000]);
        assert_eq!(lane.folded[&600].cells[&0].count, 3);
        let groups = lane.folded[&600].cells[&0].groups.as_ref().expect("a group");
        assert_eq!(groups[3], 3);
    }

    #[test]
    fn rows_fold_when_python_has_folded() {
        let mut counts = counted(&[Some(600.0)]);
        counts.advance(700.0, 900.0);
        assert_eq!(counts.lanes[0].fresh.len(), 1);
        counts.advance(9000.0, 9300.0);
        assert_eq!((counts.lanes[0].fresh.len(), counts.lanes[0].folded.len()), (0, 1));
        assert_eq!((counts.newest, counts.fold_due), (9000.0, 9300.0));
    }

    #[test]
    fn a_late_record_goes_to_a_folded_row() {
        let counts = counted(&[Some(10_000.0), Some(605.0)]);
        assert_eq!(counts.lanes[0].folded[&600].cells[&0].count, 1);
    }

    #[test]
    fn a_record_without_a_time_is_in_a_row_of_its_own() {
        let counts = counted(&[None, None]);
        assert_eq!(counts.lanes[0].folded[&UNTIMED].cells[&0].count, 2);
        assert_eq!(counts.lanes[0].items[&UNTIMED][&(7 << 32)], 2);
        assert_eq!(counts.newest, 0.0);
    }

    #[test]
    fn latencies_are_counted_by_their_leading_bits() {
        let counts = counted(&[Some(0.0)]);
        let row = &counts.lanes[0].fresh[&0];
        assert_eq!(row.latency[0][&((5.0_f64.to_bits() >> 46) as u32)], 1);
        assert!(row.latency[1].is_empty());
        assert_eq!(row.latency[2][&0], 1);
    }
}
