"""Fills the tables of analytics events as the server writes them: single events of 30 days, their rollups and totals. Nine of
ten events are verifications, the others are checks of the standalone limiter."""

import datetime, hashlib, json, time

from tables import NOW_MS, WORKSPACE, api_of_key, digest

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
DAYS = 30
END = NOW_MS // MINUTE * MINUTE
BEGINNING = END - DAYS * DAY
FIRST_BATCH = 1_000
IDENTIFIERS = 1_000
CHUNK = 1_000_000
# The most active of the active keys has about one of so many times the requests of the average one: see `pick`.
PRIME = 1_000_003

BUCKETS = [(0, 100, "100us"), (100, 500, "500us"), (500, 1_000, "1ms"), (1_000, 5_000, "5ms"), (5_000, 25_000, "25ms"), (25_000, 100_000, "100ms")]
LATENCIES = ", ".join(f"latency_le_{name}" for _, _, name in BUCKETS)
COUNT_LATENCIES = ", ".join(
    f"SUM(CASE WHEN latency_us > {low if low else -1} AND latency_us <= {high} THEN 1 ELSE 0 END)" for low, high, _ in BUCKETS
)
SUM_LATENCIES = ", ".join(f"SUM(latency_le_{name})" for _, _, name in BUCKETS)


def fill(database, apis, namespace, keys, active_keys, events):
    step = lambda name, *statements: run(database, name, statements)
    checks = events // 10
    create_partitions(database)
    database.execute([f"DELETE FROM {table}" for table in TABLES], FILE)
    database.execute(["CREATE TABLE filling (kind INTEGER NOT NULL, number INTEGER NOT NULL, id %s NOT NULL, PRIMARY KEY (kind, number))" % bytes_type(database)], FILE)
    fill_series(database, apis, namespace, keys, active_keys)
    step("batches", insert_batches(database))
    for kind, count, insert in [("verifications", events - checks, insert_verifications), ("ratelimits", checks, insert_ratelimits)]:
        for first in range(0, count, CHUNK):
            numbers = number_rows(database, first, min(first + CHUNK, count) - 1)
            step(f"{kind} from {first}", insert(numbers, count, active_keys))
    amounts = [
        ("verifications", "spent_credits", "verification_totals", "api_id", "outcome"),
        ("ratelimits", "tokens", "ratelimit_totals", "namespace_id", "passed"),
    ]
    for kind, amount, totals, resource, outcome in amounts:
        # Rollups of checks are retained for seven days by the minute.
        since = BEGINNING if kind == "verifications" else END - 7 * DAY
        step(f"{kind} by minute", insert_minutes(database, kind, amount, since))
        step(f"{kind} by hour", insert_hours(database, kind, amount))
        for unit, of in [("day", "hour"), ("month", "day")]:
            step(f"{kind} by {unit}", insert_rollups(database, kind, amount, unit, of))
        series = "verification_series" if kind == "verifications" else "ratelimit_series"
        step(totals, *insert_totals(kind, series, amount, totals, resource, outcome, since))
        step(f"latencies of {kind}", *insert_latencies(database, kind, totals, resource))
    step("statistics", "DROP TABLE filling")
    if database.url:
        step("vacuum", "VACUUM ANALYZE")


FILE = "keyward-events.db"
UNITS = ["minute", "hour", "day", "month"]
TABLES = [
    "batches",
    "latencies",
    *[f"{kind}{of}" for kind in ["verifications", "ratelimits"] for of in ["", *[f"_per_{unit}" for unit in UNITS]]],
    *[f"{kind}_{of}" for kind in ["verification", "ratelimit"] for of in ["series", "totals"]],
]


def run(database, name, statements):
    began = time.monotonic()
    database.execute(statements, FILE)
    print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


def bytes_type(database):
    return "BYTEA" if database.url else "BLOB"


def number_rows(database, first, last):
    """A table of numbers `n`."""
    if database.url:
        return f"generate_series(CAST({first} AS BIGINT), {last}) t(n)"
    return f"(WITH RECURSIVE t(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM t WHERE n < {last}) SELECT n FROM t)"


