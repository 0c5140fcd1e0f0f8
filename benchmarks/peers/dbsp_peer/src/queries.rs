//! The Nexmark queries as circuits, each equal in meaning to the SQL of the same name in `nexmark_queries.py`.
//!
//! Each reads the columns that it needs. A day and a minute are texts, as in the answer.

use crate::job::{Job, Keyed, Rows, one, two};
use crate::rows::{Line, Steps, read};
use dbsp::CmpFunc;
use dbsp::algebra::F64;
use dbsp::operator::{Max, Min};
use dbsp::utils::{Tup2, Tup3, Tup4, Tup5, Tup6, Tup7, Tup8};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};

const TEN_SECONDS: i64 = 10_000;
const TWO_SECONDS: i64 = 2_000;
const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// Rows in their own order.
pub struct Ascending;

impl<V: Ord> CmpFunc<V> for Ascending {
    fn cmp(left: &V, right: &V) -> Ordering {
        left.cmp(right)
    }
}

type Bid = Tup5<i64, i64, i64, i64, String>; // auction, bidder, price, time, extra

fn bid(line: &Line) -> Bid {
    Tup5(line.int("auction"), line.int("bidder"), line.int("price"), line.int("dateTime"), line.text("extra"))
}

fn offer(line: &Line) -> Tup3<i64, i64, i64> {
    Tup3(line.int("auction"), line.int("bidder"), line.int("price"))
}

fn said(line: &Line) -> Tup5<i64, i64, i64, String, String> {
    Tup5(line.int("auction"), line.int("bidder"), line.int("price"), line.text("channel"), line.text("url"))
}

