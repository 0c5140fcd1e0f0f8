//! A circuit on two workers, with its inputs and what has come out of it.

use crate::rows::{Show, Steps};
use dbsp::operator::input::ZSetHandle;
use dbsp::typed_batch::SpineSnapshot;
use dbsp::{
    DBData, DBSPHandle, IndexedZSetReader, OrdIndexedZSet, OrdZSet, OutputHandle, RootCircuit, Runtime, Stream, ZWeight,
};
use std::io::Write;

/// A stream of rows, and one of rows under keys.
pub type Rows<R> = Stream<RootCircuit, OrdZSet<R>>;
pub type Keyed<K, V> = Stream<RootCircuit, OrdIndexedZSet<K, V>>;

const WORKERS: usize = 2;

/// A circuit that takes one step after the other.
pub struct Job {
    circuit: DBSPHandle,
    feeds: Vec<Box<dyn FnMut()>>,
    changes: Box<dyn Changes>,
}

impl Job {
    /// Take the next step; its changes are in memory, in the hands of the caller, when it returns.
    pub fn step(&mut self) {
        self.feeds.iter_mut().for_each(|feed| feed());
        self.circuit.transaction().expect("a step");
        self.changes.take();
    }

    /// Write the changes of all steps.
    pub fn write(&self, out: &mut dyn Write) {
        self.changes.write(out);
    }
}

/// Return the job of a plan with one input.
pub fn one<A: DBData, O: DBData + Show>(first: Steps<A>, plan: fn(Rows<A>) -> Rows<O>) -> Job {
    let (circuit, (input, output)) = Runtime::init_circuit(WORKERS, move |root| {
        let (rows, input) = root.add_input_zset::<A>();
        Ok((input, plan(rows).accumulate_output()))
    })
    .expect("a circuit");
    Job { circuit, feeds: vec![feed(input, first)], changes: taken(output) }
}

/// Return the job of a plan with two inputs.
pub fn two<A: DBData, B: DBData, O: DBData + Show>(
    first: Steps<A>,
    second: Steps<B>,
    plan: fn(Rows<A>, Rows<B>) -> Rows<O>,
) -> Job {
    let (circuit, (left, right, output)) = Runtime::init_circuit(WORKERS, move |root| {
        let (one, left) = root.add_input_zset::<A>();
        let (other, right) = root.add_input_zset::<B>();
        Ok((left, right, plan(one, other).accumulate_output()))
    })
    .expect("a circuit");
    Job { circuit, feeds: vec![feed(left, first), feed(right, second)], changes: taken(output) }
}

fn feed<R: DBData>(input: ZSetHandle<R>, steps: Steps<R>) -> Box<dyn FnMut()> {
    let mut steps = steps.into_iter();
    Box::new(move || input.append(&mut steps.next().expect("another step")))
}

/// The changes that have come out.
trait Changes {
    fn take(&mut self);
    fn write(&self, out: &mut dyn Write);
}

struct Taken<O: DBData> {
    output: OutputHandle<SpineSnapshot<OrdZSet<O>>>,
    steps: Vec<Vec<(O, ZWeight)>>,
}

fn taken<O: DBData + Show>(output: OutputHandle<SpineSnapshot<OrdZSet<O>>>) -> Box<dyn Changes> {
    Box::new(Taken { output, steps: Vec::new() })
}

impl<O: DBData + Show> Changes for Taken<O> {
    fn take(&mut self) {
        let changes = self.output.concat();
        self.steps.push(changes.iter().map(|(row, (), weight)| (row, weight)).collect());
    }

    fn write(&self, out: &mut dyn Write) {
        for (row, weight) in self.steps.iter().flatten() {
            let mut line = weight.to_string();
            row.show(&mut line);
            writeln!(out, "{line}").expect("a file of changes");
        }
    }
}
