//! Columns under construction, row by row, for readers of bodies.
//!
//! A reader fills columns cell by cell and stops at whatever it does not take; `truncate` then removes
//! the row again. The names and logical types of columns are the caller's: here are only buffers.

use crate::arrow::{Buffer, Column};

/// The reader does not take this body; the reference decides about it.
pub struct Refused;

pub type Taken<T> = Result<T, Refused>;

pub fn refuse<T>() -> Taken<T> {
    Err(Refused)
}

/// Values by their size; floats are their bits.
pub enum Data {
    Bits(Vec<u8>),
    One(Vec<i8>),
    Two(Vec<i16>),
    Four(Vec<i32>),
    Eight(Vec<i64>),
    Sixteen(Vec<i128>),
    Bytes {
        ends: Vec<i32>,
        bytes: Vec<u8>,
    },
    Struct(Vec<Cells>),
    /// One column of items, or keys and values of a map.
    Lists {
        ends: Vec<i32>,
        items: Vec<Cells>,
        map: bool,
    },
}

/// One column; `present` has 0 for a null and 1 for a value.
pub struct Cells {
    present: Vec<u8>,
    pub data: Data,
}

impl Cells {
    pub fn new(data: Data) -> Cells {
        Cells {
            present: Vec::new(),
            data,
        }
    }
    pub fn bytes() -> Cells {
        Cells::new(Data::Bytes {
            ends: vec![0],
            bytes: Vec::new(),
        })
    }
    pub fn lists(item: Cells) -> Cells {
        Cells::new(Data::Lists {
            ends: vec![0],
            items: vec![item],
            map: false,
        })
    }
    pub fn map(key: Cells, value: Cells) -> Cells {
        Cells::new(Data::Lists {
            ends: vec![0],
            items: vec![key, value],
            map: true,
        })
    }

    pub fn len(&self) -> usize {
        self.present.len()
    }

    #[inline]
    pub fn put_bool(&mut self, value: bool) {
        let Data::Bits(values) = &mut self.data else {
            unreachable!()
        };
        values.push(u8::from(value));
        self.present.push(1);
    }
    /// Put a whole number that fits into the column.
    #[inline]
    pub fn put_int(&mut self, value: i64) {
        match &mut self.data {
            Data::One(values) => values.push(value as i8),
            Data::Two(values) => values.push(value as i16),
            Data::Four(values) => values.push(value as i32),
            Data::Eight(values) => values.push(value),
            Data::Sixteen(values) => values.push(i128::from(value)),
            _ => unreachable!(),
        }
        self.present.push(1);
    }
    #[inline]
    pub fn put_wide(&mut self, value: i128) {
        let Data::Sixteen(values) = &mut self.data else {
            unreachable!()
        };
        values.push(value);
        self.present.push(1);
    }
    /// Put a float; a signalling NaN becomes quiet, as in the reference, which converts to a double.
    #[inline]
    pub fn put_float(&mut self, bits: u32) {
        let quiet = if f32::from_bits(bits).is_nan() {
            bits | 0x0040_0000
        } else {
            bits
        };
        self.put_int(i64::from(quiet as i32));
    }
    #[inline]
    pub fn put_bytes(&mut self, value: &[u8]) {
        let Data::Bytes { ends, bytes } = &mut self.data else {
            unreachable!()
        };
        bytes.extend_from_slice(value);
        ends.push(bytes.len() as i32);
        self.present.push(1);
    }
    /// Members of a struct, to be followed by `end_struct`.
    #[inline]
    pub fn members(&mut self) -> &mut [Cells] {
        let Data::Struct(members) = &mut self.data else {
            unreachable!()
        };
        members
    }
    #[inline]
    pub fn end_struct(&mut self) {
        self.present.push(1);
    }
    /// Columns of a list's items, to be followed by `end_list`.
    #[inline]
    pub fn items(&mut self) -> &mut [Cells] {
        let Data::Lists { items, .. } = &mut self.data else {
            unreachable!()
        };
        items
    }
    #[inline]
    pub fn end_list(&mut self) {
        let Data::Lists { ends, items, .. } = &mut self.data else {
            unreachable!()
        };
        ends.push(items[0].len() as i32);
        self.present.push(1);
    }
    pub fn put_null(&mut self) {
        match &mut self.data {
            Data::Bits(values) => values.push(0),
            Data::One(values) => values.push(0),
            Data::Two(values) => values.push(0),
            Data::Four(values) => values.push(0),
            Data::Eight(values) => values.push(0),
            Data::Sixteen(values) => values.push(0),
            Data::Bytes { ends, bytes } => ends.push(bytes.len() as i32),
            Data::Struct(members) => members.iter_mut().for_each(Cells::put_null),
            Data::Lists { ends, items, .. } => ends.push(items[0].len() as i32),
        }
        self.present.push(0);
    }

