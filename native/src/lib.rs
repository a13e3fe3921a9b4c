//! `tubemq_client._native`: a fetch's reply into Arrow columns, without a Python object per record.
//!
//! `scan` scans a reply; its records can be read one by one like protobuf's, so that the reference
//! (`tubemq_client._core`) decodes irregular ones, or `decode`d all at once. Every step returns
//! None instead of failing. The GIL is released meanwhile. `rows` reads the bodies of records.

mod arrow;
mod attributes;
mod columns;
mod rows;
mod wire;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyList, PyTuple};

use crate::arrow::{ArrowArray, ArrowSchema, Column};
use crate::columns::{columns, Place, Sound};
use crate::wire::{walk, Header};

/// Bytes of a reply, borrowed from Python while anything refers to them.
struct Bytes(PyBuffer<u8>);

impl Bytes {
    fn new(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<u8>::get(data)?;
        if !buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "a reply must be read-only bytes in one piece",
            ));
        }
        Ok(Bytes(buffer))
    }

    fn get(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous, its exporter keeps it in place while it is borrowed, and
        // callers pass immutable memory: `bytes`, or a view of such.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// Reply with records, with the names of protobuf's message.
#[pyclass(frozen, module = "tubemq_client._native")]
struct Reply {
    header: Header,
    records: Py<Records>,
}

#[pymethods]
#[allow(non_snake_case)]
impl Reply {
    #[getter]
    fn success(&self) -> bool {
        self.header.success == Some(true)
    }
    #[getter]
    fn errCode(&self) -> i32 {
        self.header.code.unwrap_or_default()
    }
    #[getter]
    fn errMsg(&self) -> &str {
        &self.header.message
    }
    #[getter]
    fn messages(&self, py: Python<'_>) -> Py<Records> {
        self.records.clone_ref(py)
    }
    #[getter]
    fn currOffset(&self) -> i64 {
        self.header.current
    }
    #[getter]
    fn minLimitTime(&self) -> i32 {
        self.header.min_limit_ms
    }
    #[getter]
    fn escFlowCtrl(&self) -> bool {
        self.header.escape_limit
    }
    #[getter]
    fn currDataDlt(&self) -> i64 {
        self.header.lag_bytes.unwrap_or_default()
    }
    #[getter]
    fn requireSlow(&self) -> bool {
        self.header.slow
    }
    #[getter]
    fn maxOffset(&self) -> i64 {
        self.header.max
    }

    /// Whether the reply has the optional field; only one field is ever requested.
    fn HasField(&self, name: &str) -> PyResult<bool> {
        match name {
            "currDataDlt" => Ok(self.header.lag_bytes.is_some()),
            _ => Err(PyValueError::new_err(format!(
                "no such optional field: {name}"
            ))),
        }
    }
}

struct Walked {
    bytes: Bytes,
    records: Vec<wire::Record>,
}

/// Records of a reply, with the interface of protobuf's repeated field.
#[pyclass(frozen, sequence, module = "tubemq_client._native")]
struct Records {
    walked: Arc<Walked>,
}

#[pymethods]
impl Records {
    fn __len__(&self) -> usize {
        self.walked.records.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<Record> {
        let count = self.walked.records.len();
        let at = if index < 0 {
            index.checked_add_unsigned(count)
        } else {
            Some(index)
        };
        match at
            .and_then(|at| usize::try_from(at).ok())
            .filter(|at| *at < count)
        {
            Some(at) => Ok(Record {
                walked: self.walked.clone(),
                at,
            }),
            None => Err(PyIndexError::new_err("no such record")),
        }
    }

    /// Bytes of all records, attribute prefixes included.
    #[getter]
    fn nbytes(&self) -> usize {
        self.walked
            .records
            .iter()
            .map(|record| record.len as usize)
            .sum()
    }

    /// Position of the first record with these two numbers, or None.
    fn find(&self, message_id: i64, checksum: i32) -> Option<usize> {
        let sought = (message_id, checksum);
        self.walked
            .records
            .iter()
            .position(|record| (record.id, record.checksum) == sought)
    }

    /// The first `count` records if all of them are intact, without those whose stream id is not in
    /// `wanted` (empty: all are included); else None.
    fn decode(&self, py: Python<'_>, count: usize, wanted: HashSet<String>) -> Option<Decoded> {
        let walked = self.walked.clone();
        let sound = py.detach(|| {
            let records = &walked.records[..count.min(walked.records.len())];
            Sound::new(walked.bytes.get(), records, &wanted)
        })?;
        Some(Decoded { walked, sound })
    }
}

/// One record.
#[pyclass(frozen, module = "tubemq_client._native")]
struct Record {
    walked: Arc<Walked>,
    at: usize,
}

#[pymethods]
#[allow(non_snake_case)]
impl Record {
    #[getter]
    fn messageId(&self) -> i64 {
        self.walked.records[self.at].id
    }
    #[getter]
    fn checkSum(&self) -> i32 {
        self.walked.records[self.at].checksum
    }
    #[getter]
    fn flag(&self) -> i32 {
        self.walked.records[self.at].flag
    }
    #[getter]
    fn payLoadData<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(
            py,
            self.walked.records[self.at].data(self.walked.bytes.get()),
        )
    }
}

/// Intact records, to be converted to objects or columns.
#[pyclass(frozen, module = "tubemq_client._native")]
struct Decoded {
    walked: Arc<Walked>,
    sound: Sound,
}

#[pymethods]
impl Decoded {
    fn __len__(&self) -> usize {
        self.sound.parts.len()
    }

    /// Bytes of all bodies.
    #[getter]
    fn nbytes(&self) -> usize {
        self.sound.body_bytes
    }

    /// Positions in the reply, or None when no record was dropped.
    #[getter]
    fn positions(&self) -> Option<Vec<u32>> {
        self.sound
            .dropped
            .then(|| self.sound.parts.iter().map(|part| part.index).collect())
    }

    fn bodies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let reply = self.walked.bytes.get();
        PyList::new(
            py,
            self.sound
                .parts
                .iter()
                .map(|part| PyBytes::new(py, part.body(reply))),
        )
    }

    /// Attribute bytes or None; neighbours with equal ones share the object.
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let reply = self.walked.bytes.get();
        let mut last: Option<(&[u8], Bound<'py, PyBytes>)> = None;
        PyList::new(
            py,
            self.sound.parts.iter().map(|part| {
                let raw = part.attributes(reply);
                if raw.is_empty() {
                    return None;
                }
                match &last {
                    Some((before, shared)) if *before == raw => Some(shared.clone()),
                    _ => Some(last.insert((raw, PyBytes::new(py, raw))).1.clone()),
                }
            }),
        )
    }

    fn message_ids(&self) -> Vec<i64> {
        let records = &self.walked.records;
        self.sound
            .parts
            .iter()
            .map(|part| records[part.index as usize].id)
            .collect()
    }

    /// The columns `names` as one Arrow struct, or None if they do not fit. `start` is the batch's
    /// first offset; `exact`: record i is at `start + 28 * i`.
    fn arrow(
        &self,
        py: Python<'_>,
        names: Vec<String>,
        topic: &str,
        partition: &str,
        start: i64,
        exact: bool,
    ) -> Option<ArrowStruct> {
        let place = Place {
            topic,
            partition,
            start,
            exact,
        };
        let (walked, sound) = (&*self.walked, &self.sound);
        let column =
            py.detach(|| columns(walked.bytes.get(), &walked.records, sound, &names, &place))?;
        Some(ArrowStruct {
            column: Mutex::new(Some(column)),
        })
    }
}

