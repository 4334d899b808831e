//! The bytes that the values of a call keep alive, estimated as `weigh` of capture/sampler.py does: by the surface alone.
//!
//! Only lengths are asked for, of objects of exactly the built-in types, so no code of the application runs meanwhile.

use std::ptr::null_mut;

use crate::python::{MethodDef, Object, Python, STATIC};

/// Of a value that is neither text nor a list, and of a list's entry (capture/sampler.py).
const SMALL: isize = 64;
const ENTRY: isize = 1024;

/// The length of text or bytes; None of anything else.
///
/// # Safety
/// The interpreter lock is held, and the object is alive.
unsafe fn length(python: &Python, object: *mut Object) -> Option<isize> {
    // SAFETY: the caller's promise; each length is asked of an object of its type.
    unsafe {
        if (*object).kind == python.text_type {
            return Some((python.text_length)(object));
        }
        ((*object).kind == python.bytes_type).then(|| (python.bytes_length)(object))
    }
}

/// The sum over the values of a dictionary.
///
/// # Safety
/// As `length`; the object is a dictionary.
unsafe fn of_values(python: &Python, dict: *mut Object, of_value: impl Fn(*mut Object) -> isize) -> isize {
    let (mut place, mut value, mut size) = (0, null_mut(), 0isize);
    // SAFETY: the caller's promise; `of_value` changes nothing, as `PyDict_Next` asks.
    unsafe {
        while (python.next)(dict, &mut place, null_mut(), &mut value) != 0 {
            size = size.saturating_add(of_value(value));
        }
    }
    size
}

/// The estimate of one value.
///
/// # Safety
/// As `length`.
unsafe fn of_part(python: &Python, part: *mut Object) -> isize {
    // SAFETY: the caller's promise; what a list or dictionary holds lives as long as it is not changed.
    unsafe {
        if let Some(length) = length(python, part) {
            return length;
        }
        let entries = if (*part).kind == python.list_type {
            (python.list_length)(part)
        } else {
            0
        };
        if entries == 0 {
            return SMALL;
        }
        // All entries count as the first one.
        let first = (python.list_item)(part, 0);
        let entry = if (*first).kind == python.text_type {
            (python.text_length)(first)
        } else if (*first).kind == python.dict_type {
            let of_text = |value: *mut Object| {
                if (*value).kind == python.text_type {
                    (python.text_length)(value)
                } else {
                    0
                }
            };
            of_values(python, first, of_text).saturating_add(ENTRY)
        } else {
            ENTRY
        };
        entries.saturating_mul(entry)
    }
}

/// `weigh(result, args)`: the estimate of a call's result and positional arguments.
unsafe extern "C" fn weigh(_: *mut Object, arguments: *const *mut Object, count: isize) -> *mut Object {
    let Some(python) = Python::get() else {
        return null_mut();
    };
    // SAFETY: Python gives so many arguments, which live during the call; of the wrong ones an error is set.
    unsafe {
        if count != 2 || (*(*arguments.add(1))).kind != python.tuple_type {
            (python.set_error)(
                *python.type_error,
                c"weigh(result, args): a result and a tuple".as_ptr(),
            );
            return null_mut();
        }
        let (result, args) = (*arguments, *arguments.add(1));
        let mut size = if (*result).kind == python.dict_type {
            of_values(python, result, |value| of_part(python, value))
        } else {
            of_part(python, result)
        };
        for place in 0..(python.tuple_length)(args) {
            size = size.saturating_add(of_part(python, (python.tuple_item)(args, place)));
        }
        (python.new_integer)(size as u64)
    }
}

/// The function for Python.
pub const FUNCTION: MethodDef = MethodDef::fast(c"weigh", weigh, STATIC);
