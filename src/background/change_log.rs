//! Reads the change log from the database, as a [`ChangeLogReader`] decides.

use domain::context::Context;
use domain::context::change_log::{ChangeLogReader, LogEffect, LogPass, LogReply, LogStep};
use foundation::clock::{Monotonic, Stopwatch};
use foundation::error::Result;

/// Reads to the end of the log. Every change committed before the call is applied afterwards.
pub async fn read_to_end(context: &Context, log: &mut ChangeLogReader) -> Result<LogPass> {
    log.begin_pass(Monotonic::now());
    let mut reader = context.store.store()?.read_reserved().await?;
    loop {
        let reply = match log.next_step(Monotonic::now()) {
            LogStep::End(pass) => return Ok(pass),
            LogStep::LoadPage { after } => {
                let sent_at = Stopwatch::new();
                let page = reader.load_log_page(after, &context.replica_id).await?;
                context.database_distance.record(sent_at.elapsed(), Monotonic::now());
                LogReply::Page(page)
            }
            LogStep::LoadWritersEndedBelow => {
                LogReply::WritersEndedBelow(reader.load_writers_ended_below().await?)
            }
            LogStep::ListRows { ranges } => {
                LogReply::Rows(reader.list_changes_in_ranges(&ranges).await?)
            }
        };
        for effect in log.apply_reply(&reply, Monotonic::now()) {
            effect.apply_to(&context.freshness);
            if let LogEffect::Invalidate { delay: Some(delay), .. } = effect {
                context.metrics.change_delay.observe(delay);
            }
        }
    }
}