/// Return the job of a query over the folder of the events; none if it is not written.
pub fn job(name: &str, folder: &Path) -> Option<Job> {
    let bids = Table(folder, "bid");
    let auctions = Table(folder, "auction");
    let people = Table(folder, "person");
    Some(match name {
        "q0" => one(bids.steps(bid), |bids| bids),
        "q1" => one(bids.steps(bid), |bids| {
            bids.map(|Tup5(auction, bidder, price, time, extra)| {
                Tup5(*auction, *bidder, euros(*price), *time, extra.clone())
            })
        }),
        "q2" => one(bids.steps(|line| Tup2(line.int("auction"), line.int("price"))), |bids| {
            bids.filter(|Tup2(auction, _)| auction % 3 == 0)
        }),
        "q3" => two(
            auctions.steps(|line| Tup3(line.int("id"), line.int("seller"), line.int("category"))),
            people.steps(|line| Tup4(line.int("id"), line.text("name"), line.text("city"), line.text("state"))),
            |auctions, people| {
                let people = people
                    .filter(|Tup4(_, _, _, state)| ["OR", "ID", "CA"].contains(&state.as_str()))
                    .map_index(|Tup4(id, name, city, state)| (*id, Tup3(name.clone(), city.clone(), state.clone())));
                auctions
                    .filter(|Tup3(_, _, category)| *category == 10)
                    .map_index(|Tup3(id, seller, _)| (*seller, *id))
                    .join(&people, |_, id, Tup3(name, city, state)| {
                        Tup4(name.clone(), city.clone(), state.clone(), *id)
                    })
            },
        ),
        "q4" => two(
            auctions
                .steps(|line| Tup4(line.int("id"), line.int("category"), line.int("dateTime"), line.int("expires"))),
            bids.steps(|line| Tup3(line.int("auction"), line.int("price"), line.int("dateTime"))),
            |auctions, bids| {
                let bids = bids.map_index(|Tup3(auction, price, time)| (*auction, Tup2(*price, *time)));
                auctions
                    .map_index(|Tup4(id, category, from, to)| (*id, Tup3(*category, *from, *to)))
                    .join_index(&bids, |id, Tup3(category, from, to), Tup2(price, time)| {
                        (from <= time && time <= to).then_some((Tup2(*id, *category), *price))
                    })
                    .aggregate(Max)
                    .map_index(|(Tup2(_, category), most)| (*category, *most))
                    .aggregate_linear(|most| Tup2(*most, 1))
                    .map(|(category, Tup2(sum, count))| Tup2(*category, mean(*sum, *count)))
            },
        ),
        "q5" => one(bids.steps(|line| Tup2(line.int("auction"), line.int("dateTime"))), |bids| {
            let counts = bids
                .flat_map_index(|Tup2(auction, time)| {
                    let (auction, last) = (*auction, start(*time, TWO_SECONDS));
                    (0..TEN_SECONDS / TWO_SECONDS).map(move |back| (Tup2(last - back * TWO_SECONDS, auction), ()))
                })
                .aggregate_linear(|()| 1_i64);
            let most = counts
                .map_index(|(Tup2(start, _), count)| (*start, *count))
                .aggregate(Max)
                .map_index(|(start, most)| (Tup2(*start, *most), ()));
            counts
                .map_index(|(Tup2(start, auction), count)| (Tup2(*start, *count), *auction))
                .join(&most, |Tup2(start, count), auction, ()| Tup3(*auction, *count, *start))
        }),
        "q7" => one(
            bids.steps(|line| Tup4(line.int("auction"), line.int("price"), line.int("bidder"), line.int("dateTime"))),
            |bids| {
                let most = bids
                    .map_index(|Tup4(_, price, _, time)| (start(*time, TEN_SECONDS), *price))
                    .aggregate(Max)
                    .map_index(|(start, most)| (Tup2(*start, *most), ()));
                bids.map_index(|row| (Tup2(start(row.3, TEN_SECONDS), row.1), row.clone()))
                    .join(&most, |_, row, ()| row.clone())
            },
        ),
        "q8" => two(
            people.steps(|line| Tup3(line.int("id"), line.text("name"), start(line.int("dateTime"), TEN_SECONDS))),
            auctions.steps(|line| Tup2(line.int("seller"), start(line.int("dateTime"), TEN_SECONDS))),
            |people, auctions| {
                let sellers = auctions.distinct().map_index(|row| (row.clone(), ()));
                people
                    .distinct()
                    .map_index(|Tup3(id, name, start)| (Tup2(*id, *start), name.clone()))
                    .join(&sellers, |Tup2(id, start), name, ()| Tup3(*id, name.clone(), *start))
            },
        ),
        "q9" => two(
            auctions.steps(|line| {
                let times = Tup2(line.int("dateTime"), line.int("expires"));
                Tup4(line.int("id"), line.text("itemName"), line.int("seller"), times)
            }),
            bids.steps(|line| Tup4(line.int("auction"), line.int("bidder"), line.int("price"), line.int("dateTime"))),
            |auctions, bids| {
                let bids =
                    bids.map_index(|Tup4(auction, bidder, price, time)| (*auction, Tup3(-price, *time, *bidder)));
                auctions
                    .map_index(|Tup4(id, item, seller, times)| (*id, Tup3(item.clone(), *seller, times.clone())))
                    .join_index(&bids, |id, Tup3(item, seller, Tup2(from, to)), bid| {
                        (from <= &bid.1 && &bid.1 <= to).then(|| (Tup3(*id, item.clone(), *seller), bid.clone()))
                    })
                    .topk_asc(1)
                    .map(|(Tup3(id, item, seller), Tup3(less, time, bidder))| {
                        Tup7(*id, item.clone(), *seller, *id, *bidder, -less, *time)
                    })
            },
        ),
        "q10" => one(bids.steps(bid), |bids| {
            bids.map(|Tup5(auction, bidder, price, time, extra)| {
                Tup7(*auction, *bidder, *price, *time, extra.clone(), day(*time), minute(*time))
            })
        }),
        "q13" => one(bids.steps(offer), |bids| {
            bids.map(|Tup3(auction, bidder, price)| Tup4(*auction, *bidder, *price, format!("value {}", auction % 20)))
        }),
        "q14" => one(bids.steps(bid), |bids| {
            bids.filter(|bid| (1_000_001..50_000_000_000).contains(&(908 * bid.2))).map(
                |Tup5(auction, bidder, price, time, extra)| {
                    let kind = match time % DAY / (60 * MINUTE) {
                        8..=18 => "dayTime",
                        0..=6 | 20.. => "nightTime",
                        _ => "otherTime",
                    };
                    let letters = extra.chars().filter(|letter| *letter == 'c').count() as i64;
                    Tup5(*auction, *bidder, euros(*price), kind.to_string(), letters)
                },
            )
        }),
        "q15" => one(
            bids.steps(|line| Tup4(line.int("auction"), line.int("bidder"), line.int("price"), line.int("dateTime"))),
            |bids| {
                let days = bids.map(|Tup4(auction, bidder, price, time)| {
                    Tup4(day(*time), *auction, *bidder, i64::from(*price < 10_000))
                });
                let counts = days.map_index(|row| (row.0.clone(), row.3)).aggregate_linear(|low| Tup2(1, *low));
                let bidders = counted(days.map_index(|row| (Tup2(row.0.clone(), row.2), row.3)));
                let auctions = counted(days.map_index(|row| (Tup2(row.0.clone(), row.1), 0)));
                counts
                    .join_index(&bidders, |day, Tup2(all, low), Tup2(bidders, low_bidders)| {
                        Some((day.clone(), Tup4(*all, *low, *bidders, *low_bidders)))
                    })
                    .join(&auctions, |day, Tup4(all, low, bidders, low_bidders), Tup2(auctions, _)| {
                        Tup6(day.clone(), *all, *low, *bidders, *low_bidders, *auctions)
                    })
            },
        ),
        "q16" => one(
            bids.steps(|line| {
                Tup5(
                    line.text("channel"),
                    line.int("auction"),
                    line.int("bidder"),
                    line.int("price"),
                    line.int("dateTime"),
                )
            }),
            |bids| {
                let rows = bids.map_index(|Tup5(channel, auction, bidder, price, time)| {
                    let high = i64::from(*price >= 10_000);
                    (Tup2(channel.clone(), day(*time)), Tup4(*auction, *bidder, high, minute(*time)))
                });
                let counts = rows.aggregate_linear(|row| Tup2(1, row.2));
                let last = rows.map_index(|(key, row)| (key.clone(), row.3.clone())).aggregate(Max);
                let bidders = counted(rows.map_index(|(key, row)| (Tup2(key.clone(), row.1), 0)));
                let auctions = counted(rows.map_index(|(key, row)| (Tup2(key.clone(), row.0), row.2)));
                counts
                    .join_index(&last, |key, counts, minute| Some((key.clone(), Tup2(minute.clone(), counts.clone()))))
                    .join_index(&bidders, |key, before, Tup2(bidders, _)| {
                        Some((key.clone(), Tup2(before.clone(), *bidders)))
                    })
                    .join(
                        &auctions,
                        |Tup2(channel, day), Tup2(Tup2(minute, Tup2(all, high)), bidders), Tup2(_, auctions)| {
                            Tup7(channel.clone(), day.clone(), minute.clone(), *all, *high, *bidders, *auctions)
                        },
                    )
            },
        ),
        "q17" => one(bids.steps(|line| Tup3(line.int("auction"), line.int("price"), line.int("dateTime"))), |bids| {
            let prices = bids.map_index(|Tup3(auction, price, time)| (Tup2(*auction, day(*time)), *price));
            let sums = prices.aggregate_linear(|price| Tup3(1, i64::from(*price < 10_000), *price));
            let least = prices.aggregate(Min);
            let most = prices.aggregate(Max);
            least.join_index(&most, |key, least, most| Some((key.clone(), Tup2(*least, *most)))).join(
                &sums,
                |Tup2(auction, day), Tup2(least, most), Tup3(count, low, sum)| {
                    Tup8(*auction, day.clone(), *count, *low, *least, *most, mean(*sum, *count), *sum)
                },
            )
        }),
        "q18" => one(bids.steps(bid), |bids| {
            bids.map_index(|Tup5(auction, bidder, price, time, extra)| {
                (Tup2(*bidder, *auction), Tup3(*time, *price, extra.clone()))
            })
            .topk_desc(1)
            .map(|(Tup2(bidder, auction), Tup3(time, price, extra))| {
                Tup5(*auction, *bidder, *price, *time, extra.clone())
            })
        }),
        "q19" => one(
            bids.steps(|line| Tup4(line.int("auction"), line.int("bidder"), line.int("price"), line.int("dateTime"))),
            |bids| {
                bids.map_index(|Tup4(auction, bidder, price, time)| (*auction, Tup3(-price, *time, *bidder)))
                    .topk_row_number_custom_order::<Ascending, _, _>(10, |place, bid| Tup3(bid.2, -bid.0, place))
                    .map(|(auction, Tup3(bidder, price, place))| Tup4(*auction, *bidder, *price, *place))
            },
        ),
        "q20" => two(
            auctions
                .steps(|line| Tup4(line.int("id"), line.text("itemName"), line.int("seller"), line.int("category"))),
            bids.steps(offer),
            |auctions, bids| {
                let auctions = auctions
                    .filter(|row| row.3 == 10)
                    .map_index(|Tup4(id, item, seller, _)| (*id, Tup2(item.clone(), *seller)));
                bids.map_index(|Tup3(auction, bidder, price)| (*auction, Tup2(*bidder, *price)))
                    .join(&auctions, |id, Tup2(bidder, price), Tup2(item, seller)| {
                        Tup6(*id, *bidder, *price, item.clone(), *seller, 10)
                    })
            },
        ),
        "q21" => one(bids.steps(said), |bids| {
            bids.flat_map(|Tup5(auction, bidder, price, channel, url)| {
                channel_id(channel, url).map(|id| Tup5(*auction, *bidder, *price, channel.clone(), id))
            })
        }),
        "q22" => one(bids.steps(said), |bids| {
            bids.map(|Tup5(auction, bidder, price, channel, url)| {
                let part = |number| url.split('/').nth(number).unwrap_or("").to_string();
                Tup6(*auction, *bidder, *price, channel.clone(), part(3), part(4))
            })
        }),
        _ => return None,
    })
}

