//! The native core of ragmon: it does the work of plain Python for the plain case, and hands back the rest.
//!
//! Plain Python is the law. Whatever this library does, there is a Python path with the same result, and the tests run
//! both on the same input. This file is the C ABI and nothing else. `unsafe` is here and in `python`, `marks`,
//! `sampler`, `async_call` and `weight`, which make objects of CPython's; everything else is safe Rust that knows nothing of Python.
//!
//! The rules of the ABI:
//! * A function never unwinds into its caller: what may panic runs in `abi::guarded`.
//! * Memory belongs to who made it. What Python passes is read during the call alone; what is made here is freed here.
//! * `ABI_VERSION` changes with every change of a signature or of the meaning of a buffer. Python refuses another one.

#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
pub mod async_call;
pub mod captured;
pub mod counts;
pub mod export;
pub mod extent;
pub mod facts;
pub mod fold;
pub mod followed;
pub mod gold;
pub mod groups;
pub mod hash;
pub mod json;
pub mod line;
pub mod marks;
pub mod merge;
pub mod otlp;
pub mod overlap;
pub mod python;
pub mod question;
pub mod rules;
pub mod sampler;
pub mod scan;
pub mod text_facts;
pub mod weight;
pub mod wire;

use std::ffi::c_char;

use abi::{guarded, input, output};
use scan::Scan;

/// The version of this ABI; `ragmon/native/library.py` names the one it was written for.
pub const ABI_VERSION: u32 = 6;

/// What a function returns when it panicked.
pub const PANICKED: i64 = -1;

/// The version of the ABI.
#[no_mangle]
pub extern "C" fn ragmon_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of this library, as text that ends in a zero byte and lives as long as the process.
#[no_mangle]
pub extern "C" fn ragmon_core_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Write the key of a question of ASCII text; returns its length, or -2 where the text is not ASCII.
///
/// # Safety
/// `text` holds `length` bytes, and `out` has room for as many.
#[no_mangle]
pub unsafe extern "C" fn ragmon_question_key(text: *const u8, length: usize, out: *mut u8) -> i64 {
    guarded(PANICKED, || {
        // SAFETY: the caller's promise: `text` and `out` are valid for `length` bytes, for the time of this call.
        let (text, out) = unsafe { (input(text, length), output(out, length)) };
        let mut key = Vec::with_capacity(length);
        if !question::ascii_key(text, &mut key) {
            return -2;
        }
        out[..key.len()].copy_from_slice(&key);
        key.len() as i64
    })
}

/// How many of an answer's words, which have single spaces between them, occur in a text of ASCII; -1 where it panicked.
///
/// # Safety
/// `words` and `text` hold as many bytes as is said.
#[no_mangle]
pub unsafe extern "C" fn ragmon_words_found(
    words: *const u8,
    words_length: usize,
    text: *const u8,
    text_length: usize,
) -> i64 {
    guarded(PANICKED, || {
        // SAFETY: the caller's promise: both are valid for their lengths, for the time of this call.
        let (words, text) = unsafe { (input(words, words_length), input(text, text_length)) };
        overlap::words_found(words, text) as i64
    })
}

/// Count the messages of a protocol message against limits: messages, parts of each, fields of each, depth.
///
/// Returns twice the number of its items, and one more where a limit is exceeded; -2 where the description of its layout
/// cannot be read.
///
/// # Safety
/// `body` holds `length` bytes, `layouts` as many numbers as is said, and `limits` four.
#[no_mangle]
pub unsafe extern "C" fn ragmon_extent(
    body: *const u8,
    length: usize,
    layouts: *const u32,
    layouts_length: usize,
    limits: *const i64,
) -> i64 {
    guarded(PANICKED, || {
        // SAFETY: the caller's promise: all three are valid for their lengths, for the time of this call.
        let (body, layouts, limits) =
            unsafe { (input(body, length), input(layouts, layouts_length), input(limits, 4)) };
        let limits = extent::Limits {
            messages: limits[0],
            parts: limits[1],
            fields: limits[2],
            depth: limits[3] as u32,
        };
        extent::extent(body, layouts, &limits).map_or(-2, |found| found.items as i64 * 2 + i64::from(found.exceeds))
    })
}

/// Find the spans of a plain OTLP request (`otlp`). Returns how many there are, of which the first `room` are written;
/// -2 where the request is not plain.
///
/// # Safety
/// `body` holds `length` bytes, and `out` has room for `room` rows, aligned as numbers of 64 bits are.
#[no_mangle]
pub unsafe extern "C" fn ragmon_otlp_spans(body: *const u8, length: usize, out: *mut otlp::Row, room: usize) -> i64 {
    guarded(PANICKED, || {
        // SAFETY: the caller's promise: both are valid for so many elements, for the time of this call.
        let (body, out) = unsafe { (input(body, length), output(out, room)) };
        otlp::spans(body).map_or(-2, |rows| {
            let count = rows.len().min(room);
            out[..count].copy_from_slice(&rows[..count]);
            rows.len() as i64
        })
    })
}

