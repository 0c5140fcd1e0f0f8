//! A peer in benchmarks: `dbsp_peer nexmark QUERY FOLDER OUT`, or `dbsp_peer top OUT FILE…`.
//!
//! Rows are in memory before the clock starts. Printed are the milliseconds of each step: from its rows to its changes,
//! all in memory. The changes of all steps are written to `OUT` after that.

mod job;
mod queries;
mod rows;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::time::Instant;

fn main() {
    let told: Vec<String> = std::env::args().skip(1).collect();
    let (job, out, steps) = match told.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["nexmark", query, folder, out] => {
            let folder = Path::new(folder);
            (queries::job(query, folder), out.to_string(), queries::files(folder, "bid").len())
        }
        ["top", out, ref files @ ..] => {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            (Some(queries::top(&files)), out.to_string(), files.len())
        }
        _ => {
            eprintln!("say: nexmark QUERY FOLDER OUT, or: top OUT FILE…");
            exit(2)
        }
    };
    let Some(mut job) = job else {
        eprintln!("there is no circuit of this query");
        exit(3)
    };
    let times: Vec<String> = (0..steps)
        .map(|_| {
            let began = Instant::now();
            job.step();
            format!("{:.3}", 1000.0 * began.elapsed().as_secs_f64())
        })
        .collect();
    println!("[{}]", times.join(", "));
    let mut file = BufWriter::new(File::create(out).expect("a file of changes"));
    job.write(&mut file);
    file.flush().expect("a file of changes");
    exit(0) // the circuit's threads need not be waited for
}
