//! Protobuf messages, by the table that `tubemq_provider.rows` makes of a descriptor.
//!
//! Reads what encoders write. Whatever the wire allows beside it (a submessage in two parts, another
//! wire type, groups, members of one choice that follow each other, unknown enum numbers) is refused,
//! because the runtime knows the rules for it.

use std::collections::HashMap;

use super::cells::{refuse, Cells, Data, Taken};

pub enum Kind {
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Float,
    Double,
    Bool,
    Text,
    Bytes,
    Enum(HashMap<i32, String>),
    Message(Message),
    /// `google.protobuf.Timestamp`; `cut`: nanoseconds are cut.
    Time {
        cut: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// At most one; `presence`: null where it is not set.
    One {
        presence: bool,
        required: bool,
    },
    List,
    Map,
}

pub struct Field {
    pub shape: Shape,
    /// Of one value; of a map, a message of key and value.
    pub kind: Kind,
    /// Other members of its choice ("oneof").
    pub rivals: Vec<usize>,
    /// Value without presence: a number, or the text of an enum's number 0.
    pub default: String,
}

pub struct Message {
    pub fields: Vec<Field>,
    pub by_number: HashMap<u32, usize>,
    /// The same for numbers below 64; 255: none.
    pub low: [u8; 64],
}

impl Message {
    fn find(&self, number: u32) -> Option<usize> {
        if let Some(&index) = self.low.get(number as usize) {
            return (index != 255).then_some(index as usize);
        }
        self.by_number.get(&number).copied()
    }

    pub fn cells(&self) -> Vec<Cells> {
        self.fields.iter().map(Field::cells).collect()
    }
}

impl Field {
    fn cells(&self) -> Cells {
        match (self.shape, &self.kind) {
            (Shape::Map, Kind::Message(entry)) => {
                Cells::map(entry.fields[0].kind.cells(), entry.fields[1].kind.cells())
            }
            (Shape::List, kind) => Cells::lists(kind.cells()),
            (_, kind) => kind.cells(),
        }
    }
}

impl Kind {
    fn cells(&self) -> Cells {
        match self {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Float => {
                Cells::new(Data::Four(Vec::new()))
            }
            Kind::Int64
            | Kind::Uint32
            | Kind::Sint64
            | Kind::Fixed32
            | Kind::Sfixed64
            | Kind::Double
            | Kind::Time { .. } => Cells::new(Data::Eight(Vec::new())),
            Kind::Uint64 | Kind::Fixed64 => Cells::new(Data::Sixteen(Vec::new())),
            Kind::Bool => Cells::new(Data::Bits(Vec::new())),
            Kind::Text | Kind::Bytes | Kind::Enum(_) => Cells::bytes(),
            Kind::Message(message) => Cells::new(Data::Struct(message.cells())),
        }
    }

    fn wire_type(&self) -> u8 {
        match self {
            Kind::Fixed64 | Kind::Sfixed64 | Kind::Double => 1,
            Kind::Text | Kind::Bytes | Kind::Message(_) | Kind::Time { .. } => 2,
            Kind::Fixed32 | Kind::Sfixed32 | Kind::Float => 5,
            _ => 0,
        }
    }
}

/// Key of a map's entry, in the order of the reference's sorting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Number(i128),
    Text(&'a [u8]),
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    #[inline]
    fn take(&mut self, size: usize) -> Taken<&'a [u8]> {
        if size > self.rest.len() {
            return refuse();
        }
        let (taken, rest) = self.rest.split_at(size);
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn varint(&mut self) -> Taken<u64> {
        let mut number = 0_u64;
        for shift in (0..70).step_by(7) {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return refuse();
            };
            self.rest = rest;
            if shift == 63 && byte > 1 {
                return refuse();
            }
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        refuse()
    }

    #[inline]
    fn sized(&mut self) -> Taken<&'a [u8]> {
        match usize::try_from(self.varint()?) {
            Ok(size) => self.take(size),
            Err(_) => refuse(),
        }
    }

    fn four(&mut self) -> Taken<u32> {
        Ok(u32::from_le_bytes(
            self.take(4)?.try_into().unwrap_or_default(),
        ))
    }

    fn eight(&mut self) -> Taken<u64> {
        Ok(u64::from_le_bytes(
            self.take(8)?.try_into().unwrap_or_default(),
        ))
    }

