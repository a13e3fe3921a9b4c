//! Intact records, and their Arrow columns.
//!
//! `Sound::new` checks every checksum and attribute prefix and finds the body; one corrupt record
//! makes it return `None`, because the reference decides about corrupt records. Then columns are
//! filled into flat buffers whose sizes are known in advance, or nearly.

use std::collections::HashSet;
use std::ffi::CStr;

use crate::arrow::{Buffer, Column};
use crate::attributes::{minute, text, Parsed};
use crate::wire::Record;

/// Bytes of an index entry: the difference between offsets of neighbouring records.
const INDEX_ENTRY_BYTES: i64 = 28;

/// Record that passed the checks. Positions are bytes of the reply; `attributes` may be empty.
#[derive(Clone, Copy)]
pub struct Part {
    pub index: u32,
    pub attributes: (u32, u32),
    pub body: (u32, u32),
}

impl Part {
    pub fn attributes<'a>(&self, reply: &'a [u8]) -> &'a [u8] {
        &reply[self.attributes.0 as usize..self.attributes.1 as usize]
    }

    pub fn body<'a>(&self, reply: &'a [u8]) -> &'a [u8] {
        &reply[self.body.0 as usize..self.body.1 as usize]
    }
}

/// First records of a reply, all of them intact, without other stream ids.
pub struct Sound {
    pub parts: Vec<Part>,
    pub dropped: bool,
    pub body_bytes: usize,
    pub attribute_bytes: usize,
}

impl Sound {
    pub fn new(reply: &[u8], records: &[Record], wanted: &HashSet<String>) -> Option<Sound> {
        let mut parts = Vec::with_capacity(records.len());
        let (mut body_bytes, mut attribute_bytes, mut parsed) = (0, 0, Parsed::default());
        for (index, record) in records.iter().enumerate() {
            let data = record.data(reply);
            if (crc32fast::hash(data) & 0x7fff_ffff) as i32 != record.checksum {
                return None;
            }
            let part = split(index as u32, record, data)?;
            if !wanted.is_empty() {
                let text = text(part.attributes(reply));
                parsed.fill(&text, false);
                let kept = parsed
                    .stream_id
                    .is_some_and(|(from, to)| wanted.contains(&text[from..to]));
                if !kept {
                    continue;
                }
            }
            body_bytes += (part.body.1 - part.body.0) as usize;
            attribute_bytes += (part.attributes.1 - part.attributes.0) as usize;
            parts.push(part);
        }
        let dropped = parts.len() != records.len();
        Some(Sound {
            parts,
            dropped,
            body_bytes,
            attribute_bytes,
        })
    }
}

/// Attributes and body; `None` when the flag promises a prefix that the data cannot hold.
#[inline]
fn split(index: u32, record: &Record, data: &[u8]) -> Option<Part> {
    let (start, end) = (record.start, record.start + record.len);
    if record.flag & 1 == 0 {
        return Some(Part {
            index,
            attributes: (start, start),
            body: (start, end),
        });
    }
    let size = u32::try_from(i32::from_be_bytes(data.get(..4)?.try_into().ok()?)).ok()?;
    if size > record.len - 4 {
        return None;
    }
    let border = start + 4 + size;
    Some(Part {
        index,
        attributes: (start + 4, border),
        body: (border, end),
    })
}

/// Inputs of columns besides the records.
pub struct Place<'a> {
    pub topic: &'a str,
    pub partition: &'a str,
    pub start: i64,
    pub exact: bool,
}

/// The columns called `names`, in that order, as one struct; `None` for an unknown name, or where a
/// column would outgrow Arrow's 32-bit offsets.
pub fn columns(
    reply: &[u8],
    records: &[Record],
    sound: &Sound,
    names: &[String],
    place: &Place,
) -> Option<Column> {
    let count = sound.parts.len();
    let wants = |name: &str| names.iter().any(|asked| asked == name);
    let mut from_text = FromText {
        msg_time: wants("msg_time").then(Minutes::default),
        stream_id: wants("stream_id").then(Texts::default),
        attributes: wants("attributes").then(|| Items::new(sound)),
    };
    from_text.fill(reply, sound);
    let children = names
        .iter()
        .map(|name| match name.as_str() {
            "topic" => repeated(c"topic", place.topic, count),
            "partition" => repeated(c"partition", place.partition, count),
            "batch_offset" => Some(int64(c"batch_offset", c"l", vec![place.start; count])),
            "offset" => Some(offsets(sound, place)),
            "message_id" => {
                let ids = sound
                    .parts
                    .iter()
                    .map(|part| records[part.index as usize].id);
                Some(int64(c"message_id", c"l", ids.collect()))
            }
            "value" => Some(values(reply, sound)),
            "msg_time" => from_text
                .msg_time
                .take()
                .map(|column| column.finish(c"msg_time")),
            "stream_id" => from_text
                .stream_id
                .take()
                .map(|column| column.finish(c"stream_id", true)),
            "attributes" => from_text.attributes.take().map(Items::finish),
            _ => None,
        })
        .collect::<Option<Vec<Column>>>()?;
    Some(structure(c"", count, children, false))
}