/// A table's files, in a folder of its own.
struct Table<'a>(&'a Path, &'a str);

impl Table<'_> {
    fn steps<R>(&self, make: fn(&Line) -> R) -> Steps<R> {
        read(&files(self.0, self.1), make)
    }
}

/// Return the files of a table, one a step.
pub fn files(folder: &Path, table: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join(format!("{table}.tsv"))).expect("a folder of a table");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// Return for each key how many different values it has, and how many that are marked at least once.
fn counted<K>(marked: Keyed<Tup2<K, i64>, i64>) -> Keyed<K, Tup2<i64, i64>>
where
    K: dbsp::DBData,
    <K as dbsp::storage::file::Deserializable>::ArchivedDeser: Ord,
    <Tup2<K, i64> as dbsp::storage::file::Deserializable>::ArchivedDeser: Ord,
{
    marked
        .aggregate_linear(|mark| Tup2(1_i64, *mark))
        .map_index(|(Tup2(key, _), Tup2(_, marks))| (key.clone(), i64::from(*marks > 0)))
        .aggregate_linear(|mark| Tup2(1_i64, *mark))
}

fn euros(price: i64) -> F64 {
    F64::new((908 * price) as f64 / 1000.0)
}

fn mean(sum: i64, count: i64) -> F64 {
    F64::new(sum as f64 / count as f64)
}

