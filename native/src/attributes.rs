//! The attribute text of a record: `k=v,k=v`, read as `tubemq_client._wire.payload` reads it.
//!
//! That module is the reference; every rule here is one of its lines. Nothing fails, because other
//! producers may have written any bytes.

use std::borrow::Cow;
use std::collections::HashMap;

const STREAM_ID: &[u8; 9] = b"$msgType$";
const MSG_TIME: &[u8; 9] = b"$msgTime$";
/// Number of keys from which repeated keys are looked up in a table.
const FEW_KEYS: usize = 16;

/// Part of the text, by its byte positions.
pub type Piece = (usize, usize);

/// Parsed text. The parts refer to the text it was filled from.
#[derive(Default)]
pub struct Parsed {
    pub stream_id: Option<Piece>,
    pub msg_time: Option<Piece>,
    pub items: Vec<(Piece, Piece)>,
}

/// Attribute bytes as text; bytes that are not UTF-8 become U+FFFD.
pub fn text(raw: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(raw)
}

impl Parsed {
    /// Parses `text` into this object, replacing its contents. Items are the expensive part, and
    /// only parsed with `with_items`.
    pub fn fill(&mut self, text: &str, with_items: bool) {
        self.stream_id = None;
        self.msg_time = None;
        self.items.clear();
        let bytes = text.as_bytes();
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut start = 0;
        while start <= bytes.len() {
            let (mut equals, mut dollar) = (None, false);
            let mut end = bytes.len();
            for (after, byte) in bytes[start..].iter().enumerate() {
                match byte {
                    b',' => {
                        end = start + after;
                        break;
                    }
                    b'=' if equals.is_none() => equals = Some(start + after),
                    b'$' => dollar = true,
                    _ => {}
                }
            }
            let key = (start, equals.unwrap_or(end));
            let value = (equals.map_or(end, |at| at + 1), end);
            let item = &bytes[start..end];
            if dollar && contains(item, STREAM_ID) {
                self.stream_id = self.stream_id.or_else(|| system(bytes, value));
            } else if dollar && contains(item, MSG_TIME) {
                self.msg_time = self.msg_time.or_else(|| system(bytes, value));
            } else if with_items && !blank(&text[key.0..key.1]) {
                self.put(text, key, value, &mut known);
            }
            start = end + 1;
        }
    }

    /// The last value of a repeated key is used, at the position of the first.
    fn put<'a>(
        &mut self,
        text: &'a str,
        key: Piece,
        value: Piece,
        known: &mut HashMap<&'a str, usize>,
    ) {
        let of = |piece: Piece| &text[piece.0..piece.1];
        let found = if self.items.len() < FEW_KEYS {
            self.items
                .iter()
                .position(|(other, _)| of(*other) == of(key))
        } else {
            if known.is_empty() {
                known.extend(
                    self.items
                        .iter()
                        .enumerate()
                        .map(|(at, (other, _))| (of(*other), at)),
                );
            }
            known.get(of(key)).copied()
        };
        match found {
            Some(at) => self.items[at].1 = value,
            None => {
                if !known.is_empty() {
                    known.insert(of(key), self.items.len());
                }
                self.items.push((key, value));
            }
        }
    }
}

/// The value of a system item ends at the next `=`; an empty value is treated as missing.
fn system(bytes: &[u8], (start, end): Piece) -> Option<Piece> {
    let len = bytes[start..end]
        .iter()
        .position(|byte| *byte == b'=')
        .unwrap_or(end - start);
    (len > 0).then_some((start, start + len))
}

#[inline]
fn contains(item: &[u8], key: &[u8; 9]) -> bool {
    let starts = |at: usize| item[at..].starts_with(key);
    item.iter()
        .enumerate()
        .any(|(at, byte)| *byte == b'$' && starts(at))
}

/// Equals Python's `not key.strip()`: besides Unicode's white space, four separators of ASCII.
fn blank(key: &str) -> bool {
    if key.as_bytes().first().is_some_and(u8::is_ascii_graphic) {
        return false;
    }
    key.chars()
        .all(|c| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

/// Microseconds since 1970 of `yyyyMMddHHmm` in UTC; `None` for a text that is not a minute.
pub fn minute(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() != 12 || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |from: usize, to: usize| {
        bytes[from..to]
            .iter()
            .fold(0i64, |sum, byte| sum * 10 + i64::from(byte - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    let (hour, minute) = (number(8, 10), number(10, 12));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1 || !(1..=days).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    Some(((day_number(year, month, day) * 24 + hour) * 60 + minute) * 60_000_000)
}

/// Days since 1970-01-01 in the Gregorian calendar. Years begin in March here, so that the
/// leap day is the last day of a year.
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}
