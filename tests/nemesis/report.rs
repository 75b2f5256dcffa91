//! What a run came to, for somebody who was not there.

use std::fmt::Write as _;
use std::time::Duration;

use crate::check::Finding;
use crate::record::Run;

/// How many violations of a promise are told one by one.
const TOLD_MAX: usize = 10;

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
        Once more: {again}\n\nWhat was done:",
        length.as_secs()
    );
    for done in &run.faults {
        let (began, ended) = (done.began.as_secs_f64(), done.ended.as_secs_f64());
        let _ = writeln!(text, "  {began:7.3} to {ended:7.3} s  {}", done.fault.kind);
    }
    text.push_str("\nWhat was checked:\n");
    for finding in findings {
        let verdict = match finding.violations.len() {
            0 => "kept".to_owned(),
            n => format!("BROKEN {n} times"),
        };
        let _ = writeln!(text, "  {}: {verdict}", finding.promise);
        for told in &finding.told {
            let _ = writeln!(text, "      {told}");
        }
        for violation in finding.violations.iter().take(TOLD_MAX) {
            let _ = writeln!(text, "    ! {violation}");
        }
        if finding.violations.len() > TOLD_MAX {
            let _ = writeln!(text, "    ! and {} more", finding.violations.len() - TOLD_MAX);
        }
    }
    let broken = findings.iter().filter(|finding| !finding.violations.is_empty()).count();
    let verdict = match broken {
        0 => "Every promise was kept.".to_owned(),
        _ => format!("{broken} promises were BROKEN. The same faults once more: {again}"),
    };
    let _ = writeln!(text, "\n{verdict}\n");
    text
}
