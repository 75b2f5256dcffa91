use domain::health;

use crate::prelude::*;

/// Check whether the server is running.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Liveness {}

/// The status of the server and of its dependencies.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LivenessReply {
    status: &'static str,
    services: ServiceStatuses,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ServiceStatuses {
    metrics: &'static str,
    logger: &'static str,
    ratelimit: &'static str,
    usagelimit: &'static str,
}

impl Operation for Liveness {
    const NAME: &'static str = "liveness";
    const METHOD: HttpMethod = HttpMethod::Get;
    const ACCESS: AccessRule = AccessRule::NoRootKey;
    type Reply = LivenessReply;

    fn example() -> Value {
        json!({})
    }

    async fn run(self, app: &App, _: &Caller) -> Result<LivenessReply> {
        let health = health::last_known_health(&app.context);
        let word = |is_reachable: bool| if is_reachable { "ok" } else { "away" };
        let (ratelimit, usagelimit) =
            (word(health.is_redis_reachable), word(health.is_database_reachable));
        let services = ServiceStatuses { metrics: "ok", logger: "ok", ratelimit, usagelimit };
        Ok(LivenessReply { status: "ok", services })
    }
}
