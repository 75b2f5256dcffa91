use crate::domain::health;
use crate::rpc::prelude::*;

/// Check whether the server is running.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Liveness {}

/// The status of the server and of its dependencies.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Alive {
    status: &'static str,
    services: Services,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Services {
    metrics: &'static str,
    logger: &'static str,
    ratelimit: &'static str,
    usagelimit: &'static str,
}

impl Operation for Liveness {
    const NAME: &'static str = "liveness";
    const VERB: Verb = Verb::Get;
    const NEEDS: AccessRule = AccessRule::Nothing;
    type Reply = Alive;

    fn example() -> Value {
        json!({})
    }

    async fn run(self, app: &App, _: &Caller) -> Result<Alive> {
        let health = health::known(app);
        let word = |is_reachable: bool| if is_reachable { "ok" } else { "away" };
        let (ratelimit, usagelimit) = (word(health.counters), word(health.database));
        let services = Services { metrics: "ok", logger: "ok", ratelimit, usagelimit };
        Ok(Alive { status: "ok", services })
    }
}
