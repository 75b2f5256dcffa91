//! Single sign-on: who comes in by what an issuer says of them.
//!
//! A person is known by what the issuer calls them, and by nothing else. An e-mail is believed once, where somebody is
//! new here. That somebody has an account already with the e-mail that the issuer tells proves nothing: there are
//! issuers that let anybody claim one. See docs/decisions/0013.

mod matching;

use foundation::clock::Timestamp;
use foundation::config::OidcSettings;
use foundation::error::{Error, Refusal, Result};
use foundation::id::{PersonId, WorkspaceId};
use foundation::model::User;
use oidc::OidcClient;

use super::super::caller::ClientInfo;
use super::super::root_keys::default_workspace;
use super::invitations::{add_member, join_as, redeem};
use super::sessions::AuthenticatedSession;
use super::sign_in::{SignedIn, attempt_from, create_session};
use super::{email, record_everywhere};
use crate::app::App;
pub use matching::SsoRejection;
use matching::{EmailMatch, SsoMatch, entry};
pub use oidc::{AuthorizationRequest, Told};
use store::Tx;

/// The path to which the issuer sends people back.
pub const CALLBACK: &str = "/dashboard/login/oidc/callback";

/// What somebody goes to the issuer for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    SignIn,
    /// To become a member by the link of this token.
    Join(String),
    /// To be known by the issuer's word from now on.
    Link,
}

/// What the issuer sends back with somebody's browser.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    pub state: &'a str,
    pub code: &'a str,
    /// Empty: there is a code.
    pub error: &'a str,
    /// Who answers; empty where the issuer does not say so.
    pub issuer: &'a str,
}

/// What came of it.
#[derive(Debug)]
pub enum SsoResult {
    /// Signed in; to a workspace that they have just joined.
    In(SignedIn, Option<WorkspaceId>),
    /// Who was signed in is known by the issuer's word from now on.
    Linked,
    Refused(SsoRejection),
}

fn configured(app: &App) -> Result<(&OidcClient, &OidcSettings)> {
    app.oidc.as_ref().zip(app.settings.oidc.as_ref()).ok_or(Error::NoSuchPath)
}

fn callback(app: &App) -> String {
    format!("{}{CALLBACK}", app.settings.public_url)
}

/// Where the browser is sent. Nothing is changed.
pub async fn sign_in_url(app: &App, trip: &AuthorizationRequest) -> Result<String> {
    let (issuer, _) = configured(app)?;
    issuer.authorization_url(trip, &callback(app)).await
}

/// Hears the issuer's answer. `trip`: what the browser has kept of its way there, if it has.
pub async fn handle_callback(
    app: &App,
    trip: Option<(AuthorizationRequest, Purpose)>,
    answer: Answer<'_>,
    known: Option<&AuthenticatedSession>,
    origin: &ClientInfo,
) -> Result<SsoResult> {
    let (issuer, oidc) = configured(app)?;
    let not_begun = || SsoResult::Refused(SsoRejection::NotBegun(app.settings.public_url.clone()));
    let is_of_issuer = answer.issuer.is_empty() || answer.issuer == oidc.issuer;
    let trip = trip.filter(|(trip, _)| is_of_issuer && trip.is_answered_by(answer.state));
    let Some((trip, purpose)) = trip else { return Ok(not_begun()) };
    attempt_from(app, origin).await?;
    if answer.code.is_empty() {
        let error = answer.error.chars().take(100).collect();
        return Ok(SsoResult::Refused(SsoRejection::Denied(error, oidc.name.clone())));
    }
    let now = app.clock.now();
    match issuer.exchange_code(answer.code, &trip, &callback(app), now).await? {
        Some(told) => arrive(app, &told, &purpose, known, origin).await,
        None => Ok(not_begun()),
    }
}

