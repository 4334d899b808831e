//! What every function of the ABI needs: slices of pointers, and a net under panics.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

/// Run something that may panic; a panic ends here, and the result says so.
///
/// The closure is asserted to be unwind safe because a context that panicked is marked and never used again, and
/// everything else is borrowed for this call alone. Rust's message about the panic goes to stderr.
pub fn guarded<T>(panicked: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(panicked)
}

/// The elements at a pointer; none where there are none, whatever the pointer is.
///
/// # Safety
/// `pointer` is valid for reading `length` elements as long as the slice is used, or `length` is 0.
pub unsafe fn input<'a, T>(pointer: *const T, length: usize) -> &'a [T] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise; a slice of no elements was returned above, where the pointer may be null.
    unsafe { slice::from_raw_parts(pointer, length) }
}

/// The elements at a pointer, to be written.
///
/// # Safety
/// `pointer` is valid for writing `length` elements, and nothing else uses them as long as the slice is used; or
/// `length` is 0.
pub unsafe fn output<'a, T>(pointer: *mut T, length: usize) -> &'a mut [T] {
    if length == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise; a slice of no elements was returned above, where the pointer may be null.
    unsafe { slice::from_raw_parts_mut(pointer, length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_abi() {
        assert_eq!(guarded(-1, || panic!("a test of the net")), -1);
        assert_eq!(guarded(-1, || 5), 5);
    }

    #[test]
    fn no_elements_need_no_pointer() {
        // SAFETY: with a length of 0 the pointers are not looked at.
        let (read, written) = unsafe { (input::<u8>(std::ptr::null(), 0), output::<u8>(std::ptr::null_mut(), 0)) };
        assert!(read.is_empty() && written.is_empty());
    }
}
