-- Views over flights, planes, weather, airlines and airports; `views.py` says where these come from and go to.

CREATE VIEW arrivals AS
SELECT f.origin, f.dest, f.carrier, f.arr_delay, p.manufacturer, p.seats, w.visib
FROM flights f
JOIN planes p ON f.tailnum = p.tailnum
LEFT JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
WHERE f.arr_delay IS NOT NULL;

CREATE VIEW punctuality AS
SELECT l.name, count(*) AS flights, sum(a.seats) AS seats, avg(a.arr_delay) AS delay
FROM arrivals a JOIN airlines l ON a.carrier = l.carrier
GROUP BY l.name;

CREATE VIEW routes AS
SELECT a.origin, d.name AS airport, count(*) AS flights, avg(a.arr_delay) AS delay, max(a.arr_delay) AS worst,
       count(DISTINCT a.manufacturer) AS manufacturers
FROM arrivals a JOIN airports d ON a.dest = d.faa
GROUP BY a.origin, d.name;

CREATE VIEW ranking AS
SELECT origin, airport, delay, place
FROM (SELECT *, row_number() OVER (PARTITION BY origin ORDER BY delay DESC, airport) AS place
      FROM routes WHERE flights >= 10)
WHERE place <= 3;

CREATE VIEW fog AS
SELECT origin, count_if(visib < 2) AS in_fog, avg(arr_delay) FILTER (WHERE visib < 2) AS delay_in_fog,
       avg(arr_delay) FILTER (WHERE visib >= 2) AS delay_otherwise
FROM arrivals
GROUP BY origin;

CREATE VIEW unseen AS
SELECT p.tailnum, p.manufacturer
FROM planes p LEFT ANTI JOIN flights f ON p.tailnum = f.tailnum
GROUP BY p.tailnum, p.manufacturer;
