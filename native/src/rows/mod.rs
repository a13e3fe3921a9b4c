//! Typed rows: the bodies of many records into Arrow columns, without a Python object per record.
//!
//! A `Reader` reads what is usual in a format and refuses any other body, which the reference in
//! `tubemq_provider.rows` then reads, or refuses with its reason. So rows, errors and quarantine are the
//! reference's. It is made of a table of tuples, so that schemas are understood in one place only.

mod avro;
mod cells;
mod csv;
mod json;
mod protobuf;
mod tdmsg;
mod text;

use std::collections::HashMap;
use std::sync::Mutex;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::arrow::{ArrowArray, Column};
use cells::{read_all, refuse, structure, Bodies, Cells, Taken};

enum Format {
    Avro(Vec<avro::Node>),
    Protobuf(protobuf::Message),
    Json { fields: text::Fields, strict: bool },
    Csv(csv::Table),
}

/// Where the data of a body begins: after `skip` bytes; a body that begins with the first two bytes of
/// `mark` must begin with all of it; after a zero byte follows one of `places`.
#[derive(Default)]
struct Start {
    skip: usize,
    mark: Vec<u8>,
    places: Vec<Vec<u8>>,
}

impl Start {
    fn data<'a>(&self, body: &'a [u8]) -> Taken<&'a [u8]> {
        let Some(rest) = body.get(self.skip..) else {
            return refuse();
        };
        if self.mark.len() > 2 && body.starts_with(&self.mark[..2]) && !body.starts_with(&self.mark)
        {
            return refuse();
        }
        if self.places.is_empty() || body.first() != Some(&0) {
            return Ok(rest);
        }
        if let Some(place) = self.places.iter().find(|place| rest.starts_with(place)) {
            return Ok(&rest[place.len()..]);
        }
        match rest.first() {
            Some(0..8) => refuse(),
            _ => Ok(rest),
        }
    }
}

/// Reader of the bodies of one schema.
#[pyclass(frozen, module = "tubemq_client._native")]
pub struct Reader {
    format: Format,
    start: Start,
}

#[pymethods]
impl Reader {
    /// A reader by the `table` of a format; raises `ValueError` for a table that it does not know.
    #[new]
    #[pyo3(signature = (kind, table, skip=0, mark=Vec::new(), places=Vec::new()))]
    fn new(
        kind: &str,
        table: &Bound<'_, PyAny>,
        skip: usize,
        mark: Vec<u8>,
        places: Vec<Vec<u8>>,
    ) -> PyResult<Self> {
        let format = match kind {
            "avro" => Format::Avro(each(table, avro_node)?),
            "protobuf" => Format::Protobuf(protobuf_message(table)?),
            "json" => Format::Json {
                fields: text_fields(&table.get_item(0)?)?,
                strict: table.get_item(1)?.extract()?,
            },
            "csv" => Format::Csv(csv::Table {
                nodes: text_fields(&table.get_item(0)?)?.nodes,
                delimiter: table.get_item(1)?.extract()?,
                quote: table.get_item(2)?.extract()?,
                escape: table.get_item(3)?.extract()?,
                nulls: table.get_item(4)?.extract()?,
            }),
            other => return Err(unknown(other)),
        };
        Ok(Reader {
            format,
            start: Start { skip, mark, places },
        })
    }

    /// Read `count` bodies from `first` on, of an array with these buffers. Returns the rows, and the
    /// indexes of the bodies that are left to the reference; None if all are.
    #[pyo3(signature = (offsets, data, first, count))]
    fn read(
        &self,
        py: Python<'_>,
        offsets: &Bound<'_, PyAny>,
        data: Option<Bound<'_, PyAny>>,
        first: usize,
        count: usize,
    ) -> PyResult<Option<(Rows, Vec<u32>)>> {
        let offsets = Memory::new(offsets)?;
        let data = data.map(|data| Memory::new(&data)).transpose()?;
        Ok(py.detach(|| {
            let data = data.as_ref().map_or(&[][..], Memory::get);
            let bodies = Bodies {
                offsets: offsets.get(),
                data,
                first,
                count,
            };
            let mut members = self.members();
            let refused = read_all(&bodies, &mut members, |body, members| {
                self.read_one(self.start.data(body)?, members)
            })?;
            let column = structure(count - refused.len(), members);
            Some((
                Rows {
                    column: Mutex::new(Some(column)),
                },
                refused,
            ))
        }))
    }
}

