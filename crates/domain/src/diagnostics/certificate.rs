//! Checks the certificate of the server's own listeners.

use foundation::clock::{DAY_MS, Timestamp};
use foundation::tls::server::{CertificateFiles, Validity};

use super::Finding;

/// How long before its end a certificate should have been renewed.
const RENEWAL_MS: i64 = 14 * DAY_MS;
const RENEW: &str = "renew the certificate; the server reads the files again when they change";

/// Checks that the certificate is valid and will not end soon.
pub fn check_certificate(files: &CertificateFiles, now: Timestamp) -> Finding {
    let file = files.certificate.display();
    match files.validate() {
        Err(fault) => Finding::problem("certificate", fault, "correct the files"),
        Ok(validity) => report_validity(&file.to_string(), validity, now),
    }
}

fn report_validity(file: &str, validity: Validity, now: Timestamp) -> Finding {
    if let Some(fault) = validity.find_fault(now) {
        return Finding::warning("certificate", format!("{file}: {fault}"), RENEW);
    }
    let until = jiff::Timestamp::from_millisecond(validity.ends_at.0).unwrap_or_default();
    let found = format!("{file} is valid until {until}");
    match now.plus_ms(RENEWAL_MS) > validity.ends_at {
        true => Finding::warning("certificate", found, RENEW),
        false => Finding::ok("certificate", found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn certificate_is_reported_14_days_before_its_end() {
        let ends_at = Timestamp(100 * DAY_MS);
        let validity = Validity { begins_at: Timestamp(DAY_MS), ends_at };
        let found = |now| report_validity("a.pem", validity, Timestamp(now));

        let valid = found(86 * DAY_MS);
        assert_eq!(valid.state, Severity::Ok);
        assert_eq!(valid.found, "a.pem is valid until 1970-04-11T00:00:00Z");
        assert_eq!(found(86 * DAY_MS + 1).state, Severity::Warning);
        let expired = found(100 * DAY_MS + 1);
        assert_eq!(expired.state, Severity::Warning);
        assert_eq!(expired.found, "a.pem: it expired at 1970-04-11T00:00:00Z");
        assert!(found(0).found.contains("not valid before"), "{}", found(0).found);
    }
}
