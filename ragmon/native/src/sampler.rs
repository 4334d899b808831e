//! A Python object that samples calls: it decides about each, marks its thread, and counts those that are only counted.
//!
//! `ragmon/native/sampling.py` says what the object does for Python. Its operations are operators and not functions: after
//! every call Python looks for signals, and what a handler raises there would come between the mark of a thread and the
//! `try` that takes it off again; after an operator it does not look.
//!
//! Everything here runs with the interpreter lock held, so `Cell` is enough. No reference to what Python code could change
//! is held while Python code runs.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::mem::size_of;
use std::ptr::{addr_of_mut, null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::python::{MethodDef, Object, Python, Slot, Spec, NOARGS, ONE, STATIC, VARARGS};

/// Latencies that wait to be read (`WAITING` of capture/runtime.py).
const WAITING: usize = 65_536;

/// An unsampled call runs in the thread.
const BUSY: u8 = 1;
/// Code inside it has looked for it, and Python has an object that must be told when it ends.
const SEEN: u8 = 2;

/// The mark of a thread, and when the call that set it began.
struct Thread {
    state: Cell<u8>,
    started: Cell<Option<Instant>>,
}

thread_local! {
    static THREAD: Thread = const { Thread { state: Cell::new(0), started: Cell::new(None) } };
}

/// The generator of the draws: SplitMix64 (Steele, Lea and Flood 2014), whose state is a counter that threads can share.
static GENERATOR: AtomicU64 = AtomicU64::new(0);

/// A uniform number from 0 to 1, of 53 bits.
fn uniform() -> f64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut bits = GENERATOR.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// The object: its head, and what it knows. References are its own, until `delete`.
#[repr(C)]
struct Sampler {
    head: Object,
    python: &'static Python,
    /// `get` of the context variable of the running call.
    running: *mut Object,
    /// Checks whether a call may have a parent; null while it cannot.
    watch: Cell<*mut Object>,
    /// The names `ended`, `claim`, `answer` and `answer_json`.
    names: [*mut Object; 4],
    /// The sampling decisions of a sampled call and of one that is not.
    decisions: [*mut Object; 2],
    /// The probability that a call is not sampled.
    unsampled: f64,
    /// Unsampled calls get a call object as well.
    remembers: Cell<bool>,
    /// Marks the thread, and times calls where that is asked for.
    marks: bool,
    times: bool,
    /// Calls that took longer are Python's.
    slow_above: f64,
    /// Results whose text is shorter may be refusals and are Python's; 0 where results are not looked at.
    shortest: isize,
    calls: Cell<u64>,
    seconds: RefCell<VecDeque<f64>>,
}

impl Sampler {
    /// What `begin` answers. Marks the thread of a call that is only counted.
    ///
    /// # Safety
    /// The interpreter lock is held, and no error is set.
    unsafe fn decide(&self) -> *mut Object {
        if THREAD.with(|thread| thread.state.get() & BUSY != 0) {
            return self.python.none;
        }
        // SAFETY: the caller's promise.
        if unsafe { self.is_inside() || self.may_have_parent() } {
            return self.python.none;
        }
        if uniform() >= self.unsampled {
            return self.decisions[0];
        }
        if self.remembers.get() {
            return self.decisions[1];
        }
        if self.marks {
            THREAD.with(|thread| {
                thread.started.set(self.times.then(Instant::now));
                thread.state.set(thread.state.get() | BUSY);
            });
        }
        self.python.yes
    }

    /// Whether the context has a call that has not ended, or cannot be asked.
    ///
    /// # Safety
    /// As `decide`.
    unsafe fn is_inside(&self) -> bool {
        let python = self.python;
        // SAFETY: the caller's promise; both objects live as long as this one, and every new reference is dropped once.
        unsafe {
            let outer = (python.call)(self.running);
            if outer == python.none {
                (python.drop_reference)(outer);
                return false;
            }
            let mut has_ended = false;
            if !outer.is_null() {
                let ended = (python.attribute)(outer, self.names[0]);
                has_ended = ended == python.yes;
                (python.drop_reference)(ended);
                (python.drop_reference)(outer);
            }
            (python.clear_error)();
            !has_ended
        }
    }

    /// Whether the application's tracer has something in the context, or cannot be asked.
    ///
    /// # Safety
    /// As `decide`.
    unsafe fn may_have_parent(&self) -> bool {
        let (python, watch) = (self.python, self.watch.get());
        if watch.is_null() {
            return false;
        }
        // SAFETY: the caller's promise. What is called may replace `watch`, so this reference is kept meanwhile.
        unsafe {
            (python.add_reference)(watch);
            let context = (python.call)(watch);
            (python.drop_reference)(watch);
            let is_set = if context.is_null() {
                -1
            } else {
                (python.is_true)(context)
            };
            (python.drop_reference)(context);
            if is_set < 0 {
                (python.clear_error)();
            }
            is_set != 0
        }
    }

    /// Whether a result is one that is counted without a look at the call.
    ///
    /// # Safety
    /// As `decide`; the result is alive.
    unsafe fn is_usual(&self, result: *mut Object) -> bool {
        let python = self.python;
        // SAFETY: the caller's promise.
        unsafe {
            let kind = (*result).kind;
            if kind != python.dict_type && kind != python.text_type {
                return false;
            }
            self.shortest == 0 || self.is_long(result)
        }
    }

    /// Whether the text of a result is too long for a refusal, or there is none (`is_refusal` of capture/outcomes.py).
    ///
    /// # Safety
    /// As `is_usual`; the result is a dictionary or text.
    unsafe fn is_long(&self, result: *mut Object) -> bool {
        let python = self.python;
        // SAFETY: the caller's promise. A reference to what was found is kept, as a key's own `__eq__` may run and
        // change the dictionary.
        unsafe {
            (python.add_reference)(result);
            let mut text = result;
            if (*text).kind == python.dict_type {
                text = self.replace(result, &self.names[1..]);
                if (*text).kind == python.dict_type {
                    text = self.replace(text, &self.names[1..2]);
                }
            }
            let has_failed = !(python.error)().is_null();
            if has_failed {
                (python.clear_error)();
            }
            let is_text = (*text).kind == python.text_type;
            let is_long = !has_failed && (!is_text || (python.text_length)(text) >= self.shortest);
            (python.drop_reference)(text);
            is_long
        }
    }

    /// The first value under one of the names that is there and not None, in place of the dictionary, whose reference is
    /// dropped; else None.
    ///
    /// # Safety
    /// As `is_long`.
    unsafe fn replace(&self, dict: *mut Object, names: &[*mut Object]) -> *mut Object {
        let python = self.python;
        let mut found = python.none;
        // SAFETY: the caller's promise; the value found is kept before anything else runs.
        unsafe {
            for name in names {
                let value = (python.item)(dict, *name);
                if !value.is_null() && value != python.none {
                    found = value;
                    break;
                }
            }
            (python.add_reference)(found);
            (python.drop_reference)(dict);
        }
        found
    }

    /// Count a call that returned; false if more is to be done with it.
    ///
    /// # Safety
    /// As `is_usual`.
    unsafe fn count(&self, result: *mut Object) -> bool {
        if self.marks && THREAD.with(|thread| thread.state.get() & SEEN != 0) {
            return false;
        }
        let seconds = self.elapsed();
        // SAFETY: the caller's promise.
        if seconds.is_some_and(|seconds| seconds > self.slow_above) || !unsafe { self.is_usual(result) } {
            return false;
        }
        self.calls.set(self.calls.get().wrapping_add(1));
        if let (Some(seconds), Ok(mut waiting)) = (seconds, self.seconds.try_borrow_mut()) {
            if waiting.len() == WAITING {
                waiting.pop_front();
            }
            waiting.push_back(seconds);
        }
        if self.marks {
            THREAD.with(|thread| thread.state.set(0));
        }
        true
    }

    /// Seconds since the call of this thread began; None where it is not timed.
    fn elapsed(&self) -> Option<f64> {
        if !self.times {
            return None;
        }
        let started = THREAD.with(|thread| thread.started.get());
        started.map(|started| started.elapsed().as_secs_f64())
    }
}

/// # Safety
/// The object is a sampler that is alive.
unsafe fn of<'a>(object: *mut Object) -> &'a Sampler {
    // SAFETY: the caller's promise; all that changes in it is in cells.
    unsafe { &*object.cast::<Sampler>() }
}

/// `+sampler`: True for a call that is only counted, its decision for one that is or may be kept, None where Python must
/// decide.
unsafe extern "C" fn begin(object: *mut Object) -> *mut Object {
    // SAFETY: Python calls a slot of the type with an object of it, with the lock held and no error set.
    unsafe {
        let sampler = of(object);
        let answer = sampler.decide();
        (sampler.python.add_reference)(answer);
        answer
    }
}

/// `result in sampler`: whether the call that returned this was counted, and has ended.
unsafe extern "C" fn finish(object: *mut Object, result: *mut Object) -> c_int {
    // SAFETY: as `begin`; Python holds a reference to the result meanwhile.
    unsafe { c_int::from(of(object).count(result)) }
}

/// `-sampler`: end the call of this thread without counting it; gives its seconds, or None.
unsafe extern "C" fn end(object: *mut Object) -> *mut Object {
    // SAFETY: as `begin`.
    unsafe {
        let sampler = of(object);
        THREAD.with(|thread| thread.state.set(0));
        if let Some(seconds) = sampler.elapsed() {
            return (sampler.python.new_float)(seconds);
        }
        (sampler.python.add_reference)(sampler.python.none);
        sampler.python.none
    }
}

/// `sampler.calls()`: how many calls it has counted.
unsafe extern "C" fn calls(object: *mut Object, _: *mut Object) -> *mut Object {
    // SAFETY: Python calls a method of the type with an object of it.
    unsafe {
        let sampler = of(object);
        (sampler.python.new_integer)(sampler.calls.get())
    }
}

/// `sampler.take_seconds()`: the latencies that wait, as bytes of doubles; they wait no longer.
unsafe extern "C" fn take_seconds(object: *mut Object, _: *mut Object) -> *mut Object {
    // SAFETY: as `calls`. The numbers are read while this function owns them.
    unsafe {
        let sampler = of(object);
        let mut taken = sampler.seconds.take();
        let numbers = taken.make_contiguous();
        (sampler.python.new_bytes)(
            numbers.as_ptr().cast(),
            size_of::<f64>() as isize * numbers.len() as isize,
        )
    }
}

/// `sampler.refresh(watch, remembers)`: what the application has begun to use.
unsafe extern "C" fn refresh(object: *mut Object, arguments: *mut Object) -> *mut Object {
    // SAFETY: as `calls`; `arguments` is a tuple, and its values live as long as it. The old reference is dropped last,
    // when the new one is in place.
    unsafe {
        let sampler = of(object);
        let (python, mut watch, mut remembers) = (sampler.python, null_mut::<Object>(), 0 as c_int);
        if (python.parse)(arguments, c"Op".as_ptr(), &mut watch, &mut remembers) == 0 {
            return null_mut();
        }
        if watch == python.none {
            watch = null_mut();
        }
        (python.add_reference)(watch);
        sampler.remembers.set(remembers != 0);
        (python.drop_reference)(sampler.watch.replace(watch));
        (python.add_reference)(python.none);
        python.none
    }
}

/// A reference to None, for functions that are called with Python at hand.
unsafe fn nothing() -> *mut Object {
    // SAFETY: the functions of a type that was made with `Python::get` are the only callers; None is always alive.
    unsafe { truth(Python::get().map(|python| python.none)) }
}

unsafe fn truth(object: Option<*mut Object>) -> *mut Object {
    let (Some(python), Some(object)) = (Python::get(), object) else {
        return null_mut();
    };
    // SAFETY: one of the objects that are always alive.
    unsafe { (python.add_reference)(object) };
    object
}

/// `is_busy()`: whether an unsampled call runs in this thread.
unsafe extern "C" fn is_busy(_: *mut Object, _: *mut Object) -> *mut Object {
    let busy = THREAD.with(|thread| thread.state.get() & BUSY != 0);
    // SAFETY: True and False are always alive.
    unsafe { truth(Python::get().map(|python| if busy { python.yes } else { python.no })) }
}

/// `look()`: as `is_busy`, and Python is asked when that call ends.
unsafe extern "C" fn look(_: *mut Object, _: *mut Object) -> *mut Object {
    THREAD.with(|thread| {
        if thread.state.get() & BUSY != 0 {
            thread.state.set(BUSY | SEEN);
        }
    });
    // SAFETY: it looks at neither of the arguments.
    unsafe { is_busy(null_mut(), null_mut()) }
}

/// `leave()`: no call runs in this thread, as after a fork.
unsafe extern "C" fn leave(_: *mut Object, _: *mut Object) -> *mut Object {
    THREAD.with(|thread| thread.state.set(thread.state.get() & !BUSY));
    // SAFETY: as `nothing` asks.
    unsafe { nothing() }
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
        nothing()
    }
}