    /// Number and wire type of the next field.
    #[inline]
    fn tag(&mut self) -> Taken<(u32, u8)> {
        let tag = self.varint()?;
        match u32::try_from(tag >> 3) {
            Ok(number @ 1..=0x1fff_ffff) => Ok((number, (tag & 7) as u8)),
            _ => refuse(),
        }
    }

    fn skip(&mut self, wire_type: u8) -> Taken<()> {
        match wire_type {
            0 => self.varint().map(drop),
            1 => self.take(8).map(drop),
            2 => self.sized().map(drop),
            5 => self.take(4).map(drop),
            _ => refuse(),
        }
    }

    /// Read one value into the end of `cells`.
    fn value(&mut self, kind: &Kind, cells: &mut Cells) -> Taken<()> {
        match kind {
            Kind::Int32 => cells.put_int(i64::from(self.varint()? as i32)),
            Kind::Int64 => cells.put_int(self.varint()? as i64),
            Kind::Uint32 => cells.put_int(i64::from(self.varint()? as u32)),
            Kind::Uint64 => cells.put_wide(i128::from(self.varint()?)),
            Kind::Sint32 => {
                let number = self.varint()? as u32;
                cells.put_int(i64::from((number >> 1) as i32 ^ -((number & 1) as i32)));
            }
            Kind::Sint64 => {
                let number = self.varint()?;
                cells.put_int((number >> 1) as i64 ^ -((number & 1) as i64));
            }
            Kind::Fixed32 => cells.put_int(i64::from(self.four()?)),
            Kind::Fixed64 => cells.put_wide(i128::from(self.eight()?)),
            Kind::Sfixed32 => cells.put_int(i64::from(self.four()? as i32)),
            Kind::Sfixed64 | Kind::Double => cells.put_int(self.eight()? as i64),
            Kind::Float => cells.put_float(self.four()?),
            Kind::Bool => cells.put_bool(self.varint()? != 0),
            Kind::Text => {
                let text = self.sized()?;
                if std::str::from_utf8(text).is_err() {
                    return refuse();
                }
                cells.put_bytes(text);
            }
            Kind::Bytes => cells.put_bytes(self.sized()?),
            Kind::Enum(names) => {
                let number = i32::try_from(self.varint()? as i64).ok();
                match number.and_then(|number| names.get(&number)) {
                    Some(name) => cells.put_bytes(name.as_bytes()),
                    None => return refuse(),
                }
            }
            Kind::Message(message) => {
                let row = cells.len();
                read_message(message, self.sized()?, cells.members(), row)?;
                cells.end_struct();
            }
            Kind::Time { cut } => cells.put_int(instant(self.sized()?, *cut)?),
        }
        Ok(())
    }

    fn values(&mut self, wire_type: u8, kind: &Kind, items: &mut Cells) -> Taken<()> {
        if wire_type == kind.wire_type() {
            return self.value(kind, items);
        }
        if wire_type != 2 {
            return refuse();
        }
        let mut packed = Cursor {
            rest: self.sized()?,
        };
        while !packed.rest.is_empty() {
            packed.value(kind, items)?;
        }
        Ok(())
    }
}

/// Read the message in `body` as row `row` of `members`.
pub fn read_message(
    message: &Message,
    body: &[u8],
    members: &mut [Cells],
    row: usize,
) -> Taken<()> {
    let mut cursor = Cursor { rest: body };
    let mut entries: Vec<(usize, Key, &[u8])> = Vec::new();
    while !cursor.rest.is_empty() {
        let (number, wire_type) = cursor.tag()?;
        let Some(index) = message.find(number) else {
            cursor.skip(wire_type)?;
            continue;
        };
        let field = &message.fields[index];
        match field.shape {
            Shape::One { .. } => {
                if wire_type != field.kind.wire_type() {
                    return refuse();
                }
                if field.rivals.iter().any(|&rival| members[rival].len() > row) {
                    return refuse();
                }
                if members[index].len() > row {
                    if matches!(field.kind, Kind::Message(_) | Kind::Time { .. }) {
                        return refuse();
                    }
                    members[index].truncate(row);
                }
                cursor.value(&field.kind, &mut members[index])?;
            }
            Shape::List => cursor.values(wire_type, &field.kind, &mut members[index].items()[0])?,
            Shape::Map => {
                let Kind::Message(entry) = &field.kind else {
                    unreachable!()
                };
                if wire_type != 2 {
                    return refuse();
                }
                let body = cursor.sized()?;
                entries.push((index, key_of(entry, body)?, body));
            }
        }
    }
    if !entries.is_empty() {
        read_entries(message, entries, members)?;
    }
    for (field, cells) in message.fields.iter().zip(members.iter_mut()) {
        if cells.len() > row {
            continue;
        }
        match field.shape {
            Shape::One { required: true, .. } => return refuse(),
            Shape::One { presence: true, .. } => cells.put_null(),
            Shape::One { .. } => put_default(field, cells)?,
            Shape::List | Shape::Map => cells.end_list(),
        }
    }
    Ok(())
}

