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
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr::{addr_of_mut, null, null_mut};
use std::sync::OnceLock;
use std::time::Instant;

use crate::async_call;
use crate::marks::{self, here, uniform, Thread};
use crate::python::{slots, MethodDef, Object, Python, Slot, NOARGS, ONE, VARARGS};
use crate::weight;

/// Latencies that wait to be read (`WAITING` of capture/sampler.py).
const WAITING: usize = 65_536;

/// An error of Python's is set, for the caller to meet.
#[derive(Debug, PartialEq)]
pub struct Raised;

/// The object: its head, and what it knows. References are its own, until `delete`.
#[repr(C)]
pub struct Sampler {
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
    /// Sets the context variable to an object of the call, for async ones; null where the thread is marked.
    set: *mut Object,
    /// The type of those objects; it belongs to the process.
    call_type: *mut Object,
    /// Reads the clock for every call.
    times: bool,
    /// Calls that took longer are Python's.
    slow_above: f64,
    /// Tells whether a text is a refusal; null where results are not looked at.
    refuses: *mut Object,
    /// It is not asked of texts that are as long or longer.
    shortest: isize,
    calls: Cell<u64>,
    seconds: RefCell<VecDeque<f64>>,
}

impl Sampler {
    /// What `begin` answers, as a new reference; null with an error set where what it asks raises. Marks the thread or the
    /// context of a call that is only counted.
    ///
    /// # Safety
    /// The interpreter lock is held, no error is set, and the object is that of this sampler.
    unsafe fn decide(&self, object: *mut Object) -> *mut Object {
        let python = self.python;
        // SAFETY: the caller's promise; what is referred to belongs to this object, or is always alive.
        unsafe {
            let is_pythons = match here(Thread::is_busy) || self.is_inside() {
                true => true,
                false => self.may_have_parent(),
            };
            if !(python.error)().is_null() {
                return null_mut();
            }
            if is_pythons {
                return python.refer(python.none);
            }
            if uniform() >= self.unsampled {
                return python.refer(self.decisions[0]);
            }
            if self.remembers.get() {
                return python.refer(self.decisions[1]);
            }
            let started = self.times.then(Instant::now);
            if !self.set.is_null() {
                return self.put(async_call::begin(python, self.call_type, object, started));
            }
            here(|thread| thread.begin(started));
            python.refer(python.yes)
        }
    }

    /// The object of an async call, once the context has it; null with an error set where that fails.
    ///
    /// # Safety
    /// As `decide`; the reference to the call is given away.
    unsafe fn put(&self, call: *mut Object) -> *mut Object {
        let python = self.python;
        if call.is_null() {
            return call;
        }
        // SAFETY: the caller's promise.
        unsafe {
            let token = (python.call_with)(self.set, call, null_mut::<Object>());
            (python.drop_reference)(token);
            if token.is_null() {
                (python.drop_reference)(call);
                return token;
            }
        }
        call
    }