/// The type of `sampler` in the interpreter that runs; null where there is none.
///
/// # Safety
/// The interpreter lock is held: it is called through `ctypes.PyDLL`.
#[no_mangle]
pub unsafe extern "C" fn ragmon_sampler_type() -> *mut python::Object {
    // SAFETY: the caller's promise.
    guarded(std::ptr::null_mut(), || unsafe { sampler::sampler_type() })
}

/// A scan and the array that was asked for last. It is used by one thread at a time, which Python sees to.
pub struct Context {
    scan: Scan,
    array: Vec<u8>,
    /// Counting panicked: what was counted cannot be trusted, and nothing is given out any more.
    is_broken: bool,
}

/// Start a scan; it is freed by `ragmon_scan_free`.
#[no_mangle]
pub extern "C" fn ragmon_scan_new() -> *mut Context {
    guarded(std::ptr::null_mut(), || {
        Box::into_raw(Box::new(Context {
            scan: Scan::default(),
            array: Vec::new(),
            is_broken: false,
        }))
    })
}

/// Free a scan.
///
/// # Safety
/// `context` comes from `ragmon_scan_new`, and is not used again.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_free(context: *mut Context) {
    guarded((), || {
        // SAFETY: the caller's promise: it was made by `Box::into_raw`, and this is the one time that it comes back.
        drop(unsafe { Box::from_raw(context) });
    });
}

/// Describe something: 0 the table of characters, 1 rules, 2 gold items, 3 a stream. Returns its number, or -2 where
/// the description cannot be read.
///
/// # Safety
/// `context` is a scan that no other thread uses, and `text` holds `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_describe(context: *mut Context, what: u32, text: *const u8, length: usize) -> i64 {
    guarded(PANICKED, || {
        // SAFETY: the caller's promise: a live scan of this thread alone, and bytes that are valid during the call.
        let (context, text) = unsafe { (&mut *context, input(text, length)) };
        let number = match what {
            0 => {
                let entry = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
                context
                    .scan
                    .add_characters(&text.chunks_exact(8).map(entry).collect::<Vec<_>>());
                Some(0)
            }
            1 => context.scan.add_rule(text),
            2 => context.scan.add_items(text),
            3 => context.scan.add_stream(text),
            _ => None,
        };
        number.map_or(-2, i64::from)
    })
}

/// Read the lines of a block. Returns 0; -1 where it panicked, and then nothing of the block was read or counted.
///
/// # Safety
/// `context` is a scan that no other thread uses, and `block` holds `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_read(context: *mut Context, block: *const u8, length: usize) -> i64 {
    guarded(PANICKED, || {
        // SAFETY: the caller's promise: a live scan of this thread alone, and bytes that are valid during the call.
        let (context, block) = unsafe { (&mut *context, input(block, length)) };
        context.scan.read(block);
        0
    })
}

/// Take Python's word on the pending answers of the block that was read last. Returns 0, or -1 where it panicked.
///
/// # Safety
/// `context` is a scan that no other thread uses, and `refusals` holds one byte for each answer that is pending.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_decide(context: *mut Context, refusals: *const u8, count: usize) -> i64 {
    guarded(PANICKED, || {
        // SAFETY: the caller's promise: a live scan of this thread alone, and bytes that are valid during the call.
        let (context, refusals) = unsafe { (&mut *context, input(refusals, count)) };
        context.scan.decide(refusals);
        0
    })
}

/// Count what was read of the same block, up to a number of events. Returns 0; -1 where it panicked: then the scan is of
/// no use any more.
///
/// # Safety
/// `context` is a scan that no other thread uses, and `block` holds `length` bytes.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_commit(
    context: *mut Context,
    block: *const u8,
    length: usize,
    until: usize,
) -> i64 {
    // SAFETY: the caller's promise: a live scan of this thread alone, and bytes that are valid during the call.
    let (context, block) = unsafe { (&mut *context, input(block, length)) };
    if context.is_broken {
        return PANICKED;
    }
    let done = guarded(PANICKED, || {
        context.scan.commit(block, until);
        0
    });
    context.is_broken = done == PANICKED;
    done
}

