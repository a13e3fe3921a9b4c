//! InLong's packed bodies, versions 0 to 3, into a row for each packed record.
//!
//! The reference is `tubemq_client.tdmsg`, which also reads version 4. A pack that is damaged anywhere
//! is refused as a whole.

use std::borrow::Cow;
use std::collections::HashMap;

use super::cells::{refuse, Bodies, Cells, Data, Refused, Taken};

const MOST_BYTES: usize = 64 << 20;
/// Times before this have no rounding as a float of seconds, by which the reference makes them.
const END_MS: i64 = (1 << 33) * 1000;

/// Columns: index of the pack, index in the pack, time, number of the attributes, body.
pub struct Unpacked {
    pub columns: Vec<Cells>,
    pub attributes: Vec<Vec<u8>>,
    pub refused: Vec<u32>,
    pub empty: Vec<u32>,
    numbers: HashMap<Vec<u8>, usize>,
    most_records: usize,
}

/// Unpack the packs of at most `most_records` records.
pub fn unpack(bodies: &Bodies, most_records: usize) -> Option<Unpacked> {
    let columns = vec![
        Cells::new(Data::Eight(Vec::new())),
        Cells::new(Data::Four(Vec::new())),
        Cells::new(Data::Eight(Vec::new())),
        Cells::new(Data::Four(Vec::new())),
        Cells::bytes(),
    ];
    let mut unpacked = Unpacked {
        columns,
        attributes: Vec::new(),
        refused: Vec::new(),
        empty: Vec::new(),
        numbers: HashMap::new(),
        most_records,
    };
    for index in 0..bodies.count {
        let before = unpacked.columns[0].len();
        match unpacked.pack(index, bodies.get(index)?) {
            Ok(0) => unpacked.empty.push(index as u32),
            Ok(_) => {}
            Err(Refused) => {
                unpacked
                    .columns
                    .iter_mut()
                    .for_each(|column| column.truncate(before));
                unpacked.refused.push(index as u32);
            }
        }
        if !unpacked.columns.iter().all(Cells::fits) {
            return None;
        }
    }
    Some(unpacked)
}

impl Unpacked {
    /// Add the records of a pack, and return their number.
    fn pack(&mut self, index: usize, body: &[u8]) -> Taken<usize> {
        let size = body.len();
        if !(4..=MOST_BYTES).contains(&size) || body[0] != 0x0f || body[1] > 3 {
            return refuse();
        }
        if body[..2] != body[size - 2..] {
            return refuse();
        }
        let version = body[1];
        let mut cursor = Cursor {
            rest: &body[2..size - 2],
        };
        let time = if version >= 1 {
            Some(cursor.int64()?)
        } else {
            None
        };
        if time.is_some_and(|time| time >= END_MS) {
            return refuse();
        }
        let mut pack = Pack {
            index: index as i64,
            time: time.filter(|&time| time >= 0),
            count: 0,
            bytes_left: MOST_BYTES,
        };
        if version >= 2 {
            cursor.int32()?;
        }
        let blocks = cursor.int32()?;
        if blocks < 0 {
            return refuse();
        }
        for _ in 0..blocks {
            let size = usize::from(cursor.uint16()?);
            let attributes = cursor.take(size)?;
            if version == 2 {
                cursor.int32()?;
            }
            let block = cursor.sized()?;
            let Some((&flag, payload)) = block.split_first() else {
                return refuse();
            };
            let payload = plain(flag, payload, &mut pack.bytes_left)?;
            self.block(&mut pack, version == 3, attributes, &payload)?;
        }
        if cursor.rest.is_empty() {
            Ok(pack.count)
        } else {
            refuse()
        }
    }

    fn block(&mut self, pack: &mut Pack, runs: bool, common: &[u8], payload: &[u8]) -> Taken<()> {
        let mut cursor = Cursor { rest: payload };
        if !runs {
            if payload.is_empty() {
                return Ok(());
            }
            let number = self.number(common);
            while !cursor.rest.is_empty() {
                self.put(pack, cursor.sized()?, number)?;
            }
            return Ok(());
        }
        let mut joined = Vec::new();
        while !cursor.rest.is_empty() {
            let mut run = Cursor {
                rest: cursor.sized()?,
            };
            while !run.rest.is_empty() {
                let (body, own) = (run.sized()?, run.sized()?);
                joined.clear();
                joined.extend_from_slice(common);
                if !own.is_empty() {
                    joined.push(b'&');
                    joined.extend_from_slice(own);
                }
                let number = self.number(&joined);
                self.put(pack, body, number)?;
            }
        }
        Ok(())
    }

    fn number(&mut self, attributes: &[u8]) -> usize {
        if let Some(&number) = self.numbers.get(attributes) {
            return number;
        }
        let number = self.attributes.len();
        self.attributes.push(attributes.to_vec());
        self.numbers.insert(attributes.to_vec(), number);
        number
    }

    fn put(&mut self, pack: &mut Pack, body: &[u8], attributes: usize) -> Taken<()> {
        if pack.count == self.most_records {
            return refuse();
        }
        self.columns[0].put_int(pack.index);
        self.columns[1].put_int(pack.count as i64);
        match pack.time {
            Some(time) => self.columns[2].put_int(time * 1000),
            None => self.columns[2].put_null(),
        }
        self.columns[3].put_int(attributes as i64);
        self.columns[4].put_bytes(body);
        pack.count += 1;
        Ok(())
    }
}

struct Pack {
    index: i64,
    time: Option<i64>,
    count: usize,
    bytes_left: usize,
}

/// The payload, decompressed if its flag says so, within what is left of the pack's limit.
fn plain<'a>(flag: u8, payload: &'a [u8], bytes_left: &mut usize) -> Taken<Cow<'a, [u8]>> {
    let size = match flag {
        0 => payload.len(),
        1 => snap::raw::decompress_len(payload).or_else(|_| refuse())?,
        _ => return refuse(),
    };
    // The densest element of snappy makes 64 bytes of 3.
    if size > *bytes_left || (flag == 1 && size * 3 > payload.len() * 64) {
        return refuse();
    }
    *bytes_left -= size;
    if flag == 0 {
        return Ok(Cow::Borrowed(payload));
    }
    snap::raw::Decoder::new()
        .decompress_vec(payload)
        .map(Cow::Owned)
        .or_else(|_| refuse())
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, size: usize) -> Taken<&'a [u8]> {
        if size > self.rest.len() {
            return refuse();
        }
        let (taken, rest) = self.rest.split_at(size);
        self.rest = rest;
        Ok(taken)
    }
    fn uint16(&mut self) -> Taken<u16> {
        Ok(u16::from_be_bytes(
            self.take(2)?.try_into().unwrap_or_default(),
        ))
    }
    fn int32(&mut self) -> Taken<i32> {
        Ok(i32::from_be_bytes(
            self.take(4)?.try_into().unwrap_or_default(),
        ))
    }
    fn int64(&mut self) -> Taken<i64> {
        Ok(i64::from_be_bytes(
            self.take(8)?.try_into().unwrap_or_default(),
        ))
    }
    fn sized(&mut self) -> Taken<&'a [u8]> {
        match usize::try_from(self.int32()?) {
            Ok(size) => self.take(size),
            Err(_) => refuse(),
        }
    }
}