fn structure(name: &'static CStr, len: usize, children: Vec<Column>, nullable: bool) -> Column {
    Column {
        format: c"+s",
        name,
        nullable,
        len,
        nulls: 0,
        buffers: vec![Buffer::Absent],
        children,
    }
}

fn int64(name: &'static CStr, format: &'static CStr, numbers: Vec<i64>) -> Column {
    Column {
        format,
        name,
        nullable: true,
        len: numbers.len(),
        nulls: 0,
        buffers: vec![Buffer::Absent, Buffer::Int64(numbers)],
        children: Vec::new(),
    }
}

fn offsets(sound: &Sound, place: &Place) -> Column {
    if place.exact {
        let at = |part: &Part| place.start + INDEX_ENTRY_BYTES * i64::from(part.index);
        return int64(c"offset", c"l", sound.parts.iter().map(at).collect());
    }
    let count = sound.parts.len();
    let mut column = int64(c"offset", c"l", vec![0; count]);
    column.nulls = count;
    column.buffers[0] = Buffer::Bytes(vec![0; count.div_ceil(8)]);
    column
}

fn repeated(name: &'static CStr, value: &str, count: usize) -> Option<Column> {
    let total = i32::try_from(value.len().checked_mul(count)?).ok()?;
    let ends = (0..=count)
        .map(|index| (index * value.len()) as i32)
        .collect();
    let bytes = value.as_bytes().repeat(count);
    debug_assert_eq!(bytes.len(), total as usize);
    Some(Column {
        format: c"u",
        name,
        nullable: true,
        len: count,
        nulls: 0,
        buffers: vec![Buffer::Absent, Buffer::Int32(ends), Buffer::Bytes(bytes)],
        children: Vec::new(),
    })
}

fn values(reply: &[u8], sound: &Sound) -> Column {
    let mut ends = Vec::with_capacity(sound.parts.len() + 1);
    let mut bytes = Vec::with_capacity(sound.body_bytes);
    ends.push(0);
    for part in &sound.parts {
        bytes.extend_from_slice(part.body(reply));
        ends.push(bytes.len() as i32);
    }
    Column {
        format: c"z",
        name: c"value",
        nullable: true,
        len: sound.parts.len(),
        nulls: 0,
        buffers: vec![Buffer::Absent, Buffer::Int32(ends), Buffer::Bytes(bytes)],
        children: Vec::new(),
    }
}

/// The three columns from attribute texts; each text is parsed once.
struct FromText {
    msg_time: Option<Minutes>,
    stream_id: Option<Texts>,
    attributes: Option<Items>,
}

impl FromText {
    fn fill(&mut self, reply: &[u8], sound: &Sound) {
        if self.msg_time.is_none() && self.stream_id.is_none() && self.attributes.is_none() {
            return;
        }
        let mut parsed = Parsed::default();
        let (mut before, mut current) = (&reply[..0], text(&[]));
        let mut time = None;
        for part in &sound.parts {
            let raw = part.attributes(reply);
            if raw != before {
                (before, current) = (raw, text(raw));
                parsed.fill(&current, self.attributes.is_some());
                time = parsed
                    .msg_time
                    .and_then(|(from, to)| minute(&current[from..to]));
            }
            if let Some(column) = &mut self.msg_time {
                column.push(time);
            }
            if let Some(column) = &mut self.stream_id {
                column.push(
                    parsed
                        .stream_id
                        .map(|(from, to)| &current.as_bytes()[from..to]),
                );
            }
            if let Some(column) = &mut self.attributes {
                column.push(current.as_bytes(), &parsed);
            }
        }
    }
}

