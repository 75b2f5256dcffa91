//! What checks in a namespace are answered while the counters are away.

use askama::Template;
use axum::Router;
use axum::extract::Path;
use axum::routing::get;

use super::super::form::Faults;
use super::super::shell::{Section, Shell};
use super::super::visit::InWorkspace;
use super::super::{Answer, page, refused_page, see};
use super::{found, path};
use crate::domain::permission::Action;
use crate::domain::ratelimits::namespaces;
use crate::id::NamespaceId;
use crate::model::OnOutage;

pub fn routes() -> Router {
    Router::new().route("/dashboard/{workspace}/ratelimits/{namespace}/outage", get(ask).post(set))
}

#[derive(Template)]
#[template(path = "ratelimits/outage.html")]
struct Outage {
    shell: Shell,
    path: String,
    name: String,
    chosen: &'static str,
    faults: Faults,
}

async fn ask(asked: InWorkspace, Path((_, id)): Path<(String, String)>) -> Answer {
    page(&filled_in(&asked, &id, Faults::default()).await?)
}

async fn filled_in(
    asked: &InWorkspace,
    id: &str,
    faults: Faults,
) -> Result<Outage, super::super::Failure> {
    asked.caller.require_on(Action::UpdateNamespace, &id)?;
    let namespace = found(asked, id).await?;
    Ok(Outage {
        shell: Shell::of(asked, Section::Ratelimits, "While the counters are away").await?,
        path: path(asked, &namespace.id),
        name: namespace.name,
        chosen: namespace.on_outage.as_str(),
        faults,
    })
}

async fn set(asked: InWorkspace, Path((_, id)): Path<(String, String)>) -> Answer {
    let on_outage: OnOutage = match asked.visit.form.text("outage").parse() {
        Ok(on_outage) => on_outage,
        Err(fault) => {
            let faults = Faults::one("outage", format!("What checks are answered {fault}."));
            return refused_page(&filled_in(&asked, &id, faults).await?);
        }
    };
    let id = NamespaceId::from(id);
    namespaces::set_on_outage_by(&asked.visit.app, &asked.caller, &id, on_outage).await?;
    see(&format!("{}?told=namespace-set", path(&asked, &id)))
}
