use crate::domain::health;
use crate::rpc::prelude::*;

/// Ask whether the server is there.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Liveness {}

/// That it is, and how the servers behind it are.
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
        let known = health::known(app);
        let word = |there: bool| if there { "ok" } else { "away" };
        let (ratelimit, usagelimit) = (word(known.counters), word(known.database));
        let services = Services { metrics: "ok", logger: "ok", ratelimit, usagelimit };
        Ok(Alive { status: "ok", services })
    }
}
