//! Avro data in binary form, by the table that `tubemq_provider.rows` makes of a schema.
//!
//! As strict as the reference, `avro_columns.py`, or stricter.

use super::cells::{refuse, Cells, Data, Taken};

/// How a field is read, and what its column holds.
pub enum Node {
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(Vec<String>),
    /// 16 bytes as a text.
    Uuid,
    /// `size`: of a fixed; `limit`: the least number with too many digits.
    Decimal {
        size: Option<usize>,
        limit: i128,
    },
    /// A number within bounds, in another unit.
    Scaled(Scaled),
    Record(Vec<Node>),
    List(Box<Node>),
    Map(Box<Node>),
    /// A union of null, which is its member `null`, and another type.
    Nullable {
        null: i64,
        value: Box<Node>,
    },
    /// A union of one type.
    Only(Box<Node>),
}

pub struct Scaled {
    pub bits: u32,
    pub least: i64,
    pub most: i64,
    pub factor: i64,
    pub divisor: i64,
    pub wide: bool,
}

impl Node {
    pub fn cells(&self) -> Cells {
        match self {
            Node::Boolean => Cells::new(Data::Bits(Vec::new())),
            Node::Int | Node::Float => Cells::new(Data::Four(Vec::new())),
            Node::Long | Node::Double => Cells::new(Data::Eight(Vec::new())),
            Node::Bytes | Node::Text | Node::Fixed(_) | Node::Enum(_) | Node::Uuid => {
                Cells::bytes()
            }
            Node::Decimal { .. } => Cells::new(Data::Sixteen(Vec::new())),
            Node::Scaled(scaled) if scaled.wide => Cells::new(Data::Eight(Vec::new())),
            Node::Scaled(_) => Cells::new(Data::Four(Vec::new())),
            Node::Record(fields) => {
                Cells::new(Data::Struct(fields.iter().map(Node::cells).collect()))
            }
            Node::List(item) => Cells::lists(item.cells()),
            Node::Map(value) => Cells::map(Cells::bytes(), value.cells()),
            Node::Nullable { value, .. } | Node::Only(value) => value.cells(),
        }
    }
}

/// Read the record's fields from the whole of `body`.
pub fn read_record(fields: &[Node], body: &[u8], members: &mut [Cells]) -> Taken<()> {
    let mut cursor = Cursor { body, at: 0 };
    for (field, cells) in fields.iter().zip(members) {
        cursor.read(field, cells)?;
    }
    if cursor.at == body.len() {
        Ok(())
    } else {
        refuse()
    }
}

