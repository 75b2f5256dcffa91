//! Composes the services of the domain. An [`App`] is passed to every interface and outlives a request. No other module
//! of the domain uses it.

use std::sync::Arc;

use analytics::Analytics;
use foundation::clock::Clock;
use foundation::config::Settings;
use foundation::error::Result;
use tokio::sync::mpsc;

use crate::admission::Admission;
use crate::context::Context;
use crate::credits::CreditLedger;
use crate::gateways::Gateways;
use crate::keys::Keys;
use crate::last_used::LastUsed;
use crate::ratelimits::Ratelimits;
use crate::root_keys::RootKeys;
use crate::signing_keys::SigningKeys;
use crate::users::Users;

/// The services of one server.
pub struct App {
    pub context: Arc<Context>,
    pub admission: Arc<Admission>,
    pub analytics: Arc<Analytics>,
    pub ledger: Arc<CreditLedger>,
    pub last_used: Arc<LastUsed>,
    pub gateways: Gateways,
    pub keys: Keys,
    pub ratelimits: Arc<Ratelimits>,
    pub root_keys: RootKeys,
    pub signing_keys: SigningKeys,
    pub users: Users,
}

impl App {
    /// Creates an app whose store is yet to be opened. The second value yields announcements that the caller must
    /// publish to other replicas.
    pub fn new(settings: Settings, clock: Clock) -> Result<(Self, mpsc::Receiver<String>)> {
        let (context, announcements) = Context::new(settings, clock)?;
        let context = Arc::new(context);
        let admission = Arc::new(Admission::new(context.clone()));
        let analytics = Arc::new(Analytics::new(
            &context.settings,
            context.clock.clone(),
            context.metrics.events.clone(),
            context.replica_id.clone(),
        )?);
        let ledger = Arc::new(CreditLedger::new(context.clone()));
        let last_used = Arc::new(LastUsed::new(context.clone()));
        let app = Self {
            gateways: Gateways::new(context.clone()),
            keys: Keys::new(
                context.clone(),
                admission.clone(),
                analytics.clone(),
                ledger.clone(),
                last_used.clone(),
            ),
            ratelimits: Arc::new(Ratelimits::new(
                context.clone(),
                admission.clone(),
                analytics.clone(),
            )),
            root_keys: RootKeys::new(context.clone(), last_used.clone()),
            signing_keys: SigningKeys::new(context.clone()),
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
