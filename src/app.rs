//! Composes the services of the domain. An [`App`] is passed to every interface and outlives a request.

use std::sync::Arc;

use foundation::clock::Clock;
use foundation::config::Settings;
use foundation::error::Result;
use tokio::sync::mpsc;

use crate::domain::admission::Admission;
use crate::domain::analytics::Analytics;
use crate::domain::context::Context;
use crate::domain::credits::CreditLedger;
use crate::domain::keys::Keys;
use crate::domain::last_used::LastUsed;
use crate::domain::ratelimits::Ratelimits;
use crate::domain::root_keys::RootKeys;
use crate::domain::users::Users;

/// The services of one server.
pub struct App {
    pub context: Arc<Context>,
    pub admission: Arc<Admission>,
    pub analytics: Arc<Analytics>,
    pub ledger: Arc<CreditLedger>,
    pub last_used: Arc<LastUsed>,
    pub keys: Keys,
    pub ratelimits: Ratelimits,
    pub root_keys: RootKeys,
    pub users: Users,
}

impl App {
    /// Creates an app whose store is yet to be opened. The second value yields announcements to publish to other
    /// replicas; see [`crate::background`].
    pub fn new(settings: Settings, clock: Clock) -> Result<(Self, mpsc::Receiver<String>)> {
        let (context, announcements) = Context::new(settings, clock)?;
        let context = Arc::new(context);
        let admission = Arc::new(Admission::new(context.clone()));
        let analytics = Arc::new(Analytics::new(context.clone())?);
        let ledger = Arc::new(CreditLedger::new(context.clone()));
        let last_used = Arc::new(LastUsed::new(context.clone()));
        let app = Self {
            keys: Keys::new(
                context.clone(),
                admission.clone(),
                analytics.clone(),
                ledger.clone(),
                last_used.clone(),
            ),
            ratelimits: Ratelimits::new(context.clone(), admission.clone(), analytics.clone()),
            root_keys: RootKeys::new(context.clone(), last_used.clone()),
            users: Users::new(context.clone())?,
            context,
            admission,
            analytics,
            ledger,
            last_used,
        };
        Ok((app, announcements))
    }
}
