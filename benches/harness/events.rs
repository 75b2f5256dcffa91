//! Measures ten million events over a month: how fast they are written and rolled up, their size on disk, and how long
//! the chart of a month takes for each API. The server runs in this process, because its clock is set.
#![expect(clippy::print_stdout, reason = "the report is what the benchmark is run for")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use analytics::{clickhouse_delivery, writer};
use axum::body::Body;
use axum::http::Request;
use domain::app::App;
use domain::root_keys;
use foundation::clock::{Clock, Monotonic, Timestamp};
use foundation::config::{Config, Deployment, Settings};
use foundation::secret::Plaintext;
use http_body_util::BodyExt as _;
use keyward::background;
use keyward::http::HttpService;
use serde_json::{Value, json};
use url::Url;

use super::Outcome;
use super::cases::Place;
use super::machine::Cores;
use super::servers::{Lab, ROOT_KEY};

const EVENTS: usize = 10_000_000;
const APIS: usize = 20;
const KEYS: usize = 50;
const HOURS: usize = 30 * 24;
const HOUR_MS: i64 = 3_600_000;
/// Midnight on the first of a month.
const BEGINNING: Timestamp = Timestamp(1_772_323_200_000);

pub fn run(cores: Cores) -> Outcome<()> {
    let lab = Lab::build(cores, true, true)?;
    println!("\n{EVENTS} verifications over 30 days, by {} keys of {APIS} APIs\n", APIS * KEYS);
    let clickhouse = std::env::var("KEYWARD_TEST_CLICKHOUSE_URL").ok();
    let clickhouse = clickhouse.map(|url| url.parse::<Url>()).transpose();
    let clickhouse = clickhouse.map_err(|e| format!("KEYWARD_TEST_CLICKHOUSE_URL: {e}"))?;
    let mut setups = vec![(Place::Embedded, None), (Place::Replica, None)];
    match clickhouse {
        Some(mut url) => {
            url.set_path("keyward_bench");
            setups.push((Place::Embedded, Some(url)));
        }
        None => println!("KEYWARD_TEST_CLICKHOUSE_URL is not set: ./test bench sets it\n"),
    }
    let wanted = std::env::args().skip_while(|argument| argument != "--events").nth(1);
    for (place, clickhouse) in setups {
        let name = if clickhouse.is_some() { "clickhouse" } else { place.name() };
        if !name.contains(wanted.as_deref().filter(|wanted| *wanted != "--bench").unwrap_or("")) {
            continue;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        runtime.block_on(measure(&lab, place, name, clickhouse))?;
    }
    Ok(())
}

struct Server {
    app: Arc<App>,
    clock: Clock,
    paths: HttpService,
    _tasks: tokio::task::JoinSet<()>,
}

impl Server {
    async fn start(settings: Settings) -> Outcome<Self> {
        let fault = |e: foundation::error::Error| e.to_string();
        let clock = Clock::fixed_at(BEGINNING);
        let store = domain::context::Context::open_store(&settings).await.map_err(fault)?;
        store.migrate().await.map_err(|e| e.to_string())?;
        let (app, announcements) = App::new(settings, clock.clone()).map_err(fault)?;
        let app = Arc::new(app);
        let secret = Plaintext::from(ROOT_KEY.to_owned());
        root_keys::bootstrap(&app.context, &store, Some(&secret)).await.map_err(fault)?;
        app.context.store.set(store);
        app.context.freshness.record_database_reply(Monotonic::now());
        app.analytics.event_store().migrate().await.map_err(|e| e.to_string())?;
        let tasks = background::start(&app, announcements);
        Ok(Self { paths: HttpService::new(app.clone()), app, clock, _tasks: tasks })
    }

    async fn send(&self, request: Request<Body>) -> Outcome<Value> {
        let response = self.paths.answer(request).await;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        if !status.is_success() {
            return Err(format!("an answer of {status}: {text}"));
        }
        serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))
    }

    async fn post(&self, operation: &str, body: &Value) -> Outcome<Value> {
        let request = Request::post(format!("/v2/{operation}"))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {ROOT_KEY}"))
            .body(Body::from(body.to_string()))
            .map_err(|e| e.to_string())?;
        Ok(self.send(request).await?["data"].clone())
    }

    /// Creates the APIs and their keys. Returns the ids of the APIs, and the verification request of each key.
    async fn issue(&self) -> Outcome<(Vec<String>, Vec<Value>)> {
        let (mut apis, mut keys) = (Vec::new(), Vec::new());
        for number in 0..APIS {
            let name = json!({ "name": format!("API {number}") });
            let made = self.post("apis.createApi", &name).await?;
            let api = made["apiId"].as_str().unwrap_or_default().to_owned();
            for _ in 0..KEYS {
                let made = self.post("keys.createKey", &json!({ "apiId": api })).await?;
                keys.push(json!({ "key": made["key"] }));
            }
            apis.push(api);
        }
        Ok((apis, keys))
    }

    async fn chart(&self, api: &str) -> Outcome<Value> {
        let end = BEGINNING.plus_ms(30 * 24 * HOUR_MS - 1).0;
        let path = format!(
            "/v1/analytics.getVerifications?apiId={api}&start={}&end={end}&groupBy=day",
            BEGINNING.0
        );
        let request = Request::get(path)
            .header("authorization", format!("Bearer {ROOT_KEY}"))
            .body(Body::empty())
            .map_err(|e| e.to_string())?;
        self.send(request).await
    }
}