impl Reader {
    fn members(&self) -> Vec<Cells> {
        match &self.format {
            Format::Avro(fields) => fields.iter().map(avro::Node::cells).collect(),
            Format::Protobuf(message) => message.cells(),
            Format::Json { fields, .. } => fields.cells(),
            Format::Csv(table) => table.cells(),
        }
    }

    fn read_one(&self, body: &[u8], members: &mut [Cells]) -> Taken<()> {
        match &self.format {
            Format::Avro(fields) => avro::read_record(fields, body, members),
            Format::Json { fields, strict } => json::read_body(fields, *strict, body, members),
            Format::Csv(table) => table.read_body(body, members),
            Format::Protobuf(message) => {
                let row = members[0].len();
                protobuf::read_message(message, body, members, row)
            }
        }
    }
}

type UnpackedRows<'py> = (Rows, Vec<Bound<'py, PyBytes>>, Vec<u32>, Vec<u32>);

/// The records of packs of versions 0 to 3, in an array with these buffers: their rows, the attributes
/// that rows refer to, and the indexes of the packs that are left to the reference, and of empty ones.
#[pyfunction]
pub fn unpack<'py>(
    py: Python<'py>,
    offsets: &Bound<'py, PyAny>,
    data: Option<Bound<'py, PyAny>>,
    first: usize,
    count: usize,
    most_records: usize,
) -> PyResult<Option<UnpackedRows<'py>>> {
    let offsets = Memory::new(offsets)?;
    let data = data.map(|data| Memory::new(&data)).transpose()?;
    let unpacked = py.detach(|| {
        let data = data.as_ref().map_or(&[][..], Memory::get);
        let bodies = Bodies {
            offsets: offsets.get(),
            data,
            first,
            count,
        };
        tdmsg::unpack(&bodies, most_records)
    });
    Ok(unpacked.map(|unpacked| {
        let column = structure(unpacked.columns[0].len(), unpacked.columns);
        let attributes = unpacked
            .attributes
            .iter()
            .map(|one| PyBytes::new(py, one))
            .collect();
        let rows = Rows {
            column: Mutex::new(Some(column)),
        };
        (rows, attributes, unpacked.refused, unpacked.empty)
    }))
}

/// Rows that can be taken once, as the array of a struct; its schema is the caller's.
#[pyclass(frozen, module = "tubemq_client._native")]
pub struct Rows {
    column: Mutex<Option<Column>>,
}

#[pymethods]
impl Rows {
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let taken = self.column.lock().ok().and_then(|mut column| column.take());
        let column = taken.ok_or_else(|| PyValueError::new_err("taken already"))?;
        PyCapsule::new_with_value(py, ArrowArray::new(column), c"arrow_array")
    }
}

/// Bytes of an Arrow buffer, which nothing changes.
struct Memory(PyBuffer<i8>);

