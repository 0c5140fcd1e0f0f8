"""Our side: sessions by timers as a processor of a user's, in one of its forms."""

from __future__ import annotations

from benchmarks.harness.side import Answer, serve
from benchmarks.sides.boatlift_side import Boatlift

__all__ = ["ProcessorSide"]


class ProcessorSide(Boatlift):
    """One dataflow with a processor, fed file by file."""

    def prepare_form(self, folder: str, form: str) -> Answer:
        """Make the session and start the dataflow.

        Args:
            folder: The folder of all files.
            form: `by key`, `arrow` or `pandas`.
        """
        self._form = form
        return self.prepare(folder, every=5)

    def start(self) -> Answer:
        """Start the dataflow."""
        from pyspark import cloudpickle

        import boatlift as bl
        from benchmarks.sides import processor_code as code
        from boatlift.storage.local import LocalStore

        cloudpickle.register_pickle_by_value(code)  # type: ignore[no-untyped-call]
        flow = bl.Dataflow("bench")
        rows = flow.source("rows", bl.files(self._folder / "input", format="parquet", schema="k BIGINT, v DOUBLE"))
        grouped, policy = rows.group_by("k"), bl.Lazy(every=self._every)
        if self._form == "pandas":
            made = grouped.transform_with_state_in_pandas(
                "sums", code.Sessions(), code.OUTPUT, "ProcessingTime", policy=policy
            )
        elif self._form == "arrow":
            made = grouped.process_arrow(
                "sums", code.over_arrow(), output=code.OUTPUT, state=code.STATE, timers=True, policy=policy
            )
        else:
            made = grouped.process(
                "sums", code.sessions(), output=code.OUTPUT, state=code.STATE, timers=True, policy=policy
            )
        made.sink("out", bl.parquet(self._folder / "output", compression="snappy"))
        store = LocalStore.open(self._folder / "store", create=True)
        self._watch.running = bl.start(flow, store, spark=self._spark, on_progress=self._watch)
        return {"ready": True}


def main() -> None:
    """Serve one dataflow."""
    side = ProcessorSide()
    serve({"prepare": side.prepare_form, "run": side.run})


if __name__ == "__main__":
    main()