/// An Arrow array that can be taken once.
#[pyclass(frozen, module = "tubemq_client._native")]
struct ArrowStruct {
    column: Mutex<Option<Column>>,
}

#[pymethods]
impl ArrowStruct {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _ = requested_schema; // the interface allows a producer to keep its types
        let taken = self.column.lock().ok().and_then(|mut column| column.take());
        let column = taken.ok_or_else(|| PyValueError::new_err("taken already"))?;
        let schema = PyCapsule::new_with_value(py, ArrowSchema::new(&column), c"arrow_schema")?;
        let array = PyCapsule::new_with_value(py, ArrowArray::new(column), c"arrow_array")?;
        PyTuple::new(py, [schema, array])
    }
}

/// The reply in `data`, which must not be modified afterwards, or None if it has no records or is
/// left to protobuf.
#[pyfunction]
fn scan(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Option<Reply>> {
    let bytes = Bytes::new(data)?;
    let Some((header, records)) = py.detach(|| walk(bytes.get())) else {
        return Ok(None);
    };
    let records = Py::new(
        py,
        Records {
            walked: Arc::new(Walked { bytes, records }),
        },
    )?;
    Ok(Some(Reply { header, records }))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(scan, module)?)?;
    module.add_class::<Records>()?;
    module.add_class::<rows::Reader>()?;
    module.add_function(wrap_pyfunction!(rows::unpack, module)?)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))
}