struct Cursor<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn read(&mut self, node: &Node, cells: &mut Cells) -> Taken<()> {
        match node {
            Node::Boolean => match self.take(1)?[0] {
                byte @ (0 | 1) => cells.put_bool(byte == 1),
                _ => return refuse(),
            },
            Node::Int => cells.put_int(self.number(32)?),
            Node::Long => cells.put_int(self.number(64)?),
            Node::Float => {
                let bytes = self.take(4)?.try_into().unwrap_or_default();
                cells.put_float(u32::from_le_bytes(bytes));
            }
            Node::Double => {
                let bytes = self.take(8)?.try_into().unwrap_or_default();
                cells.put_int(i64::from_le_bytes(bytes));
            }
            Node::Bytes => cells.put_bytes(self.sized()?),
            Node::Text => cells.put_bytes(self.text()?),
            Node::Fixed(size) => cells.put_bytes(self.take(*size)?),
            Node::Enum(symbols) => {
                let index = usize::try_from(self.number(32)?).ok();
                match index.and_then(|index| symbols.get(index)) {
                    Some(symbol) => cells.put_bytes(symbol.as_bytes()),
                    None => return refuse(),
                }
            }
            Node::Uuid => cells.put_bytes(&uuid(self.take(16)?)),
            Node::Decimal { size, limit } => {
                let bytes = match size {
                    Some(size) => self.take(*size)?,
                    None => self.sized()?,
                };
                cells.put_wide(unscaled(bytes, *limit)?);
            }
            Node::Scaled(scaled) => {
                let number = self.number(scaled.bits)?;
                if number < scaled.least || number > scaled.most {
                    return refuse();
                }
                cells.put_int((number * scaled.factor).div_euclid(scaled.divisor));
            }
            Node::Record(fields) => {
                for (field, member) in fields.iter().zip(cells.members()) {
                    self.read(field, member)?;
                }
                cells.end_struct();
            }
            Node::List(item) => {
                let items = &mut cells.items()[0];
                self.blocks(|cursor| cursor.read(item, items))?;
                cells.end_list();
            }
            Node::Map(value) => self.map(value, cells)?,
            Node::Nullable { null, value } => match self.number(32)? {
                index if index == *null => cells.put_null(),
                0 | 1 => self.read(value, cells)?,
                _ => return refuse(),
            },
            Node::Only(value) => match self.take(1)?[0] {
                0 => self.read(value, cells)?,
                _ => return refuse(),
            },
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, size: usize) -> Taken<&'a [u8]> {
        match self.body[self.at..].get(..size) {
            Some(bytes) => {
                self.at += size;
                Ok(bytes)
            }
            None => refuse(),
        }
    }

    /// The zigzag number of at most `bits` bits.
    #[inline]
    fn number(&mut self, bits: u32) -> Taken<i64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = u64::from(self.take(1)?[0]);
            let part = byte & 127;
            if shift + 7 > bits && part >> (bits - shift) != 0 {
                return refuse();
            }
            number |= part << shift;
            if byte < 128 {
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
            shift += 7;
            if shift >= bits {
                return refuse();
            }
        }
    }

    #[inline]
    fn sized(&mut self) -> Taken<&'a [u8]> {
        match usize::try_from(self.number(64)?) {
            Ok(size) => self.take(size),
            Err(_) => refuse(),
        }
    }

    #[inline]
    fn text(&mut self) -> Taken<&'a [u8]> {
        let bytes = self.sized()?;
        if std::str::from_utf8(bytes).is_ok() {
            Ok(bytes)
        } else {
            refuse()
        }
    }

    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Taken<()>) -> Taken<()> {
        loop {
            let (mut count, mut end) = (self.number(64)?, None);
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                let size = self.number(64)?;
                let Ok(size) = usize::try_from(size) else {
                    return refuse();
                };
                (count, end) = (
                    count.checked_neg().unwrap_or(i64::MAX),
                    self.at.checked_add(size),
                );
            }
            if count as u64 > self.body.len() as u64 {
                return refuse();
            }
            for _ in 0..count {
                item(self)?;
            }
            if end.is_some_and(|end| end != self.at) {
                return refuse();
            }
        }
    }

    fn map(&mut self, value: &Node, cells: &mut Cells) -> Taken<()> {
        let [keys, values] = cells.items() else {
            unreachable!()
        };
        let mut found: Vec<&[u8]> = Vec::new();
        self.blocks(|cursor| {
            let key = cursor.text()?;
            found.push(key);
            keys.put_bytes(key);
            cursor.read(value, values)
        })?;
        found.sort_unstable();
        if found.windows(2).any(|two| two[0] == two[1]) {
            return refuse();
        }
        cells.end_list();
        Ok(())
    }
}

/// The big-endian number; longer ones than 16 bytes are left to the reference.
fn unscaled(bytes: &[u8], limit: i128) -> Taken<i128> {
    if bytes.is_empty() || bytes.len() > 16 {
        return refuse();
    }
    let sign = if bytes[0] & 128 == 0 { 0 } else { 255 };
    let mut filled = [sign; 16];
    filled[16 - bytes.len()..].copy_from_slice(bytes);
    let number = i128::from_be_bytes(filled);
    if -limit < number && number < limit {
        Ok(number)
    } else {
        refuse()
    }
}

fn uuid(bytes: &[u8]) -> [u8; 36] {
    let (mut text, mut at) = ([b'-'; 36], 0);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        for digit in [byte >> 4, byte & 15] {
            text[at] = b"0123456789abcdef"[digit as usize];
            at += 1;
        }
    }
    text
}
