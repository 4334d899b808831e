//! A Python object of each async call that a sampler only counts: it marks the call's context, and ends it as a sampler
//! ends a sync call. It stays in the context afterwards, where one that has ended says nothing.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::{addr_of_mut, null};
use std::time::Instant;

use crate::python::{slots, Member, Object, Python, Slot, BOOL, NOT_BY_CALLING, READ_ONLY};
use crate::sampler;

/// The object. Its sampler is a reference of its own.
#[repr(C)]
struct AsyncCall {
    head: Object,
    python: &'static Python,
    sampler: *mut Object,
    started: Option<Instant>,
    has_ended: Cell<bool>,
}

/// An object for a call that begins; null with an error set where there is no memory.
///
/// # Safety
/// The interpreter lock is held; the type is that of `make_type`, and the sampler is alive.
pub unsafe fn begin(
    python: &'static Python,
    kind: *mut Object,
    sampler: *mut Object,
    started: Option<Instant>,
) -> *mut Object {
    // SAFETY: the caller's promise. The object is of the size of `AsyncCall`, its head is set by the allocation, and every
    // other field is written here; nobody else has it yet.
    unsafe {
        let object = (python.allocate)(kind, 0);
        if !object.is_null() {
            let call = object.cast::<AsyncCall>();
            addr_of_mut!((*call).python).write(python);
            addr_of_mut!((*call).sampler).write(python.refer(sampler));
            addr_of_mut!((*call).started).write(started);
            addr_of_mut!((*call).has_ended).write(Cell::new(false));
        }
        object
    }
}

/// # Safety
/// The object is an async call that is alive.
unsafe fn of<'a>(object: *mut Object) -> &'a AsyncCall {
    // SAFETY: the caller's promise; what changes in it is in a cell.
    unsafe { &*object.cast::<AsyncCall>() }
}

/// `result in call`: whether the call that returned this was counted, and has ended.
unsafe extern "C" fn finish(object: *mut Object, result: *mut Object) -> c_int {
    // SAFETY: Python calls a slot of the type with an object of it, with the lock held, and keeps the result meanwhile.
    unsafe {
        let call = of(object);
        let answer = sampler::of(call.sampler).count(result, call.started);
        call.has_ended.set(answer == Ok(true));
        sampler::slot_answer(answer)
    }
}

/// `-call`: end it without counting it; gives its seconds, or None.
unsafe extern "C" fn end(object: *mut Object) -> *mut Object {
    // SAFETY: as `finish`.
    unsafe {
        let call = of(object);
        call.has_ended.set(true);
        sampler::seconds_since(call.python, call.started)
    }
}

/// The type's destructor.
unsafe extern "C" fn delete(object: *mut Object) {
    // SAFETY: Python calls it once, when no reference is left; `begin` wrote the fields, and an object of such a type holds
    // a reference to the type.
    unsafe {
        let (call, kind) = (object.cast::<AsyncCall>(), (*object).kind);
        let (python, sampler) = ((*call).python, (*call).sampler);
        (python.free)(object.cast());
        (python.drop_reference)(sampler);
        (python.drop_reference)(kind);
    }
}

/// The attributes, up to an empty one; Python keeps the address.
static MEMBERS: [Member; 2] = [
    Member {
        name: c"ended".as_ptr(),
        kind: BOOL,
        offset: offset_of!(AsyncCall, has_ended) as isize,
        flags: READ_ONLY,
        doc: null(),
    },
    Member {
        name: null(),
        kind: 0,
        offset: 0,
        flags: 0,
        doc: null(),
    },
];

/// Make the type; null with an error set where that fails.
///
/// # Safety
/// The interpreter lock is held.
pub unsafe fn make_type(python: &Python) -> *mut Object {
    let mut table = [
        Slot::new(slots::NEGATIVE, end as *const c_void),
        Slot::new(slots::CONTAINS, finish as *const c_void),
        Slot::new(slots::DELETE, delete as *const c_void),
        Slot::new(slots::MEMBERS, MEMBERS.as_ptr().cast()),
        Slot::new(slots::END, null()),
    ];
    // SAFETY: the caller's promise; the functions and the attribute are those of `AsyncCall`.
    unsafe {
        python.make_type(
            c"ragmon.native.NativeAsyncCall",
            size_of::<AsyncCall>(),
            NOT_BY_CALLING,
            &mut table,
        )
    }
}