/// Without ClickHouse, written events are then rolled up; with ClickHouse, they are then delivered.
async fn measure(lab: &Lab, place: Place, name: &str, clickhouse: Option<Url>) -> Outcome<()> {
    let folder = lab.folder.path().join(format!("events-{name}"));
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let mut settings = Config::default().validate().map_err(|e| format!("{e:?}"))?;
    settings.events_waiting_max = EVENTS / HOURS + 1;
    settings.deployment = match (place, &lab.postgres, &lab.redis) {
        (Place::Replica, Some(postgres), Some(redis)) => {
            Deployment::Replica { database_url: postgres.url.clone(), redis_url: redis.url.clone() }
        }
        _ => Deployment::Embedded { data_dir: folder.clone() },
    };
    settings.clickhouse_url = clickhouse;
    let server = Server::start(settings).await?;
    clickhouse_delivery::deliver(&server.app.analytics).await.map_err(|e| e.to_string())?;
    let (apis, keys) = server.issue().await?;
    let (mut writing, mut summing, mut done) = (Duration::ZERO, Duration::ZERO, 0);
    for hour in 1..=HOURS {
        while done < EVENTS * hour / HOURS {
            // This step visits all keys, in another order.
            server.post("keys.verifyKey", &keys[done * 617 % keys.len()]).await?;
            done += 1;
        }
        let began = Instant::now();
        let written =
            writer::write_buffered(&server.app.analytics).await.map_err(|e| e.to_string())?;
        writing += began.elapsed();
        if written == 0 {
            return Err("nothing was written".into());
        }
        let began = Instant::now();
        writer::roll_up(&server.app.analytics).await.map_err(|e| e.to_string())?;
        clickhouse_delivery::deliver(&server.app.analytics).await.map_err(|e| e.to_string())?;
        summing += began.elapsed();
        server.clock.advance_ms(HOUR_MS);
        if hour % 24 == 0 {
            writer::maintain_partitions(&server.app.analytics).await.map_err(|e| e.to_string())?;
            eprintln!("{name}: day {} of 30", hour / 24);
        }
    }
    let mut took = Vec::new();
    let mut told = 0;
    for api in &apis {
        let began = Instant::now();
        let chart = server.chart(api).await?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
        let days = chart.as_array().ok_or("a chart is a list")?;
        told += days.iter().filter_map(|day| day["total"].as_u64()).sum::<u64>();
    }
    if told != EVENTS as u64 {
        return Err(format!("the charts tell {told} of {EVENTS} verifications"));
    }
    took.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "ten million is exact")]
    let rate = |time: Duration| EVENTS as f64 / time.as_secs_f64();
    println!(
        "{name}: written {:.0} events/s, summed up or delivered {:.0} events/s; a month's chart of an API: median {:.1} ms, most {:.1} ms{}",
        rate(writing),
        rate(summing),
        took[took.len() / 2],
        took[took.len() - 1],
        size(&folder),
    );
    Ok(())
}

/// Returns the size on disk of an embedded server's events.
fn size(folder: &Path) -> String {
    let bytes: u64 = ["keyward-events.db", "keyward-events.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(folder.join(name)).ok())
        .map(|file| file.len())
        .sum();
    if bytes == 0 { String::new() } else { format!("; {} MiB on disk", bytes >> 20) }
}
