//! Formats the report of a run.

use std::fmt::Write as _;
use std::time::Duration;

use crate::check::Finding;
use crate::record::Run;

/// The number of violations that are printed per guarantee.
const VIOLATIONS_MAX: usize = 10;
/// The number of lines of the log before and after one that names a request of a violation, and without one.
const LINES_AROUND: usize = 12;
const LINES_MAX: usize = 40;
/// The length of a time with milliseconds.
const TIME_CHARS: usize = "2026-01-01 00:00:00.000".len();
/// The length to which a line of the log is cut.
const LINE_CHARS_MAX: usize = 240;

pub fn text(
    again: &str,
    length: Duration,
    skew_seconds: i64,
    run: &Run,
    findings: &[Finding],
) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\nReplicas under load and faults for {} s. The clock of replica 2 was wrong by {skew_seconds:+} s.\n\
        To repeat: {again}\n\nInjected faults:",
        length.as_secs()
    );
    for injected in &run.faults {
        let (began, ended) = (injected.began.as_secs_f64(), injected.ended.as_secs_f64());
        let _ = writeln!(text, "  {began:7.3} to {ended:7.3} s  {}", injected.fault.kind);
    }
    text.push_str("\nChecked guarantees:\n");
    for finding in findings {
        let verdict = match finding.violations.len() {
            0 => "holds".to_owned(),
            n => format!("VIOLATED {n} times"),
        };
        let _ = writeln!(text, "  {}: {verdict}", finding.guarantee);
        for note in &finding.notes {
            let _ = writeln!(text, "      {note}");
        }
        push_violations(&mut text, finding);
    }
    let broken = findings.iter().filter(|finding| !finding.violations.is_empty()).count();
    let verdict = match broken {
        0 => "All guarantees hold.".to_owned(),
        _ => format!("{broken} guarantees were VIOLATED. To repeat: {again}"),
    };
    let _ = writeln!(text, "\n{verdict}\n");
    text
}

/// Returns each violated guarantee with its violations, empty if all guarantees hold.
pub fn violations(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings.iter().filter(|finding| !finding.violations.is_empty()) {
        let _ = writeln!(text, "  {}:", finding.guarantee);
        push_violations(&mut text, finding);
    }
    text
}

fn push_violations(text: &mut String, finding: &Finding) {
    for violation in finding.violations.iter().take(VIOLATIONS_MAX) {
        let _ = writeln!(text, "    ! {violation}");
    }
    if finding.violations.len() > VIOLATIONS_MAX {
        let _ = writeln!(text, "    ! and {} more", finding.violations.len() - VIOLATIONS_MAX);
    }
}

/// Merges logs by the time at the start of their lines. A line without one follows the line before it.
pub fn merge_logs(logs: &[String]) -> String {
    let mut lines = Vec::new();
    for log in logs {
        let mut time = String::new();
        for line in log.lines() {
            if line.starts_with("20") {
                time = line.chars().take(TIME_CHARS).collect::<String>().replace('T', " ");
            }
            lines.push((time.clone(), line));
        }
    }
    lines.sort_by(|(one, _), (other, _)| one.cmp(other));
    lines.iter().flat_map(|(_, line)| [line, "\n"]).collect()
}

/// Returns the lines of the log around each request that the violations name, or its last lines if it contains none.
pub fn log_around(log: &str, violations: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    let requests: Vec<_> =
        violations.split_whitespace().filter(|w| w.starts_with("req_")).collect();
    let names_request = |line: &&str| requests.iter().any(|request| line.contains(request));
    let mut chosen = vec![false; lines.len()];
    for (index, _) in lines.iter().enumerate().filter(|(_, line)| names_request(line)) {
        let end = lines.len().min(index + LINES_AROUND + 1);
        chosen[index.saturating_sub(LINES_AROUND)..end].fill(true);
    }
    if !chosen.contains(&true) {
        chosen[lines.len().saturating_sub(LINES_MAX)..].fill(true);
    }
    let chosen = lines.iter().zip(chosen).filter(|(_, is_chosen)| *is_chosen);
    let cut = |line: &str| line.chars().take(LINE_CHARS_MAX).collect::<String>();
    chosen.map(|(line, _)| cut(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_logs_sorts_lines_by_time() {
        let replica = "2026-01-01T00:00:01.500Z INFO one\n2026-01-01T00:00:03.000Z WARN three\n";
        let postgres = "2026-01-01 00:00:02.000 UTC LOG: two\n\tstatement\n";

        let merged = merge_logs(&[replica.to_owned(), postgres.to_owned()]);

        let lines: Vec<_> = merged.lines().map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(lines, [Some("one"), Some("two"), Some("\tstatement"), Some("three")]);
    }

    #[test]
    fn log_around_returns_lines_around_the_requests_of_violations() {
        let log: Vec<_> = (0..100).map(|n| format!("line {n} of request.id=req_{n}x")).collect();
        let around = |violations: &str| log_around(&log.join("\n"), violations);

        let found = around("unexplained reply: 503  req_50x after 70 ms");

        let lines = |from: usize, to: usize| log[from..to].join("\n") + "\n";
        assert_eq!(found, lines(50 - LINES_AROUND, 51 + LINES_AROUND));
        assert_eq!(around("the sum is wrong"), lines(100 - LINES_MAX, 100));
    }
}