/// The type's `__new__`: running, unsampled, sampled, not sampled, marks, times, slow_above, shortest.
unsafe extern "C" fn new(kind: *mut Object, arguments: *mut Object, _: *mut Object) -> *mut Object {
    let Some(python) = Python::get() else {
        return null_mut();
    };
    let (mut running, mut unsampled, mut slow_above, mut shortest) = (null_mut::<Object>(), 0f64, 0f64, 0isize);
    let (mut won, mut lost) = (null_mut::<Object>(), null_mut::<Object>());
    let (mut marks, mut times) = (0 as c_int, 0 as c_int);
    // SAFETY: Python gives the type and a tuple; each format character has a variable of its type. The object is of the
    // size of `Sampler` (`make_type`), its head is set by the allocation, and every other field is written here, each
    // reference with one of its own. Nobody else has the object yet.
    unsafe {
        let format = c"OdOOppdn".as_ptr();
        let (running_at, won_at, lost_at, marks_at) = (&mut running, &mut won, &mut lost, &mut marks);
        if (python.parse)(
            arguments,
            format,
            running_at,
            &mut unsampled,
            won_at,
            lost_at,
            marks_at,
            &mut times,
            &mut slow_above,
            &mut shortest,
        ) == 0
        {
            return null_mut();
        }
        let names = [c"ended", c"claim", c"answer", c"answer_json"].map(|name| (python.new_text)(name.as_ptr()));
        let object = (python.allocate)(kind, 0);
        if object.is_null() || names.iter().any(|name| name.is_null()) {
            return null_mut(); // out of memory: Python says so, and what was allocated is lost
        }
        let sampler = object.cast::<Sampler>();
        for reference in [running, won, lost] {
            (python.add_reference)(reference);
        }
        addr_of_mut!((*sampler).python).write(python);
        addr_of_mut!((*sampler).running).write(running);
        addr_of_mut!((*sampler).watch).write(Cell::new(null_mut()));
        addr_of_mut!((*sampler).names).write(names);
        addr_of_mut!((*sampler).unsampled).write(unsampled);
        addr_of_mut!((*sampler).remembers).write(Cell::new(false));
        addr_of_mut!((*sampler).decisions).write([won, lost]);
        addr_of_mut!((*sampler).marks).write(marks != 0);
        addr_of_mut!((*sampler).times).write(times != 0);
        addr_of_mut!((*sampler).slow_above).write(slow_above);
        addr_of_mut!((*sampler).shortest).write(shortest);
        addr_of_mut!((*sampler).calls).write(Cell::new(0));
        addr_of_mut!((*sampler).seconds).write(RefCell::new(VecDeque::new()));
        object
    }
}

