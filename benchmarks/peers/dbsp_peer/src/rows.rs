//! Rows out of files of text with a header, one file a step, and lines of text out of rows.

use dbsp::ZWeight;
use dbsp::algebra::F64;
use dbsp::utils::{Tup2, Tup3, Tup4, Tup5, Tup6, Tup7, Tup8};
use std::fs;
use std::path::Path;

/// The rows of each step, with their weights.
pub type Steps<R> = Vec<Vec<Tup2<R, ZWeight>>>;

/// One line of a file.
pub struct Line<'a> {
    names: &'a [&'a str],
    fields: Vec<&'a str>,
}

impl Line<'_> {
    /// Return a column as text.
    pub fn text(&self, name: &str) -> String {
        self.field(name).to_string()
    }

    /// Return a column as a whole number.
    pub fn int(&self, name: &str) -> i64 {
        self.field(name).parse().expect("a whole number")
    }

    /// Return a column as a double.
    pub fn double(&self, name: &str) -> F64 {
        F64::new(self.field(name).parse().expect("a number"))
    }

    /// Return the weight: 1, but for changes.
    fn weight(&self) -> ZWeight {
        if self.names.contains(&"_weight") { self.int("_weight") } else { 1 }
    }

    fn field(&self, name: &str) -> &str {
        let place = self.names.iter().position(|each| *each == name);
        self.fields[place.expect("a column of this name")]
    }
}

/// Return the rows of files, made of lines by `make`.
pub fn read<R>(files: &[impl AsRef<Path>], make: fn(&Line) -> R) -> Steps<R> {
    files
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).expect("a file of rows");
            let mut lines = text.lines();
            let names: Vec<&str> = lines.next().expect("a header").split('\t').collect();
            lines
                .map(|line| {
                    let line = Line { names: &names, fields: line.split('\t').collect() };
                    Tup2(make(&line), line.weight())
                })
                .collect()
        })
        .collect()
}

/// What can be a column, or a row of columns, of an answer.
pub trait Show {
    /// Append a tab and the text, for each column.
    fn show(&self, line: &mut String);
}

macro_rules! shown_as_text {
    ($($kind:ty),+) => {
        $(impl Show for $kind {
            fn show(&self, line: &mut String) {
                line.push('\t');
                line.push_str(&self.to_string());
            }
        })+
    };
}

macro_rules! shown_by_column {
    ($($kind:ident($($field:ident),+)),+) => {
        $(impl<$($field: Show),+> Show for $kind<$($field),+> {
            #[allow(non_snake_case)]
            fn show(&self, line: &mut String) {
                let $kind($($field),+) = self;
                $($field.show(line);)+
            }
        })+
    };
}

shown_as_text!(i64, String);
shown_by_column!(
    Tup2(A, B),
    Tup3(A, B, C),
    Tup4(A, B, C, D),
    Tup5(A, B, C, D, E),
    Tup6(A, B, C, D, E, F),
    Tup7(A, B, C, D, E, F, G),
    Tup8(A, B, C, D, E, F, G, H)
);

impl Show for F64 {
    fn show(&self, line: &mut String) {
        line.push('\t');
        line.push_str(&self.into_inner().to_string());
    }
}
