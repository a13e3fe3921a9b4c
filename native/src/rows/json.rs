//! JSON objects, by the table that `tubemq_provider.rows` makes of a schema.
//!
//! Strictly RFC 8259. Refused besides: a field that occurs twice, a name with an escape, a lone
//! surrogate, and deep nesting in fields that are ignored.

use super::cells::{refuse, Cells, Taken};
use super::text::{number_size, put_moment, put_number, Fields, Node};

/// How fields without a column may nest.
const DEEPEST: u32 = 32;

/// Read one object into row `row` of `members`; `strict` refuses unknown fields.
pub fn read_body(fields: &Fields, strict: bool, body: &[u8], members: &mut [Cells]) -> Taken<()> {
    if std::str::from_utf8(body).is_err() {
        return refuse();
    }
    let mut cursor = Cursor {
        body,
        at: 0,
        strict,
        text: Vec::new(),
    };
    cursor.spaces();
    let row = members[0].len();
    cursor.object(fields, members, row)?;
    cursor.spaces();
    if cursor.at == body.len() {
        Ok(())
    } else {
        refuse()
    }
}

struct Cursor<'a> {
    body: &'a [u8],
    at: usize,
    strict: bool,
    /// The last string, if it had escapes.
    text: Vec<u8>,
}

enum Text<'a> {
    Plain(&'a [u8]),
    Escaped,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn peek(&self) -> u8 {
        self.body.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    fn spaces(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    #[inline]
    fn sign(&mut self, sign: u8) -> Taken<()> {
        if self.peek() != sign {
            return refuse();
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Taken<()> {
        if !self.body[self.at..].starts_with(word) {
            return refuse();
        }
        self.at += word.len();
        Ok(())
    }

    fn object(&mut self, fields: &Fields, members: &mut [Cells], row: usize) -> Taken<()> {
        self.sign(b'{')?;
        self.spaces();
        if self.peek() == b'}' {
            self.at += 1;
        } else {
            let mut expected = 0;
            loop {
                let Text::Plain(name) = self.string()? else {
                    return refuse();
                };
                self.spaces();
                self.sign(b':')?;
                self.spaces();
                let found = match fields.names.get(expected) {
                    Some(next) if next == name => Some(expected),
                    _ => fields.names.iter().position(|other| other == name),
                };
                match found {
                    Some(index) if members[index].len() > row => return refuse(),
                    Some(index) => {
                        self.value(&fields.nodes[index], &mut members[index])?;
                        expected = index + 1;
                    }
                    None if self.strict => return refuse(),
                    None => self.skip(0)?,
                }
                self.spaces();
                match self.peek() {
                    b',' => self.at += 1,
                    b'}' => break,
                    _ => return refuse(),
                }
                self.spaces();
            }
            self.at += 1;
        }
        for member in members.iter_mut().filter(|member| member.len() == row) {
            member.put_null();
        }
        Ok(())
    }

    fn value(&mut self, node: &Node, cells: &mut Cells) -> Taken<()> {
        match (self.peek(), node) {
            (b'n', _) => {
                self.word(b"null")?;
                cells.put_null();
            }
            (b'"', Node::Text) => match self.string()? {
                Text::Plain(text) => cells.put_bytes(text),
                Text::Escaped => cells.put_bytes(&self.text),
            },
            (b'"', Node::Date | Node::Instant { .. }) => match self.string()? {
                Text::Plain(text) => put_moment(node, text, cells)?,
                Text::Escaped => return refuse(),
            },
            (b'"', Node::Decimal { .. }) => match self.string()? {
                Text::Plain(text) if number_size(text) == text.len() => {
                    put_number(node, text, cells)?
                }
                _ => return refuse(),
            },
            (b't', Node::Bool) => {
                self.word(b"true")?;
                cells.put_bool(true);
            }
            (b'f', Node::Bool) => {
                self.word(b"false")?;
                cells.put_bool(false);
            }
            (b'{', Node::Struct(fields)) => {
                let row = cells.len();
                self.object(fields, cells.members(), row)?;
                cells.end_struct();
            }
            (b'[', Node::List(item)) => {
                let items = &mut cells.items()[0];
                self.list(|cursor| cursor.value(item, items))?;
                cells.end_list();
            }
            (b'-' | b'0'..=b'9', _) => put_number(node, self.number()?, cells)?,
            _ => return refuse(),
        }
        Ok(())
    }

    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Taken<()>) -> Taken<()> {
        self.at += 1;
        self.spaces();
        if self.peek() == b']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            item(self)?;
            self.spaces();
            match self.peek() {
                b',' => self.at += 1,
                b']' => break,
                _ => return refuse(),
            }
            self.spaces();
        }
        self.at += 1;
        Ok(())
    }

    fn number(&mut self) -> Taken<&'a [u8]> {
        let size = number_size(&self.body[self.at..]);
        if size == 0 {
            return refuse();
        }
        let text = &self.body[self.at..self.at + size];
        self.at += size;
        Ok(text)
    }

    /// The string at the cursor; with escapes it is in `text`.
    #[inline]
    fn string(&mut self) -> Taken<Text<'a>> {
        self.sign(b'"')?;
        let start = self.at;
        loop {
            match self.body.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Text::Plain(&self.body[start..self.at - 1]));
                }
                Some(b'\\') => break,
                Some(32..) => self.at += 1,
                _ => return refuse(),
            }
        }
        self.text.clear();
        self.text.extend_from_slice(&self.body[start..self.at]);
        loop {
            let byte = self.peek();
            self.at += 1;
            match byte {
                b'"' => return Ok(Text::Escaped),
                b'\\' => self.escape()?,
                32.. => self.text.push(byte),
                _ => return refuse(),
            }
        }
    }

    fn escape(&mut self) -> Taken<()> {
        let byte = self.peek();
        self.at += 1;
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = self.four_digits()?;
                if (0xd800..0xdc00).contains(&code) {
                    self.word(b"\\u")?;
                    let low = self.four_digits()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return refuse();
                    }
                    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                }
                match char::from_u32(code) {
                    Some(sign) if code != 0 => {
                        self.text
                            .extend_from_slice(sign.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                    _ => return refuse(),
                }
                return Ok(());
            }
            _ => return refuse(),
        };
        self.text.push(plain);
        Ok(())
    }

    fn four_digits(&mut self) -> Taken<u32> {
        let Some(digits) = self.body.get(self.at..self.at + 4) else {
            return refuse();
        };
        let mut code = 0;
        for &digit in digits {
            match char::from(digit).to_digit(16) {
                Some(value) => code = code * 16 + value,
                None => return refuse(),
            }
        }
        self.at += 4;
        Ok(code)
    }

    /// Pass over any value.
    fn skip(&mut self, depth: u32) -> Taken<()> {
        if depth > DEEPEST {
            return refuse();
        }
        match self.peek() {
            b'"' => self.string().map(drop),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            b'[' => self.list(|cursor| cursor.skip(depth + 1)),
            b'{' => {
                self.at += 1;
                self.spaces();
                if self.peek() == b'}' {
                    self.at += 1;
                    return Ok(());
                }
                loop {
                    self.string()?;
                    self.spaces();
                    self.sign(b':')?;
                    self.spaces();
                    self.skip(depth + 1)?;
                    self.spaces();
                    match self.peek() {
                        b',' => self.at += 1,
                        b'}' => break,
                        _ => return refuse(),
                    }
                    self.spaces();
                }
                self.at += 1;
                Ok(())
            }
            _ => self.number().map(drop),
        }
    }
}
