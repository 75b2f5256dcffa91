//! Formats the report of a run.

use std::fmt::Write as _;
use std::time::Duration;

use crate::check::Finding;
use crate::record::Run;

/// The number of violations that are printed per guarantee.
const VIOLATIONS_MAX: usize = 10;

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