    /// Whether the context has a call that has not ended; true with an error set where it cannot be asked.
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
            if outer.is_null() {
                return true;
            }
            let ended = (python.attribute)(outer, self.names[0]);
            let has_ended = ended == python.yes;
            (python.drop_reference)(ended);
            (python.drop_reference)(outer);
            !has_ended
        }
    }

    /// Whether the application's tracer has something in the context; true with an error set where it cannot be asked.
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
            if context.is_null() {
                return true;
            }
            let is_set = (python.is_true)(context);
            (python.drop_reference)(context);
            is_set != 0
        }
    }

    /// Whether a result is one that is counted without a look at the call. Err with an error set that is no `Exception`, as
    /// that of a signal; others are for Python to meet again, and to report.
    ///
    /// # Safety
    /// As `decide`; the result is alive.
    unsafe fn is_usual(&self, result: *mut Object) -> Result<bool, Raised> {
        let python = self.python;
        // SAFETY: the caller's promise. A reference to what was found is kept, as a key's own `__eq__` may run and change
        // the dictionary.
        unsafe {
            let kind = (*result).kind;
            if kind != python.dict_type && kind != python.text_type {
                return Ok(false);
            }
            if self.refuses.is_null() {
                return Ok(true);
            }
            let text = self.text_of(python.refer(result));
            let is_usual = !text.is_null() && !self.may_refuse(text);
            (python.drop_reference)(text);
            if (python.error)().is_null() {
                return Ok(is_usual);
            }
            if (python.error_is)(*python.exception) == 0 {
                return Err(Raised);
            }
            (python.clear_error)();
            Ok(false)
        }
    }

    /// The text of a result, or what it has in its place, as a new reference (`answer_of` of capture/sampler.py); null with an
    /// error set where a dictionary cannot be read.
    ///
    /// # Safety
    /// As `is_usual`; the reference to the result is given away.
    unsafe fn text_of(&self, result: *mut Object) -> *mut Object {
        let is_dict = |object: *mut Object| {
            // SAFETY: both objects are alive.
            !object.is_null() && unsafe { (*object).kind } == self.python.dict_type
        };
        // SAFETY: the caller's promise.
        unsafe {
            if !is_dict(result) {
                return result;
            }
            let text = self.member(result, &self.names[1..]);
            if is_dict(text) {
                return self.member(text, &self.names[1..2]);
            }
            text
        }
    }

    /// The first value under one of the names that is there and not None, as a new reference in place of the dictionary's,
    /// which is dropped; else None, or null with an error set.
    ///
    /// # Safety
    /// As `is_usual`.
    unsafe fn member(&self, dict: *mut Object, names: &[*mut Object]) -> *mut Object {
        let python = self.python;
        let mut found = python.none;
        // SAFETY: the caller's promise; the value found is kept before anything else runs.
        unsafe {
            for name in names {
                let value = (python.item)(dict, *name);
                if value.is_null() && !(python.error)().is_null() {
                    found = value;
                    break;
                }
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

    /// Whether a text may be a refusal; true with an error set where that cannot be asked.
    ///
    /// # Safety
    /// As `is_usual`; the text may be something else.
    unsafe fn may_refuse(&self, text: *mut Object) -> bool {
        let python = self.python;
        // SAFETY: the caller's promise.
        unsafe {
            if (*text).kind != python.text_type || (python.text_length)(text) >= self.shortest {
                return false;
            }
            let answer = (python.call_with)(self.refuses, text, null_mut::<Object>());
            if answer.is_null() {
                return true;
            }
            let is_refusal = (python.is_true)(answer);
            (python.drop_reference)(answer);
            is_refusal != 0
        }
    }

    /// Count a call that returned; Ok(false) if more is to be done with it, Err as `is_usual`.
    ///
    /// # Safety
    /// As `is_usual`.
    pub unsafe fn count(&self, result: *mut Object, started: Option<Instant>) -> Result<bool, Raised> {
        let seconds = started.map(|started| started.elapsed().as_secs_f64());
        // SAFETY: the caller's promise.
        if seconds.is_some_and(|seconds| seconds > self.slow_above) || !unsafe { self.is_usual(result) }? {
            return Ok(false);
        }
        self.calls.set(self.calls.get().wrapping_add(1));
        if let (Some(seconds), Ok(mut waiting)) = (seconds, self.seconds.try_borrow_mut()) {
            if waiting.len() == WAITING {
                waiting.pop_front();
            }
            waiting.push_back(seconds);
        }
        Ok(true)
    }
}

/// What a slot gives for an answer: -1 where an error is set.
pub fn slot_answer(answer: Result<bool, Raised>) -> c_int {
    answer.map_or(-1, c_int::from)
}

/// The seconds since a call began, for Python; None where it is not timed.
///
/// # Safety
/// The interpreter lock is held.
pub unsafe fn seconds_since(python: &Python, started: Option<Instant>) -> *mut Object {
    // SAFETY: the caller's promise; None is always alive.
    unsafe {
        match started {
            Some(started) => (python.new_float)(started.elapsed().as_secs_f64()),
            None => python.refer(python.none),
        }
    }
}

/// The sampler that an object is.
///
/// # Safety
/// The object is a sampler that is alive.
pub unsafe fn of<'a>(object: *mut Object) -> &'a Sampler {
    // SAFETY: the caller's promise; all that changes in it is in cells.
    unsafe { &*object.cast::<Sampler>() }
}

/// `+sampler`: what begins. True for a sync call that is only counted, an object for an async one; the decision of a call
/// that is or may be kept; None where Python must decide.
unsafe extern "C" fn begin(object: *mut Object) -> *mut Object {
    // SAFETY: Python calls a slot of the type with an object of it, with the lock held and no error set.
    unsafe { of(object).decide(object) }
}

/// `result in sampler`: whether the sync call that returned this was counted, and has ended.
unsafe extern "C" fn finish(object: *mut Object, result: *mut Object) -> c_int {
    if here(Thread::is_seen) {
        return 0;
    }
    // SAFETY: as `begin`; Python holds a reference to the result meanwhile.
    let answer = unsafe { of(object).count(result, here(Thread::started)) };
    if answer == Ok(true) {
        here(Thread::end);
    }
    slot_answer(answer)
}

/// `-sampler`: end the sync call of this thread without counting it; gives its seconds, or None.
unsafe extern "C" fn end(object: *mut Object) -> *mut Object {
    here(Thread::end);
    // SAFETY: as `begin`.
    unsafe { seconds_since(of(object).python, here(Thread::started)) }
}

/// `sampler.is_usual(result)`: whether a result is surely that of the stratum `rest`.
unsafe extern "C" fn is_usual(object: *mut Object, result: *mut Object) -> *mut Object {
    // SAFETY: Python calls a method of the type with an object of it, and holds a reference to the result meanwhile.
    unsafe {
        let sampler = of(object);
        let python = sampler.python;
        match sampler.is_usual(result) {
            Ok(answer) => python.refer(if answer { python.yes } else { python.no }),
            Err(Raised) => null_mut(),
        }
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

/// The type's `__new__`: running, unsampled, sampled, not sampled, set (or None), times, slow_above, shortest,
/// refuses (or None).
unsafe extern "C" fn new(kind: *mut Object, arguments: *mut Object, _: *mut Object) -> *mut Object {
    let Some(python) = Python::get() else {
        return null_mut();
    };
    let (mut running, mut unsampled, mut slow_above, mut shortest) = (null_mut::<Object>(), 0f64, 0f64, 0isize);
    let (mut won, mut lost) = (null_mut::<Object>(), null_mut::<Object>());
    let (mut set, mut refuses, mut times) = (null_mut::<Object>(), null_mut::<Object>(), 0 as c_int);
    let Some(types) = TYPES.get() else {
        return null_mut();
    };
    // SAFETY: Python gives the type and a tuple; each format character has a variable of its type. The object is of the
    // size of `Sampler` (`make_type`), its head is set by the allocation, and every other field is written here, each
    // reference with one of its own. Nobody else has the object yet.
    unsafe {
        let format = c"OdOOOpdnO".as_ptr();
        let (running_at, won_at, lost_at, set_at) = (&mut running, &mut won, &mut lost, &mut set);
        if (python.parse)(
            arguments,
            format,
            running_at,
            &mut unsampled,
            won_at,
            lost_at,
            set_at,
            &mut times,
            &mut slow_above,
            &mut shortest,
            &mut refuses,
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
        for optional in [&mut set, &mut refuses] {
            if *optional == python.none {
                *optional = null_mut();
            }
        }
        for reference in [running, won, lost, set, refuses] {
            (python.add_reference)(reference);
        }
        addr_of_mut!((*sampler).python).write(python);
        addr_of_mut!((*sampler).running).write(running);
        addr_of_mut!((*sampler).watch).write(Cell::new(null_mut()));
        addr_of_mut!((*sampler).names).write(names);
        addr_of_mut!((*sampler).unsampled).write(unsampled);
        addr_of_mut!((*sampler).remembers).write(Cell::new(false));
        addr_of_mut!((*sampler).decisions).write([won, lost]);
        addr_of_mut!((*sampler).set).write(set);
        addr_of_mut!((*sampler).call_type).write(types.call);
        addr_of_mut!((*sampler).times).write(times != 0);
        addr_of_mut!((*sampler).slow_above).write(slow_above);
        addr_of_mut!((*sampler).shortest).write(shortest);
        addr_of_mut!((*sampler).refuses).write(refuses);
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
        let own = [
            (*sampler).running,
            (*sampler).watch.get(),
            (*sampler).set,
            (*sampler).refuses,
        ];
        for reference in own.iter().chain(&(*sampler).names).chain(&(*sampler).decisions) {
            (python.drop_reference)(*reference);
        }
        addr_of_mut!((*sampler).seconds).drop_in_place();
        (python.free)(object.cast());
        (python.drop_reference)(kind);
    }
}

/// The methods, up to an empty one; Python keeps the address.
static METHODS: [MethodDef; 10] = {
    let [is_busy, look, leave, seed] = marks::FUNCTIONS;
    [
        MethodDef::new(c"calls", calls, NOARGS),
        MethodDef::new(c"take_seconds", take_seconds, NOARGS),
        MethodDef::new(c"refresh", refresh, VARARGS),
        MethodDef::new(c"is_usual", is_usual, ONE),
        weight::FUNCTION,
        is_busy,
        look,
        leave,
        seed,
        MethodDef::END,
    ]
};

/// The types, and the interpreter that has them. Another interpreter of the process gets none.
struct Types {
    interpreter: i64,
    sampler: *mut Object,
    call: *mut Object,
}

// SAFETY: the addresses of objects that live as long as the process; they are used with the interpreter lock held.
unsafe impl Send for Types {}
// SAFETY: as above.
unsafe impl Sync for Types {}

static TYPES: OnceLock<Types> = OnceLock::new();

/// The type in the interpreter that runs, as a new reference; null, with or without an error of Python's, where there is
/// none.
///
/// # Safety
/// The interpreter lock is held.
pub unsafe fn sampler_type() -> *mut Object {
    let Some(python) = Python::get() else {
        return null_mut();
    };
    // SAFETY: the lock is held.
    unsafe {
        let interpreter = (python.interpreter_id)((python.interpreter)());
        if TYPES.get().is_none() {
            let (sampler, call) = (make_type(python), async_call::make_type(python));
            if sampler.is_null() || call.is_null() {
                return null_mut();
            }
            let made = Types {
                interpreter,
                sampler,
                call,
            };
            drop(TYPES.set(made)); // where another thread was faster, its types are the ones
        }
        match TYPES.get() {
            Some(types) if types.interpreter == interpreter => python.refer(types.sampler),
            _ => null_mut(),
        }
    }
}

/// # Safety
/// The interpreter lock is held.
unsafe fn make_type(python: &Python) -> *mut Object {
    let mut table = [
        Slot::new(slots::NEGATIVE, end as *const c_void),
        Slot::new(slots::POSITIVE, begin as *const c_void),
        Slot::new(slots::CONTAINS, finish as *const c_void),
        Slot::new(slots::DELETE, delete as *const c_void),
        Slot::new(slots::METHODS, METHODS.as_ptr().cast()),
        Slot::new(slots::NEW, new as *const c_void),
        Slot::new(slots::END, null()),
    ];
    // SAFETY: the caller's promise; the functions are those of `Sampler`.
    unsafe { python.make_type(c"ragmon.native.NativeSampler", size_of::<Sampler>(), 0, &mut table) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_python_there_is_no_type() {
        // SAFETY: without Python nothing is done.
        assert!(unsafe { sampler_type() }.is_null());
    }
}