/// Lets in whom the issuer tells of, if they may come in.
pub async fn arrive(
    app: &App,
    told: &Told,
    purpose: &Purpose,
    known: Option<&AuthenticatedSession>,
    origin: &ClientInfo,
) -> Result<SsoResult> {
    let (_, oidc) = configured(app)?;
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    // One at a time: of two who come for the first time under one name, one is later.
    tx.lock_members(&default_workspace()).await?;
    let by_login = tx.person_by_login(&told.issuer, &told.subject).await?;
    if *purpose == Purpose::Link {
        let known = known.ok_or(Error::NoSuchPath)?;
        return link(app, tx, told, by_login, known, origin, now).await;
    }
    let link = match purpose {
        Purpose::Join(token) => match redeem(&mut tx, token, now).await? {
            Some(link) => Some(link),
            None => return Ok(SsoResult::Refused(SsoRejection::NoLink)),
        },
        Purpose::SignIn | Purpose::Link => None,
    };
    let by_email = match told.email.as_deref().map(email) {
        Some(Ok(email)) => by_email(&mut tx, &email, &told.issuer).await?,
        Some(Err(_)) | None => None,
    };
    let entry = match entry(oidc, told, by_login, by_email, link.as_ref()) {
        // Else there would be people and no owner, whose link is only for the first.
        Ok(SsoMatch::New(_)) if link.is_none() && !tx.has_users().await? => {
            return Ok(SsoResult::Refused(SsoRejection::TooEarly));
        }
        Ok(entry) => entry,
        Err(stranger) => return Ok(SsoResult::Refused(stranger)),
    };
    let person = settle(&mut tx, oidc, told, entry, link.is_some(), origin, now).await?;
    if let Some(link) = &link {
        add_member(&mut tx, link, &person, origin, now).await?;
    }
    let signed_in = create_session(app, tx, person, origin, now).await?;
    Ok(SsoResult::In(signed_in, link.map(|link| link.workspace_id)))
}

async fn by_email(tx: &mut Tx, email: &str, issuer: &str) -> Result<Option<EmailMatch>> {
    let Some((person, _)) = tx.person_of(email).await? else { return Ok(None) };
    let is_linked = tx.login_of(&person.id, issuer).await?.is_some();
    Ok(Some(EmailMatch { person, is_linked }))
}

/// Notes how somebody comes in, and makes those who are new.
async fn settle(
    tx: &mut Tx,
    oidc: &OidcSettings,
    told: &Told,
    entry: SsoMatch,
    has_link: bool,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<User> {
    let person = match entry {
        SsoMatch::Known(person) => return Ok(person),
        SsoMatch::Taken(person) => {
            tx.set_password(&person.id, None).await?;
            tx.end_other_sessions(&person.id, None).await?;
            record_everywhere(tx, &person, origin, now, "user.linkLogin").await?;
            person
        }
        SsoMatch::New(email) => {
            let person = User { id: PersonId::random(), email, created_at: now };
            tx.insert_person(&person, None).await?;
            if let (false, Some(role)) = (has_link, oidc.default_role) {
                join_as(tx, &default_workspace(), role, &person, origin, now).await?;
            }
            person
        }
    };
    tx.set_login(&person.id, &told.issuer, &told.subject, now).await?;
    Ok(person)
}

/// Links the account of who is signed in. The e-mails may differ: both sides have been proven.
async fn link(
    app: &App,
    mut tx: Tx,
    told: &Told,
    by_login: Option<User>,
    known: &AuthenticatedSession,
    origin: &ClientInfo,
    now: Timestamp,
) -> Result<SsoResult> {
    let person = &known.person;
    if by_login.is_some_and(|other| other.id != person.id) {
        return Ok(SsoResult::Refused(SsoRejection::LinkedElsewhere));
    }
    tx.set_login(&person.id, &told.issuer, &told.subject, now).await?;
    record_everywhere(&mut tx, person, origin, now, "user.linkLogin").await?;
    app.commit(tx).await?;
    Ok(SsoResult::Linked)
}

/// How somebody can come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignInMethods {
    pub has_password: bool,
    pub is_linked: bool,
}

/// How a person can come in from now on.
pub async fn ways_in(app: &App, person: &User) -> Result<SignInMethods> {
    let mut reader = app.store.read().await?;
    let found = reader.person(&person.id).await?;
    let is_linked = match &app.settings.oidc {
        Some(oidc) => reader.login_of(&person.id, &oidc.issuer).await?.is_some(),
        None => false,
    };
    let has_password = found.is_some_and(|(_, hash)| hash.is_some());
    Ok(SignInMethods { has_password, is_linked })
}

/// Lets a person come in by the password alone again.
pub async fn unlink(app: &App, known: &AuthenticatedSession, origin: &ClientInfo) -> Result<()> {
    let (_, oidc) = configured(app)?;
    let person = &known.person;
    if oidc.is_only || !ways_in(app, person).await?.has_password {
        return Err(Error::Refused(Refusal::OnlyWayIn));
    }
    let now = app.clock.now();
    let mut tx = app.store.begin().await?;
    tx.delete_login(&person.id, &oidc.issuer).await?;
    record_everywhere(&mut tx, person, origin, now, "user.unlinkLogin").await?;
    app.commit(tx).await
}