fn put_default(field: &Field, cells: &mut Cells) -> Taken<()> {
    match field.kind {
        Kind::Bool => cells.put_bool(false),
        Kind::Text | Kind::Bytes => cells.put_bytes(b""),
        Kind::Enum(_) => cells.put_bytes(field.default.as_bytes()),
        Kind::Message(_) | Kind::Time { .. } => return refuse(),
        _ => cells.put_int(0),
    }
    Ok(())
}

/// The key of a map's entry, which has a key and a value, each once at most, and nothing else.
fn key_of<'a>(entry: &Message, body: &'a [u8]) -> Taken<Key<'a>> {
    let kind = &entry.fields[0].kind;
    let text = matches!(kind, Kind::Text);
    let mut cursor = Cursor { rest: body };
    let (mut key, mut values) = (None, 0);
    while !cursor.rest.is_empty() {
        let (number, wire_type) = cursor.tag()?;
        match number {
            1 if key.is_none() && wire_type == kind.wire_type() => {
                key = Some(if text {
                    Key::Text(cursor.sized()?)
                } else {
                    Key::Number(cursor.whole(kind)?)
                });
            }
            2 if values == 0 => {
                values = 1;
                cursor.skip(wire_type)?;
            }
            _ => return refuse(),
        }
    }
    Ok(key.unwrap_or(if text { Key::Text(b"") } else { Key::Number(0) }))
}

impl Cursor<'_> {
    fn whole(&mut self, kind: &Kind) -> Taken<i128> {
        let mut cells = kind.cells();
        self.value(kind, &mut cells)?;
        Ok(match &cells.data {
            Data::Bits(values) => i128::from(values[0]),
            Data::Four(values) => i128::from(values[0]),
            Data::Eight(values) => i128::from(values[0]),
            Data::Sixteen(values) => values[0],
            _ => return refuse(),
        })
    }
}

/// Add the entries of all maps of a message, in the order of their keys. A key that occurs twice is
/// left to the runtime.
fn read_entries(
    message: &Message,
    mut entries: Vec<(usize, Key, &[u8])>,
    members: &mut [Cells],
) -> Taken<()> {
    entries.sort_unstable_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1)));
    if entries
        .windows(2)
        .any(|two| (two[0].0, two[0].1) == (two[1].0, two[1].1))
    {
        return refuse();
    }
    for (index, _, body) in entries {
        let Kind::Message(entry) = &message.fields[index].kind else {
            unreachable!()
        };
        let items = members[index].items();
        let row = items[0].len();
        read_message(entry, body, items, row)?;
    }
    Ok(())
}

const LEAST_SECOND: i64 = -62_135_596_800;
const MOST_SECOND: i64 = 253_402_300_799;

/// Microseconds since 1970 of a `google.protobuf.Timestamp` within the years 1 to 9999.
fn instant(body: &[u8], cut: bool) -> Taken<i64> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut cursor = Cursor { rest: body };
    while !cursor.rest.is_empty() {
        match cursor.tag()? {
            (1, 0) => seconds = cursor.varint()? as i64,
            (2, 0) => nanos = cursor.varint()? as i32,
            (1 | 2, _) => return refuse(),
            (_, wire_type) => cursor.skip(wire_type)?,
        }
    }
    let whole = (0..1_000_000_000).contains(&nanos) && (cut || nanos % 1000 == 0);
    if !whole || !(LEAST_SECOND..=MOST_SECOND).contains(&seconds) {
        return refuse();
    }
    Ok(seconds * 1_000_000 + i64::from(nanos / 1000))
}