impl Memory {
    fn new(buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<i8>::get(buffer)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("a buffer must be in one piece"));
        }
        Ok(Memory(buffer))
    }

    fn get(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: contiguous, kept in place while borrowed, and Arrow's arrays are immutable.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

fn unknown(what: &str) -> PyErr {
    PyValueError::new_err(format!("no such type: {what}"))
}

fn each<T>(
    items: &Bound<'_, PyAny>,
    make: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    items.try_iter()?.map(|item| make(&item?)).collect()
}

fn avro_node(node: &Bound<'_, PyAny>) -> PyResult<avro::Node> {
    use avro::Node;
    let kind: String = node.get_item(0)?.extract()?;
    let inner = |place: usize| Ok::<_, PyErr>(Box::new(avro_node(&node.get_item(place)?)?));
    Ok(match kind.as_str() {
        "boolean" => Node::Boolean,
        "int" => Node::Int,
        "long" => Node::Long,
        "float" => Node::Float,
        "double" => Node::Double,
        "bytes" => Node::Bytes,
        "string" => Node::Text,
        "uuid" => Node::Uuid,
        "fixed" => Node::Fixed(node.get_item(1)?.extract()?),
        "enum" => Node::Enum(node.get_item(1)?.extract()?),
        "decimal" => Node::Decimal {
            size: node.get_item(1)?.extract()?,
            limit: 10_i128.pow(node.get_item(2)?.extract()?),
        },
        "scaled" => Node::Scaled(avro::Scaled {
            bits: node.get_item(1)?.extract()?,
            least: node.get_item(2)?.extract()?,
            most: node.get_item(3)?.extract()?,
            factor: node.get_item(4)?.extract()?,
            divisor: node.get_item(5)?.extract()?,
            wide: node.get_item(6)?.extract()?,
        }),
        "record" => Node::Record(each(&node.get_item(1)?, avro_node)?),
        "list" => Node::List(inner(1)?),
        "map" => Node::Map(inner(1)?),
        "nullable" => Node::Nullable {
            null: node.get_item(1)?.extract()?,
            value: inner(2)?,
        },
        "only" => Node::Only(inner(1)?),
        other => return Err(unknown(other)),
    })
}

fn protobuf_message(table: &Bound<'_, PyAny>) -> PyResult<protobuf::Message> {
    let numbers = each(table, |field| field.get_item(0)?.extract::<u32>())?;
    let fields = each(table, protobuf_field)?;
    let mut low = [255; 64];
    for (index, &number) in numbers.iter().enumerate().filter(|(index, _)| *index < 255) {
        if let Some(place) = low.get_mut(number as usize) {
            *place = index as u8;
        }
    }
    if fields.len() >= 255 {
        return Err(PyValueError::new_err("too many fields"));
    }
    let by_number = numbers
        .iter()
        .enumerate()
        .map(|(index, &number)| (number, index))
        .collect();
    Ok(protobuf::Message {
        fields,
        by_number,
        low,
    })
}

fn protobuf_field(field: &Bound<'_, PyAny>) -> PyResult<protobuf::Field> {
    use protobuf::Shape;
    let shape: String = field.get_item(1)?.extract()?;
    Ok(protobuf::Field {
        shape: match shape.as_str() {
            "plain" => Shape::One {
                presence: false,
                required: false,
            },
            "optional" => Shape::One {
                presence: true,
                required: false,
            },
            "required" => Shape::One {
                presence: true,
                required: true,
            },
            "list" => Shape::List,
            "map" => Shape::Map,
            other => return Err(unknown(other)),
        },
        kind: protobuf_kind(&field.get_item(2)?)?,
        rivals: field.get_item(3)?.extract()?,
        default: field.get_item(4)?.extract()?,
    })
}

fn protobuf_kind(kind: &Bound<'_, PyAny>) -> PyResult<protobuf::Kind> {
    use protobuf::Kind;
    let name: String = kind.get_item(0)?.extract()?;
    Ok(match name.as_str() {
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "uint32" => Kind::Uint32,
        "uint64" => Kind::Uint64,
        "sint32" => Kind::Sint32,
        "sint64" => Kind::Sint64,
        "fixed32" => Kind::Fixed32,
        "fixed64" => Kind::Fixed64,
        "sfixed32" => Kind::Sfixed32,
        "sfixed64" => Kind::Sfixed64,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bool" => Kind::Bool,
        "string" => Kind::Text,
        "bytes" => Kind::Bytes,
        "enum" => Kind::Enum(kind.get_item(1)?.extract::<HashMap<i32, String>>()?),
        "message" => Kind::Message(protobuf_message(&kind.get_item(1)?)?),
        "time" => Kind::Time {
            cut: kind.get_item(1)?.extract()?,
        },
        other => return Err(unknown(other)),
    })
}

fn text_fields(table: &Bound<'_, PyAny>) -> PyResult<text::Fields> {
    let names = each(table, |field| field.get_item(0)?.extract())?;
    let nodes = each(table, |field| text_node(&field.get_item(1)?))?;
    Ok(text::Fields { names, nodes })
}

fn text_node(node: &Bound<'_, PyAny>) -> PyResult<text::Node> {
    use text::Node;
    let kind: String = node.get_item(0)?.extract()?;
    Ok(match kind.as_str() {
        "bool" => Node::Bool,
        "int" => Node::Int {
            least: node.get_item(1)?.extract()?,
            most: node.get_item(2)?.extract()?,
        },
        "float" => Node::Float,
        "double" => Node::Double,
        "decimal" => Node::Decimal {
            precision: node.get_item(1)?.extract()?,
            scale: node.get_item(2)?.extract()?,
        },
        "text" => Node::Text,
        "date" => Node::Date,
        "instant" => Node::Instant {
            zone: node.get_item(1)?.extract()?,
        },
        "struct" => Node::Struct(text_fields(&node.get_item(1)?)?),
        "list" => Node::List(Box::new(text_node(&node.get_item(1)?)?)),
        other => return Err(unknown(other)),
    })
}
