//! What was read and counted, as arrays that Python takes over.
//!
//! An array holds whole numbers of 64 bits in the machine's order, row after row; texts stand one after another, parted
//! by a byte that no text has.

use crate::scan::Scan;

/// Parts texts; it does not stand in UTF-8.
const BETWEEN: u8 = 0xFF;

/// Append numbers to an array.
fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_ne_bytes());
    }
}

/// Write one array into a buffer; false for a number that no array has.
///
/// The numbers and the columns are those of `ragmon/monitor/native_export.py`.
pub fn section(scan: &Scan, number: u32, out: &mut Vec<u8>) -> bool {
    out.clear();
    match number {
        0 => totals(scan, out),
        1 => scan.hard.iter().for_each(|hard| {
            put(
                out,
                &[hard.offset as u64, hard.length as u64, hard.number, hard.events as u64],
            );
        }),
        2 => scan
            .pending
            .iter()
            .for_each(|pending| put(out, &[pending.end as u64, u64::from(pending.rule)])),
        3 => out.extend_from_slice(scan.texts.as_bytes()),
        4 => keys(scan, out),
        5 => lanes(scan, out),
        6 => rows(scan, out),
        7 => cells(scan, out),
        8 => groups(scan, out),
        9 => all_latency(scan, |bucket, _| put(out, &[u64::from(bucket)])),
        10 => tables(scan, out),
        11 => items(scan, out),
        12 => scan.strata().iter().for_each(|stratum| text(out, stratum)),
        13 => by_stream(&scan.matched, out),
        14 => by_stream(&scan.answers, out),
        15 => scan.cohorts.iter().for_each(|(&(stream, stratum, hour), counts)| {
            put(out, &[u64::from(stream), u64::from(stratum), hour as u64]);
            put(out, counts);
        }),
        16 => captured(scan, out),
        17 => scan.captured.iter().enumerate().for_each(|(place, captured)| {
            captured
                .masks
                .iter()
                .for_each(|(&(minute, mask), &count)| put(out, &[place as u64, minute as u64, u64::from(mask), count]));
        }),
        18 => scan
            .captured
            .iter()
            .flat_map(|captured| &captured.examples)
            .for_each(|id| text(out, id.as_bytes())),
        19 => all_latency(scan, |_, count| put(out, &[count])),
        20 => put(out, &scan.followed.numbers),
        21 => scan
            .followed
            .values
            .iter()
            .for_each(|value| out.extend_from_slice(&value.to_ne_bytes())),
        22 => out.extend_from_slice(&scan.followed.texts),
        _ => return false,
    }
    true
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(BETWEEN);
}

fn totals(scan: &Scan, out: &mut Vec<u8>) {
    put(out, &[scan.lines, scan.blank, scan.scored, scan.unmatched]);
    put(
        out,
        &[
            scan.hard.len() as u64,
            scan.pending.len() as u64,
            u64::from(scan.is_full()),
        ],
    );
}

fn keys(scan: &Scan, out: &mut Vec<u8>) {
    for key in &scan.counts.keys {
        let ranks = [key.ranks as u64, (key.ranks >> 64) as u64];
        put(
            out,
            &[
                key.flags,
                u64::from(key.wanted),
                u64::from(key.retrieved),
                ranks[0],
                ranks[1],
            ],
        );
    }
}

fn lanes(scan: &Scan, out: &mut Vec<u8>) {
    for lane in &scan.counts.lanes {
        let key = &lane.key;
        put(
            out,
            &[u64::from(key.stream), u64::from(key.is_match), u64::from(key.by_model)],
        );
        put(out, &[u64::from(key.set), u64::from(key.audit), u64::from(key.stratum)]);
    }
}

/// The rows of every series in the order in which all arrays have them: series, whether folded, start, row.
fn all_rows(scan: &Scan) -> impl Iterator<Item = (usize, bool, i64, &crate::counts::Row)> {
    scan.counts.lanes.iter().enumerate().flat_map(|(place, lane)| {
        let fresh = lane.fresh.iter().map(move |(&start, row)| (place, false, start, row));
        fresh.chain(lane.folded.iter().map(move |(&start, row)| (place, true, start, row)))
    })
}

fn rows(scan: &Scan, out: &mut Vec<u8>) {
    for (lane, is_folded, start, row) in all_rows(scan) {
        let cells = row.cells.len() as u64;
        put(out, &[lane as u64, u64::from(is_folded), start as u64, cells]);
        row.latency
            .iter()
            .for_each(|histogram| put(out, &[histogram.len() as u64]));
    }
}

fn cells(scan: &Scan, out: &mut Vec<u8>) {
    for (_, _, _, row) in all_rows(scan) {
        for (&key, cell) in &row.cells {
            put(out, &[u64::from(key), cell.count, u64::from(cell.groups.is_some())]);
        }
    }
}

fn groups(scan: &Scan, out: &mut Vec<u8>) {
    for (_, _, _, row) in all_rows(scan) {
        for counts in row.cells.values().filter_map(|cell| cell.groups.as_ref()) {
            counts
                .iter()
                .for_each(|count| out.extend_from_slice(&count.to_le_bytes()));
        }
    }
}

/// Give every bucket of milliseconds with its count, by row and stage.
fn all_latency(scan: &Scan, mut give: impl FnMut(u32, u64)) {
    for (_, _, _, row) in all_rows(scan) {
        for histogram in &row.latency {
            histogram.iter().for_each(|(&bucket, &count)| give(bucket, count));
        }
    }
}

fn tables(scan: &Scan, out: &mut Vec<u8>) {
    for (place, lane) in scan.counts.lanes.iter().enumerate() {
        lane.items
            .iter()
            .for_each(|(&hour, table)| put(out, &[place as u64, hour as u64, table.len() as u64]));
    }
}

fn items(scan: &Scan, out: &mut Vec<u8>) {
    for table in scan.counts.lanes.iter().flat_map(|lane| lane.items.values()) {
        let mut entries: Vec<(u64, u64)> = table.iter().map(|(&place, &count)| (place, count)).collect();
        entries.sort_unstable(); // so that the entries of an item stand together
        for (place, count) in entries {
            put(out, &[place >> 32, place & 0xFFFF_FFFF, count]);
        }
    }
}

fn by_stream<const N: usize>(counts: &[[u64; N]], out: &mut Vec<u8>) {
    counts.iter().for_each(|counts| put(out, counts));
}

fn captured(scan: &Scan, out: &mut Vec<u8>) {
    for captured in &scan.captured {
        put(out, &[captured.ids, captured.examples.len() as u64]);
    }
}
