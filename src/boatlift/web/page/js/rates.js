// What units do a second, from the sums that the owner reports: of two reports, what lies between them.

let before = null,
  rates = null;

export function ratesOf({ state, activity }) {
  if (!activity || !["alive", "stuck"].includes(state)) return (before = rates = null);
  if (before && activity.at > before.at && activity.began === before.began) {
    const seconds = (activity.at - before.at) / 1000,
      was = before.units;
    rates = Object.fromEntries(
      Object.entries(activity.units).map(([name, now]) => [name, rate(now, was[name], seconds)]),
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
    busy: Math.max(0, Math.min(1, more("milliseconds") / 1000 / seconds)),
    milliseconds: done ? more("milliseconds") / done : null,
  };
}