fn start(time: i64, length: i64) -> i64 {
    time - time.rem_euclid(length)
}

fn minute(time: i64) -> String {
    let minutes = time % DAY / MINUTE;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Return the day as text: years are counted from March, so that a leap day is the last of its year.
fn day(time: i64) -> String {
    let days = time / DAY + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + i64::from(month <= 2))
}

fn channel_id(channel: &str, url: &str) -> Option<String> {
    let known = ["apple", "google", "facebook", "baidu"];
    if let Some(number) = known.iter().position(|each| channel.eq_ignore_ascii_case(each)) {
        return Some(number.to_string());
    }
    let id = url.split('&').find_map(|part| part.strip_prefix("channel_id="))?;
    (!id.is_empty()).then(|| id.to_string())
}

/// Return the job of `view_top`: the top 3 of each group, over files of changes.
pub fn top(files: &[PathBuf]) -> Job {
    one(read(files, |line| Tup2(line.int("k"), line.double("v"))), |rows: Rows<Tup2<i64, F64>>| {
        rows.map_index(|Tup2(group, score)| (*group, -*score))
            .topk_row_number_custom_order::<Ascending, _, _>(3, |place, less: &F64| Tup2(-*less, place))
            .map(|(group, Tup2(score, place))| Tup3(*group, *score, *place))
    })
}