    /// Keep the first `rows` rows.
    pub fn truncate(&mut self, rows: usize) {
        match &mut self.data {
            Data::Bits(values) => values.truncate(rows),
            Data::One(values) => values.truncate(rows),
            Data::Two(values) => values.truncate(rows),
            Data::Four(values) => values.truncate(rows),
            Data::Eight(values) => values.truncate(rows),
            Data::Sixteen(values) => values.truncate(rows),
            Data::Bytes { ends, bytes } => {
                ends.truncate(rows + 1);
                bytes.truncate(ends[ends.len() - 1] as usize);
            }
            Data::Struct(members) => members.iter_mut().for_each(|one| one.truncate(rows)),
            Data::Lists { ends, items, .. } => {
                ends.truncate(rows + 1);
                let end = ends[ends.len() - 1] as usize;
                items.iter_mut().for_each(|one| one.truncate(end));
            }
        }
        self.present.truncate(rows);
    }

    /// Whether every buffer still fits Arrow's 32-bit offsets.
    pub fn fits(&self) -> bool {
        const MOST: usize = i32::MAX as usize;
        match &self.data {
            Data::Bytes { bytes, .. } => bytes.len() <= MOST,
            Data::Struct(members) => members.iter().all(Cells::fits),
            Data::Lists { items, .. } => items.iter().all(|one| one.len() <= MOST && one.fits()),
            _ => true,
        }
    }

    pub fn finish(self) -> Column {
        let nulls = self.present.iter().filter(|&&one| one == 0).count();
        let len = self.present.len();
        let mut buffers = vec![if nulls == 0 {
            Buffer::Absent
        } else {
            packed(&self.present)
        }];
        let mut children = Vec::new();
        match self.data {
            Data::Bits(values) => buffers.push(packed(&values)),
            Data::One(values) => buffers.push(Buffer::Int8(values)),
            Data::Two(values) => buffers.push(Buffer::Int16(values)),
            Data::Four(values) => buffers.push(Buffer::Int32(values)),
            Data::Eight(values) => buffers.push(Buffer::Int64(values)),
            Data::Sixteen(values) => buffers.push(Buffer::Int128(values)),
            Data::Bytes { ends, bytes } => {
                buffers.push(Buffer::Int32(ends));
                buffers.push(Buffer::Bytes(bytes));
            }
            Data::Struct(members) => children.extend(members.into_iter().map(Cells::finish)),
            Data::Lists { ends, items, map } => {
                buffers.push(Buffer::Int32(ends));
                children.extend(items.into_iter().map(Cells::finish));
                if map {
                    let (len, entries) = (children[0].len, std::mem::take(&mut children));
                    children.push(column(len, 0, vec![Buffer::Absent], entries));
                }
            }
        }
        column(len, nulls, buffers, children)
    }
}

/// A struct without nulls, of columns of `rows` rows.
pub fn structure(rows: usize, members: Vec<Cells>) -> Column {
    let children = members.into_iter().map(Cells::finish).collect();
    column(rows, 0, vec![Buffer::Absent], children)
}

fn column(len: usize, nulls: usize, buffers: Vec<Buffer>, children: Vec<Column>) -> Column {
    Column {
        format: c"",
        name: c"",
        nullable: true,
        len,
        nulls,
        buffers,
        children,
    }
}

fn packed(values: &[u8]) -> Buffer {
    let pack = |eight: &[u8]| eight.iter().rev().fold(0, |byte, bit| byte << 1 | bit);
    Buffer::Bytes(values.chunks(8).map(pack).collect())
}

/// Bodies of an Arrow array of binaries: its buffers of 32-bit offsets and of bytes.
pub struct Bodies<'a> {
    pub offsets: &'a [u8],
    pub data: &'a [u8],
    pub first: usize,
    pub count: usize,
}

impl<'a> Bodies<'a> {
    fn end(&self, index: usize) -> Option<usize> {
        let at = (self.first + index) * 4;
        let bytes = self.offsets.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(i32::from_ne_bytes(bytes)).ok()
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.data.get(self.end(index)?..self.end(index + 1)?)
    }
}

/// Read every body into `members` by `read`; return the indexes of those that it refused. `None` if a
/// column would outgrow its offsets.
pub fn read_all(
    bodies: &Bodies,
    members: &mut [Cells],
    mut read: impl FnMut(&[u8], &mut [Cells]) -> Taken<()>,
) -> Option<Vec<u32>> {
    let (mut refused, mut rows) = (Vec::new(), 0);
    for index in 0..bodies.count {
        let body = bodies.get(index)?;
        if read(body, members).is_ok() {
            rows += 1;
        } else {
            members.iter_mut().for_each(|one| one.truncate(rows));
            refused.push(index as u32);
        }
        if index % 4096 == 4095 && !members.iter().all(Cells::fits) {
            return None;
        }
    }
    members.iter().all(Cells::fits).then_some(refused)
}
