//! The few functions of CPython that `sampler` needs, looked up in the process that runs.
//!
//! All belong to the stable ABI of Python 3.11, so one library serves every later version. They are looked up by name
//! and not linked: the library has no undefined symbols, loads into programs without Python, and is tested without one.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void, CStr};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

/// The head of every object; the stable ABI has it, as compiled extensions read both fields without a function.
///
/// Builds of Python with another head (free threading, reference tracing) are left out by `ragmon/native/sampling.py`.
#[repr(C)]
pub struct Object {
    /// The number of references.
    pub references: isize,
    /// The object's type.
    pub kind: *mut Object,
}

/// `PyMethodDef`.
#[repr(C)]
pub struct MethodDef {
    /// The name, which ends in a zero byte.
    pub name: *const c_char,
    /// The function.
    pub function: Option<unsafe extern "C" fn(*mut Object, *mut Object) -> *mut Object>,
    /// How it is called.
    pub flags: c_int,
    /// The docstring; null where there is none.
    pub doc: *const c_char,
}

// SAFETY: the pointers are those of constants and of functions, which no thread changes.
unsafe impl Sync for MethodDef {}

/// `METH_VARARGS`, `METH_NOARGS`, `METH_O` and `METH_STATIC`.
pub const VARARGS: c_int = 0x01;
/// See above.
pub const NOARGS: c_int = 0x04;
/// See above.
pub const ONE: c_int = 0x08;
/// See above.
pub const STATIC: c_int = 0x20;

/// `METH_FASTCALL`.
const FAST: c_int = 0x80;

type Fast = unsafe extern "C" fn(*mut Object, *const *mut Object, isize) -> *mut Object;
type Function = unsafe extern "C" fn(*mut Object, *mut Object) -> *mut Object;

impl MethodDef {
    /// The end of a table of methods.
    pub const END: Self = Self {
        name: null(),
        function: None,
        flags: 0,
        doc: null(),
    };

    /// A method.
    pub const fn new(name: &'static CStr, function: Function, flags: c_int) -> Self {
        Self {
            name: name.as_ptr(),
            function: Some(function),
            flags,
            doc: null(),
        }
    }

    /// A method that gets its arguments as an array.
    pub const fn fast(name: &'static CStr, function: Fast, flags: c_int) -> Self {
        // SAFETY: with this flag Python calls the function as what it is.
        let function = unsafe { std::mem::transmute::<Fast, Function>(function) };
        Self::new(name, function, flags | FAST)
    }
}

/// `PyMemberDef`.
#[repr(C)]
pub struct Member {
    /// The name, which ends in a zero byte.
    pub name: *const c_char,
    /// The type of the field, as a number.
    pub kind: c_int,
    /// Where the field lies in the object.
    pub offset: isize,
    /// Whether Python code may write it.
    pub flags: c_int,
    /// The docstring; null where there is none.
    pub doc: *const c_char,
}

// SAFETY: as above.
unsafe impl Sync for Member {}

/// `Py_T_BOOL`: a byte that is 0 or 1.
pub const BOOL: c_int = 14;
/// `Py_READONLY`.
pub const READ_ONLY: c_int = 1;

/// `Py_TPFLAGS_DISALLOW_INSTANTIATION`: Python code cannot make objects of the type.
pub const NOT_BY_CALLING: c_uint = 1 << 7;

/// `PyType_Slot`.
#[repr(C)]
pub struct Slot {
    /// Its number in `typeslots.h`.
    pub number: c_int,
    /// What it holds.
    pub value: *mut c_void,
}

impl Slot {
    /// A slot of a type.
    pub const fn new(number: c_int, value: *const c_void) -> Self {
        Self {
            number,
            value: value.cast_mut(),
        }
    }
}

/// Numbers of slots (`typeslots.h`), and what they hold; the last one ends a table.
pub mod slots {
    #![allow(missing_docs)]
    use std::ffi::c_int;
    pub const NEGATIVE: c_int = 30;
    pub const POSITIVE: c_int = 32;
    pub const CONTAINS: c_int = 41;
    pub const DELETE: c_int = 52;
    pub const METHODS: c_int = 64;
    pub const NEW: c_int = 65;
    pub const MEMBERS: c_int = 72;
    pub const END: c_int = 0;
}

/// `PyType_Spec`.
#[repr(C)]
pub struct Spec {
    /// Module and name, which end in a zero byte.
    pub name: *const c_char,
    /// Bytes of an object.
    pub size: c_int,
    /// Bytes of an item; 0, as there are none.
    pub item: c_int,
    /// The flags of the type.
    pub flags: c_uint,
    /// The slots, up to one of number 0.
    pub slots: *mut Slot,
}

macro_rules! symbols {
    ($($field:ident = $symbol:literal: $kind:ty;)*) => {
        /// The addresses of functions and objects of CPython, each under the name that it has there.
        #[allow(missing_docs)]
        pub struct Python {
            $(pub $field: $kind,)*
        }

        impl Python {
            fn find() -> Option<Self> {
                Some(Self {
                    $($field: {
                        let address = address(concat!($symbol, "\0"))?;
                        // SAFETY: both are one pointer wide, and the symbol of this name has this type in the stable
                        // ABI, where neither ever changes.
                        unsafe { std::mem::transmute_copy::<*mut c_void, $kind>(&address) }
                    },)*
                })
            }
        }
    };
}