/// Learn everything that was described to another scan, from which this one learned all that it knows. Returns 0, or -1
/// where it panicked: then the scan is of no use any more.
///
/// # Safety
/// Both are scans that no other thread uses, and not the same one.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_learn(context: *mut Context, other: *const Context) -> i64 {
    // SAFETY: the caller's promise: two live scans of this thread alone.
    let (context, other) = unsafe { (&mut *context, &*other) };
    let done = guarded(PANICKED, || {
        context.scan.learn(&other.scan);
        0
    });
    context.is_broken |= done == PANICKED;
    done
}

/// Add what another scan has counted, which then starts at nothing. Returns 0, or -1 where it panicked or one of them is
/// broken: then both are of no use any more.
///
/// # Safety
/// Both are scans that no other thread uses, and not the same one.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_merge(context: *mut Context, other: *mut Context) -> i64 {
    // SAFETY: the caller's promise: two live scans of this thread alone.
    let (context, other) = unsafe { (&mut *context, &mut *other) };
    if context.is_broken || other.is_broken {
        return PANICKED;
    }
    let done = guarded(PANICKED, || {
        context.scan.merge(&mut other.scan);
        0
    });
    context.is_broken = done == PANICKED;
    other.is_broken = done == PANICKED;
    done
}

/// Write the newest event time, and from when rows are folded next.
///
/// # Safety
/// `context` is a scan that no other thread uses, and `out` has room for two numbers.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_times(context: *const Context, out: *mut f64) {
    // SAFETY: the caller's promise: a live scan of this thread alone, and room for two numbers.
    let (counts, out) = unsafe { (&(*context).scan.counts, output(out, 2)) };
    out.copy_from_slice(&[counts.newest, counts.fold_due]);
}

/// Go on to the newest event time that Python knows, and to when it folds next. Returns 0, or -1 where it panicked: then
/// the scan is of no use any more.
///
/// # Safety
/// `context` is a scan that no other thread uses.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_advance(context: *mut Context, newest: f64, fold_due: f64) -> i64 {
    // SAFETY: the caller's promise: a live scan of this thread alone.
    let context = unsafe { &mut *context };
    let done = guarded(PANICKED, || {
        context.scan.counts.advance(newest, fold_due);
        0
    });
    context.is_broken |= done == PANICKED;
    done
}

/// Set what a caller knows better: 0 lines so far, 1 whether documents were seen that are objects, 2 the line at which to
/// panic (for tests).
///
/// # Safety
/// `context` is a scan that no other thread uses.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_set(context: *mut Context, what: u32, value: u64) {
    guarded((), || {
        // SAFETY: the caller's promise: a live scan of this thread alone.
        let scan = unsafe { &mut (*context).scan };
        match what {
            0 => scan.lines = value,
            1 => scan.has_documents = value != 0,
            _ => scan.fault = value,
        }
    });
}

/// Follow the requests of the next blocks one by one, those with an event time from the first to the second one.
///
/// # Safety
/// `context` is a scan that no other thread uses.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_follow(context: *mut Context, earliest: f64, latest: f64) {
    // SAFETY: the caller's promise: a live scan of this thread alone.
    let followed = unsafe { &mut (*context).scan.followed };
    (followed.is_on, followed.earliest, followed.latest) = (true, earliest, latest);
}

/// Forget the streams that were described, which are described anew; everything that was counted was taken over.
///
/// # Safety
/// `context` is a scan that no other thread uses.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_forget_streams(context: *mut Context) {
    guarded((), || {
        // SAFETY: the caller's promise: a live scan of this thread alone.
        unsafe { (*context).scan.forget_streams() };
    });
}

/// Make one of the arrays of `export`; returns its length in bytes, -1 where it panicked or the scan is broken.
///
/// # Safety
/// `context` is a scan that no other thread uses.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_array(context: *mut Context, section: u32) -> i64 {
    guarded(PANICKED, || {
        // SAFETY: the caller's promise: a live scan of this thread alone.
        let context = unsafe { &mut *context };
        if context.is_broken || !export::section(&context.scan, section, &mut context.array) {
            return PANICKED;
        }
        context.array.len() as i64
    })
}

/// The bytes of the array that was made last; valid until the next one is made.
///
/// # Safety
/// `context` is a scan that no other thread uses.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_bytes(context: *const Context) -> *const u8 {
    // SAFETY: the caller's promise: a live scan of this thread alone.
    unsafe { (*context).array.as_ptr() }
}

/// Forget what was counted, because the caller has it; what was described stays.
///
/// # Safety
/// `context` is a scan that no other thread uses.
#[no_mangle]
pub unsafe extern "C" fn ragmon_scan_clear(context: *mut Context) {
    guarded((), || {
        // SAFETY: the caller's promise: a live scan of this thread alone.
        unsafe { (*context).scan.clear() };
    });
}