def create_partitions(database):
    """Creates the partitions of Postgres that the server would have created from day to day."""
    if not database.url:
        return
    statements = []
    for table, days in [("verifications", 1), ("verifications_per_minute", 1), ("verifications_per_hour", 30),
                        ("ratelimits", 1), ("ratelimits_per_minute", 1), ("ratelimits_per_hour", 30)]:
        span = days * DAY
        for start in range(BEGINNING // span * span, END, span):
            name = datetime.datetime.fromtimestamp(start / 1000, datetime.timezone.utc).strftime("%Y%m%d")
            statements.append(
                f"CREATE TABLE IF NOT EXISTS {table}_p{name} PARTITION OF {table} FOR VALUES FROM ({start}) TO ({start + span})"
            )
    database.execute(statements)


def fill_series(database, apis, namespace, keys, active_keys):
    """The series of each active key (two outcomes), one of an outcome that occurs once an hour, and those of identifiers."""
    schema = "keyward_events." if database.url else ""
    today = END // DAY * DAY
    identify = lambda text: hashlib.sha256(text.encode()).digest()[:16]
    verifications, checks = [], []
    for number in range(2 * active_keys + 1):
        is_rare = number == 2 * active_keys
        key = keys if is_rare else keys - number // 2
        outcome = "EXPIRED" if is_rare else ("VALID", "RATE_LIMITED")[number % 2]
        verifications.append((
            identify(f"v{number}"), WORKSPACE, api_of_key(apis, key), f"key_{digest('k', key)}", f"id_{digest('i', key)}",
            f"user_{key}", outcome, '["plan=free"]' if number % 20 < 2 else "[]", today,
        ))
    for number in range(2 * IDENTIFIERS):
        checks.append((identify(f"r{number}"), WORKSPACE, namespace, f"user_{number // 2}", number % 2, today))
    columns = "id, workspace_id, api_id, key_id, identity_id, external_id, outcome, tags, seen_at"
    database.copy(f"{schema}verification_series", columns, verifications, FILE)
    columns = "id, workspace_id, namespace_id, identifier, passed, seen_at"
    database.copy(f"{schema}ratelimit_series", columns, checks, FILE)
    numbered = [(0, number, row[0]) for number, row in enumerate(verifications)]
    numbered += [(1, number, row[0]) for number, row in enumerate(checks)]
    database.copy(f"{schema}filling", "kind, number, id", numbered, FILE)


def insert_batches(database):
    """Batches are deleted after a day; the events keep their numbers."""
    first = (DAYS - 1) * DAY // MINUTE
    value = "FALSE, TRUE" if database.url else "0, 1"
    is_summed = value.split(", ")[1]
    override = "OVERRIDING SYSTEM VALUE" if database.url else ""
    last = DAYS * DAY // MINUTE - 1
    insert = f"""INSERT INTO batches (id, name, region, written_at, first_at, last_at, summed) {override}
        SELECT {FIRST_BATCH} + n, 'filled ' || n, 'local', {BEGINNING} + (n + 1) * {MINUTE}, {BEGINNING} + n * {MINUTE},
            {BEGINNING} + (n + 1) * {MINUTE} - 1, {is_summed}
        FROM {number_rows(database, first, last)}"""
    if database.url:
        return f"WITH inserted AS ({insert} RETURNING id) SELECT setval(pg_get_serial_sequence('batches', 'id'), {FIRST_BATCH + last}) FROM inserted LIMIT 1"
    return insert


def pick(count):
    """The number of an item of `count`, in no order: the first tenth has half of the picks."""
    x = f"((n * 7919) % {PRIME})"
    return f"({count} * ({x} * {x} / {PRIME}) / {PRIME} * {x} / {PRIME})"


def insert_verifications(numbers, count, active_keys):
    """One event of each hour has the rare outcome, and one of ten the second one."""
    hourly = max(1, count // (DAYS * 24))
    series = f"CASE WHEN n % {hourly} = {hourly // 2} THEN {2 * active_keys} ELSE 2 * {pick(active_keys)} + (n % 10) / 9 END"
    at = f"({BEGINNING} + n * {DAYS * DAY} / {count})"
    return f"""INSERT INTO verifications (time, series, batch, request_id, spent_credits, latency_us, region, reason)
        SELECT e.at, f.id, {FIRST_BATCH} + (e.at - {BEGINNING}) / {MINUTE}, 'req_' || substr(CAST(1000000000000000000 + e.n AS TEXT), 1, 19) || 'abc',
            CASE WHEN e.n % 7 = 0 THEN 1 ELSE 0 END, 60 + e.n % 3000, 'local', ''
        FROM (SELECT n, {at} AS at, {series} AS series FROM {numbers}) e JOIN filling f ON f.kind = 0 AND f.number = e.series
        ORDER BY e.n"""


def insert_ratelimits(numbers, count, active_keys):
    at = f"({BEGINNING} + n * {DAYS * DAY} / {count})"
    return f"""INSERT INTO ratelimits (time, series, batch, request_id, latency_us, override_id, max, remaining, reset_at, tokens)
        SELECT e.at, f.id, {FIRST_BATCH} + (e.at - {BEGINNING}) / {MINUTE}, 'req_' || substr(CAST(2000000000000000000 + e.n AS TEXT), 1, 19) || 'abc',
            60 + e.n % 3000, '', 100, 50, e.at + 60000, 1
        FROM (SELECT n, {at} AS at, 2 * {pick(IDENTIFIERS)} + 1 - (n % 10) / 9 AS series FROM {numbers}) e
            JOIN filling f ON f.kind = 1 AND f.number = e.series
        ORDER BY e.n"""


# The number of buckets in the histogram of a series.
SERIES_BUCKETS = {"minute": 2, "hour": 8, "day": 32, "month": 68}


def series_histogram(database, kind, unit):
    """The column with the histogram of rollups, and its value. Checks have none."""
    if kind != "verifications":
        return "", ""
    histogram = json.dumps({str(bucket): 7 for bucket in range(48, 48 + SERIES_BUCKETS[unit])})
    return ", histogram", f", CAST('{histogram}' AS {'JSONB' if database.url else 'TEXT'})"


def insert_minutes(database, kind, amount, since):
    column, histogram = series_histogram(database, kind, "minute")
    return f"""INSERT INTO {kind}_per_minute (series, time, count, {amount}, latency_us, {LATENCIES}{column})
        SELECT series, time - time % {MINUTE}, COUNT(*), SUM({amount}), SUM(latency_us), {COUNT_LATENCIES}{histogram}
        FROM {kind} WHERE time >= {since} GROUP BY 1, 2 ORDER BY 2, 1"""


def insert_hours(database, kind, amount):
    column, histogram = series_histogram(database, kind, "hour")
    return f"""INSERT INTO {kind}_per_hour (series, time, count, {amount}, latency_us, {LATENCIES}{column})
        SELECT series, time - time % {HOUR}, COUNT(*), SUM({amount}), SUM(latency_us), {COUNT_LATENCIES}{histogram}
        FROM {kind} GROUP BY 1, 2 ORDER BY 2, 1"""


def unit_start(unit):
    if unit == "month":
        months = sorted({month_of(at) for at in range(BEGINNING, END + 1, DAY)}, reverse=True)
        cases = " ".join(f"WHEN time >= {month} THEN {month}" for month in months)
        return f"CAST(CASE {cases} END AS BIGINT)"
    length = {"minute": MINUTE, "hour": HOUR, "day": DAY}[unit]
    return f"time - time % {length}"


def month_of(at):
    day = datetime.datetime.fromtimestamp(at / 1000, datetime.timezone.utc).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(day.timestamp() * 1000)


def insert_rollups(database, kind, amount, unit, of):
    column, histogram = series_histogram(database, kind, unit)
    return f"""INSERT INTO {kind}_per_{unit} (series, time, count, {amount}, latency_us, {LATENCIES}{column})
        SELECT series, {unit_start(unit)}, SUM(count), SUM({amount}), SUM(latency_us), {SUM_LATENCIES}{histogram}
        FROM {kind}_per_{of} GROUP BY 1, 2 ORDER BY 2, 1"""


def insert_latencies(database, kind, totals, resource):
    """As many buckets as the latencies of a service have: those from 60 µs to 20 ms, equally full."""
    histogram = json.dumps({str(bucket): 7 for bucket in range(48, 116)})
    histogram = f"CAST('{histogram}' AS {'JSONB' if database.url else 'TEXT'})"
    for of in [resource, "'*'"]:
        yield f"""INSERT INTO latencies (kind, workspace_id, resource_id, unit, time, histogram)
            SELECT DISTINCT '{kind}', workspace_id, {of}, unit, time, {histogram} FROM {totals}"""


def insert_totals(kind, series, amount, totals, resource, outcome, since):
    columns = f"workspace_id, {resource}, unit, time, {outcome}, count, {amount}, latency_us, {LATENCIES}"
    for unit, of, start in [("minute", "minute", since), ("hour", "hour", BEGINNING)]:
        yield f"""INSERT INTO {totals} ({columns})
            SELECT s.workspace_id, s.{resource}, '{unit}', e.time, s.{outcome}, SUM(count), SUM({amount}), SUM(latency_us), {SUM_LATENCIES}
            FROM {kind}_per_{of} e JOIN {series} s ON s.id = e.series WHERE e.time >= {start} GROUP BY 1, 2, 4, 5"""
    for unit, of in [("day", "hour"), ("month", "day")]:
        yield f"""INSERT INTO {totals} ({columns})
            SELECT workspace_id, {resource}, '{unit}', {unit_start(unit)}, {outcome}, SUM(count), SUM({amount}), SUM(latency_us), {SUM_LATENCIES}
            FROM {totals} WHERE unit = '{of}' GROUP BY 1, 2, 4, 5"""
