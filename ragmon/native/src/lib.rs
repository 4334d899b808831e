//! The native core of ragmon: it does the work of plain Python for the plain case, and hands back the rest.
//!
//! Plain Python is the law. Whatever this library does, there is a Python path with the same result, and the tests run
//! both on the same input. This file is the C ABI and nothing else: the one place with `unsafe`. Everything behind it is
//! safe Rust that knows nothing of ctypes.
//!
//! The rules of the ABI:
//! * A function never unwinds into its caller: what may panic runs in `abi::guarded`.
//! * Memory belongs to who made it. What Python passes is read during the call alone; what is made here is freed here.
//! * `ABI_VERSION` changes with every change of a signature or of the meaning of a buffer. Python refuses another one.

#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
pub mod question;

use std::ffi::c_char;

use abi::{guarded, input, output};

/// The version of this ABI; `ragmon/native/library.py` names the one it was written for.
pub const ABI_VERSION: u32 = 1;

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
