//! The tables of the vectors of HTTP/2 and HTTP/3.

use toml::{Table, Value};

pub(crate) fn flag(table: &Table, key: &str) -> bool {
    table.get(key).is_some_and(|value| value.as_bool().unwrap())
}

pub(crate) fn list<T>(table: &Table, key: &str, read: impl Fn(&Value) -> T) -> Vec<T> {
    table.get(key).map_or(Vec::new(), |values| values.as_array().unwrap().iter().map(read).collect())
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

/// A name ends in front of the last `: ` that can be its end, so that both may hold anything.
pub(crate) fn fields(table: &Table) -> Vec<(String, String)> {
    list(table, "fields", |field| {
        let text = field.as_str().unwrap();
        let at = if text.starts_with(": ") { 0 } else { text[1..].find(": ").unwrap() + 1 };
        (text[..at].to_owned(), text[at + 2..].to_owned())
    })
}
