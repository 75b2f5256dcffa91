//! Renews the certificate of the listeners.

use std::sync::Arc;
use std::time::Duration;

use domain::app::App;
use foundation::clock::Clock;
use foundation::metrics::Metrics;
use foundation::tls::server::{CertificateReader, Validity};

/// How often the files are read.
const READ_INTERVAL: Duration = Duration::from_secs(2);

/// Replaces the certificate whenever its files have changed. Keeps the previous one if they are not valid.
pub async fn renew_certificate(app: Arc<App>, mut reader: CertificateReader) {
    loop {
        tokio::time::sleep(READ_INTERVAL).await;
        // A read may take long, for example on a network file system.
        let read = tokio::task::spawn_blocking(move || (reader.read_again(), reader)).await;
        let Ok((found, same)) = read else { return };
        reader = same;
        let file = reader.files().certificate.display();
        match found {
            None => {}
            Some(Ok(validity)) => {
                tracing::info!("replaced the certificate with the one in {file}");
                report_certificate(&app.context.metrics, &reader, &validity);
            }
            Some(Err(fault)) => tracing::error!(
                error = fault,
                "failed to replace the certificate, and kept the previous one: {fault}"
            ),
        }
    }
}

/// Exports when the certificate of new connections expires, and logs that it has expired or is not valid yet. The server
/// uses it anyway: some clients still connect.
pub fn report_certificate(metrics: &Metrics, reader: &CertificateReader, validity: &Validity) {
    metrics.certificate_expiry_seconds.set(validity.ends_at.0.div_euclid(1_000));
    if let Some(fault) = validity.find_fault(Clock::System.now()) {
        let file = reader.files().certificate.display();
        tracing::warn!("clients will reject the certificate in {file}: {fault}");
    }
}
