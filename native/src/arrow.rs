//! Arrow's C data interface, as far as a record batch of these columns needs it.
//!
//! <https://arrow.apache.org/docs/format/CDataInterface.html> has the two structures and the rules of
//! ownership. A structure owns its children and buffers until the consumer that has moved it by
//! copying calls `release`; dropping one that was not moved releases it too. All `unsafe` of the
//! crate that exports memory is in this file.

use std::ffi::{c_char, c_void, CStr};
use std::ptr;

/// Memory of a buffer. Its address does not change when this value moves.
pub enum Buffer {
    Absent,
    Bytes(Vec<u8>),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Int128(Vec<i128>),
}

impl Buffer {
    fn address(&self) -> *const c_void {
        match self {
            Buffer::Absent => ptr::null(),
            Buffer::Bytes(values) => values.as_ptr().cast(),
            Buffer::Int8(values) => values.as_ptr().cast(),
            Buffer::Int16(values) => values.as_ptr().cast(),
            Buffer::Int32(values) => values.as_ptr().cast(),
            Buffer::Int64(values) => values.as_ptr().cast(),
            Buffer::Int128(values) => values.as_ptr().cast(),
        }
    }
}

/// Column before export: type, name, buffers, children.
pub struct Column {
    pub format: &'static CStr,
    pub name: &'static CStr,
    pub nullable: bool,
    pub len: usize,
    pub nulls: usize,
    pub buffers: Vec<Buffer>,
    pub children: Vec<Column>,
}

const NULLABLE: i64 = 2;

/// `struct ArrowSchema` of the interface.
#[repr(C)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray` of the interface.
#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

// SAFETY: both own everything they point to, and nothing changes it.
unsafe impl Send for ArrowSchema {}
unsafe impl Send for ArrowArray {}

/// Target of an array's `private_data`: the memory, and the lists that the structure points to.
struct Owned {
    _buffers: Vec<Buffer>,
    addresses: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

impl ArrowSchema {
    pub fn new(column: &Column) -> Self {
        let mut children: Vec<*mut ArrowSchema> = column
            .children
            .iter()
            .map(|child| Box::into_raw(Box::new(ArrowSchema::new(child))))
            .collect();
        let (address, count) = (children.as_mut_ptr(), children.len());
        ArrowSchema {
            format: column.format.as_ptr(),
            name: column.name.as_ptr(),
            metadata: ptr::null(),
            flags: if column.nullable { NULLABLE } else { 0 },
            n_children: count as i64,
            children: address,
            dictionary: ptr::null_mut(),
            release: Some(release_schema),
            private_data: Box::into_raw(Box::new(children)).cast(),
        }
    }
}

impl ArrowArray {
    pub fn new(column: Column) -> Self {
        let children: Vec<*mut ArrowArray> = column
            .children
            .into_iter()
            .map(|child| Box::into_raw(Box::new(ArrowArray::new(child))))
            .collect();
        let addresses = column.buffers.iter().map(Buffer::address).collect();
        let mut owned = Box::new(Owned {
            _buffers: column.buffers,
            addresses,
            children,
        });
        ArrowArray {
            length: column.len as i64,
            null_count: column.nulls as i64,
            offset: 0,
            n_buffers: owned.addresses.len() as i64,
            n_children: owned.children.len() as i64,
            buffers: owned.addresses.as_mut_ptr(),
            children: owned.children.as_mut_ptr(),
            dictionary: ptr::null_mut(),
            release: Some(release_array),
            private_data: Box::into_raw(owned).cast(),
        }
    }
}

/// SAFETY: called once, as the interface demands, with a structure made by `ArrowSchema::new`.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    let children: Box<Vec<*mut ArrowSchema>> = Box::from_raw((*schema).private_data.cast());
    for child in children.iter() {
        drop(Box::from_raw(*child));
    }
    (*schema).release = None;
}

/// SAFETY: called once, as the interface demands, with a structure made by `ArrowArray::new`. A child
/// that was moved has no `release` any more and is only freed.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    let owned: Box<Owned> = Box::from_raw((*array).private_data.cast());
    for child in owned.children.iter() {
        drop(Box::from_raw(*child));
    }
    (*array).release = None;
}

impl Drop for ArrowSchema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: not released before, or `release` would be empty.
            unsafe { release(self) }
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: not released before, or `release` would be empty.
            unsafe { release(self) }
        }
    }
}
