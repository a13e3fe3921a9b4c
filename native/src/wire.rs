//! Scanner of a fetch's reply, `GetMessageResponseB2C` of the protocol.
//!
//! Accepts the replies of every known broker, with fields that a newer one may add, and returns
//! `None` for anything else: protobuf's own parser decides if such a reply is invalid, and why.
//! So nothing here reports errors, and every accepted reply must have protobuf's result.

/// Size of the longest scanned reply; offsets into it and three times its text fit into an `i32`.
pub const MAX_BYTES: usize = 1 << 29;

/// Size of the shortest record's message, which has four fields.
const SHORTEST_RECORD: usize = 8;

/// Upper bound of records for which memory is reserved in advance.
const MOST_GUESSED: usize = 1 << 16;

/// Upper bound of records in a scanned reply: brokers send less than half of it. The same number
/// is in `_wire/fetching.py`, which refuses a larger reply.
const MOST_RECORDS: usize = 1 << 16;

/// Position of a record in the reply, and its numbers.
#[derive(Clone, Copy)]
pub struct Record {
    pub start: u32,
    pub len: u32,
    pub id: i64,
    pub checksum: i32,
    pub flag: i32,
}

impl Record {
    pub fn data<'a>(&self, reply: &'a [u8]) -> &'a [u8] {
        &reply[self.start as usize..self.start as usize + self.len as usize]
    }
}

/// Fields of a reply other than its records.
#[derive(Default)]
pub struct Header {
    pub success: Option<bool>,
    pub code: Option<i32>,
    pub message: String,
    pub current: i64,
    pub min_limit_ms: i32,
    pub escape_limit: bool,
    pub lag_bytes: Option<i64>,
    pub slow: bool,
    pub max: i64,
}

struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const FIXED32: u8 = 5;

impl<'a> Cursor<'a> {
    fn more(&self) -> bool {
        self.at < self.data.len()
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let first = *self.data.get(self.at)?;
        if first < 0x80 {
            self.at += 1;
            return Some(u64::from(first));
        }
        match self.data.get(self.at..self.at + 8) {
            Some(window) => self.varint_within(window),
            None => self.long_varint(),
        }
    }

    /// Reads a varint that usually ends within the next eight bytes: all of them at once.
    #[inline]
    fn varint_within(&mut self, window: &[u8]) -> Option<u64> {
        let bytes = u64::from_le_bytes(window.try_into().ok()?);
        let ends = !bytes & 0x8080_8080_8080_8080;
        if ends == 0 {
            return self.long_varint();
        }
        // Bytes up to the first without a continuation bit, those bits removed, joined.
        let kept = bytes & (ends ^ (ends - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
        let pairs = (kept & 0x007f_007f_007f_007f) | ((kept & 0x7f00_7f00_7f00_7f00) >> 1);
        let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
        self.at += ends.trailing_zeros() as usize / 8 + 1;
        Some((fours & 0x0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4))
    }

    #[cold]
    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for (index, byte) in self.data[self.at..].iter().take(10).enumerate() {
            if index == 9 && *byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.at += index + 1;
                return Some(value);
            }
        }
        None
    }

    /// Reads a varint of at most five bytes: tags and lengths.
    #[inline]
    fn short_varint(&mut self) -> Option<usize> {
        let before = self.at;
        let value = self.varint()?;
        if self.at - before > 5 || value > u64::from(u32::MAX) {
            return None;
        }
        usize::try_from(value).ok()
    }

    /// Reads field number and wire type.
    #[inline]
    fn tag(&mut self) -> Option<(usize, u8)> {
        let tag = self.short_varint()?;
        let number = tag >> 3;
        (number != 0).then_some((number, (tag & 7) as u8))
    }

    /// Returns start and end of the next length-delimited field, and moves the cursor behind it.
    #[inline]
    fn span(&mut self) -> Option<(usize, usize)> {
        let len = self.short_varint()?;
        let start = self.at;
        let end = start.checked_add(len)?;
        if end > self.data.len() {
            return None;
        }
        self.at = end;
        Some((start, end))
    }

    /// Skips an unknown field. Groups, which may nest, are refused.
    fn skip(&mut self, kind: u8) -> Option<()> {
        match kind {
            VARINT => self.varint().map(|_| ()),
            BYTES => self.span().map(|_| ()),
            FIXED64 => self.pass(8),
            FIXED32 => self.pass(4),
            _ => None,
        }
    }

    fn pass(&mut self, count: usize) -> Option<()> {
        self.at += count;
        (self.at <= self.data.len()).then_some(())
    }
}

/// Header and records of a reply with records; `None` for any other and for an irregular one.
pub fn walk(data: &[u8]) -> Option<(Header, Vec<Record>)> {
    if data.len() > MAX_BYTES {
        return None;
    }
    let mut header = Header::default();
    let mut records = Vec::new();
    let mut cursor = Cursor { data, at: 0 };
    while cursor.more() {
        let (number, kind) = cursor.tag()?;
        match (number, kind) {
            (1, VARINT) => header.success = Some(cursor.varint()? != 0),
            (2, VARINT) => header.code = Some(cursor.varint()? as i32),
            (3, BYTES) => {
                let (start, end) = cursor.span()?;
                header.message = std::str::from_utf8(&data[start..end]).ok()?.to_owned();
            }
            (4, BYTES) => {
                let (start, end) = cursor.span()?;
                if records.is_empty() {
                    let guess = (data.len() - start) / (end - start).max(SHORTEST_RECORD);
                    records.reserve(guess.min(MOST_GUESSED) + 1);
                }
                if records.len() == MOST_RECORDS {
                    return None;
                }
                records.push(record(data, start, end)?);
            }
            (5, VARINT) => header.current = cursor.varint()? as i64,
            (6, VARINT) => header.min_limit_ms = cursor.varint()? as i32,
            (7, VARINT) => header.escape_limit = cursor.varint()? != 0,
            (8, VARINT) => header.lag_bytes = Some(cursor.varint()? as i64),
            (9, VARINT) => header.slow = cursor.varint()? != 0,
            (10, VARINT) => header.max = cursor.varint()? as i64,
            (1..=10, _) => return None,
            (_, kind) => cursor.skip(kind)?,
        }
    }
    let delivers = header.success == Some(true) && header.code == Some(200);
    (delivers && !records.is_empty()).then_some((header, records))
}

#[inline]
fn record(data: &[u8], start: usize, end: usize) -> Option<Record> {
    let mut cursor = Cursor {
        data: &data[..end],
        at: start,
    };
    let (mut id, mut checksum, mut span, mut flag) = (None, None, None, None);
    while cursor.more() {
        let (number, kind) = cursor.tag()?;
        match (number, kind) {
            (1, VARINT) => id = Some(cursor.varint()? as i64),
            (2, VARINT) => checksum = Some(cursor.varint()? as i32),
            (3, BYTES) => span = Some(cursor.span()?),
            (4, VARINT) => flag = Some(cursor.varint()? as i32),
            (1..=4, _) => return None,
            (_, kind) => cursor.skip(kind)?,
        }
    }
    let (from, to) = span?;
    Some(Record {
        start: from as u32,
        len: (to - from) as u32,
        id: id?,
        checksum: checksum?,
        flag: flag?,
    })
}
