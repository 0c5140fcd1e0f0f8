// What units do a second, from the sums that the owner reports: of two reports, what lies between them.

let before = null,
  rates = null;

export function ratesOf({ state, activity }) {
  if (!activity || !["alive", "stuck"].includes(state)) return (before = rates = null);
  if (before && activity.at > before.at && activity.began === before.began) {
    const seconds = (activity.at - before.at) / 1000,
      was = before.units;
    rates = Object.fromEntries(
      Object.entries(activity.units).map(([name, now]) => [
        name,
        { ...rate(now, was[name], seconds), busy: busy(now, activity.at, was[name], before.at, seconds) },
      ]),
    );
  }
  if (!before || activity.at > before.at || activity.began !== before.began) before = activity;
  return rates;
}

function rate(now, was, seconds) {
  const more = (field) => now[field] - (was?.[field] ?? 0),
    done = more("steps");
  return {
    steps: done / seconds,
    rows: more("rows") / seconds,
    fresh: more("fresh") / seconds,
    milliseconds: done ? more("milliseconds") / done : null,
  };
}

// A step may take longer than the time between two reports: what it has taken so far counts.
function busy(now, at, was, then, seconds) {
  const worked = (sums, until) => (sums ? sums.busy + (sums.since && Math.max(0, until - sums.since)) : 0);
  return Math.max(0, Math.min(1, (worked(now, at) - worked(was, then)) / 1000 / seconds));
}