/// The type's destructor.
unsafe extern "C" fn delete(object: *mut Object) {
    // SAFETY: Python calls it once, when no reference is left; the fields were written by `new`, the memory came from
    // `PyType_GenericAlloc`, and an object of such a type holds a reference to the type.
    unsafe {
        let (sampler, kind) = (object.cast::<Sampler>(), (*object).kind);
        let python = (*sampler).python;
        let own = [(*sampler).running, (*sampler).watch.get()];
        for reference in own.iter().chain(&(*sampler).names).chain(&(*sampler).decisions) {
            (python.drop_reference)(*reference);
        }
        addr_of_mut!((*sampler).seconds).drop_in_place();
        (python.free)(object.cast());
        (python.drop_reference)(kind);
    }
}

type Function = unsafe extern "C" fn(*mut Object, *mut Object) -> *mut Object;

const fn method(name: &'static CStr, function: Function, flags: c_int) -> MethodDef {
    MethodDef {
        name: name.as_ptr(),
        function: Some(function),
        flags,
        doc: null(),
    }
}

/// The methods, up to an empty one; Python keeps the address.
static METHODS: [MethodDef; 8] = [
    method(c"calls", calls, NOARGS),
    method(c"take_seconds", take_seconds, NOARGS),
    method(c"refresh", refresh, VARARGS),
    method(c"is_busy", is_busy, NOARGS | STATIC),
    method(c"look", look, NOARGS | STATIC),
    method(c"leave", leave, NOARGS | STATIC),
    method(c"seed", seed, ONE | STATIC),
    MethodDef {
        name: null::<c_char>(),
        function: None,
        flags: 0,
        doc: null(),
    },
];

