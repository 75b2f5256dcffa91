//! Measures lists of a million rows: how long a page takes, and the query plan. The plans are those of the actual
//! statements of the server, as Postgres logs them.
#![expect(clippy::print_stdout, reason = "the report is what the benchmark is run for")]

use super::Outcome;
use super::cases::Place;
use super::client::{Client, make_api};
use super::machine::Cores;
use super::servers::{Lab, postgres_programs};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const PAGES: usize = 20;
const ROWS: u32 = 1_000_000;

/// A list request of a client.
struct List {
    name: &'static str,
    operation: &'static str,
    request: Value,
    /// The table that the printed plan reads.
    table: &'static str,
}

pub fn run(cores: Cores) -> Outcome<()> {
    let lab = Lab::build(cores, true, true)?;
    let log = lab.folder.path().join("postgres.log");
    let api = {
        let server = lab.start(Place::Replica)?;
        make_api(server.address)?
    };
    eprintln!("filling {ROWS} rows of each kind");
    fill(&lab, &api)?;
    // Sessions that begin from now on log their query plans.
    let explain = [
        "LOAD 'auto_explain'",
        "ALTER SYSTEM SET session_preload_libraries = 'auto_explain'",
        "ALTER SYSTEM SET auto_explain.log_min_duration = 0",
        "ALTER SYSTEM SET auto_explain.log_analyze = on",
        "ALTER SYSTEM SET auto_explain.log_timing = off",
        "SELECT pg_reload_conf()",
    ];
    sql(&lab, &explain)?;
    let server = lab.start(Place::Replica)?;
    let mut client = Client::connect(server.address).map_err(|e| format!("no connection: {e}"))?;

    println!("\nA page of 100 of {ROWS} rows, median of {PAGES}, and how Postgres finds it\n");
    for list in lists(&api) {
        let mut took = Vec::with_capacity(PAGES);
        let before = fs::read_to_string(&log).map_or(0, |text| text.len());
        for _ in 0..PAGES {
            let began = Instant::now();
            let path = format!("/v2/{}", list.operation);
            let (status, answer) = client
                .post(&path, &list.request.to_string())
                .map_err(|e| format!("{}: no answer: {e}", list.name))?;
            took.push(began.elapsed().as_secs_f64() * 1e3);
            if status != 200 || answer["data"].as_array().is_none_or(Vec::is_empty) {
                return Err(format!("{} answered {status}: {answer}", list.name));
            }
        }
        took.sort_by(f64::total_cmp);
        println!("{}: {:.1} ms", list.name, took[PAGES / 2]);
        let text = fs::read_to_string(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let plans = text.get(before..).unwrap_or_default();
        for line in plan(plans, list.table) {
            println!("    {line}");
        }
        println!();
    }
    Ok(())
}

fn lists(api: &str) -> Vec<List> {
    let keys = |name, fields: Value| {
        let mut request = json!({ "apiId": api });
        request
            .as_object_mut()
            .expect("an object")
            .extend(fields.as_object().cloned().into_iter().flatten());
        List { name, operation: "apis.listKeys", request, table: "keys k" }
    };
    let of = |name, operation, request, table| List { name, operation, request, table };
    vec![
        keys("keys of an API, first page", json!({})),
        keys("keys of an API, in the middle", json!({ "cursor": "key_8" })),
        keys("keys of one user", json!({ "externalId": "user_500000" })),
        of("identities", "identities.listIdentities", json!({}), "identities i"),
        of(
            "identities, in the middle",
            "identities.listIdentities",
            json!({ "cursor": "id_8" }),
            "identities i",
        ),
        of(
            "identities, a search",
            "identities.listIdentities",
            json!({ "search": "USER_50000" }),
            "identities i",
        ),
        of(
            "permissions",
            "permissions.listPermissions",
            json!({ "cursor": "perm_8" }),
            "permissions",
        ),
        of("roles", "permissions.listRoles", json!({ "cursor": "role_8" }), "roles r"),
    ]
}

/// Inserts rows with ids that are as scattered as those that the server generates.
fn fill(lab: &Lab, api: &str) -> Outcome<()> {
    let rows = format!("generate_series(1, {ROWS}) n");
    for statement in [
        format!("INSERT INTO identities (id, workspace_id, external_id, search, created_at)
            SELECT 'id_' || md5('i' || n), 'ws_default', 'user_' || n, 'id_' || md5('i' || n) || E'\\n' || 'user_' || n, n FROM {rows}"),
        format!("INSERT INTO keys (id, workspace_id, api_id, hash, start, byte_length, identity_id, enabled, created_at)
            SELECT 'key_' || md5('k' || n), 'ws_default', '{api}', 'hash_' || n, '', 16, 'id_' || md5('i' || n), TRUE, n FROM {rows}"),
        format!("INSERT INTO permissions (id, workspace_id, slug, name, search, created_at)
            SELECT 'perm_' || md5('p' || n), 'ws_default', 'slug.' || n, 'name', 'slug.' || n, n FROM {rows}"),
        format!("INSERT INTO roles (id, workspace_id, name, search, created_at)
            SELECT 'role_' || md5('r' || n), 'ws_default', 'role ' || n, 'role ' || n, n FROM {rows}"),
        format!("INSERT INTO key_permissions (key_id, permission_id)
            SELECT 'key_' || md5('k' || n), 'perm_' || md5('p' || n) FROM {rows}"),
        "VACUUM ANALYZE".to_owned(),
    ] {
        sql(lab, &[&statement])?;
    }
    Ok(())
}

/// Runs statements in one session, each as a transaction.
fn sql(lab: &Lab, statements: &[&str]) -> Outcome<()> {
    let url = &lab.postgres.as_ref().ok_or("there is no Postgres")?.url;
    let program = postgres_programs()?.join("psql");
    let done = Command::new(&program)
        .args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1"])
        .args(statements.iter().flat_map(|statement| ["--command", statement]))
        .arg(url)
        .output()
        .map_err(|e| format!("{} did not start: {e}", Path::display(&program)))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("psql: {}", String::from_utf8_lossy(&done.stderr))),
    }
}

/// Returns the last plan in a part of the log whose statement reads the table.
fn plan<'a>(log: &'a str, table: &str) -> Vec<&'a str> {
    let reads = format!("FROM {table}");
    let plans = log.split("LOG:  duration:").filter(|piece| piece.contains(&reads));
    let Some(last) = plans.last() else { return vec!["(no plan in the log)"] };
    let lines = last.lines().map(str::trim_end).filter(|line| {
        let line = line.trim_start();
        ["->", "Limit", "Index Cond", "Filter", "Rows Removed", "SubPlan", "Sort"]
            .iter()
            .any(|start| line.starts_with(start))
    });
    lines.collect()
}
