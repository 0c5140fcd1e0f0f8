"""Views: queries that are kept up to date (docs/views.md).

Catalyst's optimised plan is cut into stages. A stage is a node whose change depends on rows of earlier steps; the plan
between stages is applied to changes as it is. One job may run several stages (`boatlift plan` shows the jobs):

    SELECT o.k, sum(i.v) AS s FROM orders o JOIN items i ON o.id = i.id WHERE o.v > 0 GROUP BY o.k
    → 1. INNER JOIN on o.id (stage 0: keeps both inputs by key), then GROUP BY o.k (stage 1: keeps exact sums by key),
      then emit the change

    SELECT * FROM orders ORDER BY v, id, k LIMIT 1
    → 1. ORDER BY … LIMIT (keeps its input in order)
      2. emit the change

    SELECT k, v FROM orders WHERE v > (SELECT avg(v) FROM orders)
    → 1. GROUP BY nothing (stage 0: keeps exact sums by key), then a scalar subquery (stage 1: recomputes changed keys:
      keeps its inputs by key)
      2. emit the change

| read | for |
| --- | --- |
| `query`, `flows` | the cuts: stages, and the linear plan between them |
| `normal_form`, `catalyst_plan` | the plan before the cuts, and access to Catalyst's nodes |
| `joins`, `aggregates`, `loop_making` | the form of a stage |
| `bounds`, `shifted`, `unique_keys` | facts about columns: watermarks and expiry, keys |
| `never_fails`, `failing_keys` | expressions that cannot fail; where those that may are not computed |
| `deterministic`, `same_ids` | the same query and plan each time |
| `job_making`, `view_job` | stages become the nodes of jobs |
| `realise`, `template` | the frames of a step, which Spark computes |
"""