/// `Py_TPFLAGS_IMMUTABLETYPE`.
const IMMUTABLE: c_uint = 1 << 8;

/// Make the type in the interpreter that runs; null, with or without an error of Python's, where that is not possible.
///
/// # Safety
/// The interpreter lock is held.
pub unsafe fn make_type() -> *mut Object {
    let Some(python) = Python::get() else {
        return null_mut();
    };
    let slot = |number: c_int, value: *const c_void| Slot {
        number,
        value: value.cast_mut(),
    };
    let mut slots = [
        slot(30, end as *const c_void),              // Py_nb_negative
        slot(32, begin as *const c_void),            // Py_nb_positive
        slot(41, finish as *const c_void),           // Py_sq_contains
        slot(52, delete as *const c_void),           // Py_tp_dealloc
        slot(64, METHODS.as_ptr().cast::<c_void>()), // Py_tp_methods
        slot(65, new as *const c_void),              // Py_tp_new
        slot(0, null()),
    ];
    let mut spec = Spec {
        name: c"ragmon.native.NativeSampler".as_ptr(),
        size: size_of::<Sampler>() as c_int,
        item: 0,
        flags: IMMUTABLE,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the lock is held; Python copies the specification, and keeps of it the methods and functions alone, which
    // live as long as the process.
    unsafe { (python.new_type)(&mut spec) }
}

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
    fn without_python_there_is_no_type() {
        // SAFETY: without Python nothing is done.
        assert!(unsafe { make_type() }.is_null());
    }
}