/// Validity bitmap, created with the first missing value.
#[derive(Default)]
struct Validity {
    len: usize,
    nulls: usize,
    bits: Vec<u8>,
}

impl Validity {
    fn push(&mut self, valid: bool) {
        if !valid && self.nulls == 0 {
            self.bits = vec![0xff; self.len.div_ceil(8)];
        }
        self.nulls += usize::from(!valid);
        if self.nulls > 0 {
            if self.len % 8 == 0 {
                self.bits.push(0);
            }
            let mask = 1u8 << (self.len % 8);
            let last = &mut self.bits[self.len / 8];
            *last = if valid { *last | mask } else { *last & !mask };
        }
        self.len += 1;
    }

    fn buffer(self) -> Buffer {
        if self.nulls == 0 {
            return Buffer::Absent;
        }
        Buffer::Bytes(self.bits)
    }
}

#[derive(Default)]
struct Minutes {
    validity: Validity,
    micros: Vec<i64>,
}

impl Minutes {
    fn push(&mut self, time: Option<i64>) {
        self.validity.push(time.is_some());
        self.micros.push(time.unwrap_or(0));
    }

    fn finish(self, name: &'static CStr) -> Column {
        let nulls = self.validity.nulls;
        let mut column = int64(name, c"tsu:UTC", self.micros);
        column.nulls = nulls;
        column.buffers[0] = self.validity.buffer();
        column
    }
}

struct Texts {
    validity: Validity,
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Default for Texts {
    fn default() -> Self {
        Texts {
            validity: Validity::default(),
            ends: vec![0],
            bytes: Vec::new(),
        }
    }
}

impl Texts {
    /// The total is at most three times the reply's size, which fits (`wire::MAX_BYTES`).
    fn push(&mut self, value: Option<&[u8]>) {
        self.validity.push(value.is_some());
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ends.push(self.bytes.len() as i32);
    }

    fn finish(self, name: &'static CStr, nullable: bool) -> Column {
        Column {
            format: c"u",
            name,
            nullable,
            len: self.validity.len,
            nulls: self.validity.nulls,
            buffers: vec![
                self.validity.buffer(),
                Buffer::Int32(self.ends),
                Buffer::Bytes(self.bytes),
            ],
            children: Vec::new(),
        }
    }
}

struct Items {
    ends: Vec<i32>,
    keys: Present,
    values: Present,
}

/// Texts without a missing value.
struct Present {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

impl Present {
    fn new(count: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(count + 1);
        ends.push(0);
        Present {
            ends,
            bytes: Vec::with_capacity(bytes),
        }
    }

    #[inline]
    fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as i32);
    }

    fn finish(self, name: &'static CStr, nullable: bool) -> Column {
        Column {
            format: c"u",
            name,
            nullable,
            len: self.ends.len() - 1,
            nulls: 0,
            buffers: vec![
                Buffer::Absent,
                Buffer::Int32(self.ends),
                Buffer::Bytes(self.bytes),
            ],
            children: Vec::new(),
        }
    }
}

/// Usual number of a record's items and of their bytes, for which memory is reserved at once.
const USUAL_ITEMS: usize = 4;

impl Items {
    fn new(sound: &Sound) -> Self {
        let (records, bytes) = (sound.parts.len(), sound.attribute_bytes);
        let mut ends = Vec::with_capacity(records + 1);
        ends.push(0);
        // A text of one or two bytes needs no memory for items.
        let count = (USUAL_ITEMS * records).min(bytes / 4);
        Items {
            ends,
            keys: Present::new(count, bytes / 2),
            values: Present::new(count, bytes / 2),
        }
    }

    fn push(&mut self, text: &[u8], parsed: &Parsed) {
        for ((from, to), (start, end)) in &parsed.items {
            self.keys.push(&text[*from..*to]);
            self.values.push(&text[*start..*end]);
        }
        self.ends.push((self.keys.ends.len() - 1) as i32);
    }

    fn finish(self) -> Column {
        let (len, entries) = (self.ends.len() - 1, self.keys.ends.len() - 1);
        let children = vec![
            self.keys.finish(c"key", false),
            self.values.finish(c"value", true),
        ];
        Column {
            format: c"+m",
            name: c"attributes",
            nullable: true,
            len,
            nulls: 0,
            buffers: vec![Buffer::Absent, Buffer::Int32(self.ends)],
            children: vec![structure(c"entries", entries, children, false)],
        }
    }
}
