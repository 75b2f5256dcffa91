//! `keyward doctor`: checks configuration and dependencies, and suggests fixes.

use std::net::SocketAddr;
use std::time::Duration;

use domain::diagnostics::{self, Finding, Severity};
use foundation::config::{Config, Deployment};
use foundation::model::escape_hidden;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::local_server::LocalServer;
use super::output::{CommandOutput, FAILURE, SUCCESS, WARNING, counted};
use super::startup::master_keys;
use super::{CommandError, CommandResult};

/// Limits how long a server may take to answer.
const SERVER_TIMEOUT: Duration = Duration::from_secs(3);

pub async fn doctor(config: &Config, out: CommandOutput) -> CommandResult {
    let findings = Box::pin(collect_findings(config)).await;
    let lines: Vec<_> =
        findings.iter().map(format_finding).chain([format_summary(&findings)]).collect();
    out.write(&lines.join("\n"), &json!(findings));
    match count_by_severity(&findings, Severity::Problem) {
        0 => Ok(()),
        found => {
            Err(CommandError::Runtime(format!("found {}", counted(found, "problem", "problems"))))
        }
    }
}

async fn collect_findings(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    match config.validate() {
        Ok(settings) => {
            let engines = match &settings.deployment {
                Deployment::Embedded { data_dir } => {
                    format!("embedded, data in {}", data_dir.display())
                }
                Deployment::Replica { .. } => "a replica on Postgres and Redis".to_owned(),
            };
            findings.push(Finding::ok("settings", engines));
            findings.push(check_variables());
            let masters = master_keys(&settings);
            let found = masters.as_ref().ok().and_then(Option::as_ref);
            findings.extend(diagnostics::run_diagnostics(&settings, found).await);
            if let Err(fault) = masters {
                let todo = "restore the file from the backup, or set KEYWARD_MASTER_KEY";
                findings.push(Finding::problem("master-key-file", fault, todo));
            }
        }
        Err(fault) => {
            findings.push(Finding::problem(
                "settings",
                fault,
                "correct the settings; the server does not start with them",
            ));
            findings.push(check_variables());
        }
    }
    if let Ok(listen) = config.listen() {
        let metrics_listen = config.validate().ok().and_then(|found| found.security.metrics_listen);
        let server = LocalServer { address: listen, has_tls: config.has_tls() };
        findings.extend(check_server(server, metrics_listen).await);
    }
    findings
}

fn check_variables() -> Finding {
    let unknown = Config::list_unknown_variables(std::env::vars_os().map(|(name, _)| name));
    match unknown.is_empty() {
        true => Finding::ok("variables", "every variable that begins with KEYWARD_ is known"),
        false => Finding::warning(
            "variables",
            format!("unknown and ignored: {}", unknown.join(", ")),
            "correct or unset them; keyward --help lists all variables",
        ),
    }
}

/// Checks readiness and metrics of a server.
async fn check_server(server: LocalServer, metrics_listen: Option<SocketAddr>) -> Vec<Finding> {
    let listen = server.address;
    let requests = async {
        let ready = server.get("/readyz").await?;
        let metrics_server = LocalServer { address: metrics_listen.unwrap_or(listen), ..server };
        let metrics = metrics_server.get("/metrics").await?;
        Ok::<_, std::io::Error>((ready, metrics))
    };
    let result = timeout(SERVER_TIMEOUT, requests).await;
    match result.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
        Ok((ready, metrics)) => {
            vec![check_readiness(listen, &ready.body), check_dropped_events(&metrics.body)]
        }
        Err(e) => vec![Finding::warning(
            "server",
            format!("no server responds at {listen}: {e}"),
            "start the server, or set KEYWARD_LISTEN to its address",
        )],
    }
}

fn check_readiness(listen: SocketAddr, ready: &str) -> Finding {
    let reply: Value = serde_json::from_str(ready).unwrap_or_default();
    let word = |name: &str| reply[name].as_str().unwrap_or("unknown").to_owned();
    let (status, database, counters) = (word("status"), word("database"), word("counters"));
    let found =
        format!("the server at {listen} is {status} (database {database}, counters {counters})");
    match status.as_str() {
        "ready" => Finding::ok("server", found),
        "draining" => {
            Finding::warning("server", found, "wait until it has stopped; a shutdown was requested")
        }
        "starting" => Finding::warning(
            "server",
            found,
            "fix the database checks above; the server has not reached its database yet",
        ),
        "degraded" => Finding::warning(
            "server",
            found,
            "see \"Outages of dependencies\" in docs/replicas.md for what works during an outage",
        ),
        _ => Finding::problem(
            "server",
            format!("the process at {listen} is not Keyward"),
            "set KEYWARD_LISTEN to the address of Keyward, or stop the other process",
        ),
    }
}

/// Checks whether the server has dropped events since it started.
fn check_dropped_events(metrics: &str) -> Finding {
    let sum = |name: &str| -> f64 {
        let samples = metrics.lines().filter(|line| line.starts_with(name));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let (written, dropped) =
        (sum("keyward_events_written_total{"), sum("keyward_events_dropped_total{"));
    let found =
        format!("the server has written {written} events and dropped {dropped} since it started");
    if dropped > 0.0 {
        let todo = "analytics do not include them; check for database outages, or raise KEYWARD_EVENTS_WAITING or \
            KEYWARD_EVENTS_WAITING_BYTES";
        return Finding::warning("dropped-events", found, todo);
    }
    Finding::ok("dropped-events", found)
}

fn format_finding(finding: &Finding) -> String {
    let Finding { check, state, found, todo } = finding;
    // Errors of servers, and names of variables, may contain anything.
    let found = escape_hidden(found);
    let style = match state {
        Severity::Ok => SUCCESS,
        Severity::Warning => WARNING,
        Severity::Problem => FAILURE,
    };
    let line = format!("{style}{:<8}{style:#} {check:<18} {found}", state.as_str());
    match todo {
        Some(todo) => format!("{line}\n{:28}→ {}", "", escape_hidden(todo)),
        None => line,
    }
}

fn format_summary(findings: &[Finding]) -> String {
    let of = |state| count_by_severity(findings, state);
    let warnings = counted(of(Severity::Warning), "warning", "warnings");
    let problems = counted(of(Severity::Problem), "problem", "problems");
    format!("{} ok, {warnings}, {problems}", of(Severity::Ok))
}

fn count_by_severity(findings: &[Finding], state: Severity) -> usize {
    findings.iter().filter(|finding| finding.state == state).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_one_line_and_its_fix_another() {
        let finding = Finding::warning("redis", "at x: \u{1b}[2Ja\nb", "set KEYWARD_\u{202e}\n");

        let text = format_finding(&finding);

        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text:?}");
        assert!(lines[0].ends_with(" at x: \\u{1b}[2Ja\\u{a}b"), "{text:?}");
        assert!(lines[1].ends_with("→ set KEYWARD_\\u{202e}\\u{a}"), "{text:?}");
    }
}
