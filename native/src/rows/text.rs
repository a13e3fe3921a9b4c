//! Values that are written as texts, for JSON and CSV: the usual forms only.

use super::cells::{refuse, Cells, Data, Taken};

/// What a column holds.
pub enum Node {
    Bool,
    Int {
        least: i64,
        most: i64,
    },
    Float,
    Double,
    Decimal {
        precision: u32,
        scale: u32,
    },
    Text,
    Date,
    /// `zone`: texts may end in Z.
    Instant {
        zone: bool,
    },
    Struct(Fields),
    List(Box<Node>),
}

pub struct Fields {
    pub names: Vec<Vec<u8>>,
    pub nodes: Vec<Node>,
}

impl Node {
    pub fn cells(&self) -> Cells {
        match self {
            Node::Bool => Cells::new(Data::Bits(Vec::new())),
            Node::Int { most, .. } if *most <= i64::from(i8::MAX) => {
                Cells::new(Data::One(Vec::new()))
            }
            Node::Int { most, .. } if *most <= i64::from(i16::MAX) => {
                Cells::new(Data::Two(Vec::new()))
            }
            Node::Int { most, .. } if *most <= i64::from(i32::MAX) => {
                Cells::new(Data::Four(Vec::new()))
            }
            Node::Float | Node::Date => Cells::new(Data::Four(Vec::new())),
            Node::Int { .. } | Node::Double | Node::Instant { .. } => {
                Cells::new(Data::Eight(Vec::new()))
            }
            Node::Decimal { .. } => Cells::new(Data::Sixteen(Vec::new())),
            Node::Text => Cells::bytes(),
            Node::Struct(fields) => Cells::new(Data::Struct(fields.cells())),
            Node::List(item) => Cells::lists(item.cells()),
        }
    }
}

impl Fields {
    pub fn cells(&self) -> Vec<Cells> {
        self.nodes.iter().map(Node::cells).collect()
    }
}

/// Put a number in JSON's form, which `text` is.
pub fn put_number(node: &Node, text: &[u8], cells: &mut Cells) -> Taken<()> {
    match node {
        Node::Int { least, most } => {
            let number = whole(text)?;
            if number < *least || number > *most {
                return refuse();
            }
            cells.put_int(number);
        }
        Node::Double => match as_text(text)?.parse::<f64>() {
            Ok(number) if number.is_finite() => cells.put_int(number.to_bits() as i64),
            _ => return refuse(),
        },
        Node::Float => match as_text(text)?.parse::<f32>() {
            Ok(number) if number.is_finite() => cells.put_float(number.to_bits()),
            _ => return refuse(),
        },
        Node::Decimal { precision, scale } => cells.put_wide(decimal(text, *precision, *scale)?),
        _ => return refuse(),
    }
    Ok(())
}

/// Put a date or an instant.
pub fn put_moment(node: &Node, text: &[u8], cells: &mut Cells) -> Taken<()> {
    match node {
        Node::Date if text.len() == 10 => cells.put_int(i64::from(date(text)?)),
        Node::Instant { zone } => cells.put_int(instant(text, *zone)?),
        _ => return refuse(),
    }
    Ok(())
}

fn as_text(text: &[u8]) -> Taken<&str> {
    std::str::from_utf8(text).or_else(|_| refuse())
}

/// Size of the number in JSON's grammar that `text` begins with, 0 for none.
pub fn number_size(text: &[u8]) -> usize {
    let digits = |from: usize| {
        text[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let start = usize::from(text.first() == Some(&b'-'));
    let whole = digits(start);
    if whole == 0 || (whole > 1 && text[start] == b'0') {
        return 0;
    }
    let mut end = start + whole;
    if text.get(end) == Some(&b'.') {
        let part = digits(end + 1);
        if part == 0 {
            return 0;
        }
        end += 1 + part;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let part = digits((end + 1 + sign).min(text.len()));
        if part == 0 || part > 2 {
            return 0; // the reference refuses exponents above 308, also of 0 and in unknown fields
        }
        end += 1 + sign + part;
    }
    end
}

/// At most 18 digits, so that nothing overflows; longer ones are left to the reference.
fn whole(text: &[u8]) -> Taken<i64> {
    let (negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 {
        return refuse();
    }
    let mut number = 0_i64;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return refuse();
        }
        number = number * 10 + i64::from(byte - b'0');
    }
    Ok(if negative { -number } else { number })
}

const POWERS: [i128; 39] = {
    let (mut powers, mut index) = ([1; 39], 1);
    while index < 39 {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
};

fn decimal(text: &[u8], precision: u32, scale: u32) -> Taken<i128> {
    let (negative, rest) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    if rest.is_empty() || rest.len() > 37 {
        return refuse();
    }
    let (mut number, mut point) = (0_i128, None);
    let (mut part, mut size) = (0_u64, 0);
    for (index, byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                part = part * 10 + u64::from(byte - b'0');
                size += 1;
                if size == 19 {
                    (number, part, size) = (i128::from(part), 0, 0);
                }
            }
            b'.' if point.is_none() => point = Some(index),
            _ => return refuse(),
        }
    }
    if size < rest.len() - usize::from(point.is_some()) {
        number = number * POWERS[size] + i128::from(part);
    } else {
        number = i128::from(part);
    }
    let fraction = point.map_or(0, |at| rest.len() - at - 1) as u32;
    if fraction > scale {
        return refuse();
    }
    let scaled = number.checked_mul(POWERS[(scale - fraction) as usize]);
    match scaled {
        Some(scaled) if scaled < POWERS[precision as usize] => {
            Ok(if negative { -scaled } else { scaled })
        }
        _ => refuse(),
    }
}

#[inline]
fn two(text: &[u8], at: usize, most: i64) -> Taken<i64> {
    let (tens, ones) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
    let number = i64::from(tens) * 10 + i64::from(ones);
    if tens > 9 || ones > 9 || number > most {
        refuse()
    } else {
        Ok(number)
    }
}

/// Days since 1970 of the ten bytes YYYY-MM-DD; the years 1 to 9999.
fn date(text: &[u8]) -> Taken<i32> {
    let year = two(text, 0, 99)? * 100 + two(text, 2, 99)?;
    let (month, day) = (two(text, 5, 12)?, two(text, 8, 31)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year == 0 || month == 0 || day == 0 || day > last || text[4] != b'-' || text[7] != b'-' {
        return refuse();
    }
    // Days of a year that begins in March, as in Howard Hinnant's `days_from_civil`.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Ok((era * 146_097 + day_of_era - 719_468) as i32)
}

/// Microseconds since 1970 of `YYYY-MM-DD HH:MM:SS[.ffffff][Z]`, with a T or a blank.
fn instant(text: &[u8], zone: bool) -> Taken<i64> {
    let text = match text.split_last() {
        Some((b'Z', rest)) if zone => rest,
        _ => text,
    };
    if text.len() < 19 || !matches!(text[10], b'T' | b' ') || text[13] != b':' || text[16] != b':' {
        return refuse();
    }
    let seconds = i64::from(date(&text[..10])?) * 86_400
        + two(text, 11, 23)? * 3600
        + two(text, 14, 59)? * 60
        + two(text, 17, 59)?;
    let micros = match &text[19..] {
        [] => 0,
        [b'.', digits @ ..] if (1..=6).contains(&digits.len()) => {
            whole(digits).and_then(|number| {
                if digits[0] == b'-' {
                    refuse()
                } else {
                    Ok(number)
                }
            })? * 10_i64.pow(6 - digits.len() as u32)
        }
        _ => return refuse(),
    };
    Ok(seconds * 1_000_000 + micros)
}