symbols! {
    none = "_Py_NoneStruct": *mut Object;
    yes = "_Py_TrueStruct": *mut Object;
    no = "_Py_FalseStruct": *mut Object;
    dict_type = "PyDict_Type": *mut Object;
    text_type = "PyUnicode_Type": *mut Object;
    bytes_type = "PyBytes_Type": *mut Object;
    list_type = "PyList_Type": *mut Object;
    tuple_type = "PyTuple_Type": *mut Object;
    type_error = "PyExc_TypeError": *const *mut Object;
    add_reference = "Py_IncRef": unsafe extern "C" fn(*mut Object);
    drop_reference = "Py_DecRef": unsafe extern "C" fn(*mut Object);
    new_type = "PyType_FromSpec": unsafe extern "C" fn(*mut Spec) -> *mut Object;
    allocate = "PyType_GenericAlloc": unsafe extern "C" fn(*mut Object, isize) -> *mut Object;
    free = "PyObject_Free": unsafe extern "C" fn(*mut c_void);
    interpreter = "PyInterpreterState_Get": unsafe extern "C" fn() -> *mut c_void;
    interpreter_id = "PyInterpreterState_GetID": unsafe extern "C" fn(*mut c_void) -> i64;
    call = "PyObject_CallNoArgs": unsafe extern "C" fn(*mut Object) -> *mut Object;
    call_with = "PyObject_CallFunctionObjArgs": unsafe extern "C" fn(*mut Object, ...) -> *mut Object;
    attribute = "PyObject_GetAttr": unsafe extern "C" fn(*mut Object, *mut Object) -> *mut Object;
    is_true = "PyObject_IsTrue": unsafe extern "C" fn(*mut Object) -> c_int;
    exception = "PyExc_Exception": *const *mut Object;
    error_is = "PyErr_ExceptionMatches": unsafe extern "C" fn(*mut Object) -> c_int;
    clear_error = "PyErr_Clear": unsafe extern "C" fn();
    parse = "PyArg_ParseTuple": unsafe extern "C" fn(*mut Object, *const c_char, ...) -> c_int;
    new_text = "PyUnicode_FromString": unsafe extern "C" fn(*const c_char) -> *mut Object;
    text_length = "PyUnicode_GetLength": unsafe extern "C" fn(*mut Object) -> isize;
    item = "PyDict_GetItemWithError": unsafe extern "C" fn(*mut Object, *mut Object) -> *mut Object;
    next = "PyDict_Next": unsafe extern "C" fn(*mut Object, *mut isize, *mut *mut Object, *mut *mut Object) -> c_int;
    bytes_length = "PyBytes_Size": unsafe extern "C" fn(*mut Object) -> isize;
    list_length = "PyList_Size": unsafe extern "C" fn(*mut Object) -> isize;
    list_item = "PyList_GetItem": unsafe extern "C" fn(*mut Object, isize) -> *mut Object;
    tuple_length = "PyTuple_Size": unsafe extern "C" fn(*mut Object) -> isize;
    tuple_item = "PyTuple_GetItem": unsafe extern "C" fn(*mut Object, isize) -> *mut Object;
    set_error = "PyErr_SetString": unsafe extern "C" fn(*mut Object, *const c_char);
    error = "PyErr_Occurred": unsafe extern "C" fn() -> *mut Object;
    new_float = "PyFloat_FromDouble": unsafe extern "C" fn(f64) -> *mut Object;
    new_integer = "PyLong_FromUnsignedLongLong": unsafe extern "C" fn(c_ulonglong) -> *mut Object;
    integer = "PyLong_AsUnsignedLongLongMask": unsafe extern "C" fn(*mut Object) -> c_ulonglong;
    new_bytes = "PyBytes_FromStringAndSize": unsafe extern "C" fn(*const c_char, isize) -> *mut Object;
}

// SAFETY: addresses of constants and functions, which no thread changes.
unsafe impl Send for Python {}
// SAFETY: as above.
unsafe impl Sync for Python {}

impl Python {
    /// CPython as it runs in this process; None where there is none, or its symbols are hidden.
    pub fn get() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Python>> = OnceLock::new();
        FOUND.get_or_init(Self::find).as_ref()
    }

    /// A new reference to an object.
    ///
    /// # Safety
    /// The interpreter lock is held, and the object is alive.
    pub unsafe fn refer(&self, object: *mut Object) -> *mut Object {
        // SAFETY: the caller's promise.
        unsafe { (self.add_reference)(object) };
        object
    }

    /// Make a type of final objects.
    ///
    /// # Safety
    /// The interpreter lock is held; the slots are right for objects of that size, end with `slots::END`, and what they
    /// point to lives as long as the process.
    pub unsafe fn make_type(&self, name: &'static CStr, size: usize, flags: c_uint, slots: &mut [Slot]) -> *mut Object {
        /// `Py_TPFLAGS_IMMUTABLETYPE`.
        const IMMUTABLE: c_uint = 1 << 8;
        let Ok(size) = c_int::try_from(size) else {
            return null_mut();
        };
        let mut spec = Spec {
            name: name.as_ptr(),
            size,
            item: 0,
            flags: IMMUTABLE | flags,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: the caller's promise; Python copies the specification and the table of slots.
        unsafe { (self.new_type)(&mut spec) }
    }
}

extern "C" {
    /// Of the C library, which the standard library links.
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// `RTLD_DEFAULT`: every library that the process shares.
#[cfg(target_os = "macos")]
const EVERYWHERE: isize = -2;
#[cfg(not(target_os = "macos"))]
const EVERYWHERE: isize = 0;

fn address(symbol: &'static str) -> Option<*mut c_void> {
    // SAFETY: the handle is the constant of this system, and the name ends in a zero byte (`symbols!`).
    let found = unsafe { dlsym(EVERYWHERE as *mut c_void, symbol.as_ptr().cast()) };
    (!found.is_null()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_does_not_have_is_not_found() {
        assert!(address("malloc\0").is_some());
        assert!(address("no function of any library\0").is_none());
    }

    #[test]
    fn without_python_there_is_none() {
        assert!(Python::get().is_none());
    }
}
