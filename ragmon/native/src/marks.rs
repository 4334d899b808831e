//! The marks of threads in which an unsampled sync call runs, the draws of calls, and what Python asks about both.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::python::{MethodDef, Object, Python, NOARGS, ONE, STATIC};

/// An unsampled call runs in the thread.
const BUSY: u8 = 1;
/// Code inside it has looked for it, and Python has an object that must be told when it ends.
const SEEN: u8 = 2;

/// The mark of a thread, and when the call that set it began.
pub struct Thread {
    state: Cell<u8>,
    started: Cell<Option<Instant>>,
}

thread_local! {
    static THREAD: Thread = const { Thread { state: Cell::new(0), started: Cell::new(None) } };
}

/// Do something with the mark of this thread.
pub fn here<T>(work: impl FnOnce(&Thread) -> T) -> T {
    THREAD.with(work)
}

impl Thread {
    /// Whether an unsampled call runs in the thread.
    pub fn is_busy(&self) -> bool {
        self.state.get() & BUSY != 0
    }

    /// Whether code inside that call has looked for it.
    pub fn is_seen(&self) -> bool {
        self.state.get() & SEEN != 0
    }

    /// A call begins.
    pub fn begin(&self, started: Option<Instant>) {
        self.started.set(started);
        self.state.set(self.state.get() | BUSY);
    }

    /// The call has ended.
    pub fn end(&self) {
        self.state.set(0);
    }

    /// When the last call began; None where it is not timed.
    pub fn started(&self) -> Option<Instant> {
        self.started.get()
    }
}

/// The generator of the draws: SplitMix64 (Steele, Lea and Flood 2014), whose state is a counter that threads can share.
static GENERATOR: AtomicU64 = AtomicU64::new(0);

/// A uniform number from 0 to 1, of 53 bits.
pub fn uniform() -> f64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut bits = GENERATOR.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// A reference to an object that is always alive.
unsafe fn constant(choose: impl FnOnce(&Python) -> *mut Object) -> *mut Object {
    // SAFETY: only methods call this, so Python is here and its lock is held.
    Python::get().map_or(null_mut(), |python| unsafe { python.refer(choose(python)) })
}

/// `is_busy()`: whether an unsampled call runs in this thread.
unsafe extern "C" fn is_busy(_: *mut Object, _: *mut Object) -> *mut Object {
    let busy = here(Thread::is_busy);
    // SAFETY: True and False are always alive.
    unsafe { constant(|python| if busy { python.yes } else { python.no }) }
}

/// `look()`: as `is_busy`, and Python is asked when that call ends.
unsafe extern "C" fn look(_: *mut Object, _: *mut Object) -> *mut Object {
    here(|thread| {
        if thread.is_busy() {
            thread.state.set(BUSY | SEEN);
        }
    });
    // SAFETY: it looks at neither of the arguments.
    unsafe { is_busy(null_mut(), null_mut()) }
}

/// `leave()`: no call runs in this thread, as after a fork.
unsafe extern "C" fn leave(_: *mut Object, _: *mut Object) -> *mut Object {
    here(|thread| thread.state.set(thread.state.get() & !BUSY));
    // SAFETY: None is always alive.
    unsafe { constant(|python| python.none) }
}

/// `seed(number)`: begin the draws anew.
unsafe extern "C" fn seed(_: *mut Object, number: *mut Object) -> *mut Object {
    let Some(python) = Python::get() else {
        return null_mut();
    };
    // SAFETY: the argument is alive during the call; of what is no integer the error stays set.
    unsafe {
        let bits = (python.integer)(number);
        if !(python.error)().is_null() {
            return null_mut();
        }
        GENERATOR.store(bits, Ordering::Relaxed);
        python.refer(python.none)
    }
}

const OF_NOTHING: c_int = NOARGS | STATIC;

/// The functions for Python.
pub const FUNCTIONS: [MethodDef; 4] = [
    MethodDef::new(c"is_busy", is_busy, OF_NOTHING),
    MethodDef::new(c"look", look, OF_NOTHING),
    MethodDef::new(c"leave", leave, OF_NOTHING),
    MethodDef::new(c"seed", seed, ONE | STATIC),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_those_of_splitmix64() {
        // The first numbers of the published generator for the seed 1234567.
        GENERATOR.store(1_234_567, Ordering::Relaxed);
        let expected = [6_457_827_717_110_365_317u64, 3_203_168_211_198_807_973];
        for number in expected {
            assert_eq!(uniform(), (number >> 11) as f64 / (1u64 << 53) as f64);
        }
    }

    #[test]
    fn a_mark_is_of_one_thread() {
        here(|thread| thread.begin(None));
        let other = std::thread::spawn(|| here(Thread::is_busy)).join();
        assert!(matches!(other, Ok(false)) && here(Thread::is_busy));
        here(Thread::end);
        assert!(!here(Thread::is_busy));
    }
}
