//! Delimited text, one row a body, by the table that `tubemq_provider.rows` makes of a schema.
//!
//! Refused: line breaks, escapes, a byte order mark, a quote within a value, and a quoted value that
//! says null.

use super::cells::{refuse, Cells, Taken};
use super::text::{number_size, put_moment, put_number, Node};

pub struct Table {
    pub nodes: Vec<Node>,
    pub delimiter: u8,
    pub quote: u8,
    pub escape: Option<u8>,
    pub nulls: Vec<Vec<u8>>,
}

impl Table {
    pub fn cells(&self) -> Vec<Cells> {
        self.nodes.iter().map(Node::cells).collect()
    }

    fn is_null(&self, text: &[u8]) -> bool {
        self.nulls.iter().any(|null| null == text)
    }

    pub fn read_body(&self, body: &[u8], members: &mut [Cells]) -> Taken<()> {
        if body.is_empty() || body[0] == 0xef || std::str::from_utf8(body).is_err() {
            return refuse();
        }
        let (mut rest, last) = (body, members.len() - 1);
        for (index, (node, cells)) in self.nodes.iter().zip(members).enumerate() {
            let end = if rest.first() == Some(&self.quote) {
                self.quoted(node, rest, cells)?
            } else {
                self.plain(node, rest, cells)?
            };
            match rest.get(end) {
                Some(_) if index < last => rest = &rest[end + 1..],
                None if index == last => {}
                _ => return refuse(),
            }
        }
        Ok(())
    }

    /// Put the value that `rest` begins with; return its size.
    fn plain(&self, node: &Node, rest: &[u8], cells: &mut Cells) -> Taken<usize> {
        let mut end = 0;
        while let Some(&byte) = rest.get(end) {
            if byte == self.delimiter {
                break;
            }
            if byte == self.quote || Some(byte) == self.escape || byte == b'\n' || byte == b'\r' {
                return refuse();
            }
            end += 1;
        }
        let text = &rest[..end];
        if self.is_null(text) {
            cells.put_null();
        } else {
            put(node, text, cells)?;
        }
        Ok(end)
    }

    /// The same for a value in quotes.
    fn quoted(&self, node: &Node, rest: &[u8], cells: &mut Cells) -> Taken<usize> {
        let (mut at, mut unquoted) = (1, Vec::new());
        loop {
            let Some(&byte) = rest.get(at) else {
                return refuse();
            };
            at += 1;
            if byte == self.quote {
                match rest.get(at) {
                    Some(&next) if next == self.quote => at += 1,
                    Some(&next) if next == self.delimiter => break,
                    None => break,
                    _ => return refuse(),
                }
            } else if Some(byte) == self.escape || byte == b'\n' || byte == b'\r' {
                return refuse();
            }
            unquoted.push(byte);
        }
        if self.is_null(&unquoted) && !matches!(node, Node::Text) {
            return refuse();
        }
        put(node, &unquoted, cells)?;
        Ok(at)
    }
}

fn put(node: &Node, text: &[u8], cells: &mut Cells) -> Taken<()> {
    match node {
        Node::Text => cells.put_bytes(text),
        Node::Bool if text == b"true" => cells.put_bool(true),
        Node::Bool if text == b"false" => cells.put_bool(false),
        Node::Date | Node::Instant { .. } => put_moment(node, text, cells)?,
        _ if number_size(text) == text.len() => put_number(node, text, cells)?,
        _ => return refuse(),
    }
    Ok(())
}
